"""What ``shoal tables`` prints: for people, and for programs."""

from __future__ import annotations

import math
from typing import Any

from shoal.accounting.meaning import bound_text
from shoal.analyzer.tables.consistent import consistent
from shoal.analyzer.tables.plan import TablesPlan, TablesWay
from shoal.analyzer.tables.played import TablesPlayed
from shoal.arrays import np
from shoal.cli.figures import figure
from shoal.cli.output import plain_table, say, say_table
from shoal.cli.plan.tables.truth import TruthErrors


def say_plan(plan: TablesPlan) -> None:
    """The ways, the least error first."""
    request, record = plan.request, plan.request.record
    say(
        f"{len(record.marginals):,} tables of {len(record.attributes)} attributes, "
        f"{record.cells:,} cells; {request.n:,} devices, {request.n_honest:,} of them honest"
    )
    table = plain_table(
        "mechanism",
        "a device answers in",
        "epsilon <=",
        "to both",
        "error",
        "consistent",
        "messages",
        "slots",
    )
    for way in plan.ways:
        table.add_row(
            way.name,
            _where(way),
            bound_text(way.epsilon),
            bound_text(way.epsilon0 if math.isfinite(way.epsilon0) else None),
            figure(way.error),
            figure(way.agreed),
            f"{way.messages:.3g}",
            f"{way.slots:,}",
        )
    say_table(table)
    say(
        f"epsilon: of a release, at delta {request.delta:g}; to both: what is left if shuffler and "
        "analyzer work together. Errors: root mean square over all cells, in devices; consistent: "
        "after tables were made to agree."
    )
    for name, why in plan.unsuited:
        say(why if why.startswith(f"{name}:") else f"{name}: {why}")
    best = plan.best
    say(
        f"in a task file: domain.together = {str(best.record.together).lower()}, mechanism.name = "
        f'"{best.name}"'
        + (
            "; owners are asked by name, since both services together would see their answers"
            if math.isinf(best.epsilon0)
            else ""
        )
    )


def _where(way: TablesWay) -> str:
    count = len(way.record.marginals)
    return f"all {count:,}" if way.record.together else f"1 of {count:,}"


def plan_json(plan: TablesPlan) -> dict[str, Any]:
    """Plain JSON values. Epsilons are upper bounds, null for none; errors are in devices."""
    request, record = plan.request, plan.request.record
    names = [one.name for one in record.attributes]
    return {
        "attributes": [
            {"name": one.name, "labels": list(one.answers.labels)} for one in record.attributes
        ],
        "marginals": [[names[at] for at in marginal] for marginal in record.marginals],
        "cells": record.cells,
        "n": request.n,
        "n_honest": request.n_honest,
        "epsilon": request.epsilon,
        "delta": request.delta,
        "ways": [
            {
                "mechanism": way.name,
                "parameters": dict(way.spec.parameters),
                "together": way.record.together,
                "epsilon_upper": way.epsilon,
                "epsilon0": way.epsilon0 if math.isfinite(way.epsilon0) else None,
                "error": way.error,
                "error_consistent": way.agreed,
                "messages": way.messages,
                "slots": way.slots,
            }
            for way in plan.ways
        ],
        "unsuited": [{"mechanism": name, "reason": why} for name, why in plan.unsuited],
    }


def say_done(done: TablesPlayed, errors: TruthErrors | None) -> None:
    """Beside what was predicted."""
    way = done.way
    say("")
    say(
        f"played ({way.name}): error {figure(done.error)} devices (predicted {figure(way.error)}), "
        f"{done.covered:.1%} of the 95 % intervals hold the truth"
    )
    say(
        f"tables that agree: error {figure(agreed_error(done))} devices (predicted "
        f"{figure(way.agreed)})"
    )
    if errors is None:
        say("a synthetic table wants Shoal's extra [tables]: pip install 'shoal[tables]'")
        return
    say(
        f"a synthetic table ({errors.form}) is off by {errors.pairs:.2%} of the devices in tables "
        f"of two attributes ({errors.pairs_independent:.2%} if attributes were independent)"
        + (
            ""
            if math.isnan(errors.triples)
            else f", and by {errors.triples:.2%} in tables of three, which nobody was asked for "
            f"({errors.triples_independent:.2%})"
        )
    )


def done_json(done: TablesPlayed, errors: TruthErrors | None) -> dict[str, Any]:
    """Plain JSON values; null where there is nothing to be compared."""
    return {
        "way": done.way.name,
        "error": done.error,
        "error_consistent": agreed_error(done),
        "covered": done.covered,
        "synthetic": None
        if errors is None
        else {
            "form": errors.form,
            "misfit": errors.misfit,
            "pairs": errors.pairs,
            "pairs_independent": errors.pairs_independent,
            "triples": None if math.isnan(errors.triples) else errors.triples,
            "triples_independent": None
            if math.isnan(errors.triples)
            else errors.triples_independent,
        },
    }


def agreed_error(done: TablesPlayed) -> float:
    """Root mean square over all cells of the consistent tables, in devices."""
    tables = consistent(done.released).tables
    values = np.concatenate([table.reshape(-1) for table in tables])
    return float(np.sqrt(np.mean((values - done.truth) ** 2)))
