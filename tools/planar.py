"""Places told to within a distance, beside answers that know none: what ``planar`` errs by where
``krr`` has the same epsilon, central or per kilometre. Prints the table of docs/MECHANISMS.md:

    PYTHONPATH=. python tools/planar.py

A map of 16 x 16 cells of half a kilometre, devices spread alike over it and a hundredth elsewhere,
delta = 1e-6. Errors are standard errors over the coins, exact: of one cell, and of a block of 4 x 4
cells together (root mean square). Some minutes.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shoal.accounting.accountant import certify
from shoal.accounting.meaning import bound_text
from shoal.accounting.metric import epsilon_per_km, metric_guarantee
from shoal.mechanisms import Mechanism, create, design
from shoal.mechanisms.maps.planar import PlanarResponse, plane_of
from shoal.privacy import FiniteLaw, KaryLaw, epsilon0_upper
from shoal.questions.places import Places

SIDE, BLOCK, DELTA = 16, 4, 1e-6
MAP = Places(48_100_000, 11_500_000, 48_172_360, 11_608_550, SIDE, SIDE)
PLANE = plane_of(MAP)


@dataclass(frozen=True)
class Line:
    """One mechanism at one epsilon0, asked of so many devices."""

    name: str
    epsilon0: float
    per_km: float
    central: float
    cell: float
    block: float
    elsewhere: float
    away_m: float


def table_of(mechanism: Mechanism) -> NDArray[np.float64]:
    law = mechanism.privacy()
    if isinstance(law, KaryLaw):
        return np.full((law.k, law.k), law.other / law.total) + np.eye(law.k) * (
            (law.same - law.other) / law.total
        )
    assert isinstance(law, FiniteLaw)
    return np.array(law.rows, dtype=np.float64) / law.total


def per_km(mechanism: Mechanism) -> float:
    law = mechanism.privacy()
    if isinstance(law, KaryLaw):  # neighbours are told apart by all of epsilon0
        return epsilon0_upper(law) / (min(PLANE.width, PLANE.height) / 1e6)
    assert isinstance(law, FiniteLaw)
    return epsilon_per_km(law, PLANE)


def line(name: str, mechanism: Mechanism, n: int) -> Line:
    """Everything about it. The table is solved: A with P A = 1, and of a set of cells the score of
    a report is its sum over the set.
    """
    table = table_of(mechanism)
    scores = np.linalg.inv(table)
    held = np.append(np.full(SIDE * SIDE, 0.99 * n / SIDE**2), 0.01 * n)

    def error(cells: NDArray[np.int64]) -> float:
        own = scores[:, cells].sum(axis=1)
        return float(held @ (table @ own**2 - (table @ own) ** 2))

    every = np.arange(SIDE * SIDE).reshape(SIDE, SIDE)
    corners = range(0, SIDE, BLOCK)
    blocks = [every[i : i + BLOCK, j : j + BLOCK].ravel() for i in corners for j in corners]
    row, column = np.divmod(np.arange(SIDE * SIDE), SIDE)
    apart = np.hypot(
        (row[:, None] - row) * PLANE.height / 1e3, (column[:, None] - column) * PLANE.width / 1e3
    )
    on_map = table[:-1, :-1] / table[:-1, :-1].sum(axis=1, keepdims=True)
    return Line(
        name,
        epsilon0_upper(mechanism.privacy()),
        per_km(mechanism),
        certify(mechanism.privacy(), n, DELTA).epsilon_upper,
        math.sqrt(np.mean([error(np.array([cell])) for cell in range(SIDE * SIDE)])),
        math.sqrt(np.mean([error(block) for block in blocks])),
        math.sqrt(error(np.array([SIDE * SIDE]))),
        float((on_map * apart).sum(axis=1).mean()),
    )


def made(name: str, epsilon0: float, setting: str = "") -> Mechanism:
    return create(design(name, MAP, epsilon0, setting), MAP)


def at(name: str, setting: str, of: Callable[[Mechanism], float], target: float) -> Mechanism:
    """The largest epsilon0 with ``of`` at most ``target``: halved to a hundredth."""
    low, high = 0.01, 24.0
    for _ in range(11):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if of(made(name, middle, setting)) <= target else (low, middle)
    return made(name, low, setting)


def promises(n: int, epsilon0: float) -> None:
    """What the same epsilon0 comes to by distance, with and without a border."""
    for setting in ("cut", "clamped"):
        mechanism = made("planar", epsilon0, setting)
        assert isinstance(mechanism, PlanarResponse)
        upper = certify(mechanism.privacy(), n, DELTA).epsilon_upper
        found = metric_guarantee(mechanism, n, DELTA, upper, (500.0,))
        decay = -math.log(mechanism.decay / 2.0**64) * 1e6
        sys.stdout.write(
            f"{setting}, epsilon0 {epsilon0:g}: decay {decay:.3f} per km, promised "
            f"{bound_text(found.epsilon_per_km)}; {n:,} devices: {bound_text(upper)}, within 500 m "
            f"{bound_text(found.moves[0].epsilon_upper)}, seen alone "
            f"{bound_text(found.moves[0].epsilon0)}\n"
        )


def main() -> None:
    """Print what is promised, and the tables."""
    promises(100_000, 6.0)
    n, head = 100_000, "| | epsilon0 | per km | central | cell | block | elsewhere | metres |"
    settings = (("krr", ""), ("planar", "cut"), ("planar", "clamped"))
    for title, of, targets in (
        ("central epsilon", lambda m: certify(m.privacy(), n, DELTA).epsilon_upper, (0.5, 1.0)),
        ("epsilon per kilometre", per_km, (1.0, 2.0)),
    ):
        for target in targets:
            sys.stdout.write(f"\n{n:,} devices, {title} {target:g}\n\n{head}\n{'|---' * 8}|\n")
            for name, setting in settings:
                found = at(name, setting, of, target)
                assert isinstance(found, PlanarResponse) or name == "krr"
                one = line(f"`{name}` {f'`{setting}`' * bool(setting)}".strip(), found, n)
                figures = (
                    *map(bound_text, (one.epsilon0, one.per_km, one.central)),
                    *(f"{one.cell:,.0f}", f"{one.block:,.0f}", f"{one.elsewhere:,.0f}"),
                    f"{one.away_m:,.0f}",
                )
                sys.stdout.write(f"| {one.name} | {' | '.join(figures)} |\n")
                sys.stdout.flush()


if __name__ == "__main__":
    main()
