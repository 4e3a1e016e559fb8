"""Windows of long vectors that tests release, and read again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from shoal.analyzer.results.release_json import decode_release, to_json
from shoal.analyzer.rounds.sum_release import conclude_sums
from shoal.analyzer.rounds.sums import StoredSum, SumStore
from shoal.analyzer.store import FILE_NAME, AnalyzerStore
from shoal.cli.main import main
from shoal.crypto.trust import ServedTask
from shoal.domain import Norm, Vector
from shoal.ids import Digest
from shoal.limits import LIMITS
from shoal.questions.layout import NamedShape
from shoal.storage.array_files import ArrayForm
from tests.unit.analyzer.rounds.windows_of_sums import ANALYZER, serve
from tests.worlds.tasks import PAIRWISE, PLAN, pairwise

Capture = pytest.CaptureFixture[str]
DIMENSION, SEGMENT = 1_000, 64
SMALL = replace(LIMITS, array_segment=SEGMENT)


def long_task(layout: tuple[NamedShape, ...] = (), **changes: Any) -> ServedTask:
    plan = replace(PLAN, segment_words=100, **changes)
    return serve(
        pairwise(
            domain=Vector(DIMENSION, Norm.L2, 10.0, 1_000, layout=layout),
            pairwise=plan,
            mechanism=PAIRWISE.mechanism,
            report_size=plan.vector_bytes(DIMENSION),
            target_epsilon=2.0,
        )
    )


SERVED = long_task()
FORM = ArrayForm("<i4", DIMENSION, SEGMENT)


def vector(seed: int) -> NDArray[np.int32]:
    return ((np.arange(DIMENSION) * 7919 + seed) % 2_001 - 1_000).astype("<i4")


def one(number: int, survivors: int = 110) -> StoredSum:
    return StoredSum(Digest.of(bytes([number])), survivors, vector(number))


class Kept:
    """A store with two rounds of one window."""

    def __init__(self, folder: Path, served: ServedTask | None = None) -> None:
        self.served = served or SERVED
        self.folder, self.store = folder, AnalyzerStore(folder / FILE_NAME)
        self.store.sign_with(ANALYZER.public)
        self.sums = SumStore(self.store)
        for number in range(2):
            self.sums.add(self.served.task_id, 0, one(number), FORM)
        self.conclusions = 0

    @property
    def files(self) -> list[Path]:
        return sorted((self.folder / "sums").iterdir())

    @property
    def array(self) -> Path:
        return self.folder / "arrays" / f"{self.served.task_id.hex}-0.npy"

    def finish(self) -> bool:
        def conclude(found: Any, aborted: Any, earlier: Any, lost: int) -> Any:
            self.conclusions += 1
            made = conclude_sums(
                self.served, 0, found, aborted, earlier, ANALYZER, lost, self.folder / "arrays"
            )
            return made, not decode_release(made.release).withheld

        return self.sums.finish(self.served.task_id, 0, conclude, 80, FORM)

    def release(self) -> dict[str, Any]:
        (stored,) = self.store.releases()
        return to_json(decode_release(stored.release))


def run(capsys: Capture, *arguments: str, status: int = 0) -> str:
    code = main(["results", *arguments])
    seen = capsys.readouterr()
    assert code == status, seen.err
    assert "Traceback" not in seen.err
    return seen.out if status == 0 else seen.err
