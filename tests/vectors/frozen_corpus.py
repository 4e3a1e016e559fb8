"""What is frozen: files and answers of an earlier version, and how today's are held beside them.

``FROZEN`` has a folder per version. Folders of programs are archives (tar, gzip), because modes and
timestamps count and git keeps neither. What commands printed is in transcripts: a line ``$ shoal
...`` and below it the standard output, byte for byte.

Three rules for what is compared, and no others:

- A number with 13 or more significant digits, of a whole number 16, may differ by 1e-9 of itself:
  the vector units of two processors round the last digits of ``exp`` differently, and a planner
  chooses integers beside 2^64 by them.
- Commands see one fixed time (``time.time``, ``time.clock_gettime``) and one fixed stream of random
  bytes (``os.urandom``).
- The path of the current folder is written as FOLDER.
"""

from __future__ import annotations

import contextlib
import difflib
import gzip
import hashlib
import io
import json
import math
import re
import shlex
import tarfile
import tomllib
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from shoal.cli.main import main

FROZEN = Path(__file__).resolve().parent / "frozen"
VERSIONS = sorted(one.name for one in FROZEN.iterdir() if one.is_dir()) if FROZEN.exists() else []
# Transcripts of commands: the archive that they run in ("": an empty folder), and Unix seconds.
COMMANDS = {
    "epsilon": ("", 1_800_000_100.0),
    "plan": ("", 1_800_000_100.0),
    "desk": ("desk", 1_800_000_100.0),
    "agent": ("agent", 1_800_008_100.0),  # when the programs of the frozen folders ended
    "older": ("older", 1_800_008_100.0),
    "services": ("services", 1_800_008_100.0),
}
_NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?(?![\w.])")
_CLOSE = 1e-9  # of a number, between processors
_UP = 600.0  # seconds since the machine started, by any of its clocks
_DIGITS, _WHOLE_DIGITS = 13, 16  # from here on a number was computed, not chosen


def unpack(name: str, folder: Path, version: str) -> Path:
    """A frozen folder, as its program left it; returns ``folder / name``."""
    with tarfile.open(FROZEN / version / f"{name}.tar.gz") as archive:
        archive.extractall(folder, filter="tar")  # which keeps modes
    return folder / name


def pack(folder: Path, archive: Path) -> None:
    """The same bytes for the same files: sorted, nobody's, without times."""

    def plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
        entry.uid = entry.gid = 0
        entry.uname = entry.gname = ""
        entry.mtime = 0
        return entry

    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=tarfile.PAX_FORMAT) as tar:
        tar.add(folder, folder.name, recursive=False, filter=plain)
        for path in sorted(folder.rglob("*")):
            tar.add(path, path.relative_to(folder.parent).as_posix(), recursive=False, filter=plain)
    archive.write_bytes(gzip.compress(made.getvalue(), 9, mtime=0))


@contextlib.contextmanager
def still(now: float, seed: str = "") -> Iterator[None]:
    """The time stands still; random bytes are SHAKE-256 of the seed, how many were asked for, and
    how often so many were: draws of different lengths may change places.
    """
    asked: dict[int, int] = {}

    def drawn(count: int) -> bytes:
        asked[count] = asked.get(count, 0) + 1
        return hashlib.shake_256(f"frozen {seed} {count} {asked[count]}".encode()).digest(count)

    with (
        mock.patch("time.time", return_value=now),
        mock.patch("time.clock_gettime", return_value=_UP),
        mock.patch("os.urandom", drawn),
    ):
        yield


