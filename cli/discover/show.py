"""What ``shoal discover`` prints: for people, and for programs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from shoal.accounting.several_messages.liars import liar_words
from shoal.analyzer.discovery.plan import DiscoveryPlan
from shoal.analyzer.discovery.played import LevelDone, Population, releases_of, words_of
from shoal.analyzer.results.maps.tree import place_map
from shoal.cli.discover.map import map_text
from shoal.cli.output import console, say, say_table
from shoal.mechanisms.several.levels import FALSE_WORDS, FoundBeginning
from shoal.questions.discovery import Discovery
from shoal.questions.place_paths import PlacePaths
from shoal.questions.places import metres

_NAMED = 8  # beginnings in the line of a level
_ROWS = 32  # words in the table


def say_plan(plan: DiscoveryPlan) -> None:
    """What is said before anybody is asked."""
    request, discovery = plan.request, plan.discovery
    who = "every device answers at every level"
    if not request.same:
        who = f"every device answers in one of {request.asked_windows} windows, drawn by itself"
    say(f"{discovery.levels} levels, {request.n:,} devices or more at each: {who}")
    spare = f" and {request.spare} spare windows" if request.spare else ""
    if request.withheld is not None:
        expected = request.devices / request.asked_windows
        say(
            f"  min_batch                    {request.n:,}: of {request.devices:,} devices some "
            f"{expected:,.0f} come to a level"
        )
        say(
            f"  a level is withheld          with a chance of {request.withheld:.1e}, of all "
            "levels, if every device answers"
        )
        if request.may_lie:
            say(
                f"  honest among those           {request.n_honest:,}: up to {request.may_lie:,} "
                "devices may lie, and answer in every window"
            )
    say(
        f"  central epsilon of a device  {_up(plan.epsilon)} at delta {request.delta:g}, all its "
        f"levels{spare} together; {_up(plan.epsilon_level)} for each"
    )
    word = plan.noun
    if isinstance(discovery.alphabet, PlacePaths):
        _say_map(discovery, discovery.alphabet)
    say(f"  with the shuffler's help     the analyzer sees the {word}: epsilon0 is infinite, so")
    say("                               owners are asked for consent to that by name")
    _say_found_from(plan)
    say(f"  room                         {discovery.most:,} beginnings: those of most devices")
    say(f"  false beginnings             {FALSE_WORDS:g} expected, of all levels, at most")
    error = f"{plan.stderr_in_all:.1f} devices (one standard deviation)"
    if not request.same:
        error += f": {plan.stderr:.1f} in a window, and of the draw"
    say(f"  error of a count             {error}")
    say(
        f"  messages of a device         {plan.messages(discovery.level(0).size):.1f} at level 0, "
        f"{plan.messages(discovery.size):.1f} at most later, in {plan.made.messages} slots"
    )
    say(f"  hostile devices              {liar_words(plan.made)};")
    false = f"{plan.liars:,} of them can have a false beginning followed"
    say(f"                               {false}")


def _say_found_from(plan: DiscoveryPlan) -> None:
    """In devices of the whole fleet, and of a window where each draws its own."""
    request = plan.request
    followed = f"{plan.followed_in_all:,} devices"
    if not request.same:
        followed += f" ({plan.threshold:,} who came to a window)"
    say(f"  followed from                {followed}, at the largest level")
    say(
        f"  found, with 95 %, from       {plan.found_in_all:,} devices that have the {plan.noun}, "
        "while a level has room"
    )
    if not request.same:
        say(
            f"                               about one in {request.asked_windows} comes to a "
            f"window; {plan.found_from:,} who came are enough"
        )


def plan_json(plan: DiscoveryPlan) -> dict[str, Any]:
    """Plain JSON values. Epsilons are upper bounds; numbers are of devices."""
    request, discovery = plan.request, plan.discovery
    paths = discovery.alphabet
    return {
        **({"across": paths.across} if isinstance(paths, PlacePaths) else {}),
        "levels": discovery.levels,
        "levels_of_a_device": discovery.levels if request.same else 1,
        "spare_windows": request.spare,
        "windows": request.asked_windows,
        "devices_at_a_level": request.n,
        "chance_of_a_level_withheld": request.withheld,
        "honest_fraction": float(request.honest),
        "honest_at_a_level": request.n_honest,
        "epsilon_upper": plan.epsilon,
        "epsilon_of_a_level": plan.epsilon_level,
        "delta": request.delta,
        "epsilon0": None,
        "threshold": plan.threshold,
        "found_from": plan.found_from,
        "found_in_all": plan.found_in_all,
        "followed_in_all": plan.followed_in_all,
        "stderr_in_all": plan.stderr_in_all,
        "false_beginnings": FALSE_WORDS,
        "stderr": plan.stderr,
        "first": discovery.first,
        "longest": discovery.longest,
        "most": discovery.most,
        "dummies": plan.dummies,
        "messages_at_first": plan.messages(discovery.level(0).size),
        "messages_at_most": plan.messages(discovery.size),
        "slots": plan.made.messages,
        "hostile_devices_for_a_false_beginning": plan.liars,
    }


def level_line(done: LevelDone) -> str:
    """One level, when it is done: the beginnings that most devices have."""
    most = sorted(done.found, key=lambda one: (-one.value, one.symbols))
    shown = done.level.discovery.alphabet.shown
    named = ", ".join(f"{shown(one.symbols)} {one.value:,.0f}" for one in most[:_NAMED])
    more = f" and {len(most) - _NAMED:,} more" if len(most) > _NAMED else ""
    return (
        f"level {done.level.number}: {done.n:,} devices, {done.level.size:,} cells, "
        f"{len(most):,} of {done.least:,} devices or more"
        + (f": {named}{more}" if most else ": nothing is left to be followed")
        + (f"; {done.left_out:,} more had no room (--most)" if done.left_out else "")
    )


def say_found(plan: DiscoveryPlan, words: Population, done: Sequence[LevelDone]) -> None:
    """The words that were found, beside the truth, and how many should have been."""
    found, held = words_of(done), _held(words)
    word, shown = plan.noun, plan.discovery.alphabet.shown
    if isinstance(plan.discovery.alphabet, PlacePaths):
        console.print(Text(map_text(place_map(releases_of(done)))))
    table = Table(word, "devices", "+-", "true", box=None)
    for one, true in found[:_ROWS]:
        table.add_row(
            shown(one.symbols),
            f"{one.value:,.0f}",
            f"{(one.ci_high - one.ci_low) / 2.0:,.0f}",
            f"{true:,}",
        )
    if found:
        say_table(table)
    if len(found) > _ROWS:
        say(f"and {len(found) - _ROWS:,} more (--json lists them)")
    false = sum(one.symbols not in held for one, _ in found)
    frequent = _frequent(plan, held)
    missed = len(frequent - {one.symbols for one, _ in found})
    say(
        f"found: {len(found):,} {word}s, {false:,} of them held by nobody; of {len(frequent):,} "
        f"{word}s that {plan.found_in_all:,} devices or more have, {missed:,} were missed"
    )


def done_json(plan: DiscoveryPlan, words: Population, done: Sequence[LevelDone]) -> dict[str, Any]:
    """Plain JSON values: the levels, and the words with what is true of them."""
    found, frequent = words_of(done), _frequent(plan, _held(words))
    shown = plan.discovery.alphabet.shown

    def row(one: FoundBeginning) -> dict[str, Any]:
        return {
            "label": shown(one.symbols),
            "value": one.value,
            "stderr": one.stderr,
            "ci_low": one.ci_low,
            "ci_high": one.ci_high,
        }

    return {
        "levels_done": [
            {
                "level": one.level.number,
                "devices": one.n,
                "cells": one.level.size,
                "threshold": one.least,
                "left_out": one.left_out,
                "messages": one.messages,
                "followed": [{**row(found), "true": one.true(found)} for found in one.found],
            }
            for one in done
        ],
        "words": [{**row(one), "true": true} for one, true in found],
        "missed": sorted(shown(word) for word in frequent - {one.symbols for one, _ in found}),
    }


def _say_map(discovery: Discovery, paths: PlacePaths) -> None:
    first, last = paths.across**discovery.first, paths.across**discovery.longest
    box = paths.box
    say(
        f"  cells                        {first:,} x {first:,} at level 0, then {paths.across} x "
        f"{paths.across} of each that is followed,"
    )
    say(
        f"                               to {metres(box.cell_width_m / last)} (west-east) x "
        f"{metres(box.cell_height_m / last)}, of {last:,} x {last:,} on the map"
    )


def _held(words: Population) -> dict[bytes, int]:
    """Devices of all levels that have each word."""
    counts = zip(words.spelled, words.counts.tolist(), strict=True)
    return {word: count for word, count in counts if word and count}


def _frequent(plan: DiscoveryPlan, held: dict[bytes, int]) -> set[bytes]:
    least = plan.found_in_all
    return {word for word, count in held.items() if count >= least}


def _up(epsilon: float) -> str:
    return f"{math.ceil(epsilon * 1e4) / 1e4:.4f}"
