"""Write the last table of docs/ACCURACY.md: what other public implementations reach at the same
central guarantee, as far as a source or a formula of theirs says it.

    PYTHONPATH=. .venv/bin/python tools/accuracy_others.py

Single messages of pure-ldp and multi-freq-ldpy have no central guarantee. Here they get
the largest epsilon0 that our accountant allows, and the error of their estimators
(`python -m benchmarks peers` measures that it is the one computed). tests/unit/packaging/
test_accuracy.py says when the table is out of date.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from shoal.accounting.solving.solve import largest_epsilon0
from shoal.arrays import np
from shoal.cli.figures import figure
from shoal.domain import Categories
from shoal.mechanisms import create, design
from shoal.privacy import LocalPrivacy
from tests.worlds.modules import ROOT

PAGE = ROOT / "docs" / "ACCURACY.md"
BEGIN, END = "<!-- tools/accuracy_others.py writes from here -->", "<!-- others end here -->"
EPSILON, DELTA, DEVICES = 1.0, 1e-6, 100_000
DOMAIN = Categories(tuple(f"c{i}" for i in range(15)))
BOTH = "pure-ldp 1.2.0, multi-freq-ldpy 0.2.5"
SINGLE = (
    ("k-ary responses", BOTH, "krr", ""),
    ("optimized unary encoding, p = 1/2", BOTH, "unary", "oue"),
    ("optimized local hashing, g = e^epsilon0 + 1", BOTH, "local_hash", "olh"),
    ("one Hadamard bit", "pure-ldp 1.2.0", "hadamard", ""),
    ("subset selection", "multi-freq-ldpy 0.2.5", "subset", ""),
)


def single(title: str, who: str, name: str, setting: str) -> str:
    """A randomizer of theirs at the epsilon0 that our accountant allows."""

    def law(epsilon0: float) -> LocalPrivacy:
        return create(design(name, DOMAIN, epsilon0, setting), DOMAIN).privacy()

    epsilon0, _ = largest_epsilon0(law, EPSILON, DELTA, DEVICES)
    mechanism = create(design(name, DOMAIN, epsilon0, setting), DOMAIN)
    even = np.full(DOMAIN.size, DEVICES // DOMAIN.size, dtype=np.int64)
    heavy = np.array([DEVICES // 2, *[DEVICES // 30] * (DOMAIN.size - 1)], dtype=np.int64)
    errors = [float(mechanism.expected_stderr(counts)[0]) for counts in (even, heavy)]
    kind = f"computed: our accountant, epsilon0 = {epsilon0:.3g}, and the variance of its estimator"
    told = f"{figure(errors[0])}; {figure(errors[1])} in a cell of half the devices"
    return f"| {title} | {who} | {told} | 1 | {kind} |"


def rows() -> Iterator[str]:
    """Line by line."""
    for one in SINGLE:
        yield single(*one)
    dummies = math.sqrt(32.0 * math.log(2.0 / DELTA)) / EPSILON
    yield (
        f"| uniform dummies, 32 k ln(2 / delta) / epsilon^2 of them | wangsw/PrivacyAmplification "
        f"| {figure(dummies * math.sqrt(1.0 - 1.0 / DOMAIN.size))} | "
        f"{1.0 + dummies**2 * DOMAIN.size / DEVICES:.2f} | computed from its rule |"
    )
    yield (
        "| one message and dummies, 2^24 cells, (1, 1e-10) | hkustDB/SDPFE at 43a2207, "
        f"FE, c = 1 | {figure(42867.2 / math.sqrt(1 << 24))} | 9.51 | measured by its authors: "
        "`result/fe,aol01,n=100000,B=16777216,C=1.000000,08-31-13-35-24.out`, L2 error over all "
        "cells |"
    )
    a = math.exp(-EPSILON / 2.0)
    both = math.sqrt(2.0) * math.sqrt(2.0 * a) / (1.0 - a)
    yield (
        "| Prio3Histogram, discrete Laplace noise of both aggregators, (1, 0) | divviup/libprio-rs "
        f"| {figure(both)} | 1, of two shares | computed "
        "from `src/flp/types/dp.rs` (sensitivity 2, each share); no shuffler, but two aggregators "
        "that do not collude |"
    )


def table() -> str:
    """What stands between the marks."""
    head = "| protocol | implementation | error of a cell | messages | what the figure is |"
    return "\n".join([head, "|---" * 5 + "|", *rows()])


def main() -> None:
    """Write it."""
    written, text = table(), PAGE.read_text()
    head, tail = text.split(BEGIN)[0], text.split(END)[1]
    PAGE.write_text(f"{head}{BEGIN}\n\n{written}\n\n{END}{tail}")


if __name__ == "__main__":
    main()
