"""Vectors of whole rounds of secure aggregation, and of a window in helper mode. See
tools/vectors_secagg.py.

The production machines play a round here with fixed randomness. What they seal with fresh
randomness is opened again, and sealed once more with a fixed encapsulated key: so every byte is the
same at every run.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from vectors_hpke import seal_fixed
from vectors_rings import SUITE, raw
from vectors_tasks import Json, example_ca, fixed, hpke_key, signing_key, vouched

from shoal import codec
from shoal.crypto.admission.enrolment import DeviceIdentity, issue
from shoal.crypto.hpke import HpkePrivateKey, open_sealed
from shoal.crypto.secagg import records
from shoal.crypto.secagg.analyzer.collector import Collector
from shoal.crypto.secagg.device.machine import DeviceRound
from shoal.crypto.secagg.exchange import shares_info, single_info, vector_info
from shoal.crypto.secagg.primitives.shamir import SHARE_SIZE
from shoal.crypto.secagg.shuffler.coordinator import Coordinator
from shoal.crypto.secagg.shuffler.effects import AskCommit, AskStart, AskUnmask, Deliver, Effect
from shoal.crypto.secagg.shuffler.opening import countersign
from shoal.crypto.secagg.single import SingleSum, submit, sum_pads, window_label
from shoal.crypto.secagg.terms import RoundTerms
from shoal.crypto.signing import SigningContext
from shoal.crypto.trust import trust_schedule, trust_task
from shoal.domain import Norm, Vector
from shoal.entropy import SeededEntropy
from shoal.ids import Digest, TaskId
from shoal.protos import pairwise_pb2
from shoal.secagg import Mode, PairwisePlan
from shoal.task import Admission, Aggregator, MechanismSpec, Task, WindowKeys, WindowPlan

NOW = 1_800_000_100  # Unix seconds: in window 0
NOT_BEFORE, NOT_AFTER = 1_790_000_000, 1_900_000_000


# --- a whole round --------------------------------------------------------------------------------


class _Script:
    """Randomness that is written down: served in the order in which the program draws it."""

    def __init__(self, *parts: bytes) -> None:
        self._data = b"".join(parts)

    def bytes(self, count: int) -> bytes:
        taken, self._data = self._data[:count], self._data[count:]
        assert len(taken) == count
        return taken

    def words(self, count: int) -> NDArray[np.uint64]:
        return np.frombuffer(self.bytes(8 * count), dtype="<u8")


class _Ledger:
    """Nothing is answered twice here."""

    def masked(self, task_id: TaskId, window: int, round_id: Digest, sealed: Digest) -> None: ...

    def released(self, task_id: TaskId, window: int, round_id: Digest, commit: Digest) -> None: ...


def _device_key(number: int) -> DeviceIdentity:
    key = signing_key(f"device {number} of a round")
    return DeviceIdentity(key, issue(signing_key("enrolment"), key.public, NOT_BEFORE, NOT_AFTER))


@dataclass(slots=True)
class _Player:
    """One device. ``shares``, ``uploads``: whether it does."""

    number: int
    vector: list[int]
    shares: bool = True
    uploads: bool = True
    entry: Json = field(default_factory=dict)
    machine: DeviceRound = field(init=False)

    def coefficient(self, secret: str) -> bytes:
        """Of the one power that a threshold of 2 has besides the secret."""
        return fixed(f"coefficient of {secret} {self.number}").rjust(SHARE_SIZE, b"\x00")

    def begin(self, terms: RoundTerms) -> None:
        labels = (
            f"round pad key {self.number}",
            f"round share key {self.number}",
            f"round seed {self.number}",
        )
        secrets = [fixed(label) for label in labels]
        script = _Script(
            fixed(f"session {self.number}", 16),
            *secrets,
            self.coefficient("b"),
            self.coefficient("s"),
        )
        identity = _device_key(self.number)
        self.machine = DeviceRound(terms, identity, script)
        self.entry |= {
            "identity_private_key": fixed(f"device {self.number} of a round signing key").hex(),
            "device_key": identity.key.public.hex(),
            "certificate": identity.certificate.hex(),
            "session": self.machine.session.hex(),
            "pad_private_key": secrets[0].hex(),
            "share_private_key": secrets[1].hex(),
            "b": secrets[2].hex(),
            "coefficients_b": [str(int.from_bytes(self.coefficient("b"), "big"))],
            "coefficients_s": [str(int.from_bytes(self.coefficient("s"), "big"))],
            "vector": self.vector,
        }


def round_task(mode: Mode = Mode.DEFAULT) -> tuple[RoundTerms, HpkePrivateKey, Json]:
    """A task of five devices in one round, signed as devices get it: of which one may be corrupt
    and two lost.
    """
    plan = PairwisePlan(mode, 5, 5, 3, 400_000, 32, 30, 60, 120, 60)
    task = Task(
        salt=fixed("salt of sums", 16),
        name="sums",
        purpose="How long people sit",
        question="How many hours do you sit, stand and lie?",
        domain=Vector(3, Norm.COORDINATE, 24.0, 1_000, ("sit", "stand", "lie"), "h"),
        mechanism=MechanismSpec.of("skellam", variance=4_000_000, shares=2),
        windows=WindowPlan(start_s=1_800_000_000, length_s=86_400, count=1, grace_s=0, skew_s=300),
        min_batch=5,
        max_batch=0,
        honest_fraction_ppm=800_000,
        delta=1e-6,
        target_epsilon=50.0,
        key_authority=signing_key("key authority").public,
        shuffler_key=signing_key("shuffler").public,
        analyzer_key=signing_key("analyzer").public,
        shuffler_address="shuffler.example:7443",
        shuffler_ca=example_ca(),
        retention_s=259_200,
        report_size=plan.vector_bytes(3),
        admission=Admission.ENROLLED,
        enrolment_key=signing_key("enrolment").public,
        suite=SUITE.value,
        aggregator=Aggregator.PAIRWISE,
        pairwise=plan,
    )
    data = codec.encode_task(task)
    authority, key_authority, key = (
        signing_key("task authority"),
        signing_key("key authority"),
        hpke_key(SUITE, "analyzer"),
    )
    schedule = codec.encode_schedule(
        vouched(
            TaskId.of(data).raw, (WindowKeys(0, key.config.raw, hpke_key(SUITE, "hop").config.raw),)
        )
    )
    signed_task = codec.encode_signed_task(
        codec.Signed(data, authority.public, authority.sign(SigningContext.TASK, data))
    )
    signed_schedule = codec.encode_signed_schedule(
        codec.Signed(
            schedule,
            key_authority.public,
            key_authority.sign(SigningContext.KEY_SCHEDULE, schedule),
        )
    )
    trusted = trust_task(signed_task, {authority.public})
    terms = RoundTerms.of(
        trusted.task, trusted.task_id, trust_schedule(signed_schedule, trusted), 0
    )
    documents = {
        "authority": authority.public.hex(),
        "signed_task": signed_task.hex(),
        "signed_schedule": signed_schedule.hex(),
        "task_id": terms.task_id.hex,
        "schedule_hash": terms.schedule_hash.hex,
    }
    return terms, key, documents


def a_round() -> Json:
    """Five devices: one stops before it shares, one before it uploads; the other three are in the
    sum.
    """
    terms, key, documents = round_task()
    players = [
        _Player(0, [1_000, -1_000, 0]),
        _Player(1, [17, 2_345, -678]),
        _Player(2, [-1, 1, 999], uploads=False),
        _Player(3, [250, -31, -4_096], shares=False),
        _Player(4, [-77_777, 65_536, 5]),
    ]
    collector = Collector(
        terms,
        key,
        signing_key("analyzer"),
        fixed("analyzer nonce"),
        records.nonce_commitment(fixed("shuffler nonce")),
    )
    offer = countersign(terms, fixed("shuffler nonce"), collector.offered, signing_key("shuffler"))
    shuffler = Coordinator(
        terms,
        offer,
        fixed("shuffler nonce"),
        signing_key("shuffler"),
        SeededEntropy("vectors of a round"),
        NOW,
    )
    made: Json = {
        "documents": documents,
        "now": NOW,
        "window": 0,
        "analyzer_private_key": key.to_raw_secret().hex(),
        "shuffler_nonce": fixed("shuffler nonce").hex(),
        "analyzer_nonce": fixed("analyzer nonce").hex(),
        "offer": raw(offer).hex(),
        "offer_id": shuffler.offer_id.hex,
    }
    for player in players:
        player.begin(terms)
        join = player.machine.join(offer, NOW)
        shuffler.join(player.machine.session, join, NOW)
        player.entry["join"] = raw(join).hex()
    starting = _only(shuffler.tick(NOW), AskStart).request
    reply = collector.start(starting)
    shuffler.started(reply, NOW)
    graph = terms.parameters(len(players))
    made |= {
        "start_request": raw(starting).hex(),
        "start_reply": raw(reply).hex(),
        "round_id": str(shuffler.round_id and shuffler.round_id.hex),
        "neighbours": graph.neighbours,
        "threshold": graph.threshold,
        "survivors": terms.survivors(len(players)),
    }
    _share_and_mask(terms, key, shuffler, players)
    commit = _deliver(terms, shuffler, collector, players)
    made["commit_request"] = raw(commit).hex()
    for player in players:
        if player.shares and player.uploads:
            made["commit"] = _unmask(terms, key, shuffler, player)
    for request in _only(shuffler.tick(NOW), AskUnmask).requests:
        done = collector.unmask(request)
    assert done.done
    assert collector.result is not None
    in_order = sorted(players, key=lambda player: int(player.entry["position"]))
    made["devices"] = [player.entry for player in in_order]
    made |= {"in_the_sum": collector.result.survivors, "sum": collector.result.vector.tolist()}
    return made


def _unmask(terms: RoundTerms, key: HpkePrivateKey, shuffler: Coordinator, player: _Player) -> str:
    """A device sends the shares of its neighbours: the commit that it answers, in hexadecimal."""
    signed = shuffler.answer(player.machine.session, NOW).commit
    unmask = player.machine.unmask(signed, [], _Ledger())
    shuffler.unmask(player.machine.session, unmask, NOW)
    info = _info(terms, player.machine, shares_info)
    bundle = open_sealed(key, unmask.sealed, info)
    ephemeral = fixed(f"ephemeral of bundle {player.number}")
    player.entry |= {"bundle": bundle.hex()}
    player.entry |= {"sealed_bundle": seal_fixed(key.config, ephemeral, bundle, info).hex()}
    return raw(signed).hex()


def _info(terms: RoundTerms, machine: DeviceRound, info: Any) -> bytes:
    return bytes(info(machine.round_id, terms.analyzer_config.key_id))


def _share_and_mask(
    terms: RoundTerms, key: HpkePrivateKey, shuffler: Coordinator, players: list[_Player]
) -> None:
    """From SHARE to the end of MASK; whoever is to stop stops."""
    for player in players:
        started = shuffler.answer(player.machine.session, NOW).started
        player.entry |= {"position": started.position, "started": raw(started).hex()}
        if player.shares:
            shares = player.machine.share(started, NOW)
            shuffler.shares(player.machine.session, shares, NOW)
            player.entry["shares"] = raw(shares).hex()
    shuffler.tick(NOW + terms.plan.share_s)
    for player in players:
        if player.shares:
            shuffler.check(
                player.machine.session,
                player.machine.check(shuffler.answer(player.machine.session, NOW).roster),
                NOW,
            )
    shuffler.tick(NOW + terms.plan.share_s)
    for player in players:
        if player.shares:
            roster = shuffler.answer(player.machine.session, NOW).roster
            sealed = player.machine.mask(roster, np.array(player.vector, np.int64), _Ledger())
            masked = open_sealed(key, sealed, _info(terms, player.machine, vector_info))
            again = seal_fixed(
                key.config,
                fixed(f"ephemeral of vector {player.number}"),
                masked,
                _info(terms, player.machine, vector_info),
            )
            player.entry |= {
                "roster": raw(roster).hex(),
                "masked": masked.hex(),
                "sealed_vector": again.hex(),
            }


def _deliver(
    terms: RoundTerms, shuffler: Coordinator, collector: Collector, players: list[_Player]
) -> pairwise_pb2.CommitRoundRequest:
    """Uploads, delivery and commit, with the vectors as they are sealed in the file."""
    uploads = {
        player.machine.session: bytes.fromhex(player.entry["sealed_vector"])
        for player in players
        if player.shares and player.uploads
    }
    for session, sealed in uploads.items():
        shuffler.uploaded(session, Digest.of(sealed), NOW)
    rows = _only(shuffler.tick(NOW + terms.plan.share_s + terms.plan.mask_s), Deliver).rows
    unusable = collector.add_vectors([uploads[session] for session in rows])
    request: pairwise_pb2.CommitRoundRequest = _only(
        shuffler.delivered(pairwise_pb2.VectorsReply(unusable=unusable), NOW), AskCommit
    ).request
    shuffler.committed(collector.commit(request), NOW)
    return request


def _only(effects: list[Effect], sort: type[Any]) -> Any:
    (effect,) = effects
    assert isinstance(effect, sort)
    return effect


# --- helper mode ----------------------------------------------------------------------------------


def singles() -> Json:
    """A window of three devices in helper mode."""
    terms, key, documents = round_task(Mode.HELPER)
    devices, total = [], SingleSum(terms, key)
    info = single_info(terms.task_id, 0, key.config.key_id)
    for number, vector in enumerate(([1_000, -1_000, 0], [17, 2_345, -678], [-77_777, 65_536, 5])):
        script = _Script(fixed(f"single seed {number}"), fixed(f"single session {number}", 16))
        identity = _device_key(number)
        made = submit(terms, identity, np.array(vector, np.int64), _Ledger(), script)
        masked = open_sealed(key, made.sealed, info)
        sealed = seal_fixed(key.config, fixed(f"ephemeral of single {number}"), masked, info)
        total.add([sealed])
        signed = terms.task_id.raw + bytes(4) + hashlib.sha256(sealed).digest()
        proof = pairwise_pb2.AdmissionProof(
            certificate=identity.certificate,
            signature=identity.key.sign(SigningContext.ADMISSION, signed),
        )
        single = pairwise_pb2.Single(proof=raw(proof), seed=made.single.seed)
        devices.append(
            {
                "device_key": identity.key.public.hex(),
                "vector": vector,
                "seed": made.single.seed.hex(),
                "masked": masked.hex(),
                "sealed_vector": sealed.hex(),
                "single": raw(single).hex(),
            }
        )
    pads = sum_pads(terms, [bytes.fromhex(str(one["seed"])) for one in devices])
    return {
        "documents": documents,
        "now": NOW,
        "window": 0,
        "analyzer_private_key": key.to_raw_secret().hex(),
        "label": window_label(terms.task_id, 0).hex,
        "devices": devices,
        "pads": pads.hex(),
        "sum": total.finish(pads, len(devices)).tolist(),
    }
