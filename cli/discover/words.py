"""Files of words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from shoal.cli.output import read_bytes
from shoal.errors import Kind, ShoalError
from shoal.questions.answers import BLANKS
from shoal.questions.coordinates import coordinates_of
from shoal.questions.spelling import spell

_MOST_BYTES = 1 << 28


def read_known(path: Path, longest: int) -> tuple[bytes, ...]:
    """Words to be left out, as they are spelled. Raises CONFIG, naming the line, for one that has
    no symbols.
    """
    known = set[bytes]()
    for number, line in _lines(path):
        if line.rpartition(",")[2].strip(BLANKS).isdigit() and "," in line:
            raise _wrong(path, number, "words to leave out stand alone: take the count out")
        spelled = spell(line, longest)
        if not spelled:
            raise _wrong(path, number, "no word stands there: take the line out")
        known.add(spelled)
    return tuple(sorted(known))


def read_held(path: Path) -> Counter[str]:
    """How many devices hold each word. Raises CONFIG, naming the line, for a count that is none."""
    held = Counter[str]()
    for number, line in _lines(path):
        word, comma, count = line.rpartition(",")
        if not comma:
            held[line] += 1
        elif count.isascii() and count.strip(BLANKS).isdigit() and len(count) < 12:
            held[word] += int(count)
        else:
            raise _wrong(
                path, number, f'"{count[:20]}" is no number of devices: write WORD or WORD,COUNT'
            )
    return held


def read_places(path: Path) -> Counter[str]:
    """How many devices are at each place, as texts; "" for none. Raises CONFIG, naming the line,
    for one that is no place, and for a count that is none.
    """
    held = Counter[str]()
    for number, line in _lines(path):
        parts = line.split(",")
        place, count = ",".join(parts[:2]), parts[2].strip(BLANKS) if len(parts) == 3 else "1"
        if len(parts) > 3 or (line.strip(BLANKS) and coordinates_of(place) is None):
            raise _wrong(
                path,
                number,
                f'"{line[:40]}" is no place: write LATITUDE,LONGITUDE, as 48.1,11.5',
            )
        if not (count.isascii() and count.isdigit() and len(count) < 12):
            raise _wrong(path, number, f'"{count[:20]}" is no number of devices')
        held[place.strip(BLANKS)] += int(count)
    return held


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    data = read_bytes(path, _MOST_BYTES)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        number = data.count(b"\n", 0, error.start) + 1
        raise _wrong(path, number, "it is not UTF-8: save the file as UTF-8") from None
    lines = text.split("\n")
    if lines[-1] == "":
        del lines[-1]
    return ((number, line.rstrip("\r")) for number, line in enumerate(lines, start=1))


def _wrong(path: Path, number: int, what: str) -> ShoalError:
    return ShoalError(Kind.CONFIG, f"{path}, line {number:,}: {what}")
