"""The integers of a task whose devices send several messages, and the law that they state."""

from __future__ import annotations

from fractions import Fraction

from shoal.errors import Kind, ShoalError
from shoal.limits import LIMITS
from shoal.mechanisms.base import Parameter
from shoal.mechanisms.maps.block_squares import MOST_SIDE
from shoal.mechanisms.noise import polya
from shoal.mechanisms.parts.thresholds import WORDS
from shoal.mechanisms.several.cell_noise import MOST_REACH
from shoal.mechanisms.several.names import (
    BLOCKS,
    CANCELLING,
    DUMMIES,
    MARGINALS,
    RANGES,
    SIGNED_COUNT,
    SPLIT_MIX,
)
from shoal.mechanisms.several.noise_law import MOST_SHARES, MOST_SIZE, NoiseLaw, Truth
from shoal.mechanisms.several.tree import MOST_BASE, MOST_LEVELS, CellTree
from shoal.task import SHUFFLER_NOISE, MechanismSpec

UNIT = 1 << 32  # q and expected numbers are integers out of this
# b = 8,192 half steps: a device's table of the noise has 240,000 entries, some 35 MB
MOST_SPLIT_SCALE = polya.UNIT << 13
_MOST_NUMBER = (1 << 52) - 1

_SHARED = (
    Parameter("shares", 1, MOST_SHARES, "devices whose noise adds up to what is accounted for"),
    Parameter("slots", 2, LIMITS.messages, "messages of one submission, at most"),
)
_SIGNED = (
    Parameter("q", 1, UNIT - 1, "ratio of the singles' geometric law, out of 2^32"),
    Parameter("longest", 1, MOST_SIZE, "messages of the largest single"),
    Parameter("floods", 1, _MOST_NUMBER, "expected floods in a cell of a batch, out of 2^32"),
    Parameter("largest", 1, MOST_SIZE, "messages of each sign in the largest flood"),
)
_DUMMIES = Parameter(
    "dummies", 1, _MOST_NUMBER, "expected dummies in a cell of a batch, out of 2^32"
)
_CELLS = Parameter("k", 2, LIMITS.cells, "number of cells of the domain")

PARAMETERS = {
    BLOCKS: (
        _CELLS,
        Parameter("side", 2, MOST_SIDE, "cells from one end of a block to the other"),
        *_SHARED,
        _DUMMIES,
    ),
    CANCELLING: (_CELLS, *_SHARED, *_SIGNED),
    DUMMIES: (_CELLS, *_SHARED, _DUMMIES),
    MARGINALS: (
        _CELLS,
        Parameter("tables", 1, LIMITS.messages, "marginals, true messages of a device"),
        *_SHARED,
        _DUMMIES,
    ),
    RANGES: (
        _CELLS,
        Parameter("base", 2, MOST_BASE, "blocks of a level that one block of the next has"),
        Parameter("levels", 1, MOST_LEVELS, "levels of the hierarchy, true messages of a device"),
        *_SHARED,
        _DUMMIES,
    ),
    SIGNED_COUNT: (*_SHARED, *_SIGNED),
    SPLIT_MIX: (
        Parameter(
            "scale",
            polya.LEAST_SCALE,
            MOST_SPLIT_SCALE,
            "65536 times b, in half steps: P(x) falls by e every b",
        ),
        _SHARED[0],
        Parameter("slots", 3, LIMITS.messages, "messages that a number is split into"),
        Parameter("bytes", 2, 8, "of a message; numbers are added modulo 2^(8 bytes)"),
    ),
    SHUFFLER_NOISE: (
        _CELLS,
        Parameter("q", 1, UNIT - 1, "ratio of the shuffler's discrete Laplace law, out of 2^32"),
        Parameter("reach", 1, MOST_REACH, "noise on either side of its mean, at most"),
    ),
}
_UNIFORM = Parameter(
    "uniform",
    1,
    WORDS - 1,
    "probability, out of 2^64, that the true message is of a cell drawn from all",
)
_HIDDEN = (
    Parameter("empties", 1, _MOST_NUMBER, "scale of the empty events of a batch, out of 2^32"),
    Parameter("widest", 1, MOST_SIZE, "messages of the largest empty event; with empties"),
    Parameter("full", 1, 1, "1: every submission is filled up with empty messages"),
)
OPTIONAL = {
    CANCELLING: (_UNIFORM, *_HIDDEN),
    DUMMIES: (_UNIFORM,),
    SIGNED_COUNT: (_UNIFORM, *_HIDDEN),
}
"""``uniform`` is left out where the true message is the value. Of ``empties`` with ``widest``, and
``full``, a task has one, or none: then its numbers of messages are not hidden.
"""


