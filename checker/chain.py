"""The chain from an authority that the reader trusts to the release: who signed what, and which
hash names what. Ed25519 (RFC 8032) over "shoal/v1/sign/" || context || 0x00 || bytes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from google.protobuf.message import DecodeError, Message

from shoal.checker.errors import UnreadableError
from shoal.checker.findings import Outcome, Statement
from shoal.checker.release_file import SignedParts
from shoal.protos import delivery_pb2, directory_pb2, keys_pb2, release_pb2, task_pb2

HOLDS, WRONG, OPEN = Outcome.HOLDS, Outcome.WRONG, Outcome.OPEN


class Chain:
    """The messages, parsed from the signed bytes. Raises UnreadableError for what is none."""

    def __init__(self, signed: SignedParts) -> None:
        self.signed = signed
        self.release = release_pb2.Release()
        self.task = task_pb2.Task()
        self.schedule = keys_pb2.KeySchedule()
        self.manifest = delivery_pb2.Manifest()
        self.step = directory_pb2.DiscoveryStep()
        self.end = directory_pb2.DiscoveryStep()
        for message, data, what in (
            (self.release, signed.release, "release"),
            (self.task, signed.task, "task"),
            (self.schedule, signed.schedule, "schedule"),
            (self.manifest, signed.manifest, "manifest"),
            (self.step, signed.step, "step"),
            (self.end, signed.end, "end"),
        ):
            _parse(message, data, what)

    @property
    def task_id(self) -> bytes:
        """SHA-256 of the task's bytes, as signed, with its name before."""
        return hashlib.sha256(b"shoal/v1/task\x00" + self.signed.task).digest()

    def checked(self, authorities: Collection[bytes]) -> Iterator[Statement]:
        """``authorities``: public keys that the reader trusts; none: any authority is open."""
        yield self._authority(authorities)
        signed, task = self.signed, self.task
        yield _signature(
            "the authority signed the task",
            signed.task_authority,
            b"task",
            signed.task,
            signed.task_signature,
        )
        yield _signature(
            "the task's key authority signed the key schedule",
            task.key_authority,
            b"key-schedule",
            signed.schedule,
            signed.schedule_signature,
        )
        yield _same("the key schedule is of this task", self.schedule.task_id, self.task_id)
        yield _signature(
            "the task's analyzer signed the release",
            task.analyzer_key,
            b"release",
            signed.release,
            signed.release_signature,
        )
        yield _same("the release is of this task", self.release.task_id, self.task_id)
        yield from self._steps()
        yield from self._whole()
        yield from self._manifest()

    def _authority(self, authorities: Collection[bytes]) -> Statement:
        what = "the task is of an authority that you trust"
        if not authorities:
            return Statement(what, OPEN, "give its public key with --authority")
        if self.signed.task_authority in authorities:
            return Statement(what, HOLDS, self.signed.task_authority.hex())
        return Statement(what, WRONG, f"it is of {self.signed.task_authority.hex()}")

    def _whole(self) -> Iterator[Statement]:
        """Bytes that this program can't read could say something of their own."""
        signed, what = self.signed, "the signed bytes hold nothing else"
        known = _again(self.release) == signed.release
        others = (
            *((self.task, signed.task), (self.schedule, signed.schedule)),
            *((self.step, signed.step), (self.end, signed.end)),
        )
        if not known:
            yield Statement(what, WRONG, "the release has fields that no release has")
        elif any(_again(message) != data for message, data in others):
            yield Statement(what, OPEN, "task, schedule or step have fields that are unknown here")
        else:
            yield Statement(what, HOLDS, "release, task and schedule")

    def _steps(self) -> Iterator[Statement]:
        """Of a discovery: what its window asks, and that it is over."""
        key, signed = self.task.analyzer_key, self.signed
        for what, data, signature in (
            ("the task's analyzer signed what the window asks", signed.step, signed.step_signature),
            ("the task's analyzer signed that it is over", signed.end, signed.end_signature),
        ):
            if data:
                yield _signature(what, key, b"discovery-step", data, signature)

    def _manifest(self) -> Iterator[Statement]:
        signed, manifest = self.signed, self.manifest
        if self.task.HasField("pairwise"):
            return  # a sum by secure aggregation: no batch, no manifest
        what = "the task's shuffler signed the manifest of the batch"
        if not signed.manifest:
            yield Statement(what, OPEN, "the file has no manifest")
            return
        if signed.manifest_signature:
            yield _signature(
                what,
                self.task.shuffler_key,
                b"manifest",
                signed.manifest,
                signed.manifest_signature,
            )
        else:
            yield Statement(what, OPEN, "the file has no signature of it")
        digest = hashlib.sha256(signed.manifest).digest()
        yield _same("the release names this manifest", self.release.manifest_hash, digest)
        yield _same("the manifest is of this task", manifest.task_id, self.task_id)
        yield _same("... and of this window", manifest.window, self.release.window)
        schedule = hashlib.sha256(signed.schedule).digest()
        yield _same("... and of this key schedule", manifest.schedule_hash, schedule)


def _again(message: Message) -> bytes:
    """The bytes of what is known in it."""
    copy = type(message)()
    copy.CopyFrom(message)
    copy.DiscardUnknownFields()
    return copy.SerializeToString(deterministic=True)


def _parse(message: Message, data: bytes, what: str) -> None:
    try:
        message.ParseFromString(data)
    except DecodeError:
        raise UnreadableError(f'"signed": "{what}" is no {what}') from None
    if data and message.version != 1:  # type: ignore[attr-defined] # all have one
        raise UnreadableError(f'"signed": the {what} is of a version that is not known here')


def _signature(what: str, key: bytes, context: bytes, data: bytes, signature: bytes) -> Statement:
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(
            signature, b"shoal/v1/sign/" + context + b"\x00" + data
        )
    except (InvalidSignature, ValueError):
        return Statement(what, WRONG, "the signature does not fit")
    return Statement(what, HOLDS, f"key {key.hex()[:16]}")


def _same(what: str, said: object, found: object) -> Statement:
    if said == found:
        return Statement(what, HOLDS, "the same")
    return Statement(what, WRONG, "another one")
