"""The noise that a shuffler adds to batches, from the law that its task states. Here, since the
shuffler imports no mechanism: it mixes what it is given, and reads none of it. Mechanisms are
loaded when a task wants noise: the process of a shuffler that serves none holds none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from shoal.entropy import SYSTEM, Entropy
from shoal.errors import Kind, ShoalError

if TYPE_CHECKING:
    from shoal.mechanisms.several.shuffler_noise import ShufflerNoise
    from shoal.task import Task


class DrawnNoise:
    """A ``NoiseSource`` of the registered mechanisms. ``entropy``: the CSPRNG."""

    def __init__(self, entropy: Entropy = SYSTEM) -> None:
        self._entropy = entropy

    def check(self, task: Task) -> None:
        """As ``NoiseSource.check``: its integers fit, and its reports are as it says."""
        _made(task)

    def draw(self, task: Task) -> Sequence[bytes]:
        """As ``NoiseSource.draw``."""
        return _made(task).added(self._entropy)


def _made(task: Task) -> ShufflerNoise:
    from shoal.mechanisms.several.registry import check_shape, create
    from shoal.mechanisms.several.shuffler_noise import ShufflerNoise

    made = create(task.mechanism, task.domain)
    check_shape(task, made)
    if not isinstance(made, ShufflerNoise):
        raise ShoalError(Kind.INVALID, f"{made.name} has no noise that a shuffler adds")
    return made
