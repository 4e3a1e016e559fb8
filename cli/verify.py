"""``shoal verify``: what anybody can check of a release file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shoal.analyzer.results.files.exports import CHECKABLE_SUFFIX
from shoal.cli.output import emit_json, public_key, read_bytes, say
from shoal.errors import Kind, ShoalError

if TYPE_CHECKING:
    from shoal.checker.check import ReleaseCheck

_MARK = {"holds": "ok   ", "wrong": "WRONG", "open": "open "}
_MOST_OF_A_KEY = 1 << 10  # bytes of its file
_SHOWN = 100  # characters of what is told


def register(app: typer.Typer) -> None:
    """Add ``shoal verify``."""
    app.command()(verify)


def verify(
    files: Annotated[
        list[Path],
        typer.Argument(
            help="Release files, or folders of them (shoal results export --format release)."
        ),
    ],
    authority: Annotated[
        list[str] | None,
        typer.Option(
            help="Public key of an authority that you trust, 64 hex digits, or a file with them; "
            "repeatable."
        ),
    ] = None,
    accept_open: Annotated[
        bool, typer.Option(help="Exit status 0 also where something could not be decided.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """Check releases: signatures, the chain to an authority, and the epsilons, by code of its own.

    Exit status: 0 all of it holds, 1 something is wrong or could not be decided, 2 a file could not
    be read.

    Example, after a shoal demo: shoal verify shoal-demo/releases --authority shoal-demo/authority
    """
    from shoal.checker.check import check_releases
    from shoal.checker.errors import UnreadableError
    from shoal.checker.findings import Outcome
    from shoal.checker.release_file import MOST_BYTES

    authorities = [_key(told) for told in authority or ()]
    paths = _listed(files)
    reports: list[tuple[Path, ReleaseCheck]] = []
    data = [read_bytes(path, MOST_BYTES) for path in paths]
    checks = check_releases(data, authorities, [path.parent for path in paths])
    try:
        for path, check in zip(paths, checks, strict=True):
            reports.append((path, check))
            if not as_json:
                _show(path, check)
    except UnreadableError as error:
        raise ShoalError(Kind.INVALID, f"{paths[error.file]}: {error}") from None
    outcomes = {report.outcome for _, report in reports}
    if as_json:
        emit_json([_json(path, report) for path, report in reports])
    elif Outcome.WRONG not in outcomes:
        say(_said(len(reports), Outcome.OPEN in outcomes))
    if Outcome.WRONG in outcomes:
        raise ShoalError(Kind.MISMATCH, "do not believe these releases: see the lines WRONG")
    if Outcome.OPEN in outcomes and not accept_open:
        raise typer.Exit(1)


def _key(told: str) -> bytes:
    """Digits, or those in a file. Raises CONFIG."""
    if os.path.exists(told):  # Path's raises for what is too long to be a path
        text = read_bytes(Path(told), _MOST_OF_A_KEY).decode("ascii", "replace").strip()
        wrong = f"{told} holds no public key: write its 64 hex digits there"
    else:
        shown = told if len(told) <= _SHOWN else f"{told[:_SHOWN]}..."
        text, wrong = told, f"there is no file {shown!r}, nor is that a public key of 64 hex digits"
    try:
        return public_key(text, "--authority")
    except ShoalError:
        raise ShoalError(
            Kind.CONFIG, f"--authority: {wrong}: shoal keys signing prints one"
        ) from None


def _listed(files: list[Path]) -> list[Path]:
    """Every file, those of folders by name. Raises CONFIG for a folder without any."""
    listed: list[Path] = []
    for path in files:
        found = sorted(path.glob(f"*{CHECKABLE_SUFFIX}")) if path.is_dir() else [path]
        if not found:
            raise ShoalError(
                Kind.CONFIG,
                f"{path} holds no *{CHECKABLE_SUFFIX}: write them with shoal results export "
                "--format release",
            )
        listed += found
    return listed


def _show(path: Path, report: ReleaseCheck) -> None:
    say(f"{path}: {_plain(report.name)}, window {report.window}")
    for one in report.checked:
        say(f"  {_MARK[one.outcome]} {one.what}: {_plain(one.why)}")


def _plain(text: str) -> str:
    """What comes from a file, without what could draw lines of its own on a terminal."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def _said(count: int, any_open: bool) -> str:
    many = f"{count} releases" if count != 1 else "1 release"
    if any_open:
        return f"{many}: nothing wrong; what is open could not be decided here"
    return f"{many}: everything holds"


def _json(path: Path, report: ReleaseCheck) -> dict[str, object]:
    return {
        "file": str(path),
        "name": report.name,
        "window": report.window,
        "outcome": report.outcome.value,
        "checked": [
            {"what": one.what, "outcome": one.outcome.value, "why": one.why}
            for one in report.checked
        ],
    }
