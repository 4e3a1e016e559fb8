"""A discovery planned: the noise of its levels for one promise over all of them, and what it will
find.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction

from shoal.accounting.certificate import count_honest
from shoal.accounting.several_messages.liars import moved_by_liar
from shoal.accounting.several_messages.messages import LARGEST_EPSILON, certify_messages
from shoal.accounting.several_messages.noise_design import design_dummies
from shoal.accounting.several_messages.of_mechanism import protocol_of
from shoal.accounting.several_messages.of_windows import epsilon_of_each, epsilon_together
from shoal.analyzer.discovery.drawn import (
    at_a_window,
    at_most,
    chance_of_few,
    devices_for,
    error_in_all,
    found_in_all,
    honest_share,
)
from shoal.analyzer.planner.question import wrong
from shoal.errors import Kind, ShoalError
from shoal.limits import LIMITS
from shoal.mechanisms.several.histogram import BundledHistogram
from shoal.mechanisms.several.levels import chance_of, least_number, threshold
from shoal.questions.discovery import Alphabet, Discovery
from shoal.questions.place_paths import PlacePaths
from shoal.questions.spelling import LETTERS

SURE = 0.95
_MOST, _LEAST = 512, 8  # beginnings that are followed
_DEVICES = 1_000_000_000  # more are not looked for


class TooManyMessagesError(ShoalError):
    """A device would send more messages than a report may have. ``reason``: in words; ``devices``:
    with so many in all it would not; 0: not looked for.
    """

    def __init__(self, reason: str, instead: str = "", devices: int = 0) -> None:
        """``instead``: what else would help, for people, or nothing."""
        more = f"give {devices:,} devices or more" if devices else "give more devices"
        advice = f"{instead}, or {more}" if instead else more
        super().__init__(Kind.CONFIG, f"{reason}: {advice}, or a larger epsilon")
        self.reason, self.instead, self.devices = reason, instead, devices


@dataclass(frozen=True, slots=True)
class DiscoveryRequest:
    """``n``: devices that take part at a level, at least, floor(``honest`` * n) of them honest.
    ``same``: every device answers at every level; else each in one window, drawn by itself among
    all of them. (``epsilon``, ``delta``): of one device, over all levels. ``most``: beginnings that
    are followed, at most; None: 512, or half as many as often as a device would send too many
    messages. ``spare``: windows beyond one for each level, for those that are lost: every device
    answers in all of them, or draws among them too. ``first``, ``longest``: symbols of
    ``alphabet``. ``devices``: that take part in all, where each draws its window; 0: not known.
    """

    n: int
    epsilon: float
    delta: float
    same: bool = True
    honest: Fraction = Fraction(1)
    first: int = 2
    longest: int = 11
    most: int | None = None
    known: tuple[bytes, ...] = ()
    spare: int = 0
    alphabet: Alphabet = LETTERS
    devices: int = 0

    @property
    def windows(self) -> int:
        """In which one device answers, at most."""
        return self.asked_windows if self.same else 1

    @property
    def asked_windows(self) -> int:
        """Of the task."""
        return self.discovery(1).levels + self.spare

    @property
    def withheld(self) -> float | None:
        """How probable it is that one or more of the windows get fewer than ``n`` reports, though
        all ``devices`` answer in the one that they drew: upper bound. None: not known.
        """
        if self.same or not self.devices:
            return None
        return chance_of_few(self.devices, self.asked_windows, self.n)

    @property
    def n_honest(self) -> int:
        """Devices of a level that are assumed honest."""
        return count_honest(self.n, self.honest)

    @property
    def may_lie(self) -> int:
        """Devices of which all may lie, in every window: the promise holds."""
        return self.n - self.n_honest

    @property
    def room(self) -> int:
        """Beginnings that are followed at first, before fewer are tried."""
        return _MOST if self.most is None else self.most

    @property
    def fleet(self) -> int:
        """Devices that take part in all, of which a word has its own."""
        return self.n if self.same else self.devices or self.n * self.asked_windows

    @property
    def crowd(self) -> int:
        """Devices of a level for which it is said what is found: ``n``, or where each draws its
        window the most that nearly ever come, for more have more noise.
        """
        return self.n if self.same else at_most(self.fleet, self.asked_windows)

    def drawing(self, devices: int) -> DiscoveryRequest:
        """The same of so many ``devices`` in all, each of which answers in one window that it draws
        by itself: its ``n`` is what comes to a window, nearly for sure. ``honest`` is read as a
        share of all devices; the result's is that of a window's reports, where all who lie may be
        in the same window. Raises CONFIG for too few, and where too many may lie.
        """
        windows = self.asked_windows
        n = at_a_window(devices, windows)
        if n < 1:
            raise wrong(
                f"{devices:,} devices are too few for {windows} windows of devices of their own: "
                "have every device answer at every level (leave --fresh out), or have "
                f"{devices_for(1, windows):,} or more"
            )
        drawn = replace(
            self, n=n, honest=honest_share(devices, self.honest, n), same=False, devices=devices
        )
        if drawn.n_honest < 1:
            enough = math.ceil(1_000 * (1 - Fraction(n - 1, devices))) / 1_000
            raise wrong(
                f"{devices - count_honest(devices, self.honest):,} of {devices:,} devices may lie, "
                f"and each of them in all {windows} windows, with {n:,} reports or more: state an "
                f"honest fraction of {enough:g} or more, have fewer windows (shorter words, fewer "
                "spare ones), or leave --fresh out"
            )
        return drawn

    def discovery(self, most: int) -> Discovery:
        """What is asked. Raises INVALID where that can't be."""
        fresh = not self.same
        return Discovery(self.first, self.longest, most, self.known, self.alphabet, fresh)


