"""Helper mode in process: the shuffler's part and the analyzer's, linked without sockets, and
devices.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np

from shoal.analyzer.keys import KeyFolder
from shoal.analyzer.rounds.singles import SingleCollection as AnalyzerSingles
from shoal.analyzer.rounds.sums import SumStore
from shoal.analyzer.store import AnalyzerStore
from shoal.clients.memory.rounds_ledger import MemoryLedger
from shoal.crypto.admission.enrolment import DeviceIdentity, issue
from shoal.crypto.hpke import HpkePrivateKey, generate
from shoal.crypto.secagg.single import Submission, submit
from shoal.crypto.secagg.terms import RoundTerms
from shoal.crypto.signing import SigningKey
from shoal.crypto.suites import SuiteId
from shoal.entropy import SeededEntropy
from shoal.ids import Digest, KeyId, TaskId
from shoal.protos import pairwise_pb2
from shoal.rpc.call import Call
from shoal.secagg import Mode, PairwisePlan
from shoal.shuffler.core import WindowId
from shoal.shuffler.rounds.singles import Singles, StreamToAnalyzer
from shoal.shuffler.stores.claims import Claim, OwnerId
from shoal.shuffler.stores.sqlite.single_store import SingleStore
from shoal.shuffler.stores.threaded_claims import ThreadedClaims
from shoal.shuffler.stores.threaded_rounds import ThreadedVectors

NOW = 1_800_000_000.0
ROOT = SigningKey.generate()
KEY = generate(SuiteId.X25519_AES128)
PLAN = PairwisePlan(Mode.HELPER, 4, 100, 3, 250_000, 32)
DIMENSION = 70_000  # two chunks of an upload
TERMS = RoundTerms(
    TaskId(bytes(32)),
    0,
    PLAN,
    900_000,
    DIMENSION,
    bytes([1]) * 32,
    bytes([2]) * 32,
    ROOT.public,
    KEY.config,
    Digest(bytes([3]) * 32),
)
WINDOW = WindowId(TERMS.task_id, 0)
OWNER = OwnerId(b"o" * 16)
CALL = cast(Call, None)


class OneKey:
    """A key folder with one key."""

    def load_for(self, key_id: KeyId, task_id: TaskId, window: int) -> HpkePrivateKey:
        return KEY


@dataclass
class World:
    """Both services' parts, linked directly. ``calls``: methods that were called at the analyzer,
    in order.
    """

    folder: Path
    calls: list[str]
    store: SingleStore
    claims: ThreadedClaims
    singles: Singles
    sums: SumStore
    analyzer: AnalyzerSingles

    @classmethod
    def make(cls, folder: Path) -> World:
        store, claims = SingleStore(folder, SeededEntropy("store")), ThreadedClaims()
        sums = SumStore(AnalyzerStore(folder / "analyzer.db"))
        return cls(
            folder,
            [],
            store,
            claims,
            Singles(ThreadedVectors(store, claims), SeededEntropy("order")),
            sums,
            cls.collector(sums),
        )

    @staticmethod
    def collector(sums: SumStore) -> AnalyzerSingles:
        async def window(task_id: bytes, number: int) -> Any:
            keys = SimpleNamespace(analyzer_keys=(KEY.config,), digest=TERMS.schedule_hash)
            task = SimpleNamespace(pairwise=PLAN, name="t", domain=None)
            return SimpleNamespace(task=task, task_id=TaskId(task_id), keys=keys), number

        return AnalyzerSingles(sums, cast(KeyFolder, OneKey()), window)

    async def send(self, method: str, messages: AsyncIterator[bytes]) -> bytes:
        self.calls.append(method)
        handler = {"DeliverSingles": self.analyzer.deliver, "SumSingles": self.analyzer.sum}[method]
        return await handler(messages, CALL)

    async def arrive(self, one: Submission, *, terms: RoundTerms = TERMS) -> pairwise_pb2.Answer:
        """Upload in two chunks, then the seed."""
        half = 256 * 1024
        for offset in range(0, len(one.sealed), half):
            upload = pairwise_pb2.Upload(
                offset=offset, total=len(one.sealed), chunk=one.sealed[offset : offset + half]
            )
            if not offset:
                upload.proof, upload.digest = one.single.proof, Digest.of(one.sealed).raw
            await self.step(pairwise_pb2.Step(session=one.session, upload=upload), terms)
        return await self.step(pairwise_pb2.Step(session=one.session, single=one.single), terms)

    async def step(self, step: pairwise_pb2.Step, terms: RoundTerms = TERMS) -> pairwise_pb2.Answer:
        return await self.singles.step(terms, step, NOW, open_=True)

    async def claim(self, owner: OwnerId = OWNER) -> Claim:
        """The window, claimed anew."""
        claim = await self.claims.claim(WINDOW, owner, 0.0)
        assert claim is not None
        return claim

    async def conclude(self, send: StreamToAnalyzer | None = None) -> str:
        """The end of the window, as its owner carries it out."""
        return await self.singles.conclude(await self.claim(), TERMS, send or self.send)

    def restart_shuffler(self) -> None:
        self.store.close()
        self.store = SingleStore(self.folder)
        self.claims = ThreadedClaims()
        self.singles = Singles(ThreadedVectors(self.store, self.claims))


def device(number: int, vector: Any = None) -> tuple[Submission, DeviceIdentity]:
    key = SigningKey.generate()
    identity = DeviceIdentity(key, issue(ROOT, key.public, int(NOW) - 10, int(NOW) + 10_000_000))
    value = np.full(DIMENSION, number, np.int64) if vector is None else vector
    return submit(TERMS, identity, value, MemoryLedger(), SeededEntropy(number)), identity


@cache
def shown(number: int) -> dict[str, bytes]:
    """What the first chunk of a device's vector proves it with."""
    one, _ = device(number)
    return {"proof": one.single.proof, "digest": Digest.of(one.sealed).raw}
