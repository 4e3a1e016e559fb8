"""What every local randomizer offers: the one extension point of Shoal.

A mechanism turns domain cells into constant-size reports on the device (``randomize_one``,
``randomize``), and reports into an additive ``Tally`` and that into an unbiased ``Estimate`` at the
analyzer. Both sides build it from the same integers (``MechanismSpec``), and ``privacy`` states its
output law in those integers. A new randomizer is one file with one ``Family`` object, and one line
in ``registry.py``; it then inherits the conformance suite.

A device builds its mechanism and draws one report at a time without numpy, which the analyzer's
side loads on use (``shoal.arrays``).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from shoal.arrays import NDArray, np
from shoal.domain import AnswerRecord, Discovery, Words
from shoal.errors import Kind, ShoalError

if TYPE_CHECKING:
    from shoal.domain import Domain
    from shoal.entropy import Entropy
    from shoal.privacy import LocalPrivacy
    from shoal.task import MechanismSpec

LEVEL = 0.95
SERVE_WORDS = ("count_sketch", "hadamard_sketch", "rappor")
"""The families with ``words``, by name: a test compares them with the registry."""
Z = 1.959963984540054  # the 97.5 % point of the normal law
_HEADER = struct.Struct(">BQI")  # version, rows, cells
_WEIGHTS = struct.Struct(">Q")  # of version 2
_MOST_ROWS = 1 << 62  # two tallies always add without wrapping


def invalid(message: str) -> ShoalError:
    """An error of kind INVALID: one line that says what is wrong and how to mend it."""
    return ShoalError(Kind.INVALID, message)


def outside(k: int) -> ShoalError:
    """The refusal of a value that is none of k cells. It does not name the value."""
    return invalid(
        f"a value to randomize lies outside the cells 0 to {k - 1}: encode it with the task's "
        "domain"
    )


@dataclass(frozen=True, slots=True, eq=False)
class Tally:
    """How often each cell was reported: everything that the analyzer keeps of a batch. Tallies add.

    ``counts``: int64[cells], read-only, 0 <= counts <= rows. ``rows``: reports counted, below 2^62.
    ``weight``: 0; or, where reports are vectors that are summed, what one of them may add to a sum
    at most: then -weight rows <= counts <= weight rows < 2^62. Raises INVALID for anything else.
    """

    counts: NDArray[np.int64]
    rows: int
    weight: int = 0

    def __post_init__(self) -> None:
        counts = np.array(self.counts, dtype=np.int64)
        counts.setflags(write=False)
        if counts.ndim != 1 or not counts.size:
            raise invalid("a tally has one count per cell")
        most = self.rows * (self.weight or 1)
        least = -most if self.weight else 0
        if min(self.rows, self.weight) < 0 or most >= _MOST_ROWS:
            raise invalid("a tally has 0 to 2^62 - 1 rows, times what each may weigh")
        if counts.min() < least or counts.max() > most:
            raise invalid("the counts of a tally lie between 0 and its rows")
        object.__setattr__(self, "counts", counts)

    def __add__(self, other: Tally) -> Tally:
        """The tally of both batches together. Raises INVALID unless both have the same cells."""
        self._check_alike(other)
        return Tally(self.counts + other.counts, self.rows + other.rows, self.weight)

    def __sub__(self, other: Tally) -> Tally:
        """The tally without the reports of ``other``, which are among its own. Raises INVALID as
        ``+``, and where they are not.
        """
        self._check_alike(other)
        return Tally(self.counts - other.counts, self.rows - other.rows, self.weight)

    def _check_alike(self, other: Tally) -> None:
        if (self.counts.shape, self.weight) != (other.counts.shape, other.weight):
            raise invalid(
                f"tallies of {self.counts.size} and {other.counts.size} cells are of different "
                "tasks and don't add"
            )

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Tally)
            and (self.rows, self.weight) == (other.rows, other.weight)
            and np.array_equal(self.counts, other.counts)
        )

    def __hash__(self) -> int:
        return hash(self.to_bytes())

    def to_bytes(self) -> bytes:
        """u8 version = 1, u64 rows, u32 cells, i64 per cell, all big-endian: one byte string per
        tally. With a weight it is version 2, and the weight follows the cells' number, as u64.
        """
        weight = _WEIGHTS.pack(self.weight) if self.weight else b""
        header = _HEADER.pack(2 if weight else 1, self.rows, self.counts.size)
        return header + weight + self.counts.astype(">i8").tobytes()

    @classmethod
    def from_bytes(cls, data: bytes) -> Tally:
        """The inverse of ``to_bytes``. Raises INVALID for anything that it did not write."""
        if len(data) < _HEADER.size:
            raise invalid("a stored tally is too short: restore it from the batch")
        version, rows, cells = _HEADER.unpack_from(data)
        start = _HEADER.size + (_WEIGHTS.size if version == 2 else 0)
        if version not in {1, 2} or len(data) != start + 8 * cells:
            raise invalid(
                "a stored tally has an unknown version or a wrong length: restore it from the batch"
            )
        weight = _WEIGHTS.unpack_from(data, _HEADER.size)[0] if version == 2 else 0
        if version == 2 and not weight:
            raise invalid("a stored tally of version 2 has no weight: restore it from the batch")
        counts = np.frombuffer(data, dtype=">i8", offset=start).astype(np.int64)
        return cls(counts, rows, weight)


@dataclass(frozen=True, slots=True, eq=False)
class Estimate:
    """Raw unbiased values with their errors, one per label: never clipped, so that sums of them
    stay unbiased.

    ``values``, ``stderr``, ``ci_low``, ``ci_high``: float64[len(labels)], finite. Numbers of
    devices for frequency mechanisms, the domain's unit for a mean. The interval covers with
    probability ``level`` over all coins, the devices' *values* held fixed: the randomizers', and
    for a number those of its rounding to a level. ``rounding``: how much of ``stderr`` is of the
    latter, at most (``rounding.py``): standard errors, float64[len(labels)], not above ``stderr``;
    empty where nothing is rounded.
    """

    labels: tuple[str, ...]
    values: NDArray[np.float64]
    stderr: NDArray[np.float64]
    ci_low: NDArray[np.float64]
    ci_high: NDArray[np.float64]
    level: float = field(default=LEVEL)
    rounding: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        arrays = (self.values, self.stderr, self.ci_low, self.ci_high)
        if any(a.shape != (len(self.labels),) or not np.isfinite(a).all() for a in arrays):
            raise invalid("an estimate has one finite value, standard error and interval per label")
        if self.rounding and len(self.rounding) != len(self.labels):
            raise invalid(
                "an estimate says of every label how much of its error is rounding, or of none"
            )

    @classmethod
    def wald(
        cls,
        labels: tuple[str, ...],
        values: NDArray[np.float64],
        stderr: NDArray[np.float64],
        rounding: tuple[float, ...] = (),
    ) -> Estimate:
        """values +- 1.96 standard errors."""
        return cls(
            labels, values, stderr, values - Z * stderr, values + Z * stderr, rounding=rounding
        )

    @property
    def coins(self) -> NDArray[np.float64]:
        """float64[labels]: the standard errors over the randomizers' coins alone, the levels held
        fixed.
        """
        rounded = np.array(self.rounding or (0.0,) * len(self.labels))
        errors: NDArray[np.float64] = np.sqrt(np.maximum(self.stderr**2 - rounded**2, 0.0))
        return errors


class Response(Protocol):
    """The reports of a mechanism and their law: all but what is estimated from them. Another
    mechanism may have the same (``composed``).
    """

    @property
    def report_size(self) -> int:
        """Bytes of one message: constant for the mechanism."""
        ...

    @property
    def messages(self) -> int:
        """Messages of one report: constant for the mechanism."""
        ...

    def randomize_one(self, value: int, entropy: Entropy) -> tuple[bytes, ...]:
        """The ``messages`` messages of one report, ``report_size`` bytes each, from one cell in
        0..size-1: a device's draw.

        Asks ``entropy`` for what ``randomize`` asks for at n = 1, and so makes the same report from
        the same random words: ``randomize_one(v)`` is ``randomize([v])[0]``, byte for byte. Loads
        no numpy. A draw is written once for both (``parts.draws``). Raises INVALID for any other
        cell, in the words of ``randomize``, and for what is no int (a bool, a number of numpy).
        """
        ...

    def randomize(self, values: NDArray[np.int64], entropy: Entropy) -> NDArray[np.uint8]:
        """uint8[n, messages, report_size] from cells int64[n] in 0..size-1. Raises INVALID for any
        other cell.
        """
        ...

    def valid(self, reports: NDArray[np.uint8]) -> NDArray[np.bool_]:
        """bool[rows]: which of uint8[rows, report_size] this mechanism could have written. Raises
        INVALID for another width.
        """
        ...

    def tally(self, reports: NDArray[np.uint8]) -> Tally:
        """Counts uint8[rows, report_size]. Raises INVALID if a row is not ``valid``: filter
        first.
        """
        ...

    def privacy(self) -> LocalPrivacy:
        """The output law of one report, in the integers that ``randomize`` compares against."""
        ...


class Mechanism(Response, Protocol):
    """A randomizer with its integers filled in. Immutable, without state: safe to share between
    threads and processes.
    """

    @property
    def name(self) -> str:
        """The family's name: in tasks, in the registry and on the command line."""
        ...

    @property
    def spec(self) -> MechanismSpec:
        """The name with its integers: what a task carries, and ``registry.create`` makes this
        mechanism of.
        """
        ...

    def estimate(self, tally: Tally) -> Estimate:
        """Raises INVALID for a tally of another number of cells."""
        ...

    def expected_stderr(self, counts: NDArray[np.int64]) -> NDArray[np.float64]:
        """float64[labels]: the standard error of each estimate over the coins when ``counts``[v]
        devices hold cell v; int64[size], >= 0.

        Exact, not estimated from reports: what a planner predicts with. Where an estimate is a
        ratio, to first order. Raises INVALID for another number of cells.
        """
        ...