def law_of(spec: MechanismSpec) -> NoiseLaw:
    """The law of these integers. Raises INVALID if they do not fit together."""
    shares, slots = spec.get("shares"), spec.get("slots")
    if spec.name == RANGES:
        tree = tree_of(spec)
        return dummies_of(spec, tree.nodes, tree.levels)
    if spec.name in (DUMMIES, MARGINALS):
        tables = spec.get("tables") if spec.name == MARGINALS else 1
        return dummies_of(spec, spec.get("k"), tables)
    counts = spec.name == SIGNED_COUNT
    return NoiseLaw(
        Truth.SIGN if counts else Truth.CELL,
        1 if counts else spec.get("k"),
        shares,
        slots,
        singles=Fraction(spec.get("q"), UNIT),
        longest=spec.get("longest"),
        floods=Fraction(spec.get("floods"), UNIT),
        largest=spec.get("largest"),
        empties=Fraction(_optional(spec, "empties") or 0, UNIT),
        widest=_optional(spec, "widest") or 0,
        full=_optional(spec, "full") is not None,
    )


def dummies_of(spec: MechanismSpec, cells: int, truths: int) -> NoiseLaw:
    """The law of dummies in so many cells with so many true messages, of these integers."""
    dummies = Fraction(spec.get("dummies"), UNIT)
    shares, slots = spec.get("shares"), spec.get("slots")
    return NoiseLaw(Truth.CELL, cells, shares, slots, dummies=dummies, truths=truths)


def tree_of(spec: MechanismSpec) -> CellTree:
    """The hierarchy of a task for ranges. Raises INVALID if its integers do not fit together."""
    return CellTree(spec.get("k"), spec.get("base"), spec.get("levels"))


def uniform_of(spec: MechanismSpec) -> int | None:
    """The optional "uniform" of ``krr`` for the true message; None where it is left out."""
    return _optional(spec, "uniform")


def _optional(spec: MechanismSpec, name: str) -> int | None:
    return dict(spec.parameters).get(name)


def spec_of(name: str, law: NoiseLaw, uniform: int | None = None) -> MechanismSpec:
    """The other way round. Raises INVALID for a law whose fractions are not out of 2^32."""
    numbers = {"shares": law.shares, "slots": law.slots}
    if law.truth is Truth.CELL:
        numbers["k"] = law.cells
    if law.signed:
        numbers["q"], numbers["floods"] = out_of_unit(law.singles), out_of_unit(law.floods)
        numbers["longest"], numbers["largest"] = law.longest, law.largest
        if law.empties:
            numbers["empties"], numbers["widest"] = out_of_unit(law.empties), law.widest
        if law.full:
            numbers["full"] = 1
    else:
        numbers["dummies"] = out_of_unit(law.dummies)
    if name == MARGINALS:
        numbers["tables"] = law.truths
    if uniform is not None:
        numbers["uniform"] = uniform
    return MechanismSpec.of(name, **numbers)


def out_of_unit(share: Fraction) -> int:
    """Of 2^32, as a task states it. Raises INVALID where that is no integer."""
    scaled = share * UNIT
    if scaled.denominator != 1:
        raise ShoalError(Kind.INVALID, "a task states its noise in fractions out of 2^32")
    return scaled.numerator
