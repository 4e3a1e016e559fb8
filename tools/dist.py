"""Build the sdist and the wheel, the same bytes from the same commit, whoever builds them: `make
dist`.

Two builds differ by times, by owners and rights of files, and by what else lies around. So the
committed files alone are copied, with rights of their own; every time is that of the commit; and
the wheel is built of the sdist, so that who has that one can build it too. What is left are the
versions of Python, setuptools and zlib, which docs/RELEASING.md names.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SUMS = "SHA256SUMS"
_FIRST = 315532800  # 1980: a zip knows no time before


def build(source: Path, out: Path, epoch: int) -> tuple[Path, Path]:
    """Sdist and wheel of the tree ``source``, which stays as it is, into ``out``. ``epoch``: Unix
    seconds that all files get.
    """
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder, "tree")
        shutil.copytree(source, tree)
        sdist = _built("--sdist", tree, Path(folder, "sdist"), epoch)
        data = _normal(sdist.read_bytes(), epoch)
        out.mkdir(parents=True, exist_ok=True)
        kept = out / sdist.name
        kept.write_bytes(data)
        with tarfile.open(fileobj=io.BytesIO(data)) as archive:
            archive.extractall(Path(folder, "unpacked"), filter="data")
        (unpacked,) = Path(folder, "unpacked").iterdir()
        wheel = _built("--wheel", unpacked, Path(folder, "wheel"), epoch)
        return kept, Path(shutil.copyfile(wheel, out / wheel.name))


def _built(what: str, tree: Path, out: Path, epoch: int) -> Path:
    """The one file that the build makes. Raises RuntimeError with its last words."""
    for path in (tree, *tree.rglob("*")):
        path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o100 else 0o644)
    done = subprocess.run(
        [
            *(sys.executable, "-m", "build", what),
            *("--no-isolation", "--outdir", str(out), str(tree)),
        ],
        env={**os.environ, "SOURCE_DATE_EPOCH": str(epoch), "PYTHONHASHSEED": "0"},
        umask=0o022,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"the build failed: {(done.stdout + done.stderr).strip()[-2_000:]}")
    (made,) = out.iterdir()
    return made


def _normal(data: bytes, epoch: int) -> bytes:
    """A .tar.gz with its members in order of their names, of one time and of nobody."""
    plain = io.BytesIO()
    with (
        tarfile.open(fileobj=io.BytesIO(data)) as old,
        tarfile.open(fileobj=plain, mode="w", format=tarfile.GNU_FORMAT) as new,
    ):
        for member in sorted(old.getmembers(), key=lambda member: member.name):
            member.mtime, member.pax_headers = epoch, {}
            member.uid = member.gid = 0
            member.uname = member.gname = ""
            new.addfile(member, old.extractfile(member) if member.isreg() else None)
    return gzip.compress(plain.getvalue(), 9, mtime=epoch)


def tag_trouble(tag: str, root: Path = ROOT) -> str | None:
    """Why ``tag`` is not to be released of this tree; None if nothing speaks against it."""
    version = tomllib.loads((root / "pyproject.toml").read_text())["project"]["version"]
    if tag != f"v{version}":
        return f"the tag is {tag}, and pyproject.toml says {version}: tag v{version}"
    heading = re.search(
        rf"^## \[{re.escape(version)}\] - (.*)$", (root / "CHANGELOG.md").read_text(), re.MULTILINE
    )
    if heading is None or not re.fullmatch(r"\d{4}-\d{2}-\d{2}", heading[1]):
        return f"CHANGELOG.md has no heading with a date: write ## [{version}] - YEAR-MONTH-DAY"
    return None


def _git(*arguments: str) -> bytes:
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True).stdout


def main(arguments: list[str]) -> int:
    """``[TAG]``: build HEAD into dist/, and print the hashes; refuse a tag that doesn't fit."""
    trouble = tag_trouble(arguments[0]) if arguments else None
    if trouble is not None:
        print(f"tools/dist.py: {trouble}", file=sys.stderr)
        return 1
    if _git("status", "--porcelain"):
        print("note: what is not committed is not in them", file=sys.stderr)
    given = os.environ.get("SOURCE_DATE_EPOCH") or _git("log", "-1", "--format=%ct")
    epoch = max(_FIRST, int(given))
    out = ROOT / "dist"
    shutil.rmtree(out, ignore_errors=True)
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(fileobj=io.BytesIO(_git("archive", "HEAD"))) as archive:
            archive.extractall(folder, filter="data")
        made = build(Path(folder), out, epoch)
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in made]
    (out / SUMS).write_text("".join(lines))
    print("".join(lines), end="")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