@runtime_checkable
class Supporting(Mechanism, Protocol):
    """A mechanism whose reports each support some of the cells, and how likely a report is depends
    on nothing else.

    It is ``privacy().max_ratio`` times as likely under a cell that it supports as under one that it
    does not (``mechanisms.parts.laws``). What an attacker reads off a report, so that ``shoal
    audit`` attacks such a mechanism as well as anybody could.
    """

    def supports(self, reports: NDArray[np.uint8], cell: int) -> NDArray[np.bool_]:
        """bool[rows]: the reports of uint8[rows, report_size], all ``valid``, that support the
        cell.
        """
        ...


@dataclass(frozen=True, slots=True)
class Parameter:
    """One integer of a mechanism: its name, its range (both ends included) and what it means."""

    name: str
    low: int
    high: int
    meaning: str


def check_parameters(
    spec: MechanismSpec, parameters: Sequence[Parameter], optional: Sequence[Parameter] = ()
) -> None:
    """That a task states every integer of a family, in its range, and no other; those that are
    ``optional``, or not. Raises INVALID, naming the parameter.
    """
    stated = {name for name, _ in spec.parameters}
    needed = {parameter.name for parameter in parameters}
    known = needed | {parameter.name for parameter in optional}
    if stated - known:
        raise invalid(
            f"{spec.name} has no parameter {_quoted(stated - known)}: it takes {_quoted(known)}"
        )
    if needed - stated:
        raise invalid(f"{spec.name} lacks the parameter {_quoted(needed - stated)}")
    for parameter in (*parameters, *optional):
        if parameter.name not in stated:
            continue
        if not parameter.low <= spec.get(parameter.name) <= parameter.high:
            one = parameter.low == parameter.high
            values = f"{parameter.low}{', or left out' if one else f' to {parameter.high}'}"
            raise invalid(
                f'{spec.name}: the parameter "{parameter.name}" is {values} ({parameter.meaning})'
            )


