"""What ``shoal places`` is given: a box, and a file of places."""

from __future__ import annotations

from pathlib import Path

from shoal.arrays import NDArray, np
from shoal.domain import Places
from shoal.errors import Kind, ShoalError
from shoal.limits import MIB
from shoal.questions.coordinates import exact_microdegrees

_MOST_BYTES = 256 * MIB


def box_of(box: str, rows: int, columns: int) -> Places:
    """The map of --box, --rows and --columns. Raises CONFIG."""
    bounds = box.split(",")
    if len(bounds) != 4:
        raise ShoalError(
            Kind.CONFIG,
            "--box: give south, west, north and east in degrees, as 48,11.3,48.3,11.8",
        )
    try:
        south, west, north, east = map(exact_microdegrees, bounds)
        return Places(south, west, north, east, rows, columns)
    except ShoalError as error:
        raise ShoalError(Kind.CONFIG, f"--box, --rows, --columns: {error.message}") from None


def read_places(path: Path, places: Places) -> NDArray[np.int64]:
    """int64[devices]: the cell of each line; an empty one is a device without an answer. Raises
    CONFIG for a file that can't be read, and for the first line that is no place.
    """
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise ShoalError(Kind.CONFIG, f"{path}: larger than {_MOST_BYTES // MIB} MiB")
        lines = path.read_text("utf-8-sig").splitlines()  # some editors begin with a mark
    except OSError as error:
        raise ShoalError(Kind.CONFIG, f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ShoalError(Kind.CONFIG, f"{path}: no text in UTF-8") from None
    for number, line in enumerate(lines, 1):
        if line.strip() and not places.understands(line):
            raise ShoalError(  # the line alone: what stands there is somebody's place
                Kind.CONFIG, f"{path.name}, line {number}: it takes {places.accepted}"
            )
    if not lines:
        raise ShoalError(Kind.CONFIG, f"{path.name}: no place in it: give one on each line")
    return np.array([places.encode(line) for line in lines], dtype=np.int64)
