"""What a release tells of a record's attributes: noisy marginals, one array each.

All that is done with them in this folder looks at nothing else, so it costs no privacy.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, combinations

from shoal.arrays import NDArray, np
from shoal.entropy import Entropy
from shoal.errors import Kind, ShoalError
from shoal.mechanisms.parts.sampling import normals

MOST_ATTRIBUTES = 12
Names = tuple[str, ...]
"""Names of attributes, in the order of the record."""


def wrong(what: str) -> ShoalError:
    """INVALID, in one line."""
    return ShoalError(Kind.INVALID, what)


@dataclass(frozen=True, slots=True)
class TableAttribute:
    """A column: its name and the labels of its cells, two or more."""

    name: str
    labels: tuple[str, ...]

    def __post_init__(self) -> None:
        if not self.name or len(set(self.labels)) != len(self.labels) or len(self.labels) < 2:
            raise wrong("an attribute has a name and two or more distinct labels: give both")


@dataclass(frozen=True, slots=True, eq=False)
class NoisyMarginal:
    """How many devices have each combination of answers to some attributes, as estimated.

    ``names``: of the attributes, one per axis. ``values``: float64[shape], in devices, unbiased;
    ``stderr``: float64[shape], above 0. Raises INVALID for anything else.
    """

    names: Names
    values: NDArray[np.float64]
    stderr: NDArray[np.float64]

    def __post_init__(self) -> None:
        if len(set(self.names)) != len(self.names) or self.values.ndim != len(self.names):
            raise wrong("a marginal has one axis for each of its attributes, each of them once")
        if self.values.shape != self.stderr.shape or not (
            np.isfinite(self.values).all()
            and np.isfinite(self.stderr).all()
            and (self.stderr > 0.0).all()
        ):
            raise wrong(
                "a marginal has a finite estimate and a standard error above 0 in every cell"
            )

    @property
    def variance(self) -> float:
        """The mean of the cells' variances, in devices squared."""
        return float(np.mean(self.stderr**2))

    def noise(self, entropy: Entropy) -> NDArray[np.float64]:
        """float64[shape], in devices: normal, of the standard errors. For estimates of how far a
        fit is off, from numbers that are released already: it hides nobody.
        """
        return np.asarray(
            self.stderr * normals(self.values.size, entropy).reshape(self.values.shape)
        )


@dataclass(frozen=True, slots=True, eq=False)
class ReleasedTables:
    """The marginals of one release. ``attributes``: 1 to 12, in the order of the record;
    ``marginals``: one or more, no set of attributes twice, all attributes in one of them;
    ``n``: devices, 1 or more.

    Raises INVALID for anything else.
    """

    attributes: tuple[TableAttribute, ...]
    marginals: tuple[NoisyMarginal, ...]
    n: int

    def __post_init__(self) -> None:
        names = self.names
        if not 1 <= len(names) <= MOST_ATTRIBUTES or len(set(names)) != len(names):
            raise wrong(f"tables have 1 to {MOST_ATTRIBUTES} attributes of different names")
        if self.n < 1 or not self.marginals:
            raise wrong("tables come from one device or more, and hold one marginal or more")
        told = [one.names for one in self.marginals]
        if len(set(map(frozenset, told))) != len(told):
            raise wrong("a set of attributes has two marginals: leave one of them out")
        sizes = self.sizes
        for one in self.marginals:
            if any(name not in sizes for name in one.names):
                raise wrong("a marginal names an attribute that the tables do not have")
            if one.names != self.ordered(one.names):
                raise wrong("the attributes of a marginal stand in the order of the record")
            if one.values.shape != tuple(sizes[name] for name in one.names):
                raise wrong("an axis of a marginal has as many cells as its attribute has labels")
        missing = [name for name in names if not any(name in each for each in told)]
        if missing:
            raise wrong(f"no marginal tells of {', '.join(missing)}: leave the attribute out")

    @property
    def names(self) -> Names:
        """Of the attributes, in the order of the record."""
        return tuple(one.name for one in self.attributes)

    @property
    def sizes(self) -> dict[str, int]:
        """Cells of each attribute."""
        return {one.name: len(one.labels) for one in self.attributes}

    @property
    def cells(self) -> int:
        """Of all marginals together."""
        return sum(one.values.size for one in self.marginals)

    @property
    def combinations(self) -> int:
        """Cells of the table of all attributes: may be far more than fit into memory."""
        product = 1
        for size in self.sizes.values():
            product *= size
        return product

    def ordered(self, names: Iterable[str]) -> Names:
        """The same attributes in the order of the record."""
        given = set(names)
        return tuple(name for name in self.names if name in given)

    def without(self, left_out: Iterable[Names]) -> ReleasedTables:
        """These tables, but for some marginals. Raises INVALID where an attribute is then in none
        of them.
        """
        gone = set(left_out)
        kept = tuple(one for one in self.marginals if one.names not in gone)
        return ReleasedTables(self.attributes, kept, self.n)


def parts_of(names: Names) -> Iterator[Names]:
    """All subsets of a marginal's attributes, the empty one first."""
    return chain.from_iterable(combinations(names, size) for size in range(len(names) + 1))


def summed(table: NDArray[np.float64], names: Names, kept: Names) -> NDArray[np.float64]:
    """A table over ``names`` with the attributes that are not ``kept`` summed out."""
    axes = tuple(at for at, name in enumerate(names) if name not in kept)
    return np.asarray(table.sum(axis=axes)) if axes else table