def _quoted(names: set[str]) -> str:
    return ", ".join(f'"{name}"' for name in sorted(names))


@dataclass(frozen=True, slots=True)
class Setting:
    """One way to fix a family's free integers but for epsilon0, by the name that the field knows it
    by ("oue") or by its number ("g=16").

    ``design(domain, epsilon0)`` returns the integers with ``epsilon0_upper(create(...).privacy())
    <= epsilon0``, one step of an integer from the most accurate at most, or raises INVALID.
    """

    name: str
    summary: str
    design: Callable[[Domain, float], MechanismSpec]


@dataclass(frozen=True, slots=True)
class Family:
    """A registered randomizer: how to build it from a task's integers and how to choose those
    integers.

    ``create(spec, domain)`` may rely on the parameters' names and ranges (the registry checks them)
    and raises INVALID, naming the parameter, if they don't fit together or don't fit the domain.
    ``settings(domain)``: the ways to choose the integers that are worth comparing for that domain,
    at least one; the first is what is chosen when nobody says which. It raises INVALID for a domain
    that the family can't serve.

    ``words``: whether it serves an open vocabulary, whose 2^62 cells nothing may list. A family
    that does not say so refuses one, in ``create`` and in ``settings``, before its own code sees
    the domain.
    """

    name: str
    summary: str
    parameters: tuple[Parameter, ...]
    create: Callable[[MechanismSpec, Domain], Mechanism]
    settings: Callable[[Domain], tuple[Setting, ...]]
    words: bool = False

    def __post_init__(self) -> None:
        if self.words:
            return
        create, settings, refuse = self.create, self.settings, partial(_refuse_words, self.name)
        object.__setattr__(self, "create", lambda spec, domain: create(spec, refuse(domain)))
        object.__setattr__(self, "settings", lambda domain: settings(refuse(domain)))


def _refuse_words(name: str, domain: Domain) -> Domain:
    """The same domain. Raises INVALID for an open vocabulary, for a discovery, and for a record
    whose answer is in several cells.
    """
    if isinstance(domain, Discovery):
        raise invalid(
            f"{name} sends one message, and a discovery wants several: its mechanism is dummies"
        )
    if isinstance(domain, AnswerRecord) and domain.together:
        raise invalid(
            f"{name} answers with one cell, and this record is answered in all marginals: set "
            "together = false"
        )
    if isinstance(domain, Words):
        raise invalid(
            f"{name} lists the cells of its domain, and an open vocabulary has 2^62: choose "
            f"{' or '.join(SERVE_WORDS)}"
        )
    return domain


def only(
    design: Callable[[Domain, float], MechanismSpec], serves: Callable[[Domain], object] = bool
) -> Callable[[Domain], tuple[Setting, ...]]:
    """The settings of a family whose integers all follow from epsilon0: ``design`` alone, named
    "standard". ``serves`` raises INVALID for a domain that the family can't serve.
    """

    def settings(domain: Domain) -> tuple[Setting, ...]:
        serves(domain)
        return (Setting("standard", "everything follows from epsilon0", design),)

    return settings
