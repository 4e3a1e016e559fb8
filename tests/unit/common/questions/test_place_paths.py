"""Places as symbols: which part of a map, which part of that, and so on."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.errors import Kind, ShoalError
from shoal.questions import domain_codec
from shoal.questions.coordinates import degrees
from shoal.questions.discovery import Discovery
from shoal.questions.place_paths import PlacePaths
from shoal.questions.places import ELSEWHERE, Places
from tests.cases import for_each

CITY = Places(48_060_000, 11_360_000, 48_250_003, 11_720_001, 1, 1)
ODD = Places(-7, -11, 60, 53, 1, 1)  # a map of 67 x 64 microdegrees
ASKED = Discovery(2, 4, 5, (), PlacePaths(CITY, 4))


def place(latitude: int, longitude: int) -> str:
    return f"{degrees(latitude)}, {degrees(longitude)}"


@for_each("across, depth", [(2, 1), (2, 3), (2, 6), (4, 1), (4, 2), (4, 3)])
def test_symbols_are_the_digits_of_the_cell_of_the_flat_map(across: int, depth: int) -> None:
    """Every microdegree of a small map, against the rule of flat maps; and the cell that is named
    has it between its edges, and only those.

    Planted: columns before rows -> fails; north edge inside -> fails; a part's row rounded from the
    part before's edges and not from the map's -> fails for 67 microdegrees.
    """
    paths, rows = PlacePaths(ODD, across), across**depth
    flat = Places(ODD.south, ODD.west, ODD.north, ODD.east, rows, rows)
    seen = dict[bytes, int]()
    for latitude in range(ODD.south - 1, ODD.north + 1):
        for longitude in range(ODD.west - 1, ODD.east + 1):
            symbols = paths.path_of(latitude, longitude, depth)
            cell = flat.cell_of(latitude, longitude)
            if cell == flat.size - 1:
                assert symbols == b""
                continue
            row, column, parts = paths.place_of(symbols)
            assert (row * rows + column, parts) == (cell, rows)
            south, west, north, east = paths.edges(symbols)
            assert south <= latitude < north
            assert west <= longitude < east
            assert paths.is_spelling(symbols)
            seen[symbols] = seen.get(symbols, 0) + 1
    for symbols, count in seen.items():
        south, west, north, east = paths.edges(symbols)
        assert count == (north - south) * (east - west)
    assert sum(seen.values()) == 67 * 64


@given(
    st.integers(CITY.south - 50_000, CITY.north + 50_000),
    st.integers(CITY.west - 50_000, CITY.east + 50_000),
)
def test_a_cell_of_few_symbols_is_those_that_begin_so(latitude: int, longitude: int) -> None:
    """Planted: rows of each depth of their own, south + round(height / rows) -> fails."""
    for across in (2, 4):
        paths = PlacePaths(CITY, across)
        deepest = paths.path_of(latitude, longitude, paths.most_length)
        for depth in range(1, paths.most_length):
            assert paths.path_of(latitude, longitude, depth) == deepest[:depth]


def test_a_device_answers_where_it_is_and_elsewhere_when_not_followed() -> None:
    """Planted: a place that is not followed answers with the nearest part -> fails."""
    here = place(48_137_000, 11_575_000)
    symbols = ASKED.word(here)
    level = ASKED.level(0)
    assert (ASKED.levels, level.size, ASKED.size) == (3, 257, 257)
    assert level.beginning(level.encode(here)) == symbols[:2]
    for value in ("", None, "here", place(48_300_000, 11_575_000), 48.1):
        assert level.labels[level.encode(value)] == ELSEWHERE
    first = ASKED.after(0, [symbols[:2]])
    assert first is not None
    assert (first.size, first.beginning(first.encode(here))) == (17, symbols[:3])
    other = ASKED.level(1, [bytes((15, 15))])
    assert other.encode(here) == other.size - 1
    assert all(one.is_spelled(cell) for one in (level, first) for cell in range(one.size - 1))
    assert ASKED.after(2, [symbols]) is None


def test_all_cells_have_names_of_their_own() -> None:
    for across in (2, 4):
        asked = Discovery(3, 5, 5, (), PlacePaths(ODD, across)) if across == 2 else ASKED
        labels = asked.level(0).labels
        assert len(set(labels)) == len(labels)
    assert ASKED.level(0).labels[0] == "48.060 to 48.072, 11.360 to 11.383"


def test_a_map_goes_through_its_message() -> None:
    message = domain_codec.encode_domain(ASKED)
    assert domain_codec.decode_domain(message) == ASKED
    assert Discovery(2, 4, 5) != ASKED
    message.discovery.parts.across = 3
    with pytest.raises(ShoalError) as caught:
        domain_codec.decode_domain(message)
    assert caught.value.kind is Kind.INVALID


@for_each(
    "first, longest, most, known, across",
    [
        (4, 4, 5, (), 4),  # 65,536 cells at once
        (0, 4, 5, (), 4),
        (2, 9, 5, (), 4),
        (2, 4, 0, (), 4),
        (2, 4, 5_000, (), 4),
        (2, 4, 5, (b"\0\0\0\0",), 4),
    ],
)
def test_what_cannot_be_asked_is_refused(
    first: int, longest: int, most: int, known: tuple[bytes, ...], across: int
) -> None:
    with pytest.raises(ShoalError) as caught:
        Discovery(first, longest, most, known, PlacePaths(CITY, across))
    assert caught.value.kind is Kind.INVALID


def test_maps_that_are_none_are_refused() -> None:
    for box, across in ((CITY, 3), (Places(0, 0, 10, 10, 2, 1), 2)):
        with pytest.raises(ShoalError) as caught:
            PlacePaths(box, across)
        assert caught.value.kind is Kind.INVALID
    with pytest.raises(ShoalError):
        Discovery(1, 7, 5, (), PlacePaths(ODD, 2))  # cells below a microdegree
    for followed in ([b"\x10\0"], [b"\0"], [b"\1\0", b"\0\0"], []):
        with pytest.raises(ShoalError) as caught:
            ASKED.level(1, followed)
        assert caught.value.kind is Kind.INVALID
