"""Write the tables of docs/MECHANISMS.md, "What we do not have, and why": the wheel mechanism for
sets and PCKV for keys with values, each beside what is registered, by the accountant's own bounds.

    PYTHONPATH=. .venv/bin/python tools/missing_randomizers.py

Errors are standard errors in devices. *Wheel* (Wang, Li, Zhong, Chen, Wang, Zhou, Peng, Shi, Qian,
"Set-valued data publication with local privacy: tight error bounds and efficient mechanisms", PVLDB
13(8), 2020): each of a device's m items covers an arc of length p of a circle, at a place that a
hash function of the device's own says; a point is reported, e^epsilon0 times as likely where an arc
covers it. Here no two arcs of a device meet, which is kinder than the truth, and m p = 1 / g with a
whole number g: the law of two sets without a common item is then that of local hashing to g values.

*PCKV* (Gu, Li, Cheng, Xiong, Cao, "PCKV: locally differentially private correlated key-value data
collection with optimized utility", USENIX Security 2020, PCKV-GRR): one of d keys with a value that
was rounded to +1 or -1 is drawn from 2 d answers. The true one weighs ``same``, the true key with
the other sign ``flip``, every other answer 1. With ``flip`` = 1 that is ``krr`` over 2 d cells.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

from shoal.accounting.numerics.curve import QUICK_EFFORT
from shoal.accounting.several_messages.noise_design import design_dummies
from shoal.accounting.solving.solve import largest_epsilon0
from shoal.cli.figures import figure
from shoal.mechanisms.categories.krr import law as krr_law
from shoal.mechanisms.categories.krr import least_uniform
from shoal.mechanisms.parts import laws
from shoal.privacy import FiniteLaw, LocalPrivacy
from tests.worlds.modules import ROOT

PAGE = ROOT / "docs" / "MECHANISMS.md"
BEGIN, END = "<!-- tools/missing_randomizers.py writes from here -->", "<!-- to here -->"
CELLS, TARGET, DELTA = 1_024, 1.0, 1e-6
DEVICES = (10_000, 1_000_000)
ITEMS = (1, 4, 16)
LOCAL = (1.0, 2.0, 4.0)
KEYS, FLIPS = 8, (1, 2, 4, 16)
_UNIT = 1 << 32  # of a weight of PCKV
_HASHES = tuple(1 << power for power in range(1, 17))


def stderr(n: int, held: int, p: float, q: float) -> float:
    """Of a count that ``held`` of n devices raise with probability p each, the others with q."""
    return math.sqrt(held * p * (1.0 - p) + (n - held) * q * (1.0 - q)) / (p - q)


def wheel(items: int, g: int, ratio: float) -> tuple[float, float]:
    """(p, q): the report lies in the arc of an item that the device has, or of one that it has
    not.
    """
    return ratio / (items * (ratio + g - 1.0)), 1.0 / (items * g)


def one_item(items: int, p: float, q: float) -> tuple[float, float]:
    """(p, q) where a device draws one of its items, and answers with it by a randomizer that has
    these chances.
    """
    return p / items + q * (1.0 - 1.0 / items), q


def wheel_error(items: int, n: int, epsilon0: float) -> float:
    """The least error over g of an item that as many devices have as any other."""
    held = n * items // CELLS
    return min(stderr(n, held, *wheel(items, g, math.exp(epsilon0))) for g in _HASHES)


def hashed(g: int) -> Callable[[float], LocalPrivacy]:
    """The law at a local epsilon."""
    return lambda epsilon0: laws.local_hash(g, laws.ratio_below(epsilon0), wise=2)


def shuffled_wheel(n: int) -> dict[int, float]:
    """g -> the largest epsilon0 of the central target."""
    return {
        g: largest_epsilon0(hashed(g), TARGET, DELTA, n, effort=QUICK_EFFORT)[0] for g in _HASHES
    }


def sets_after_shuffling(items: int, n: int, known: dict[int, float]) -> tuple[float, float]:
    """(wheel, one item by ``krr``) at the central target; ``known``: of ``shuffled_wheel``."""
    held = n * items // CELLS
    theirs = min(
        stderr(n, held, *wheel(items, g, math.exp(epsilon0))) for g, epsilon0 in known.items()
    )
    epsilon0, _ = largest_epsilon0(
        lambda e: krr_law(CELLS, least_uniform(CELLS, e)), TARGET, DELTA, n, effort=QUICK_EFFORT
    )
    ratio = math.exp(epsilon0)
    q = 1.0 / (ratio + CELLS - 1.0)
    return theirs, stderr(n, held, *one_item(items, ratio * q, q))


def sets_at_local(items: int, n: int, epsilon0: float) -> tuple[float, float]:
    """(wheel, one item by subset selection of the best size) at one epsilon0."""
    ratio, held = math.exp(epsilon0), n * items // CELLS

    def subset(d: int) -> tuple[float, float]:
        p = d * ratio / (d * ratio + CELLS - d)
        return p, (d - p) / (CELLS - 1.0)

    ours = min(stderr(n, held, *one_item(items, *subset(d))) for d in range(1, CELLS // 2 + 1))
    return wheel_error(items, n, epsilon0), ours


def pckv_law(flip: int, epsilon0: float) -> FiniteLaw:
    """The table of 2 ``KEYS`` answers; number 2 j is key j with +1, 2 j + 1 with -1."""
    same = max(int(laws.ratio_below(epsilon0) * _UNIT), flip * _UNIT)

    def weight(one: int, two: int) -> int:
        if one == two:
            return same
        return flip * _UNIT if one // 2 == two // 2 else _UNIT

    answers = range(2 * KEYS)
    return FiniteLaw(tuple(tuple(weight(one, two) for two in answers) for one in answers))


def pckv(flip: int, n: int) -> tuple[float, float, float]:
    """(epsilon0, error of a key's count, error of the sum of its values) at the central target,
    keys alike.
    """
    epsilon0, law = largest_epsilon0(
        lambda e: pckv_law(flip, max(e, math.log(flip) + 1e-9)),
        TARGET,
        DELTA,
        n,
        effort=QUICK_EFFORT,
    )
    assert isinstance(law, FiniteLaw)
    same, other = (float(Fraction(law.rows[0][at], law.total)) for at in (0, 2))
    wrong = float(Fraction(law.rows[0][1], law.total))
    held = n // KEYS
    gain = same - wrong
    spread = held * (same + wrong - gain**2) + (n - held) * 2.0 * other
    return epsilon0, stderr(n, held, same + wrong, 2.0 * other), math.sqrt(spread) / gain


def messages_error(items: int, n: int) -> float:
    """Of every count, where a device sends a message for each item among Poisson dummies: two sets
    without a common item differ in as many cells as one message in each of ``items`` tables.
    """
    return math.sqrt(design_dummies(CELLS, n, TARGET, DELTA, tables=items).dummies)


def sets_table() -> list[str]:
    """Wheel and one drawn item, after shuffling and at one epsilon0, and several messages."""
    places = [f"{n:,}" for n in DEVICES]
    heads = [f"central 1, n = {each}" for each in places]
    heads += ["a message for each item"]
    heads += [f"epsilon0 = {epsilon0:g}, n = {places[0]}" for epsilon0 in LOCAL]
    lines = [f"| items | {' | '.join(heads)} |", "|---" * (1 + len(heads)) + "|"]
    known = {n: shuffled_wheel(n) for n in DEVICES}
    for items in ITEMS:
        shuffled = [sets_after_shuffling(items, n, known[n]) for n in DEVICES]
        local = [sets_at_local(items, DEVICES[0], epsilon0) for epsilon0 in LOCAL]
        cells = [f"{figure(theirs)}, {figure(ours)}" for theirs, ours in (*shuffled, *local)]
        cells.insert(len(DEVICES), figure(messages_error(items, DEVICES[0])))
        lines.append(f"| {items} | {' | '.join(cells)} |")
    return lines


def keys_table() -> list[str]:
    """PCKV by the weight of the other sign; the first is ``krr``."""
    heads = " | ".join(
        f"{told}, n = {n:,}" for n in DEVICES for told in ("epsilon0", "count", "sum of values")
    )
    lines = [f"| weight of the other sign | {heads} |", "|---" * 7 + "|"]
    for flip in FLIPS:
        found = [figure(each) for n in DEVICES for each in pckv(flip, n)]
        lines.append(f"| {flip}{' (`krr`)' * (flip == 1)} | {' | '.join(found)} |")
    return lines


def tables() -> str:
    """What stands between the marks."""
    return "\n".join(
        [
            f"Sets of so many of {CELLS:,} items: the wheel, then one drawn item (by `krr` after "
            "shuffling,",
            "by `subset` at one epsilon0), and `dummies` with a message for each item:",
            "",
            *sets_table(),
            "",
            f"Keys with values, {KEYS} keys that equally many devices have:",
            "",
            *keys_table(),
        ]
    )


def main() -> None:
    """Write them."""
    text = PAGE.read_text()
    before, rest = text.split(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}\n\n{tables()}\n\n{END}{rest.split(END, 1)[1]}")


if __name__ == "__main__":
    main()
