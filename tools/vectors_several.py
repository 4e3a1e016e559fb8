"""Make the test vectors of several messages: ``python tools/vectors_several.py`` writes
tests/vectors/shoal_several_v1.json.

A vector is a task's integers, a cell, the random bytes that a device drew (all requests joined) and
the messages that it must make of them. Another implementation replays them; docs/WIRE.md says how
words are read. The same at every run.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

from vectors_mechanisms import Recorder

from shoal.domain import AnswerRecord, Categories, Domain, Numeric, Places, YesNo
from shoal.mechanisms.several.noise_law import NoiseLaw, Truth
from shoal.mechanisms.several.parameters import UNIT, spec_of
from shoal.mechanisms.several.registry import create
from shoal.questions.record import Attribute, all_pairs
from shoal.task import MechanismSpec

PATH = Path(__file__).resolve().parent.parent / "tests" / "vectors" / "shoal_several_v1.json"
_DRAWS = 12  # of each case


def _cancelling(truth: Truth, cells: int, shares: int, slots: int) -> NoiseLaw:
    q, floods = Fraction(2738592058, UNIT), Fraction(826421356681, UNIT)
    return NoiseLaw(truth, cells, shares, slots, q, 39, floods, 4)


def _among_empties(truth: Truth, cells: int, shares: int, slots: int) -> NoiseLaw:
    bare = _cancelling(truth, cells, shares, slots)
    return replace(bare, empties=Fraction(2000 * UNIT + 321, UNIT), widest=26)


def _labels(count: int) -> Categories:
    return Categories(tuple(f"c{number}" for number in range(count - 1)))


def _split(shares: int, b: int, size: int) -> MechanismSpec:
    return MechanismSpec.of("split_mix", scale=b << 16, shares=shares, slots=5, bytes=size)


def _ranges(cells: int, base: int, levels: int, shares: int, slots: int) -> MechanismSpec:
    return MechanismSpec.of(
        "ranges",
        k=cells,
        base=base,
        levels=levels,
        shares=shares,
        slots=slots,
        dummies=42 * UNIT + 12_345,
    )


_RECORD = AnswerRecord(
    (
        Attribute("age", Categories(("young", "old"), (0, 40))),
        Attribute("sex", Categories(("f", "m"))),
        Attribute("health", Categories(("good", "fair", "poor"))),
    ),
    all_pairs(3),
    together=True,
)


def _marginals(shares: int, slots: int) -> MechanismSpec:
    return MechanismSpec.of(
        "marginals", k=33, tables=3, shares=shares, slots=slots, dummies=42 * UNIT + 12_345
    )


_MAP = Places(48_000_000, 11_000_000, 48_500_000, 11_700_000, 5, 7)  # 36 cells, 13 blocks of 3


def _blocks(shares: int, slots: int) -> MechanismSpec:
    return MechanismSpec.of(
        "blocks", k=36, side=3, shares=shares, slots=slots, dummies=42 * UNIT + 12_345
    )


_HALF = 1 << 63  # a "uniform" of the true message: half of the cells are drawn from all

CASES: tuple[tuple[str, str, Domain, NoiseLaw | MechanismSpec], ...] = (
    ("much noise", "cancelling", _labels(3), _cancelling(Truth.CELL, 3, 300, 63)),
    ("many cells", "cancelling", _labels(300), _cancelling(Truth.CELL, 300, 100_000, 63)),
    ("few slots", "cancelling", _labels(5), _cancelling(Truth.CELL, 5, 600, 4)),
    ("empty ones", "cancelling", _labels(128), _among_empties(Truth.CELL, 128, 3_000, 150)),
    ("full", "cancelling", _labels(4), replace(_cancelling(Truth.CELL, 4, 800, 20), full=True)),
    ("yes/no among empty ones", "signed_count", YesNo(), _among_empties(Truth.SIGN, 1, 1_500, 90)),
    (
        "full yes/no",
        "signed_count",
        YesNo(),
        replace(_cancelling(Truth.SIGN, 1, 300, 9), full=True),
    ),
    (
        "dummies",
        "dummies",
        _labels(40),
        NoiseLaw(Truth.CELL, 40, 1_000, 20, dummies=Fraction(42 * UNIT + 12_345, UNIT)),
    ),
    ("yes/no", "signed_count", YesNo(), _cancelling(Truth.SIGN, 1, 200, 63)),
    (
        "randomized",
        "cancelling",
        _labels(5),
        spec_of("cancelling", _cancelling(Truth.CELL, 5, 600, 63), _HALF),
    ),
    (
        "randomized dummies",
        "dummies",
        _labels(40),
        spec_of("dummies", NoiseLaw(Truth.CELL, 40, 1_000, 20, dummies=Fraction(42)), _HALF),
    ),
    (
        "randomized yes/no",
        "signed_count",
        YesNo(),
        spec_of("signed_count", _cancelling(Truth.SIGN, 1, 200, 63), _HALF),
    ),
    ("ranges", "ranges", Numeric(0.0, 1.0, 40), _ranges(41, 4, 3, 800, 30)),
    ("ranges of few slots", "ranges", Numeric(0.0, 1.0, 16), _ranges(17, 3, 2, 300, 4)),
    ("blocks", "blocks", _MAP, _blocks(500, 30)),
    ("blocks of few slots", "blocks", _MAP, _blocks(400, 5)),
    ("marginals", "marginals", _RECORD, _marginals(700, 40)),
    ("marginals of few slots", "marginals", _RECORD, _marginals(300, 5)),
    ("a number", "split_mix", Numeric(0.0, 10.0, 6), _split(3, 5, 3)),
    ("a number in fine steps", "split_mix", Numeric(0.0, 1.0, 1001), _split(1_000, 2_000, 5)),
)


def text() -> str:
    """The file's text."""
    cases = []
    for title, name, domain, law in CASES:
        made = create(law if isinstance(law, MechanismSpec) else spec_of(name, law), domain)
        draws = []
        for number in range(_DRAWS):
            recorder = Recorder(f"{title} {number}", 0)
            value = number * 7 % domain.size
            messages = made.randomize_one(value, recorder)
            draws.append(
                {
                    "cell": value,
                    "random": recorder.drawn.hex(),
                    "messages": [message.hex() for message in messages],
                }
            )
        cases.append(
            {
                "name": title,
                "mechanism": name,
                "cells": domain.size,
                "parameters": {key: str(value) for key, value in made.spec.parameters},
                "report_size": made.report_size,
                "messages": made.messages,
                "fewest_messages": made.fewest,
                "draws": draws,
            }
        )
    about = "Reports of several messages; docs/WIRE.md, section 5, says how words are read."
    return json.dumps({"about": about, "cases": cases}, indent=1) + "\n"


if __name__ == "__main__":
    PATH.write_text(text())
    sys.stdout.write(f"{PATH}\n")