def run(line: str, now: float) -> str:
    """What ``shoal ...`` prints, in this process, and below it its exit status if it is not 0.

    ``values FILE``: what is in a TOML file, as JSON: its comments are prose. ``sha256 FILE``.
    ``... | without KEY ...``: keys of JSON left out wherever they stand, because they were
    measured, are of today, or follow from a report's encapsulation, for which a library draws by
    itself.
    """
    command, _, left_out = line.partition(" | without ")
    program, *arguments = shlex.split(command)
    if program == "sha256":
        return hashlib.sha256(Path(arguments[0]).read_bytes()).hexdigest() + "\n"
    if program == "values":
        shown, status = json.dumps(tomllib.loads(Path(arguments[0]).read_text()), default=str), 0
    else:
        assert program == "shoal", f"no such program in a transcript: {program}"
        shown, status = _shoal(arguments, now, command)
    if left_out and status == 0:
        return json.dumps(without(json.loads(shown), left_out.split()), indent=1) + "\n"
    return shown + (f"(exit status {status})\n" if status else "")


def _shoal(arguments: list[str], now: float, seed: str) -> tuple[str, int]:
    out, errors = io.StringIO(), io.StringIO()
    with still(now, seed), contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
        status = main(arguments)
    assert "Traceback" not in errors.getvalue()
    return out.getvalue().replace(str(Path.cwd()), "FOLDER"), status


def without(node: Any, keys: Collection[str]) -> Any:
    """A JSON tree without some keys, wherever they stand."""
    if isinstance(node, dict):
        return {key: without(value, keys) for key, value in node.items() if key not in keys}
    return [without(one, keys) for one in node] if isinstance(node, list) else node


def transcript(name: str, version: str) -> str:
    return (FROZEN / version / f"{name}.transcript").read_text()


def recorded(text: str) -> list[tuple[str, str]]:
    """Commands and what they printed."""
    parts = re.split(r"^\$ (.*)\n", text, flags=re.MULTILINE)
    return list(zip(parts[1::2], parts[2::2], strict=True))


def again(before: str, now: float) -> str:
    """Every command of a transcript once more, in the current folder."""
    return "".join(f"$ {line}\n{run(line, now)}" for line, _ in recorded(before))


def differences(before: str, today: str) -> list[str]:
    """A line for each command of two transcripts that was answered otherwise."""
    pairs = list(zip(recorded(before), recorded(today), strict=True))
    assert [old[0] for old, _ in pairs] == [new[0] for _, new in pairs]
    found = [(name, first_difference(old, new)) for (name, old), (_, new) in pairs]
    return [f"$ {name}\n{place}" for name, place in found if place is not None]


def first_difference(before: str, today: str) -> str | None:
    """None: the same, by the rules of this page."""
    if before == today:
        return None
    pairs = zip(before.splitlines(), today.splitlines(), strict=False)
    for number, (old, new) in enumerate(pairs, 1):
        if not _same(old, new):
            return f"line {number}: was {old.strip()[:300]!r}, is {new.strip()[:300]!r}"
    lines = [len(text.splitlines()) for text in (before, today)]
    return None if lines[0] == lines[1] else f"{lines[0]} lines before, {lines[1]} today"


def kept(before: str, today: str) -> str:
    """Today's text, in which every line that is the same by the rules of this page stays as it was:
    what is recorded anew shows what changed, and no last digits.
    """
    old, new = before.splitlines(True), today.splitlines(True)
    was, is_ = ([_NUMBER.sub("#", line) for line in lines] for lines in (old, new))
    matcher = difflib.SequenceMatcher(None, was, is_, autojunk=False)
    for first, second, size in matcher.get_matching_blocks():
        for at in range(size):
            if _same(old[first + at], new[second + at]):
                new[second + at] = old[first + at]
    return "".join(new)


def _same(old: str, new: str) -> bool:
    if old == new:
        return True
    if _NUMBER.sub("#", old) != _NUMBER.sub("#", new):
        return False
    return all(
        _close(a, b) for a, b in zip(_NUMBER.findall(old), _NUMBER.findall(new), strict=True)
    )


def _close(old: str, new: str) -> bool:
    if old == new:
        return True
    digits = re.split("[eE]", old)[0].replace(".", "").lstrip("-0")
    least = _DIGITS if "." in old else _WHOLE_DIGITS
    return len(digits) >= least and math.isclose(
        float(old), float(new), rel_tol=_CLOSE, abs_tol=0.0
    )
