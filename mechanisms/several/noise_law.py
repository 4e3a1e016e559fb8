"""What a device adds to its true message in a protocol of several messages: a law stated in exact
fractions, and the integers that are drawn from.

Every device sends one true message, always, and events of noise that do not depend on it: one in
each of ``truths`` *tables*, where there are several. Tables are cells one after the other; the
noise of all cells has one law, whatever table they are of. An event is one of four kinds, and but
for the last it belongs to one cell:

- *single* of size j: j messages of one sign (+ or -), j = 1, 2, ..., ``longest``;
- *flood* of size j: j messages of + and j of -, j = 1, ..., ``largest``;
- *dummy*: one message of +;
- *empty* of size j: j messages that say nothing, j = 1, ..., ``widest``.

``shares`` devices together make the law that is accounted for: in each cell independent Poisson
numbers of events, of singles q^j / j for each sign and size, of floods ``floods`` / ``largest`` for
each size, of dummies ``dummies``; and of empties, for all cells together, ``empties`` / j^2 of each
size. Each device draws its share, a Poisson number with the rate divided by ``shares``. The sizes
of a sum of singles of one sign add up to a geometric number, P(g) = (1 - q) q^g (as longest grows):
exp(sum_j q^j (z^j - 1) / j) = (1 - q) / (1 - q z).

*Hidden sizes.* The shuffler counts the messages of each device. Beside a release of + less - that
tells of the noise (``accounting.several_messages.onlooker``), unless empties make single, flood and
nothing look alike, or every submission is ``full``: empties fill it up to ``slots``.

*Integers.* ``rates`` are expected numbers of events per device and cell in units of 2^-64, rounded
up: more events than accounted for are further noise, independent of everybody's value, which is
post-processing. So every language draws from the same integers, and the account is never below.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from fractions import Fraction

from shoal.errors import Kind, ShoalError

RATE_BITS = 64  # a rate is an integer number of 2^-64 events per device and cell
MOST_SIZE = 256  # messages of one sign in an event, at most
MOST_SHARES = 100_000_000


class Truth(Enum):
    """How a true message tells the value of its device."""

    CELL = "cell"  # + in the value's cell
    SIGN = "sign"  # in the one cell, + for 1 and - for 0


class NoiseKind(Enum):
    """The kinds of noise; ``sign`` is that of the messages of a single."""

    PLUS = "plus"
    MINUS = "minus"
    FLOOD = "flood"
    EMPTY = "empty"


@dataclass(frozen=True, slots=True)
class Rate:
    """``size`` messages of each sign that the ``kind`` has, ``weight`` * 2^-64 times expected per
    device and cell. (Empties are of no cell: each cell has its share of them.)
    """

    kind: NoiseKind
    size: int
    weight: int

    @property
    def messages(self) -> int:
        """How many messages one such event is."""
        return 2 * self.size if self.kind is NoiseKind.FLOOD else self.size

    @property
    def moves(self) -> bool:
        """Whether it moves the count of its cell: of + and - alone it does."""
        return self.kind in (NoiseKind.PLUS, NoiseKind.MINUS)


@dataclass(frozen=True, slots=True)
class NoiseLaw:
    """The law of the module's text.

    ``truth``; ``cells``: that noise goes to, at least 2, and 1 for ``SIGN``. ``shares`` >= 1:
    devices whose noise adds up to what is accounted for. ``singles``: q in [0, 1), of sizes up to
    ``longest``; ``floods`` >= 0: their expected number per cell, of sizes up to ``largest``;
    ``dummies`` >= 0: expected number per cell. ``truths``: true messages of a device, one in each
    table; 1 for ``SIGN``, and ``cells`` is at least two for each. ``slots`` >= ``truths``: most
    messages of one submission, the true ones among them; a device that drew more noise sends its
    true messages alone. ``empties`` >= 0, of sizes up to ``widest``, and ``full``: with singles and
    floods around one true message, one or the other or neither.

    Either dummies (with ``CELL``), or singles and floods. Raises ShoalError INVALID for anything
    else.
    """

    truth: Truth
    cells: int
    shares: int
    slots: int
    singles: Fraction = Fraction(0)
    longest: int = 0
    floods: Fraction = Fraction(0)
    largest: int = 0
    dummies: Fraction = Fraction(0)
    truths: int = 1
    empties: Fraction = Fraction(0)
    widest: int = 0
    full: bool = False

    def __post_init__(self) -> None:
        cancelling = (
            0 < self.singles < 1
            and 1 <= self.longest <= MOST_SIZE
            and self.floods > 0
            and 1 <= self.largest <= MOST_SIZE
            and self.dummies == 0
        )
        dummies = (
            self.dummies > 0
            and self.singles == self.floods == self.longest == self.largest == 0
            and self.truth is Truth.CELL
        )
        counts = self.truth is Truth.SIGN
        fits = self.cells == self.truths == 1 if counts else self.cells >= 2 * self.truths >= 2
        if not (fits and 1 <= self.shares <= MOST_SHARES and self.slots >= self.truths):
            raise ShoalError(
                Kind.INVALID,
                "noise wants two cells or more in each table (one for a signed count), 1 to "
                f"{MOST_SHARES} shares and a slot for each true message",
            )
        if not (cancelling or dummies):
            raise ShoalError(
                Kind.INVALID,
                "noise is dummies in the cells of a histogram, or singles with q in (0, 1) and "
                f"floods, both of sizes 1 to {MOST_SIZE}",
            )
        among = self.empties > 0 and 1 <= self.widest <= MOST_SIZE and not self.full
        bare = self.empties == self.widest == 0
        if not (among or bare) or (self.hidden and (dummies or self.truths > 1)):
            raise ShoalError(
                Kind.INVALID,
                "empty messages go with singles and floods around one true message: give empties "
                f"with widest, 1 to {MOST_SIZE}, or full, or neither",
            )

    @property
    def signed(self) -> bool:
        """Whether messages have a sign: all but those of dummies do."""
        return self.dummies == 0

    @property
    def hidden(self) -> bool:
        """Whether there are empty messages. What numbers of messages tell beside a release is in
        the account then (``onlooker``).
        """
        return self.full or self.empties > 0

    @property
    def tells(self) -> bool:
        """Whether numbers of messages say something of the noise beside a release (``onlooker``):
        of + and -, where nothing hides them.
        """
        return self.signed and not self.hidden

    @property
    def fewest(self) -> int:
        """Messages of a submission, at least: the true ones alone, or all slots of a full one."""
        return self.slots if self.full else self.truths

    @property
    def bare(self) -> NoiseLaw:
        """The same without what hides numbers of messages."""
        return replace(self, empties=Fraction(0), widest=0, full=False)

    def rates(self) -> tuple[Rate, ...]:
        """Of every kind and size, in one order: singles of + and of - by size, then floods by size,
        then empties by size if there are; or dummies alone. Each weight is the smallest integer
        that is not below the share.
        """
        if not self.signed:
            return (Rate(NoiseKind.PLUS, 1, self._weight(self.dummies)),)
        singles = [
            (size, self._weight(self.singles**size / size)) for size in range(1, self.longest + 1)
        ]
        flood = self._weight(self.floods / self.largest)
        return (
            *(Rate(NoiseKind.PLUS, size, weight) for size, weight in singles),
            *(Rate(NoiseKind.MINUS, size, weight) for size, weight in singles),
            *(Rate(NoiseKind.FLOOD, size, flood) for size in range(1, self.largest + 1)),
            *self._empties(),
        )

    def _empties(self) -> tuple[Rate, ...]:
        if not self.empties:
            return ()
        return tuple(
            Rate(NoiseKind.EMPTY, size, self._weight(self.empty_rate(size) / self.cells))
            for size in range(1, self.widest + 1)
        )

    def empty_rate(self, size: int) -> Fraction:
        """Expected empties of ``size`` >= 1 in a batch, before they are rounded up to integers."""
        return self.empties / size**2 if size <= self.widest else Fraction(0)

    def _weight(self, rate: Fraction) -> int:
        """ceil(2^64 rate / shares)."""
        share = rate / self.shares
        return -(-(share.numerator << RATE_BITS) // share.denominator)

    @property
    def event_rate(self) -> Fraction:
        """Expected events of one device, over all cells; exact."""
        return Fraction(self.cells * sum(rate.weight for rate in self.rates()), 1 << RATE_BITS)

    @property
    def mean_messages(self) -> Fraction:
        """Expected messages of one device, its true ones among them, were there no ``slots``; of a
        full submission all of these.
        """
        if self.full:
            return Fraction(self.slots)
        noise = sum(rate.weight * rate.messages for rate in self.rates())
        return self.truths + Fraction(self.cells * noise, 1 << RATE_BITS)
