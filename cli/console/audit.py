"""``shoal console audit``: what was done at a console, verified."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from shoal.cli.extras import need
from shoal.cli.output import emit_json, plain_table, say, say_table
from shoal.errors import Kind, ShoalError

_MOST = 30


def audit(
    file: Annotated[
        Path | None, typer.Argument(help="The file, instead of --config.", show_default=False)
    ] = None,
    config: Annotated[
        Path | None, typer.Option(help="console.toml, which says where it is.")
    ] = None,
    head: Annotated[
        str, typer.Option(help="A head that was printed before: it must still be there.")
    ] = "",
    whole: Annotated[
        bool, typer.Option("--all", help=f"All entries, not the last {_MOST} alone.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="For programs: everything.")] = False,
) -> None:
    """What was done at a console, by whom and when: verified, then printed, the latest last.

    Each line of the file has the hash of the line before it. So a line that was changed, taken out
    or put in shows; that the whole file was written anew, only by a head that you kept.

    Example: shoal console audit --config console.toml
    """
    need("console")
    from shoal.console.signin.audit import check

    checked = check(_file(file, config), head.strip().lower())
    if as_json:
        told = {"entries": list(checked.entries), "head": checked.head, "torn": checked.torn}
        emit_json({**told, "lost": [entry["n"] for entry in checked.lost]})
        _check_whole(checked.lost)
        return
    shown = checked.entries if whole else checked.entries[-_MOST:]
    table = plain_table("when", "who", "role", "what", "of what")
    for entry in shown:
        table.add_row(*_row(entry))
    say_table(table)
    if len(shown) < len(checked.entries):
        say(f"the last {len(shown)} of {len(checked.entries):,} entries; --all for all of them")
    if checked.torn:
        say(f"{checked.torn} lines were cut by a crash; what they were to tell of was not done")
    say(f"verified; head {checked.head}")
    _check_whole(checked.lost)


def _check_whole(lost: Sequence[Mapping[str, Any]]) -> None:
    """Raises BAD_SIGNATURE where a console missed lines at its start."""
    if lost:
        at = ", ".join(str(entry["n"]) for entry in lost)
        raise ShoalError(
            Kind.BAD_SIGNATURE,
            f"lines were lost before entry {at}, as the console saw at its start: they were taken "
            "off the end of the file, or it was written anew; a backup may have them",
        )


def _file(file: Path | None, config: Path | None) -> Path:
    if (file is None) == (config is None):
        raise ShoalError(Kind.CONFIG, "say which audit: either its file or --config console.toml")
    if file is not None:
        return file
    from shoal.console.signin.config import ConsoleConfig
    from shoal.services.settings import load_settings

    return load_settings(ConsoleConfig, config or Path()).audit_file


def _row(entry: Any) -> list[str]:
    from shoal.console.signin.visitors import plain

    detail = entry.get("detail")
    told = detail.items() if isinstance(detail, dict) else ()
    names = ("at", "who", "role", "what")
    row = [plain(str(entry.get(name, ""))) for name in names]
    return [
        *row[:1],
        row[1] or "a stranger",
        *row[2:],
        plain(", ".join(f"{k}: {v}" for k, v in told)),
    ]
