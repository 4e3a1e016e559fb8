"""Windows of rounds that tests release."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shoal import codec
from shoal.analyzer.records import Spending, WindowOutcome
from shoal.analyzer.results.release_json import decode_release, to_json
from shoal.analyzer.rounds.sum_release import (
    conclude_sums,
)
from shoal.codec import Signed
from shoal.crypto.hpke import generate
from shoal.crypto.signing import SigningContext, SigningKey
from shoal.crypto.suites import SuiteId
from shoal.crypto.trust import ServedTask, serve_task
from shoal.ids import Digest, TaskId
from shoal.limits import LIMITS
from shoal.task import Task, WindowKeys
from tests.worlds.schedules import schedule_bytes
from tests.worlds.tasks import PAIRWISE, window_plan

AUTHORITY, ANALYZER, SHUFFLER = SigningKey.generate(), SigningKey.generate(), SigningKey.generate()
HERE = window_plan(count=2)


def serve(task: Task) -> ServedTask:
    """The task signed, with keys for its windows."""
    keys: dict[str, Any] = {
        "key_authority": AUTHORITY.public,
        "shuffler_key": SHUFFLER.public,
        "analyzer_key": ANALYZER.public,
    }
    task = replace(task, windows=HERE, **keys)
    data = codec.encode_task(task)
    windows = tuple(
        WindowKeys(
            w,
            generate(SuiteId.X25519_AES128).config.raw,
            generate(SuiteId.X25519_AES128).config.raw,
        )
        for w in range(2)
    )
    schedule = schedule_bytes(TaskId.of(data).raw, windows, ANALYZER, SHUFFLER)
    signed = codec.encode_signed_task(
        Signed(data, AUTHORITY.public, AUTHORITY.sign(SigningContext.TASK, data))
    )
    keyed = codec.encode_signed_schedule(
        Signed(schedule, AUTHORITY.public, AUTHORITY.sign(SigningContext.KEY_SCHEDULE, schedule))
    )
    return serve_task(signed, keyed, {AUTHORITY.public})


@dataclass(frozen=True)
class Round:
    round_id: Digest
    survivors: int
    vector: NDArray[np.int64]

    def segments(self) -> Iterator[NDArray[np.int64]]:
        step = LIMITS.array_segment
        return (self.vector[at : at + step] for at in range(0, len(self.vector), step))


def rounds(*survivors: int, dimension: int = 3, value: int = 0) -> list[Round]:
    """One per number, distinct."""
    return [
        Round(Digest.of(bytes([i])), n, np.full(dimension, value + i, dtype=np.int64))
        for i, n in enumerate(survivors)
    ]


SERVED = serve(PAIRWISE)


def outcome(
    sums: Sequence[Round],
    served: ServedTask = SERVED,
    aborted: Mapping[str, int] | None = None,
    earlier: Sequence[Spending] = (),
) -> WindowOutcome:
    return conclude_sums(served, 1, sums, aborted or {}, earlier, ANALYZER)


def shown(*args: Any, **more: Any) -> dict[str, Any]:
    """As JSON that any parser reads: Infinity and NaN are none."""
    made = to_json(decode_release(outcome(*args, **more).release))
    again: dict[str, Any] = json.loads(json.dumps(made, allow_nan=False))
    assert again == made
    return made
