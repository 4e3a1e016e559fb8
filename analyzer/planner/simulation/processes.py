"""A simulation on all cores of this machine."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING

from shoal.analyzer.planner.simulation.stretches import Done, Rehearsal, Stretch, tallies_of
from shoal.errors import Kind, ShoalError
from shoal.mechanisms import Tally

if TYPE_CHECKING:
    from concurrent.futures import Future

_ALONE_S = 3.0  # this long here first: a process is slow to start, and most simulations are short
_IN_FLIGHT = 2  # stretches of a process: one that it works on, one that is there already


class Processes:
    """``count`` processes, which end with this one; if ``ready``, from the first stretch on."""

    def __init__(self, count: int, *, ready: bool = False) -> None:
        self._count, self._alone_s = count, 0.0 if ready else _ALONE_S

    def tallies(self, work: Rehearsal, stretches: Iterable[Stretch]) -> Generator[Done]:
        """See ``Engine.tallies``. Raises UNAVAILABLE if a process dies."""
        left = iter(stretches)
        until = time.monotonic() + self._alone_s
        while self._count == 1 or time.monotonic() < until:
            stretch = next(left, None)
            if stretch is None:
                return
            yield stretch, tallies_of(work, stretch)
        yield from self._spread(work, left)

    def _spread(self, work: Rehearsal, left: Iterator[Stretch]) -> Generator[Done]:
        # most plans come without a simulation, and most simulations are over before
        from concurrent.futures import FIRST_COMPLETED, wait
        from concurrent.futures.process import BrokenProcessPool

        from shoal.services.workers import WorkerPool

        pool = WorkerPool(self._count, _prepare, (work,))
        under_way: dict[Future[list[Tally]], Stretch] = {}
        try:
            while True:
                room = self._count * _IN_FLIGHT - len(under_way)
                for stretch in islice(left, room):
                    under_way[pool.submit(_do, stretch)] = stretch
                if not under_way:
                    return
                for one in wait(under_way, return_when=FIRST_COMPLETED).done:
                    yield under_way.pop(one), one.result()
        except BrokenProcessPool:
            raise ShoalError(
                Kind.UNAVAILABLE,
                "a process of the simulation died: is there memory left? Fewer --processes want "
                "less",
            ) from None
        finally:
            if under_way:
                pool.kill()
            else:
                pool.close()


_held: list[Rehearsal] = []


def _prepare(work: Rehearsal) -> None:
    """In a process: what all of its stretches are of."""
    _held[:] = [work]


def _do(stretch: Stretch) -> list[Tally]:
    """In a process."""
    return tallies_of(_held[0], stretch)
