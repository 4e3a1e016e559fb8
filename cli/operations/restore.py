"""``shoal restore``: put a backup in the places that a configuration names, and nowhere else."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from shoal.cli.output import emit_json, say
from shoal.errors import Kind, ShoalError


def register(app: typer.Typer) -> None:
    """Add ``shoal restore``."""
    app.command("restore")(restore)


def restore(
    file: Annotated[Path, typer.Argument(help="What `shoal backup` wrote.")],
    config: Annotated[
        Path,
        typer.Option(help="shuffler.toml or analyzer.toml; written from the backup if missing."),
    ],
    passphrase_file: Annotated[
        Path | None, typer.Option(help="For signing key, TLS keys and passwords, if it has them.")
    ] = None,
    yes: Annotated[
        bool, typer.Option("--yes", help="With --now: don't ask whether the clock is right.")
    ] = False,
    now: Annotated[
        str, typer.Option(metavar="DATE", help="With --yes: the date that it is now, in UTC.")
    ] = "",
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """Put back what is missing; the service must be stopped. No file that is there is changed, and
    a store that is there is never replaced: move a damaged one aside first.

    A shuffler's windows that have begun by now are closed for good: what they held was lost, and
    nobody may be counted twice. An analyzer's windows that may have been released since the backup
    are counted as lost releases: until those are back, it promises nothing of all together. Both
    go by this machine's clock, so it asks for the date; programs give --yes --now DATE.

    Example: shoal restore analyzer-2026-11-23.backup --config analyzer.toml
    """
    from shoal import log
    from shoal.cli.operations import archive
    from shoal.cli.operations.restoring import UNKNOWN_MAKER, put_back

    if yes != bool(now):
        raise ShoalError(Kind.CONFIG, "--yes and --now DATE go together: --yes --now YYYY-MM-DD")
    log.configure("error")
    made = archive.read(file)
    passphrase = archive.read_passphrase(passphrase_file) if passphrase_file else None
    # opened before anything is written: it proves who made every file of it
    secrets = made.unseal(passphrase) if passphrase is not None else None
    if secrets is None and yes and not as_json:  # who is asked is told with the question
        say(UNKNOWN_MAKER)
    done = put_back(made, secrets, config, partial(_agree, now))
    if as_json:
        emit_json(done.json())
        return
    say(f"{len(done.written)} files written, {len(done.kept)} were there and are the same")
    for line in done.lines():
        say(line)


def _agree(given: str, lines: list[str], date: str) -> None:
    """The date, given or typed. Raises CONFIG, REFUSED."""
    if given:
        if given != date:
            raise ShoalError(
                Kind.CONFIG,
                f"--now {given}: this machine's clock says {date} (UTC): set it right, or give "
                "that date; nothing was written",
            )
        return
    sys.stderr.write("\n".join((*lines, f"type the date, {date}, if that is right: ")))
    sys.stderr.flush()
    if sys.stdin.readline().strip() != date:
        raise ShoalError(Kind.REFUSED, f"{date} was not typed: nothing was written")
