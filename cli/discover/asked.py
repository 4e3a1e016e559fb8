"""What ``shoal discover`` is asked for, planned: words, or places of a map."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from shoal.accounting.certificate import check_honest
from shoal.analyzer.discovery.least import plan_found_from
from shoal.analyzer.discovery.place_plan import plan_places
from shoal.analyzer.discovery.plan import (
    DiscoveryPlan,
    DiscoveryRequest,
    plan_discovery,
)
from shoal.analyzer.planner.question import MOST_DEVICES
from shoal.cli.discover.words import read_known
from shoal.cli.epsilon.laws import fraction
from shoal.errors import Kind, ShoalError
from shoal.questions.coordinates import exact_microdegrees
from shoal.questions.discovery import Discovery
from shoal.questions.places import Places

_CELL_M = 50.0
_USUAL = 1.0  # of epsilon
_FIRST, _LONGEST = 2, 11  # of words


@dataclass(frozen=True, slots=True)
class DiscoveryOptions:
    """The options of ``plan`` and ``simulate`` that say what is looked for, as they were given.
    ``epsilon``: None where ``found_from`` is given, or 1 is meant.
    """

    epsilon: float | None
    delta: float
    fresh: bool
    honest_fraction: str
    first: int | None
    longest: int | None
    most: int | None
    leave_out: Path | None
    places: str | None
    cell: float | None
    across: int | None
    found_from: int | None = None

    def planned(self, n: int, spare: int = 0) -> DiscoveryPlan:
        """Raises CONFIG for what can't be asked."""
        if not 1 <= n <= MOST_DEVICES:
            raise ShoalError(
                Kind.CONFIG, f"a discovery is planned for 1 to {MOST_DEVICES} devices, got {n}"
            )
        if self.places is not None:
            return self._places(n, spare, box_of(self.places))
        if self.cell is not None or self.across is not None:
            raise ShoalError(
                Kind.CONFIG, "--cell and --across are for places: give --places too, or leave out"
            )
        return made_of(self._words(n, spare), self.epsilon, self.found_from)

    def _words(self, n: int, spare: int) -> DiscoveryRequest:
        first = _FIRST if self.first is None else self.first
        longest = _LONGEST if self.longest is None else self.longest
        honest = check_honest(fraction(self.honest_fraction))
        # before a file is read for it; the words that are left out change nothing of it
        Discovery(first, longest, 1 if self.most is None else self.most)
        known = () if self.leave_out is None else read_known(self.leave_out, longest)
        request = DiscoveryRequest(
            n,
            _USUAL if self.epsilon is None else self.epsilon,
            self.delta,
            True,
            honest,
            first,
            longest,
            self.most,
            known,
            spare,
        )
        return request.drawing(n) if self.fresh else request

    def _places(self, n: int, spare: int, box: Places) -> DiscoveryPlan:
        for name, given in (
            ("--longest", self.longest is not None),
            ("--leave-out", self.leave_out is not None),
            ("--found-from", self.found_from is not None),
        ):
            if given:
                raise ShoalError(Kind.CONFIG, f"{name} is for words: leave it or --places out")
        if self.fresh:
            raise ShoalError(
                Kind.CONFIG,
                "--fresh is for words: a map puts cells of several levels together, which other "
                "devices would have answered; leave it or --places out",
            )
        cell = _CELL_M if self.cell is None else self.cell
        if not 0.1 <= cell <= 1e7:
            raise ShoalError(Kind.CONFIG, "--cell is a size in metres, as 50: from 0.1 on")
        honest = check_honest(fraction(self.honest_fraction))
        epsilon = _USUAL if self.epsilon is None else self.epsilon
        request = DiscoveryRequest(
            n, epsilon, self.delta, honest=honest, most=self.most, spare=spare
        )
        return plan_places(request, box, cell, self.across, self.first).plan


def made_of(
    request: DiscoveryRequest, epsilon: float | None, found_from: int | None
) -> DiscoveryPlan:
    """The plan for an epsilon, or for what is to be found. Raises CONFIG for both."""
    if found_from is None:
        return plan_discovery(request)
    if epsilon is not None:
        raise ShoalError(
            Kind.CONFIG,
            "--epsilon says what may be found, --found-from what it costs: leave one of them out",
        )
    return plan_found_from(request, found_from)


def box_of(text: str) -> Places:
    """The box of a map as it is typed: four degrees with commas between. Raises CONFIG."""
    parts = text.split(",")
    try:
        if len(parts) != 4:
            raise ShoalError(
                Kind.INVALID, "four degrees with commas between, as 48.06,11.36,48.25,11.72"
            )
        south, west, north, east = map(exact_microdegrees, parts)
        return Places(south, west, north, east, 1, 1)
    except ShoalError as error:
        raise ShoalError(Kind.CONFIG, f"--places SOUTH,WEST,NORTH,EAST: {error.message}") from None
