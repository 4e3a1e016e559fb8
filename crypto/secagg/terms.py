"""What is fixed for every round of a task in one window: who signs, for whom vectors are sealed,
how large everything is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from shoal.arrays import NDArray, np
from shoal.crypto.secagg.pads import WORD
from shoal.crypto.secagg.parameters import GraphParameters, parameters_for, survivors_needed
from shoal.crypto.secagg.segments import sealed_row_bytes
from shoal.crypto.suites import PublicKeyConfig
from shoal.crypto.trust import ServedTask, TrustedSchedule
from shoal.domain import Vector
from shoal.errors import Kind, ShoalError
from shoal.ids import Digest, TaskId
from shoal.secagg import PairwisePlan
from shoal.task import Task

SESSION_SIZE = 16  # random bytes that name a seat; device and shuffler alone know them


@dataclass(frozen=True, slots=True)
class RoundTerms:
    """From a trusted task and its key schedule; public. ``dimension``: coordinates, without check
    words.
    """

    task_id: TaskId
    window: int
    plan: PairwisePlan
    honest_fraction_ppm: int
    dimension: int
    shuffler_key: bytes
    analyzer_key: bytes
    enrolment_key: bytes
    analyzer_config: PublicKeyConfig
    schedule_hash: Digest

    @classmethod
    def of(cls, task: Task, task_id: TaskId, keys: TrustedSchedule, window: int) -> RoundTerms:
        """Raises INVALID for a task without secure aggregation, or a window that it has not."""
        if task.pairwise is None or not isinstance(task.domain, Vector):
            raise ShoalError(
                Kind.INVALID,
                f"task {task.name} is not summed by secure aggregation: it has no rounds",
            )
        if not 0 <= window < len(keys.analyzer_keys):
            raise ShoalError(
                Kind.INVALID,
                f"task {task.name} has no window {window}: it has 0 to "
                f"{len(keys.analyzer_keys) - 1}",
            )
        return cls(
            task_id,
            window,
            task.pairwise,
            task.honest_fraction_ppm,
            task.domain.dimension,
            task.shuffler_key,
            task.analyzer_key,
            task.enrolment_key,
            keys.analyzer_keys[window],
            keys.digest,
        )

    @classmethod
    def served(cls, served: ServedTask, window: int) -> RoundTerms:
        """The same for a service's task."""
        return cls.of(served.task, served.task_id, served.keys, window)

    def parameters(self, devices: int) -> GraphParameters:
        """Neighbours and threshold of a round of that many devices. Raises INVALID if nothing
        fits.
        """
        return parameters_for(self.plan, self.honest_fraction_ppm, devices)

    def survivors(self, devices: int) -> int:
        """Vectors that must be in the sum of a round of that many devices."""
        return survivors_needed(self.plan, devices)

    @property
    def vector_bytes(self) -> int:
        """Of a masked vector with its check words, before sealing."""
        return self.plan.vector_bytes(self.dimension)

    @property
    def sealed_vector_bytes(self) -> int:
        """Of what a device uploads: the masked vector, sealed for the analyzer."""
        overhead = self.analyzer_config.suite.overhead
        if self.plan.segmented:
            return sealed_row_bytes(self.plan, self.dimension, overhead)
        return self.vector_bytes + overhead

    def takes(self, vector: NDArray[Any]) -> bool:
        """Whether it has the shape and type of a vector of this task: int64[d], or its words where
        it travels in segments.
        """
        types = [np.dtype(np.int64), *([WORD[self.plan.word_bits]] if self.plan.segmented else [])]
        return vector.dtype in types and vector.shape == (self.dimension,)
