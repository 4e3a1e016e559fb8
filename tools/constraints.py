"""Refresh constraints.txt: resolve every extra in a fresh virtual environment and write down names
and exact versions.

``make constraints``. Run by Python 3.11, the oldest that Shoal supports: what installs there
installs on the later ones too, while the newest numpy and scipy drop 3.11 first. No addresses and
no hashes: whichever index pip is set up with serves the files.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FILE = ROOT / "constraints.txt"
EXTRAS = "server,accounting,dev,docs,release,network"
BUILDER = "setuptools"  # pip freeze leaves it out
# What a build of PyTorch for CUDA brings and one for CPU does not; it names the versions itself.
OF_BUILDS = re.compile(r"nvidia-.*|cuda-.*|triton")
HEADER = f"""\
# Exact versions of all that Shoal and its extras ({EXTRAS}) install, valid on Python 3.11 to 3.13.
# Written by tools/constraints.py (make constraints).
"""
_LINE = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)==([A-Za-z0-9.!+_-]+)")


def normal(name: str) -> str:
    """A distribution's name as the packaging standard compares it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def read(text: str) -> dict[str, str]:
    """Normal name -> version of a constraints file. Raises ValueError at a line that is anything
    but NAME==VERSION or a comment.
    """
    versions: dict[str, str] = {}
    for line in text.splitlines():
        if not line or line.startswith("#"):
            continue
        match = _LINE.fullmatch(line)
        if match is None or normal(match[1]) in versions:
            raise ValueError(
                f"constraints.txt: {line!r} is not NAME==VERSION, or the name is there twice"
            )
        versions[normal(match[1])] = match[2]
    return versions


def write(versions: dict[str, str]) -> str:
    """The text of constraints.txt, sorted by name."""
    return HEADER + "".join(f"{name}=={version}\n" for name, version in sorted(versions.items()))


def resolve() -> dict[str, str]:
    """The newest versions that fit pyproject.toml, from a fresh environment."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        pip = [f"{folder}/bin/python", "-m", "pip", "--disable-pip-version-check", "--quiet"]
        subprocess.run([*pip, "install", "--upgrade", BUILDER], check=True)
        subprocess.run([*pip, "install", "--no-build-isolation", f"{ROOT}[{EXTRAS}]"], check=True)
        frozen = subprocess.run(
            [*pip, "freeze", "--all"], check=True, capture_output=True, text=True
        ).stdout
    return kept(frozen)


def kept(frozen: str) -> dict[str, str]:
    """What of pip's list holds on every machine: not ourselves, and of a build (2.13.0+cpu) the
    version alone.
    """
    lines = [line for line in frozen.splitlines() if _LINE.fullmatch(line)]
    versions = read("\n".join(lines))
    return {
        name: version.partition("+")[0]
        for name, version in versions.items()
        if name not in {"pip", "shoal"} and not OF_BUILDS.fullmatch(name)
    }


def main() -> int:
    """Resolve anew, write the file, and print what changed; the exit status."""
    if sys.version_info[:2] != (3, 11):
        print(
            "tools/constraints.py: run it with Python 3.11, the oldest supported: its versions fit "
            "the later ones too",
            file=sys.stderr,
        )
        return 2
    old = read(FILE.read_text()) if FILE.exists() else {}
    new = resolve()
    FILE.write_text(write(new))
    for name in sorted(old.keys() | new.keys()):
        if old.get(name) != new.get(name):
            print(f"{name}: {old.get(name, 'new')} -> {new.get(name, 'gone')}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
