"""Which mechanism answers which question, with which integers, and how many bytes and messages its
reports have: docs/WIRE.md, 5. Of the mechanisms whose law is known here, and of no other.

How the integers of one mechanism fit one another is for its law (``laws``, ``several``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from shoal.checker.laws import points_of
from shoal.checker.questions.domains import (
    MOST_ANSWERS,
    Rule,
    answers_of,
    kind_of,
    tables_of,
)
from shoal.checker.several.tables import cells_in_tables
from shoal.protos import task_pb2

_WORDS = 1 << 64
_MOST_TABLE = 1 << 16  # cells times outputs, of what has a table of them
_BITS = 32_768  # cells of a report that has a bit for each
_MOST_VECTORS = 1 << 24
_MOST_LINES = 1_024  # rows and columns of a map in blocks
_MOST_COORDINATES = 1 << 26  # that a device looks at for one report
_GRIDS = range(1 << 16, (1 << 22) + 1)
_SEED, _INDEX = 16, 2
MOST_MESSAGES = 200

Range = tuple[int, int]
_ANY_CHANCE: Range = (1, _WORDS - 1)
_CELLS: Range = (2, MOST_ANSWERS)
_FEW_CELLS: Range = (2, _BITS)
_DUMMIES: Mapping[str, Range] = {
    "k": _CELLS,
    "shares": (1, 100_000_000),
    "slots": (2, MOST_MESSAGES),
    "dummies": (1, (1 << 52) - 1),
}
_ONE_CELL = frozenset({"yes_no", "categories", "numeric", "record", "places"})
_NUMBERS = frozenset({"numeric"})


@dataclass(frozen=True, slots=True)
class KnownMechanism:
    """``questions``: kinds of them that it answers. ``integers``: what a task states, and from what
    to what. ``optional``: what it may leave out. ``bytes_of``: a message, from the task's integers.
    """

    questions: frozenset[str]
    integers: Mapping[str, Range]
    bytes_of: Callable[[Mapping[str, int]], int]
    optional: frozenset[str] = frozenset()


def integers_of(task: task_pb2.Task) -> dict[str, int]:
    """Of its mechanism, and of its map."""
    integers = {one.name: one.value for one in task.mechanism.parameters}
    if task.domain.HasField("places"):
        shape = task.domain.places
        integers |= {"rows": shape.rows, "columns": shape.columns}
    return integers


def is_known(mechanism: str) -> bool:
    """Whether it is known here which questions it answers. No law counts of one that is not."""
    return mechanism in _KNOWN


def rules_of_mechanism(task: task_pb2.Task) -> Iterator[Rule]:
    """What the mechanism must be, for a question that keeps its rules."""
    name, domain = task.mechanism.name, task.domain
    names = [one.name for one in task.mechanism.parameters]
    yield names == sorted(set(names)), "its integers are not in order, each of them once"
    known = _KNOWN.get(name)
    if known is None:
        return
    kind = kind_of(domain)
    yield kind in known.questions, f"{name} answers no question of this kind"
    stated, all_of_them = set(names), set(known.integers)
    yield all_of_them - known.optional <= stated <= all_of_them, f"{name} has other integers"
    integers = integers_of(task)
    for one in names:
        low, high = known.integers[one]
        yield low <= integers[one] <= high, f"{name}: {one} is not from {low} to {high}"
    if kind == "record":
        together = domain.record.together
        yield together == (name == "marginals"), f"{name} answers no record in this way"
    said, answers = integers.get("k"), answers_of(domain)
    wrong = f"{name} is for {said:,} answers, and the question has {answers:,}" if said else ""
    yield said is None or said == answers, wrong
    yield from _fits(task, integers)
    yield from _shape(task, known, integers)


def _fits(task: task_pb2.Task, integers: Mapping[str, int]) -> Iterator[Rule]:
    """What is asked of one mechanism alone."""
    name, domain = task.mechanism.name, task.domain
    if name == "piecewise":
        table = integers["k"] * integers["outputs"] <= _MOST_TABLE
        yield table, "piecewise has too many levels and outputs"
    elif name == "projective":
        q = integers["field"]
        width = _width(q, integers["k"])
        yield q**width <= _MOST_VECTORS, "projective has too large a space"
    elif name == "privunit":
        vector, many, near = domain.vector, integers["candidates"], integers["inside"]
        yield vector.norm == task_pb2.NORM_L2, "privunit wants a vector of bounded length"
        yield vector.grid in _GRIDS, "privunit wants another grid"
        yield integers["dimension"] == vector.dimension, "privunit is for another vector"
        yield not (many & (many - 1) or near & (near - 1)), "privunit wants powers of two"
        work = many * (vector.dimension + 1)
        yield work <= _MOST_COORDINATES, "privunit has too many candidates to look at"
    elif name == "marginals":
        tables = tables_of(domain.record)
        yield integers["tables"] == len(tables), "marginals has other tables than its question"
    elif name == "ranges":
        bins = domain.categories.lower_bounds
        yield domain.HasField("numeric") or len(bins) > 0, "ranges wants answers in order"
    elif name == "blocks":
        longest = max(integers["rows"], integers["columns"])
        yield integers["side"] <= longest <= _MOST_LINES, "blocks are as wide as the map at most"


def _shape(
    task: task_pb2.Task, known: KnownMechanism, integers: Mapping[str, int]
) -> Iterator[Rule]:
    name, most, fewest = task.mechanism.name, 1, 0
    if "slots" in known.integers:
        most, fewest = integers["slots"], 1
    if name in ("blocks", "marginals", "ranges"):
        fewest, cells = cells_in_tables(name, integers)
        yield cells <= MOST_ANSWERS, f"{name} has too many cells in all"
        yield fewest <= most, f"{name} has no slot for each of its true messages"
        fewest = 0 if fewest == most else fewest
    said = task.messages, task.fewest_messages
    yield said == (most, fewest), f"{name} has another number of messages than its task"
    size = known.bytes_of(integers)
    yield task.report_size == size, f"messages of {name} have {size} bytes, not {task.report_size}"


def _named(cells: int) -> int:
    """Bytes that name one of so many cells."""
    return 1 if cells <= 1 << 8 else 2 if cells <= 1 << 16 else 4


def _below(room: int) -> int:
    """Bytes of a number below ``room``, as few as hold the largest."""
    return -(-(room - 1).bit_length() // 8)


def _one(_: Mapping[str, int]) -> int:
    return 1


def _cell(integers: Mapping[str, int]) -> int:
    return _named(integers["k"])


def _bitmap(integers: Mapping[str, int]) -> int:
    return -(-integers["k"] // 8)


def _index_and_bit(integers: Mapping[str, int]) -> int:
    return _below(2 << max(1, (integers["k"] - 1).bit_length()))


def _width(q: int, k: int) -> int:
    """Entries of the vectors of the least space that has ``k`` points."""
    width = 2
    while points_of(q, width) < k:
        width += 1
    return width


def _point(integers: Mapping[str, int]) -> int:
    q = integers["field"]
    return _below(points_of(q, _width(q, integers["k"])))


def _in_tables(name: str) -> Callable[[Mapping[str, int]], int]:
    return lambda integers: _named(cells_in_tables(name, integers)[1])


def _several(name: str, questions: frozenset[str], **more: Range) -> tuple[str, KnownMechanism]:
    return name, KnownMechanism(questions, {**_DUMMIES, **more}, _in_tables(name))


_KNOWN: Mapping[str, KnownMechanism] = {
    "binary_rr": KnownMechanism(
        frozenset({"yes_no"}), {"yes_if_no": _ANY_CHANCE, "yes_if_yes": _ANY_CHANCE}, _one
    ),
    "hadamard": KnownMechanism(
        _ONE_CELL, {"k": _CELLS, "flip": (1, _WORDS // 2 - 1)}, _index_and_bit
    ),
    "krr": KnownMechanism(_ONE_CELL, {"k": _CELLS, "uniform": _ANY_CHANCE}, _cell),
    "kmean": KnownMechanism(_NUMBERS, {"k": _CELLS, "uniform": _ANY_CHANCE}, _cell),
    "one_bit_mean": KnownMechanism(
        _NUMBERS, {"k": _FEW_CELLS, "slope": (1, _WORDS // 2 - 1)}, _one
    ),
    "piecewise": KnownMechanism(
        _NUMBERS,
        {
            "k": _FEW_CELLS,
            "outputs": (2, _MOST_TABLE // 3),
            "window": (1, _MOST_TABLE // 3),
            "gain": _ANY_CHANCE,
        },
        lambda integers: _named(integers["outputs"]),
    ),
    "privunit": KnownMechanism(
        frozenset({"vector"}),
        {
            "dimension": (1, 65_535),
            "candidates": (2, 1 << 14),
            "inside": (1, 1 << 13),
            "uniform": _ANY_CHANCE,
        },
        lambda _: _SEED + _INDEX,
    ),
    "projective": KnownMechanism(
        _ONE_CELL,
        {"k": (3, MOST_ANSWERS), "field": (2, 1 << 12), "include": _ANY_CHANCE},
        _point,
    ),
    "subset": KnownMechanism(
        _ONE_CELL,
        {"k": _FEW_CELLS, "d": (1, MOST_ANSWERS - 1), "include": _ANY_CHANCE},
        _bitmap,
    ),
    "unary": KnownMechanism(
        _ONE_CELL,
        {"k": _FEW_CELLS, "one_if_one": _ANY_CHANCE, "one_if_zero": _ANY_CHANCE},
        _bitmap,
    ),
    "dummies": KnownMechanism(
        _ONE_CELL | {"discovery"},
        {**_DUMMIES, "uniform": _ANY_CHANCE},
        _cell,
        frozenset({"uniform"}),
    ),
    **dict(
        (
            _several("blocks", frozenset({"places"}), side=(2, 256)),
            _several("marginals", frozenset({"record"}), tables=(1, MOST_MESSAGES)),
            _several("ranges", frozenset({"categories", "numeric"}), base=(2, 256), levels=(1, 16)),
        )
    ),
}
