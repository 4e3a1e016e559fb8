"""Releases with all that they rest on, as files that anybody can check (``shoal verify``).

The format is told in docs/VERIFY.md. What is signed goes in as it was signed; the rest is for
readers, and believed by no checker.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from shoal.accounting.routes import BUDGET
from shoal.analyzer.batches.manifest_signatures import FOLDER, ManifestSignatures
from shoal.analyzer.config import AnalyzerConfig
from shoal.analyzer.results.files.exports import CHECKABLE, CHECKABLE_SUFFIX
from shoal.analyzer.results.release_json import decode_release, to_json
from shoal.analyzer.store import FILE_NAME, AnalyzerStore
from shoal.crypto.signing import SigningContext, verify
from shoal.crypto.step_folder import STEPS_FOLDER, read_steps
from shoal.crypto.task_folder import load_task_folder
from shoal.crypto.trust import ServedTask
from shoal.errors import Kind, ShoalError
from shoal.ids import Digest
from shoal.protos import directory_pb2, keys_pb2, release_pb2, task_pb2

VERSION = 1
# Made of what is signed, for readers: a file that is checked shows nothing but what is signed.
_DERIVED = ("processed", "distribution", "tables")


def checkable(
    config: AnalyzerConfig, wanted: Collection[tuple[str, int]] | None = None
) -> Iterator[tuple[str, bytes]]:
    """(file name, text) of each release, or of those ``wanted``: (task id in hex, window).

    Raises NOT_FOUND for a release whose signed task is not in ``config.tasks_dir``, and what the
    store raises.
    """
    served = load_task_folder(config.tasks_dir, config.authority_keys).served
    signatures = ManifestSignatures(config.data_dir / FOLDER)
    store = AnalyzerStore(config.data_dir / FILE_NAME, read_only=True)
    try:
        for stored in store.releases():
            task_id, window = stored.task_id, stored.window
            if wanted is not None and (task_id.hex, window) not in wanted:
                continue
            release = decode_release(stored.release)
            task = served.get(task_id)
            if task is None:
                raise ShoalError(
                    Kind.NOT_FOUND,
                    f"the signed task of {release.name} is not in {config.tasks_dir}: put its "
                    ".task and .keys back there, a release can't be checked without them",
                )
            batch = store.batch_of(task_id, window)
            manifest = b"" if batch is None else _manifest(store, task_id.raw, window)
            signature = signatures.of(batch.manifest_hash) if batch is not None else b""
            if signature and not _fits(task, manifest, signature):
                signature = b""  # damaged: unproven is what it makes the manifest, not wrong
            file = _file(release, stored.release, stored.signature, task, manifest, signature)
            file["signed"] |= _encoded(_steps(config, task, window, stored.release))
            name = f"{release.name}-{task_id.hex[:8]}-{window}{CHECKABLE_SUFFIX}"
            yield name, json.dumps(file, indent=2).encode() + b"\n"
    finally:
        store.close()


def _fits(served: ServedTask, manifest: bytes, signature: bytes) -> bool:
    try:
        verify(served.task.hops[-1], SigningContext.MANIFEST, manifest, signature)
    except ShoalError:
        return False
    return True


def _manifest(store: AnalyzerStore, task_id: bytes, window: int) -> bytes:
    """The bytes that were signed, not a serialization anew."""
    with store.reading() as db:
        row = db.execute(
            "SELECT manifest, manifest_hash FROM batches WHERE task_id = ? AND window = ?",
            (task_id, window),
        ).fetchone()
    return bytes(row[0]) if row is not None and Digest.of(row[0]).raw == row[1] else b""


def _file(
    release: release_pb2.Release,
    data: bytes,
    signature: bytes,
    served: ServedTask,
    manifest: bytes,
    manifest_signature: bytes,
) -> dict[str, Any]:
    task = task_pb2.SignedTask.FromString(served.bundle.signed_task)
    schedule = keys_pb2.SignedKeySchedule.FromString(served.bundle.signed_schedule)
    signed = {
        "release": data,
        "release_signature": signature,
        "task": task.task,
        "task_authority": task.authority,
        "task_signature": task.signature,
        "schedule": schedule.schedule,
        "schedule_signature": schedule.signature,
        "manifest": manifest,
        "manifest_signature": manifest_signature,
    }
    mechanism = served.task.mechanism
    parameters = {name: str(value) for name, value in mechanism.parameters}
    return {
        "format": CHECKABLE,
        "version": VERSION,
        "release": {key: part for key, part in to_json(release).items() if key not in _DERIVED},
        "law": {"mechanism": mechanism.name, "parameters": parameters},
        "error_budget": list(BUDGET.get(release.privacy.method, ())),
        "signed": _encoded(signed),
    }


def _encoded(parts: Mapping[str, bytes]) -> dict[str, str]:
    return {name: base64.b64encode(part).decode() for name, part in parts.items() if part}


def _steps(
    config: AnalyzerConfig, served: ServedTask, window: int, release: bytes
) -> dict[str, bytes]:
    """Of a discovery: what the window asks, and, of the release that it ends with, that it is
    over.
    """
    known = read_steps(config.data_dir / STEPS_FOLDER, served.task, served.task_id)
    parts = dict[str, bytes]()
    for number, signed in known.items():
        ends = signed.step.is_over and signed.step.release == Digest.of(release)
        if number == window or ends:
            name = "step" if number == window else "end"
            message = directory_pb2.SignedDiscoveryStep.FromString(signed.data)
            parts |= {name: message.step, f"{name}_signature": message.signature}
    return parts
