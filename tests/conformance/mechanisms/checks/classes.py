"""A law of classes against the outputs it is said to stand for."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction


class Classes:
    """Outputs gathered by the proportions of their weights under x, x' (and z), and within these by
    that of the least weight.
    """

    def __init__(self) -> None:
        self._found: dict[tuple[Fraction, ...], dict[Fraction, Fraction]] = {}

    def add(self, weights: Sequence[int], least: int, total: int, alike: int = 1) -> None:
        """An output, or a class of them, with these integer weights under x, x' (and z); or as many
        of them as are ``alike``.
        """
        ratios = tuple(Fraction(weight, weights[0]) for weight in weights[1:])
        found, share = self._found.setdefault(ratios, {}), Fraction(least, weights[0])
        found[share] = found.get(share, Fraction(0)) + Fraction(weights[0] * alike, total)

    def masses(self) -> dict[tuple[Fraction, ...], Fraction]:
        """P(class | x)."""
        return {ratios: sum(found.values(), Fraction(0)) for ratios, found in self._found.items()}

    def claims_no_more_than(self, real: Classes) -> bool:
        """Whether each output can be given a claimed least weight that is at most its real one: of
        those at or above any proportion there are never more claimed than real.
        """

        def beyond(found: dict[Fraction, Fraction], share: Fraction) -> Fraction:
            return sum((mass for at, mass in found.items() if at >= share), Fraction(0))

        return all(
            beyond(found, share) <= beyond(real._found[ratios], share)
            for ratios, found in self._found.items()
            for share in found
        )