@dataclass(frozen=True, slots=True)
class DiscoveryPlan:
    """``made``: of the largest level. ``together``: windows in which one device answers, at most;
    ``epsilon_level``: what one of them costs, and ``epsilon`` all of them: upper bounds.
    ``threshold``: at the largest level, in devices, when ``request.crowd`` take part;
    ``found_from``: a word of so many of them is found with 95 %, where there is room for all
    beginnings of that many.
    """

    request: DiscoveryRequest
    discovery: Discovery
    made: BundledHistogram
    together: int
    epsilon_level: float
    epsilon: float
    threshold: int
    found_from: int

    @property
    def dummies(self) -> float:
        """Expected in a cell."""
        return float(self.made.noise.dummies)

    @property
    def found_in_all(self) -> int:
        """As ``found_from``, but of all devices, of whom each may draw its window."""
        request, levels = self.request, self.discovery.levels
        if request.same:
            return self.found_from

        return drawn_from(self.made, self.threshold, request, levels)

    @property
    def stderr(self) -> float:
        """Of an estimate, in devices."""
        return self.made.expected_stderr(self.request.crowd)

    @property
    def stderr_in_all(self) -> float:
        """Of a count of all devices, for a word that ``found_in_all`` of them have, where each
        draws its window.
        """
        if self.request.same:
            return self.stderr
        return error_in_all(self.stderr, self.request.asked_windows, self.found_in_all)

    @property
    def followed_in_all(self) -> int:
        """The threshold in devices of the whole fleet: so many of them are expected to have as many
        as ``threshold`` among those of one window.
        """
        windows = 1 if self.request.same else self.request.asked_windows
        return self.threshold * windows

    @property
    def noun(self) -> str:
        """What is looked for, for people."""
        return "place" if isinstance(self.discovery.alphabet, PlacePaths) else "word"

    @property
    def liars(self) -> int:
        """The fewest devices that lie which make a beginning that nobody has as likely as not to be
        followed at the largest level: all their messages in its cell. At each level as many.
        """
        return math.ceil(self.threshold / moved_by_liar(self.made))

    def messages(self, cells: int) -> float:
        """Expected messages of a device at a level of so many cells."""
        noise = self.made.noise
        return 1.0 + cells * float(noise.mean_messages - 1) / noise.cells


def plan_discovery(request: DiscoveryRequest) -> DiscoveryPlan:
    """The fewest dummies that keep a device's levels together at (epsilon, delta).

    Raises CONFIG for bad numbers, and TooManyMessagesError, with what would work.
    """
    if not (0.0 < request.epsilon <= LARGEST_EPSILON and 0.0 < request.delta < 1.0):
        raise wrong(
            f"a discovery wants epsilon above 0 and up to {LARGEST_EPSILON:g}, got "
            f"{request.epsilon:g}, and delta between 0 and 1: 1 and 1e-8 are usual"
        )
    levels = request.windows
    # the noise of a cell hardly depends on how many there are: few are looked at, and, where what
    # comes out is not enough after all, as many as there will be
    for most in (1, request.room):
        each = request.epsilon if levels == 1 else _of_a_level(request, most, levels)
        try:
            plan = planned(request, *fitting(request, each, levels))
        except TooManyMessagesError as error:
            devices = _enough(request, each, levels)
            raise TooManyMessagesError(error.reason, error.instead, devices) from None
        if max(plan.epsilon_level, plan.epsilon) <= request.epsilon:
            return plan
    raise wrong(
        f"no noise keeps {levels} levels together at epsilon {request.epsilon:g}: give another "
        "epsilon or a larger delta"
    )


