"""What a mechanism of several messages per device offers.

A report is a bundle whose messages hide the value among those of all devices. One message may be
the value itself: then nothing is promised against shuffler and analyzer together (``epsilon0`` is
infinite), and privacy comes from the mixture of all messages of a batch alone. So this is no
``Mechanism``, which states the law of one report. ``Noisy``: one true message, always, and messages
of noise that do not depend on the value.

How many messages a bundle has is drawn, between ``fewest`` and ``messages``, and never depends on
the value. Who sees connections sees frames of one size; the shuffler, which counts what it opens,
learns a number that by itself says nothing. Beside a release it may: see ``sizes_tell``.

The true message may be drawn by randomized response too. Then it keeps an ``epsilon0`` whoever
works together: the bundle is made of the drawn cell, and of nothing else that depends on the value.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from shoal.arrays import NDArray, np
from shoal.mechanisms.base import Estimate, Tally, invalid

if TYPE_CHECKING:
    from shoal.entropy import Entropy
    from shoal.mechanisms.several.noise_law import NoiseLaw
    from shoal.privacy import KaryLaw
    from shoal.task import MechanismSpec


@dataclass(frozen=True, slots=True, eq=False)
class Bundles:
    """Reports of several devices. ``rows``: uint8[messages of all, report_size], those of a report
    next to each other; ``sizes``: int64[n], how many each has, at least 1. Raises INVALID for
    anything else.
    """

    rows: NDArray[np.uint8]
    sizes: NDArray[np.int64]

    def __post_init__(self) -> None:
        sized = self.sizes.ndim == 1 and (not self.sizes.size or int(self.sizes.min()) >= 1)
        if not sized or self.rows.ndim != 2 or len(self.rows) != int(self.sizes.sum()):
            raise invalid("bundles have rows of one width, as many as their sizes say")


@runtime_checkable
class Several(Protocol):
    """A mechanism of several messages, with its integers filled in. Immutable, without state: safe
    to share between threads and processes.
    """

    @property
    def name(self) -> str:
        """The family's name in tasks."""
        ...

    @property
    def spec(self) -> MechanismSpec:
        """The name with its integers: what a task carries."""
        ...

    @property
    def report_size(self) -> int:
        """Bytes of one message."""
        ...

    @property
    def messages(self) -> int:
        """Messages of one report, at most: the slots of a submission."""
        ...

    @property
    def fewest(self) -> int:
        """Messages of one report, at least."""
        ...

    @property
    def mean_messages(self) -> Fraction:
        """Expected messages of one report."""
        ...

    @property
    def epsilon0(self) -> float:
        """What a report promises by itself, its messages seen together; math.inf where one of them
        may be the value. Direction: upper bound.
        """
        ...

    @property
    def least_devices(self) -> int:
        """Honest devices that the account needs: with fewer nothing is proven."""
        ...

    def randomize_one(self, value: int, entropy: Entropy) -> tuple[bytes, ...]:
        """The messages of one device's report, ``report_size`` bytes each, from one cell in
        0..size-1. Loads no numpy. Which words are drawn, and how many, never depends on the value.
        Raises INVALID for what is no cell, before anything is drawn.
        """
        ...

    def randomize(self, values: NDArray[np.int64], entropy: Entropy) -> Bundles:
        """A bundle for each of the cells int64[n], drawn as by ``randomize_one``. Raises INVALID
        for what is no cell.
        """
        ...

    def valid(self, reports: NDArray[np.uint8]) -> NDArray[np.bool_]:
        """bool[rows]: which messages of uint8[rows, report_size] it could have written."""
        ...

    def tally(self, reports: NDArray[np.uint8]) -> Tally:
        """Counts uint8[rows, report_size]. Raises INVALID if a row is not ``valid``."""
        ...

    def estimate(self, tally: Tally, reports: int) -> Estimate:
        """Of ``reports`` >= 1 devices, whose messages are tallied. Raises INVALID for a tally of
        another number of cells.
        """
        ...

    def expected_stderr(self, reports: int) -> float:
        """The standard error of every label when ``reports`` devices take part, whatever they
        answer: exact, of the noise that they add. Where the true message is randomized it depends
        on the answers a little, and this is the largest that there is.
        """
        ...


def sizes_tell(made: Several) -> bool:
    """Whether the numbers of messages of devices say something of the noise in a release that the
    account does not cover.

    Of + and - they do: the release shows the difference alone, and an odd number of messages of
    noise is an odd one (measured: tests/unit/accounting/several_messages/test_sizes.py). So they
    are hidden by empty messages; a task may still leave these out. Of dummies they don't: the
    release shows how many came, and given the sum of independent Poisson numbers the single ones
    are drawn by chance alone.
    """
    return isinstance(made, Noisy) and made.noise.tells


@runtime_checkable
class Summed(Several, Protocol):
    """One whose estimate needs every message of a batch: one that is lost or refused spoils it."""

    @property
    def most_reports(self) -> int:
        """Of how many reports the sum can be read, at most."""
        ...


@runtime_checkable
class Noisy(Several, Protocol):
    """A true message of each device among noise of a ``NoiseLaw``."""

    @property
    def noise(self) -> NoiseLaw:
        """What devices add, in the integers that are drawn from: what the accountant sees."""
        ...

    def stderr_of(self, reports: int, holders: float) -> float:
        """The standard error of a label that ``holders`` of ``reports`` devices have; exact."""
        ...

    @property
    def truth_law(self) -> KaryLaw | None:
        """The law of the true message's cell where it is randomized; None where it is the value."""
        ...
