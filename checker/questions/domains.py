"""The questions of tasks: what each must be, and how many answers it has (docs/WIRE.md, 4).

A mechanism draws among the answers of its question. A task whose integers are for fewer of them has
another law than it says: more answers are more dummies, for which there may be no room.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TypeAlias

from shoal.protos import task_pb2

# (whether it is kept, what is wrong if it is not). Rules after one that is broken are not asked.
Rule: TypeAlias = tuple[bool, str]

MOST_ANSWERS = 65_536
LETTERS, END = 32, 31  # symbols of words
_WORDS = 1 << 62  # of an open vocabulary
_MOST_RECORDS = 1 << 62
_ATTRIBUTES = range(2, 13)
_MOST_COORDINATES = 10_000_000
_LEAST_CLIP, _MOST_CLIP, _MOST_GRID = 1e-100, 1e100, (1 << 48) - 1
_POLE, _DATE_LINE = 85_000_000, 180_000_000  # microdegrees
_FIRST_ROWS, _MOST_ROWS = 64, 65_536  # of a map that is looked at part by part


def kind_of(domain: task_pb2.Domain) -> str:
    """The field that is set; "" where none is."""
    return domain.WhichOneof("kind") or ""


def rules_of_domain(domain: task_pb2.Domain) -> Iterator[Rule]:
    """What a question must be."""
    kind = kind_of(domain)
    yield kind != "", "it has no question"
    if kind == "categories":
        yield from _categories(domain.categories)
    elif kind == "numeric":
        yield from _numeric(domain.numeric)
    elif kind == "vector":
        yield from _vector(domain.vector)
    elif kind == "words":
        labels = list(domain.words.labels)
        yield 1 <= len(labels) < MOST_ANSWERS, "it looks for no words, or for too many"
        yield len(set(labels)) == len(labels), "it looks for one word twice"
    elif kind == "discovery":
        yield from _discovery(domain.discovery)
    elif kind == "record":
        yield from _record(domain.record)
    elif kind == "places":
        yield from _places(domain.places)


def answers_of(domain: task_pb2.Domain) -> int:
    """The cells of a question that keeps its rules: of a discovery those of its largest level, of a
    record those of all its tables, of a vector its coordinates.
    """
    match kind_of(domain):
        case "categories":
            return len(domain.categories.labels) + 1  # and no answer
        case "numeric":
            return int(domain.numeric.levels) + 1
        case "vector":
            return int(domain.vector.dimension)
        case "words":
            return _WORDS
        case "discovery":
            return _largest_level(domain.discovery)
        case "record":
            return sum(tables_of(domain.record))
        case "places":
            return int(domain.places.rows * domain.places.columns) + 1  # and elsewhere
        case _:
            return 2


def tables_of(record: task_pb2.Record) -> list[int]:
    """The cells of each of its tables."""
    sizes = [len(one.answers.labels) + 1 for one in record.attributes]
    return [math.prod(sizes[at] for at in one.attributes) for one in record.marginals]


def symbols_of(asked: task_pb2.Discovery) -> int:
    """Of the alphabet: letters, the end among them, or parts of a part of a map."""
    return int(asked.parts.across**2) if asked.HasField("parts") else LETTERS


def symbols_going_on(asked: task_pb2.Discovery) -> int:
    """Symbols that something may follow."""
    return symbols_of(asked) - (not asked.HasField("parts"))


def first_level(asked: task_pb2.Discovery) -> int:
    """The cells of level 0, another apart: no word is an end alone."""
    return int(symbols_going_on(asked) * symbols_of(asked) ** (asked.first - 1))


def _largest_level(asked: task_pb2.Discovery) -> int:
    later = 0
    if asked.longest > asked.first:
        # so many beginnings of the last level there are
        many = min(asked.most, symbols_going_on(asked) ** (asked.longest - 1))
        later = symbols_of(asked) * many
    return max(first_level(asked), later) + 1


def _categories(asked: task_pb2.Categories) -> Iterator[Rule]:
    labels, bounds = list(asked.labels), list(asked.lower_bounds)
    yield 2 <= len(labels) < MOST_ANSWERS, "its question has too few labels, or too many"
    yield len(set(labels)) == len(labels), "its question has a label twice"
    yield len(bounds) in (0, len(labels)), "its question has another number of bounds than labels"
    yield bounds == sorted(set(bounds)), "the bounds of its question do not rise"


def _numeric(asked: task_pb2.Numeric) -> Iterator[Rule]:
    ends = asked.low, asked.high
    yield all(map(math.isfinite, ends)) and asked.low < asked.high, "its numbers have no range"
    yield 2 <= asked.levels < MOST_ANSWERS, "its numbers have too few levels, or too many"
    step = (asked.high - asked.low) / (asked.levels - 1)
    apart = 2 * math.ulp(max(map(abs, ends))) <= step < math.inf
    yield apart, "the levels of its numbers are not to be told apart"


def _vector(asked: task_pb2.Vector) -> Iterator[Rule]:
    yield 1 <= asked.dimension <= _MOST_COORDINATES, "its vector has no coordinates, or too many"
    yield _LEAST_CLIP <= asked.clip <= _MOST_CLIP, "its vector is not clipped"
    yield 1 <= asked.grid <= _MOST_GRID, "its vector has no grid, or too fine a one"
    yield len(asked.names) in (0, asked.dimension), "its vector has other names than coordinates"


def _discovery(asked: task_pb2.Discovery) -> Iterator[Rule]:
    places = asked.HasField("parts")
    most_first, longest = 3, 32
    if places:
        box, across = asked.parts.map, asked.parts.across
        yield across in (2, 4), "its map is cut into other parts than 2 x 2 or 4 x 4"
        yield (box.rows, box.columns) == (1, 1), "its map does not begin as one"
        yield from _places(box)
        yield not asked.known, "words are left out of a map"
        yield not asked.fresh, "devices answer once about a map, which puts its levels together"
        smallest = min(_MOST_ROWS, box.north - box.south, box.east - box.west)
        most_first, longest = _lengths(across, _FIRST_ROWS), _lengths(across, smallest)
    yield 1 <= asked.first <= most_first, "its first level asks for no symbols, or for too many"
    yield asked.first <= asked.longest <= longest, "it asks for fewer symbols than at first"
    yield asked.most >= 1, "it follows nothing"
    yield _largest_level(asked) <= MOST_ANSWERS, "a level of it has too many cells"
    known = list(asked.known)
    yield len(set(known)) == len(known), "it leaves out one word twice"
    yield all(_is_word(one, asked.longest) for one in known), "what it leaves out is no word"


def _lengths(across: int, rows: int) -> int:
    """How many symbols make so many rows at most."""
    count = 0
    while across ** (count + 1) <= rows:
        count += 1
    return count


def _is_word(symbols: bytes, longest: int) -> bool:
    ends = symbols[-1:] == bytes((END,))
    letters = symbols[:-1] if ends else symbols
    long = len(symbols) == longest or (ends and len(symbols) < longest)
    return long and len(letters) > 0 and max(letters) < END


def _record(asked: task_pb2.Record) -> Iterator[Rule]:
    names = [one.name for one in asked.attributes]
    yield len(names) in _ATTRIBUTES, "its record has too few attributes, or too many"
    yield len(set(names)) == len(names), "its record has an attribute twice"
    for one in asked.attributes:
        yield from _categories(one.answers)
    tables = [list(one.attributes) for one in asked.marginals]
    yield len(tables) > 0, "its record has no table"
    yield all(tables) and tables == sorted(tables), "the tables of its record are not in order"
    yield len(set(map(tuple, tables))) == len(tables), "its record has a table twice"
    yield all(one == sorted(set(one)) for one in tables), "a table has attributes out of order"
    asked_for = {at for one in tables for at in one}
    yield asked_for == set(range(len(names))), "a table has attributes that there are not, or none"
    yield sum(tables_of(asked)) <= MOST_ANSWERS, "the tables of its record have too many cells"
    records = math.prod(len(one.answers.labels) + 1 for one in asked.attributes)
    yield records <= _MOST_RECORDS, "its record has too many answers"


def _places(asked: task_pb2.Places) -> Iterator[Rule]:
    yield -_POLE <= asked.south < asked.north <= _POLE, "its map has no height"
    yield -_DATE_LINE <= asked.west < asked.east <= _DATE_LINE, "its map has no width"
    yield asked.rows >= 1 and asked.columns >= 1, "its map has no cells"
    yield asked.rows * asked.columns < MOST_ANSWERS, "its map has too many cells"
    wide = asked.rows <= asked.north - asked.south and asked.columns <= asked.east - asked.west
    yield wide, "the cells of its map are less than a microdegree wide"
