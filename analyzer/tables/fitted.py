"""A law of whole records, of which every table can be asked and rows can be drawn.

Two forms: the table of all combinations, where that fits into memory; else a mixture of products,
in which each component draws every attribute by itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from shoal.analyzer.tables.marginals import Names, summed
from shoal.arrays import NDArray, np
from shoal.entropy import Entropy
from shoal.mechanisms.parts.sampling import uniform_below

_BLOCK = 65_536  # rows that are drawn at a time


class FittedLaw(Protocol):
    """What was fitted. ``names``: of the attributes, in the order of the record; ``form``: in
    words.
    """

    @property
    def names(self) -> Names:
        """In the order of the record."""
        ...

    @property
    def form(self) -> str:
        """What kind of law it is, in words."""
        ...

    def marginal(self, names: Names) -> NDArray[np.float64]:
        """float64[shape]: shares of the records, 0 or more, that add up to 1. ``names``: in the
        order of the record.
        """
        ...

    def draw(self, rows: int, entropy: Entropy) -> NDArray[np.int64]:
        """int64[rows, attributes]: cells of independent records."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class WholeTable:
    """``shares``: float64[shape], of every combination; they add up to 1."""

    names: Names
    shares: NDArray[np.float64]

    @property
    def form(self) -> str:
        """In words."""
        return "graphical model, of all combinations"

    def marginal(self, names: Names) -> NDArray[np.float64]:
        """See ``FittedLaw``."""
        return summed(self.shares, self.names, names)

    def draw(self, rows: int, entropy: Entropy) -> NDArray[np.int64]:
        """See ``FittedLaw``."""
        ends = np.cumsum(self.shares.reshape(-1))
        result = np.empty((rows, len(self.names)), dtype=np.int64)
        for start in range(0, rows, _BLOCK):
            size = min(_BLOCK, rows - start)
            found = np.searchsorted(ends, _uniform(size, entropy) * ends[-1], side="right")
            found = np.minimum(found, ends.size - 1)
            result[start : start + size] = np.stack(
                np.unravel_index(found, self.shares.shape), axis=1
            )
        return result


@dataclass(frozen=True, slots=True, eq=False)
class ProductMixture:
    """``products``: one for each attribute, float64[components, cells], whose rows add up to 1. All
    components have the same weight.
    """

    names: Names
    products: tuple[NDArray[np.float64], ...]

    @property
    def form(self) -> str:
        """In words."""
        return f"mixture of {len(self.products[0])} products"

    def marginal(self, names: Names) -> NDArray[np.float64]:
        """See ``FittedLaw``."""
        components = len(self.products[0])
        result = np.full((components, 1), 1.0 / components)
        sizes = []
        for name, product in zip(self.names, self.products, strict=True):
            if name in names:
                result = (result[:, :, None] * product[:, None, :]).reshape(components, -1)
                sizes.append(product.shape[1])
        return np.asarray(result.sum(axis=0).reshape(sizes))

    def draw(self, rows: int, entropy: Entropy) -> NDArray[np.int64]:
        """See ``FittedLaw``."""
        result = np.empty((rows, len(self.names)), dtype=np.int64)
        ends = [np.cumsum(product, axis=1) for product in self.products]
        for start in range(0, rows, _BLOCK):
            size = min(_BLOCK, rows - start)
            which = uniform_below(len(ends[0]), size, entropy)
            for at, each in enumerate(ends):
                mine = each[which]
                drawn = _uniform(size, entropy) * mine[:, -1]
                found = (drawn[:, None] >= mine).sum(axis=1)
                result[start : start + size, at] = np.minimum(found, mine.shape[1] - 1)
        return result


def _uniform(count: int, entropy: Entropy) -> NDArray[np.float64]:
    """float64[count], on [0, 1) in steps of 2^-53: these rows are of a released law, of nobody."""
    return (entropy.words(count) >> np.uint64(11)).astype(np.float64) / 2.0**53