def planned(
    request: DiscoveryRequest, discovery: Discovery, made: BundledHistogram
) -> DiscoveryPlan:
    """What that noise costs and finds, whatever epsilon the request names."""
    levels = request.windows
    bound = certify_messages(protocol_of(made), request.n_honest, request.delta)
    level = math.inf if bound is None else bound.epsilon_upper
    together = level
    if levels > 1:
        together = epsilon_together(made, request.n_honest, request.delta, levels)
    least = threshold(made, discovery.levels, request.crowd)
    found = found_from(made, least, request.crowd, discovery.levels)
    return DiscoveryPlan(request, discovery, made, levels, level, together, least, found)


def _of_a_level(request: DiscoveryRequest, most: int, levels: int) -> float:
    """The largest epsilon of one level with which all of them keep the request's together."""
    discovery = request.discovery(most)

    def design(epsilon: float) -> BundledHistogram:
        return _designed(request, discovery, epsilon, levels)

    return epsilon_of_each(design, request.n_honest, request.epsilon, request.delta, levels)


def fitting(
    request: DiscoveryRequest, epsilon: float, levels: int
) -> tuple[Discovery, BundledHistogram]:
    """With as many beginnings as are asked for, or as a device has messages for. Raises
    TooManyMessagesError.
    """
    most = request.room
    while True:
        discovery = request.discovery(most)
        try:
            made = _designed(request, discovery, epsilon, levels)
        except ShoalError as error:  # so many messages that nothing is computed for them
            if error.kind is not Kind.CONFIG:
                raise
            reason = error.message
        else:
            if made.messages <= LIMITS.messages:
                return discovery, made
            reason = (
                f"a device would send up to {made.messages} messages at a level, and "
                f"{LIMITS.messages} are the most that a report may have"
            )
        if request.most is not None or most <= _LEAST:
            raise TooManyMessagesError(reason, _instead(request, discovery, epsilon, levels))
        most //= 2


def _instead(request: DiscoveryRequest, discovery: Discovery, epsilon: float, levels: int) -> str:
    """What to ask for otherwise, where that helps."""
    if discovery.size > request.discovery(1).size:
        return f"follow fewer beginnings than {discovery.most}"
    fewer = replace(request, first=request.first - 1)
    if fewer.first and _fits(fewer, fewer.discovery(discovery.most), epsilon, levels):
        return f"ask for fewer symbols first than {request.first}"
    return ""


def _enough(request: DiscoveryRequest, epsilon: float, levels: int) -> int:
    """How many devices in all have messages enough for a level of that epsilon, with as many
    beginnings as are asked for, or the fewest: rounded up to two figures. 0: no number does.
    """
    discovery = request.discovery(_LEAST if request.most is None else request.most)

    def enough(n: int) -> bool:
        return _fits(replace(request, n=n), discovery, epsilon, levels)

    high = max(request.n, 1)
    while not enough(high):
        high *= 2
        if high > _DEVICES:
            return 0
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    # what a level may cost depends a little on the devices
    unit = 10 ** max(len(str(high)) - 2, 0)
    high = (high // unit + 1) * unit
    return high if request.same else devices_for(high, request.asked_windows)


def _fits(request: DiscoveryRequest, discovery: Discovery, epsilon: float, levels: int) -> bool:
    """Whether a report has room for all messages of a device."""
    try:
        return _designed(request, discovery, epsilon, levels).messages <= LIMITS.messages
    except ShoalError as error:
        if error.kind is not Kind.CONFIG:
            raise
        return False


def _designed(
    request: DiscoveryRequest, discovery: Discovery, epsilon: float, levels: int
) -> BundledHistogram:
    cells = discovery.size
    law = design_dummies(cells, request.n_honest, epsilon, request.delta, windows=levels)
    return BundledHistogram(tuple(map(str, range(cells))), law)


def found_from(made: BundledHistogram, least: int, reports: int, levels: int) -> int:
    """The fewest devices that have a word which is found with 95 %: followed at every level."""
    each = SURE ** (1.0 / levels)
    return least_number(lambda holders: chance_of(made, reports, holders, least) >= each)


def drawn_from(made: BundledHistogram, least: int, request: DiscoveryRequest, levels: int) -> int:
    """The same of all devices, of whom each draws one window."""

    def chance(holders: int) -> float:
        return chance_of(made, request.crowd, holders, least)

    return found_in_all(request.asked_windows, levels, chance, SURE)
