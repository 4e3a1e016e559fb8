"""``shoal task``: write, lint, sign and show tasks, and ``publish`` them."""

from __future__ import annotations

import math
import tomllib
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from shoal import codec
from shoal.accounting.composition.memoized import lifetime_epsilon, promised
from shoal.accounting.lint.findings import Finding, LintResult
from shoal.accounting.lint.task import lint
from shoal.accounting.meaning import bound_text
from shoal.accounting.several_messages.liars import liar_words
from shoal.cli.output import (
    STDOUT,
    emit_json,
    give,
    public_key,
    read_signed_task,
    say,
    write_new,
)
from shoal.cli.task import pairwise_show
from shoal.cli.task.file import read_task
from shoal.cli.task.frame import report_words, with_frame
from shoal.cli.task.publish import HELP as PUBLISH_HELP
from shoal.cli.task.publish import publish
from shoal.cli.task.sample import sample
from shoal.cli.task.succession import differences, succeed
from shoal.cli.task.unfilled import NOWHERE, UNNAMED, UNSAID, unfilled
from shoal.crypto.admission.members import frame_bytes
from shoal.crypto.keyfiles import load_signing_key
from shoal.crypto.signing import SigningContext, SigningKey
from shoal.crypto.trust import TrustedTask, trust_task
from shoal.domain import Discovery, Places, Vector
from shoal.errors import Kind, ShoalError
from shoal.mechanisms import create
from shoal.mechanisms.several.names import is_several
from shoal.mechanisms.several.registry import create as create_several
from shoal.task import SHUFFLER_NOISE, Task

task = typer.Typer(no_args_is_help=True, help="Write, lint, sign, show and publish tasks.")
task.command(help=PUBLISH_HELP)(publish)


def register(app: typer.Typer) -> None:
    """Add ``shoal task``."""
    app.add_typer(task, name="task")


@task.command()
def new(
    out: Annotated[Path, typer.Option(help="File to write; - for stdout.")] = Path("task.toml"),
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Fill in a value, TABLE.KEY=VALUE in a table; repeat for several.",
        ),
    ] = None,
    pairwise: Annotated[
        bool, typer.Option("--pairwise", help="A vector that is summed by secure aggregation.")
    ] = False,
    before: Annotated[
        Path | None,
        typer.Option(
            "--from", metavar="OLD.toml", help="The next version of this task, instead of a sample."
        ),
    ] = None,
    start: Annotated[
        str | None,
        typer.Option(help="With --from: when it begins; left out, when OLD.toml ends."),
    ] = None,
) -> None:
    """Write a commented sample of a task, to fill in; or, with --from, the next version of one,
    ready to sign: the same words and keys, windows that go on where the old ones end.

    Example: shoal task new --out visits.toml --set max_batch=12000 --set keys.shuffler=HEX
    """
    if before is not None:
        if pairwise:
            raise ShoalError(Kind.CONFIG, "--from OLD.toml says what it is: leave --pairwise out")
        _next(before, out, start, settings or [])
        return
    if start is not None:
        raise ShoalError(Kind.CONFIG, "--start goes with --from OLD.toml")
    text = sample(settings or [], pairwise=pairwise)
    left = unfilled(tomllib.loads(text), out.parent)
    rest = f"; still to be filled in: {'; '.join(left)}; then" if left else ": now"
    give(out, text.encode(), f"wrote {out}{rest} shoal task lint {out}")


def _next(before: Path, out: Path, start: str | None, settings: list[str]) -> None:
    text, told = succeed(before, out, start, settings, datetime.now(UTC))
    give(out, text.encode(), f"wrote {out}: the next version of {before}")
    if out == STDOUT:
        return
    try:
        told += differences(read_task(before), read_task(out))
    except ShoalError:
        out.unlink()  # a value that no task may have: nothing is left of it
        raise
    for line in told:
        say(f"  {line}")
    say(f"next: shoal task lint {out}; shoal task sign; shoal keys (docs/OPERATIONS.md)")


