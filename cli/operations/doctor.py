"""``shoal doctor``: what is wrong with a deployment, or will be, and what to do about it."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from shoal.cli.output import emit_json, say
from shoal.errors import Kind, ShoalError


def register(app: typer.Typer) -> None:
    """Add ``shoal doctor``."""
    app.command("doctor")(doctor)


def doctor(
    shuffler: Annotated[
        Path | None, typer.Option(help="shuffler.toml: look at a shuffler, as its user.")
    ] = None,
    analyzer: Annotated[
        Path | None, typer.Option(help="analyzer.toml: look at an analyzer, as its user.")
    ] = None,
    agent: Annotated[Path | None, typer.Option(help="agent.toml: look at a device.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """Look at clock, disk, rights of files, keys, certificates, ports, versions, links, stores and
    windows that were given up; change nothing.

    Each line is ok, warn or fail, with what to do. Exit status 1 if anything fails. With --shuffler
    and --analyzer together also whether the two fit. No secret is printed. In the JSON `findings`
    is [{"level", "role", "check", "message"}], and `ok`, `warn`, `fail` count them.

    Example: shoal doctor --shuffler shuffler.toml
    """
    if shuffler is None and analyzer is None and agent is None:
        raise ShoalError(
            Kind.CONFIG, "name what to look at: --shuffler, --analyzer or --agent with its TOML"
        )
    from shoal import log
    from shoal.cli.operations import examinations, window_checks
    from shoal.cli.operations.findings import Findings, Level

    log.configure("error")
    findings = Findings()
    one = examinations.shuffler(findings, shuffler) if shuffler is not None else None
    other = examinations.analyzer(findings, analyzer) if analyzer is not None else None
    if one is not None:
        window_checks.windows(findings, "shuffler", one, other)
    if other is not None:
        window_checks.windows(findings, "analyzer", other, one)
    if one is not None and other is not None:
        examinations.between(findings, one, other)
    if agent is not None:
        examinations.agent(findings, agent)
    counts = {level.value: findings.count(level) for level in Level}
    if as_json:
        shown = [{**asdict(one), "level": one.level.value} for one in findings.all]
        emit_json({"findings": shown, **counts})
    else:
        for finding in findings.all:
            say(f"{finding.level.value:5} {finding.role:8} {finding.check:12} {finding.message}")
        say(f"{counts['fail']} fail, {counts['warn']} warn, {counts['ok']} ok")
    if counts["fail"]:
        raise typer.Exit(1)
