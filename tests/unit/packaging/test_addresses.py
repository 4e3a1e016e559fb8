"""The repository speaks only of itself: no registry, no path of somebody's machine, no address but
of standards and papers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from tests.cases import for_each

ROOT = Path(__file__).resolve().parents[3]
# this file alone is not read: it holds the offences that are to be seen
PLANTED_HERE = Path(__file__).name
SKIPPED = {
    ".git",
    ".venv",
    ".venv-flower",
    ".venv-helm",
    ".venv-peers",
    ".venv-node",
    "node_modules",
    "build",
    "dist",
    "shoal-demo",
    "shoal.egg-info",
}
SKIPPED |= {"__pycache__", ".hypothesis"}
BINARY = {".gz", ".png"}
# Hosts that a link may name: standards, papers, licences and conventions. Everything else is named
# in words.
HOSTS = {
    "arxiv.org",
    "datatracker.ietf.org",
    "doi.org",
    "eprint.iacr.org",
    "json-schema.org",
    "keepachangelog.com",
    "proceedings.mlr.press",
    "semver.org",
    "www.apache.org",
    "www.iana.org",
    "www.rfc-editor.org",
    "www.usenix.org",
    "www.w3.org",
}
_ADDRESS = re.compile(r"\b[a-z][a-z0-9+.-]*://([^\s/\"'`<>)\]}]*)")
# this machine, bare names, examples
_LOCAL = re.compile(r"(127\.0\.0\.1|[a-z]+|\[::1\]|[a-z.-]+\.example|\{[^}]*|)(:[0-9{].*)?")
FORBIDDEN = [
    re.compile(pattern)
    for pattern in (
        r"(?<![\w.])/(work|root|home|Users)/",  # a folder of the machine that it was written on
        r"pypi\.(org|python)|pythonhosted",
        r"(extra-)?index-url|find-links|trusted-host",
        r"(?i)\bissues? #?[0-9]+\b",
        r"^(<{7} |={7}$|>{7} )",  # what a merge left to be decided
    )
]


def files() -> Iterator[Path]:
    """Every text file that belongs to the repository."""

    def walk(folder: Path) -> Iterator[Path]:
        for path in sorted(folder.iterdir()):
            if (
                path.name in SKIPPED | {PLANTED_HERE}
                or path.name.endswith("_cache")
                or path.is_symlink()
            ):
                continue
            if path.is_dir():
                yield from walk(path)
            elif path.suffix not in BINARY:
                yield path

    return walk(ROOT)


def offences(text: str) -> list[str]:
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        found += [
            f"{number}: {match[0]}" for pattern in FORBIDDEN for match in pattern.finditer(line)
        ]
        hosts = [
            match
            for match in _ADDRESS.finditer(line)
            if match[1] not in HOSTS and not _LOCAL.fullmatch(match[1])
        ]
        found += [f"{number}: {match[0]}" for match in hosts]
    return found


def test_every_file() -> None:
    """Planted: a link to a package's registry page in docs/ARCHITECTURE.md -> this fails."""
    scanned = {str(path.relative_to(ROOT)): offences(path.read_text("utf-8")) for path in files()}
    assert {
        "Makefile",
        "constraints.txt",
        "common/task.py",
        "deploy/Dockerfile",
        "docs/ARCHITECTURE.md",
    } <= scanned.keys()
    broken = [f"{path}:{offence}" for path, found in scanned.items() for offence in found]
    assert not broken, "\n".join(broken)


@for_each(
    "text",
    [
        "see https://pypi.org/project/numpy",
        "<<<<<<< HEAD",
        "=======",
        ">>>>>>> other",
        "pip install --index-url https://mirror.invalid/simple x",
        "cd /home/somebody/shoal && make",
        '"/root/.cache"',
        "see issue #12",
        "git clone https://github.com/somebody/something",
        "http://10.0.0.7:8080/metrics",
    ],
)
def test_offences_are_seen(text: str) -> None:
    assert offences(text)


@for_each(
    "text",
    [
        "RFC 9180: https://www.rfc-editor.org/rfc/rfc9180",
        'xmlns="http://www.w3.org/2000/svg"',
        "curl http://127.0.0.1:9464/readyz",
        'f"http://{host}:{port}/status"',
        "http://localhost:9464/metrics",
        "/etc/shoal/shuffler.toml, /var/lib/shoal, framework/, /workers",
    ],
)
def test_innocents_pass(text: str) -> None:
    assert not offences(text)