@task.command("lint")
def lint_command(
    file: Annotated[Path, typer.Argument(metavar="TASK.toml")],
    as_json: Annotated[
        bool, typer.Option("--json", help="Findings and certificate as JSON.")
    ] = False,
) -> None:
    """Refuse what can't hold: a target epsilon out of reach, retention too short, a mechanism that
    doesn't fit.

    Exit status 2 if anything is refused. Example: shoal task lint visits.toml
    """
    parsed = read_task(file)
    result = _lint(parsed)
    if as_json:
        certificate = result.guarantee.to_json() if result.guarantee else None
        rounds = (
            {}
            if parsed.pairwise is None or result.errors
            else {"rounds": pairwise_show.derived(parsed)}
        )
        memoized = _memoized(parsed)
        sent = (
            {}
            if parsed.pairwise or result.errors
            else {"report_bytes": parsed.report_size, "frame_bytes": frame_bytes(parsed)}
        )
        findings = {
            "errors": list(result.errors),
            "warnings": list(result.warnings),
            "certificate": certificate,
        }
        emit_json({**findings, **sent, **rounds, **memoized})
    else:
        _show_findings(file.name, parsed, result)
        if not result.errors:
            pairwise_show.show(parsed)
    if result.errors:
        raise ShoalError(Kind.CONFIG, f"{file.name}: refused: {result.errors[0]}")


@task.command()
def sign(
    file: Annotated[Path, typer.Argument(metavar="TASK.toml")],
    key: Annotated[Path, typer.Option(help="Signing key of the authority that devices trust.")],
    out: Annotated[Path, typer.Option(help="Signed task to make (NAME.task).")],
) -> None:
    """Lint, then sign: the task's bytes, and so its id, are fixed from here on.

    Example: shoal task sign visits.toml --key authority.key --out visits.task
    """
    parsed = read_task(file)
    result = _lint(parsed)
    _show_findings(file.name, parsed, result)
    if result.errors:
        raise ShoalError(Kind.CONFIG, f"{file.name}: not signed: {result.errors[0]}")
    signed = sign_task(parsed, load_signing_key(key))
    write_new(out, signed)
    say(
        f"task {trust_task(signed, {codec.decode_signed_task(signed).authority}).task_id.hex} in "
        f"{out}"
    )


def _lint(parsed: Task) -> LintResult:
    return _with_texts(
        parsed,
        with_frame(
            parsed, pairwise_show.with_noise(parsed, pairwise_show.with_graph(parsed, lint(parsed)))
        ),
    )


def _with_texts(parsed: Task, result: LintResult) -> LintResult:
    """With an error for each text that `shoal plan --emit` left to be filled in: owners would be
    asked for consent to "fill in".
    """
    texts = {
        "name": (parsed.name, UNNAMED),
        "purpose": (parsed.purpose, UNSAID),
        "question": (parsed.question, UNSAID),
    }
    left = [
        Finding(
            error=True,
            message=f'{key} is still "{text}": fill in what devices\' owners are to read',
        )
        for key, (text, planned) in texts.items()
        if text == planned
    ]
    if parsed.shuffler_address == NOWHERE:
        left.append(
            Finding(
                error=False,
                message=f"shuffler.address is still {NOWHERE}, where no device reaches anybody",
            )
        )
    return replace(result, findings=(*result.findings, *left))


def sign_task(parsed: Task, signer: SigningKey) -> bytes:
    """The SignedTask's bytes."""
    data = codec.encode_task(parsed)
    return codec.encode_signed_task(
        codec.Signed(data, signer.public, signer.sign(SigningContext.TASK, data))
    )


@task.command()
def show(
    file: Annotated[Path, typer.Argument(metavar="NAME.task")],
    trust: Annotated[
        str, typer.Option(help="Public key that must have signed it; empty: the one in the file.")
    ] = "",
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> None:
    """Verify a signed task and print what it asks, of whom, and under which protection.

    Example: shoal task show tasks/visits.task
    """
    signed = read_signed_task(file)
    authority = (
        public_key(trust, "--trust") if trust else codec.decode_signed_task(signed).authority
    )
    shown = describe(trust_task(signed, {authority}))
    if as_json:
        emit_json(shown)
    else:
        rounds = shown.pop("rounds", {})
        if "map" in shown or "discovery" in shown:  # a thousand cells are no help to a reader
            shown.pop("cells")
        for name, value in {**shown, **rounds}.items():
            say(f"{name.replace('_', ' '):>22}  {value}")


def _found(asked: Discovery) -> str:
    return (
        f"{asked.levels} levels, each in a window of its own, {asked.most:,} beginnings followed "
        f"at most; a device answers with {asked.accepted}"
    )


def describe(trusted: TrustedTask) -> dict[str, Any]:
    """A task's fields for people and programs."""
    parsed, plan = trusted.task, trusted.task.windows
    guarantee = lint(parsed).guarantee
    return {
        "task_id": trusted.task_id.hex,
        "name": parsed.name,
        "purpose": parsed.purpose,
        "question": parsed.question,
        # The coordinates of a vector that have no names are their numbers: not listed, there may be
        # a million.
        "cells": list(
            parsed.domain.names if isinstance(parsed.domain, Vector) else parsed.domain.labels
        ),
        **({"map": parsed.domain.described} if isinstance(parsed.domain, Places) else {}),
        **({"discovery": _found(parsed.domain)} if isinstance(parsed.domain, Discovery) else {}),
        **({"rounds": pairwise_show.derived(parsed)} if parsed.pairwise else {}),
        "mechanism": parsed.mechanism.name,
        "parameters": dict(parsed.mechanism.parameters),
        **(
            {}
            if parsed.pairwise
            else {
                "messages": parsed.messages,
                **({"fewest_messages": parsed.least_messages} if parsed.messages > 1 else {}),
                **_added(parsed),
                **_lies(parsed),
                "report_bytes": parsed.report_size,
                "frame_bytes": frame_bytes(parsed),
            }
        ),
        "epsilon0": guarantee.epsilon0 if guarantee and math.isfinite(guarantee.epsilon0) else None,
        "guaranteed_epsilon": guarantee.epsilon_upper if guarantee else None,
        "delta": parsed.delta,
        "target_epsilon": parsed.target_epsilon,
        **_memoized(parsed),
        "min_batch": parsed.min_batch,
        "max_batch": parsed.max_batch,
        "honest_fraction": float(parsed.honest_fraction),
        "windows": plan.count,
        "window_seconds": plan.length_s,
        "first_window": datetime.fromtimestamp(plan.start_s, UTC).isoformat(),
        "grace_s": plan.grace_s,
        "retention_s": parsed.retention_s,
        "admission": parsed.admission.name.lower(),
        "suite": parsed.suite,
        "shuffler_address": parsed.shuffler_address,
        "authority": trusted.authority.hex(),
        "key_authority": parsed.key_authority.hex(),
        "shuffler_key": parsed.shuffler_key.hex(),
        "analyzer_key": parsed.analyzer_key.hex(),
        "enrolment_key": parsed.enrolment_key.hex(),
    }


def _added(parsed: Task) -> dict[str, Any]:
    """Of a task that trusts its shuffler for the noise: that it does, and how many messages it adds
    to a batch; None where its integers don't say.
    """
    if parsed.mechanism.name != SHUFFLER_NOISE:
        return {}
    try:
        added = parsed.added_messages
    except ShoalError:
        added = None
    return {
        "trusts": "the shuffler, to add noise: nobody can tell whether it did",
        "added_messages": added,
    }


def _lies(parsed: Task) -> dict[str, Any]:
    """Of several messages: what a device that lies can do; None where the integers don't fit."""
    if not is_several(parsed.mechanism.name):
        return {}
    try:
        return {"lies": liar_words(create_several(parsed.mechanism, parsed.domain), parsed.domain)}
    except ShoalError:
        return {"lies": None}


def _memoized(parsed: Task) -> dict[str, Any]:
    """What memoizing promises, and the epsilon of an unchanged value over all windows; None where
    the task can't be memoized.
    """
    if not parsed.memoized:
        return {}
    try:
        mechanism = create(parsed.mechanism, parsed.domain)
        return {
            "memoized": promised(mechanism)[0],
            "lifetime_epsilon": lifetime_epsilon(parsed, mechanism),
        }
    except ShoalError:
        return {"memoized": None, "lifetime_epsilon": None}


def _epsilon0(epsilon0: float) -> str:
    return bound_text(epsilon0) if math.isfinite(epsilon0) else "infinite"


def _show_findings(name: str, parsed: Task, result: LintResult) -> None:
    for message in result.errors:
        say(f"error: {message}")
    for message in result.warnings:
        say(f"warning: {message}")
    guarantee = result.guarantee
    if guarantee is None:
        return
    if parsed.pairwise is not None:
        say(f"{name}: {pairwise_show.guarantee(guarantee)}")
    else:
        say(
            f"{name}: epsilon0 {_epsilon0(guarantee.epsilon0)}; guaranteed central epsilon "
            f"{bound_text(guarantee.epsilon_upper)} "
            f"(at least {bound_text(guarantee.epsilon_lower, up=False)}) at delta "
            f"{guarantee.delta:g}"
        )
        if not result.errors:
            say(f"{name}: {parsed.mechanism.name}: {report_words(parsed)}")
        if parsed.memoized and not result.errors:
            memoized = _memoized(parsed)
            what = (
                "epsilon0"
                if memoized["lifetime_epsilon"] == guarantee.epsilon0
                else "the lifetime epsilon"
            )
            say(
                f"{name}: memoized: that central epsilon is about one window seen alone; of two "
                "windows or more together, "
                f"{what} {bound_text(memoized['lifetime_epsilon'])} holds: {memoized['memoized']}"
            )
