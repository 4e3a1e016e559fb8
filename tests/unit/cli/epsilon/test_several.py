"""``shoal epsilon`` for mechanisms of several messages: designed for a target, or with the integers
of a task.
"""

from __future__ import annotations

import json
import math
import shlex
from typing import Any

import pytest

from shoal.accounting.composition.compose import compose
from shoal.accounting.several_messages.messages import certify_messages
from shoal.accounting.several_messages.of_domain import design_several
from shoal.accounting.several_messages.of_mechanism import losses_of, protocol_of
from shoal.cli.epsilon.mechanism_domain import domain_of_several
from shoal.mechanisms.several.names import BLOCKS, MARGINALS, NAMES
from shoal.mechanisms.several.protocol import Several
from shoal.mechanisms.several.registry import create
from tests.cases import for_each
from tests.unit.cli.epsilon.test_command import KEYS, Capture, ask, run

CELLS = {"signed_count": 2, "split_mix": 102, "ranges": 65}  # of others: 16
BATCH = shlex.split("--n 20000 --delta 1e-6 --honest-fraction 9/10")
DUMMIES = "--mechanism dummies --k 16 --delta 1e-6"
OF_1E5 = "dummies=183200751222,shares=100000,slots=6"
# of several answers together, and of a map, --k says nothing
ONE_ANSWER = tuple(name for name in NAMES if name not in (BLOCKS, MARGINALS))


def options(name: str) -> list[str]:
    return ["--mechanism", name, "--k", str(CELLS.get(name, 16)), *BATCH]


def made(name: str, epsilon: float = 1.0, windows: int = 1) -> Several:
    domain = domain_of_several(name, CELLS.get(name, 16))
    spec = design_several(name, domain, 18_000, epsilon, 1e-6, windows=windows, most=20_000)
    return create(spec, domain)


def typed(parameters: dict[str, Any]) -> str:
    return ",".join(f"{name}={value}" for name, value in parameters.items())


@for_each("name", ONE_ANSWER)
def test_a_design_is_that_of_a_task(name: str, capsys: Capture) -> None:
    """Its integers, its certificate, and that of these integers given. Planted: designed for all
    devices in place of the honest ones; Infinity in the JSON -> this fails.
    """
    value = ask(capsys, *options(name), "--target", "1")
    assert list(value) == ["solved", "target", "certificate"]
    assert value["target"] == 1.0
    mechanism = made(name)
    assert value["solved"] == {"parameters": dict(mechanism.spec.parameters)}
    expected = certify_messages(protocol_of(mechanism), 20_000, 1e-6, honest_fraction=0.9)
    assert expected is not None
    certificate = value["certificate"]
    assert list(certificate) == [*KEYS, "messages_per_device"]
    assert certificate["epsilon0"] is None
    assert certificate["epsilon_upper"] == pytest.approx(expected.epsilon_upper, rel=1e-12)
    assert 0.99 < certificate["epsilon_upper"] <= 1.0
    again = ask(capsys, *options(name), "--parameters", typed(value["solved"]["parameters"]))
    assert again == certificate


@for_each("name", ONE_ANSWER)
def test_rounds_are_composed_by_their_law_of_losses(name: str, capsys: Capture) -> None:
    """Designed for all of them together. Planted: the target given to each of them -> this fails;
    a law of losses for all devices in place of the honest ones -> this fails.
    """
    value = ask(capsys, *options(name), "--target", "1", "--rounds", "3")
    certificate = value["certificate"]
    assert list(certificate) == [*KEYS, "messages_per_device", "rounds", "composed"]
    composed = certificate["composed"]
    assert composed["epsilon_upper"] == min(composed["by_method"].values())
    assert 0.85 < composed["epsilon_upper"] <= 1.0
    domain = domain_of_several(name, CELLS.get(name, 16))
    parameters = value["solved"]["parameters"]
    spec = made(name).spec
    mechanism = create(type(spec).of(name, **parameters), domain)
    losses = losses_of(mechanism, 18_000, 1e-6)
    assert losses is not None
    assert composed["by_method"]["pld"] == compose([(losses, 3)], 1e-6).epsilon_upper
    basic = certify_messages(protocol_of(mechanism), 18_000, math.nextafter(1e-6 / 3, 0.0))
    assert basic is not None
    assert composed["by_method"]["basic"] == pytest.approx(3 * basic.epsilon_upper, rel=1e-9)


def test_one_round_is_designed_as_a_single_release(capsys: Capture) -> None:
    once = ask(capsys, *options("dummies"), "--target", "1", "--rounds", "1")
    assert once["solved"] == ask(capsys, *options("dummies"), "--target", "1")["solved"]


def test_a_true_message_may_be_randomized(capsys: Capture) -> None:
    """epsilon0 is a number then. Planted: the option ignored -> this fails."""
    value = ask(
        capsys, *options("signed_count"), *shlex.split("--target 1 --epsilon0-if-colluding 6")
    )
    assert "uniform" in value["solved"]["parameters"]
    assert 5.99 < value["certificate"]["epsilon0"] <= 6.0
    parameters = typed(value["solved"]["parameters"])
    out, _ = run(capsys, *options("signed_count"), "--parameters", parameters)
    assert "If shuffler and analyzer worked together, epsilon0 = 6 would remain." in out


def test_in_words(capsys: Capture) -> None:
    """What was found, as it can be typed again; what it costs and errs by; rounds."""
    out, _ = run(capsys, *options("cancelling"), "--target", "1", "--rounds", "2")
    first = out.splitlines()[0]
    assert first.startswith("cancelling for epsilon <= 1 over 2 rounds together: --parameters ")
    asked = [*options("cancelling"), *shlex.split(first.partition(": ")[2])]
    again = json.loads(run(capsys, *asked, "--json")[0])
    assert again["epsilon_upper"] < 1.0
    assert "they would see the value itself" in out
    assert "A device sends " in out
    assert "of each count, in devices: " in out
    assert "What is sent can't be checked: a device that lies moves a count by " in out
    assert "2 rounds together" in out
    out, _ = run(capsys, *options("split_mix"), "--target", "1")
    assert "of a mean of numbers from 0 to 1: " in out
    assert f"A device sends {made('split_mix').messages} messages, of " in out
    out, _ = run(capsys, *options("dummies"), "--target", "1")
    assert " messages on average, " in out


def test_integers_without_empty_messages_say_whom_they_do_not_hold_against(capsys: Capture) -> None:
    """And those with them, drawn or up to all slots, don't. Planted: said of all, or of none ->
    fails.
    """
    given = dict(made("signed_count").spec.parameters)
    bare = {name: value for name, value in given.items() if name not in ("empties", "widest")}
    assert bare != given
    for integers, said in ((given, False), (bare, True), ({**bare, "full": 1}, False)):
        value = ask(capsys, *options("signed_count"), "--parameters", typed(integers))
        assumed = " ".join(value["assumptions"])
        assert ("the shuffler does not read the release" in assumed) == said


def test_dummies_with_buckets_are_still_those_of_the_literature(capsys: Capture) -> None:
    words = "--mechanism dummies --buckets 16 --per-device 4 --n 1000 --delta 1e-6"
    value = ask(capsys, *shlex.split(words))
    assert value["method"] == "uniform-dummies"


WRONG = [
    ("--mechanism cancelling --k 16 --n 10 --delta 1e-6", "wants --target EPS to be designed"),
    (f"{DUMMIES} --n 100000 --target 1 --parameters {OF_1E5}", "give one of the two"),
    ("--mechanism cancelling --n 10 --delta 1e-6 --target 1", "wants --k"),
    ("--mechanism split_mix --k 2 --n 10 --delta 1e-6 --target 1", "from 3 to 65536"),
    ("--mechanism signed_count --k 3 --n 9 --delta 1e-6 --target 1", "leave --k out, or give 2"),
    ("--mechanism dummies --n 10 --delta 1e-6 --target 1", "wants --buckets"),
    (f"{DUMMIES} --n 10 --target 1 --buckets 3", "or use dummies without --k"),
    ("--mechanism cancelling --k 4 --n 9 --delta .1 --target 1 --buckets 3", "takes no --buckets"),
    (f"{DUMMIES} --target 1", "--n is missing: the shuffled reports, a whole number of at least 1"),
    (f"{DUMMIES} --n 9 --target 1 --epsilon0 1", "takes no --epsilon0"),
    (f"{DUMMIES} --n 9 --target 1 --solve n", "leave it out, and its noise is designed"),
    (f"{DUMMIES} --n 9 --target 41", "at most 40"),
    (f"{DUMMIES} --n 9 --target 1 --compare", "--compare wants a mechanism with an epsilon0"),
    (f"{DUMMIES} --n 9 --parameters shares", "the integers of a task, each once"),
    (f"{DUMMIES} --n 9 --parameters shares=9,shares=9", "the integers of a task, each once"),
    (f"{DUMMIES} --n 9 --parameters shares=1.5", "the integers of a task, each once"),
    (f"{DUMMIES} --n 9 --parameters odd=1", '--parameters: dummies has no parameter "odd"'),
    (f"{DUMMIES} --n 9 --parameters k=9,{OF_1E5}", "but the domain has 16 cells"),
    (
        "--mechanism signed_count --n 9 --delta 1e-6 "
        "--parameters shares=9,slots=50,q=9,floods=9,longest=9,largest=4,full=2",
        'the parameter "full" is 1, or left out',
    ),
    (
        "--mechanism signed_count --n 9 --delta 1e-6 "
        "--parameters shares=9,slots=50,q=9,floods=9,longest=9,largest=4,full=1,widest=3",
        "give empties with widest",
    ),
    (f"{DUMMIES} --n 1000 --parameters {OF_1E5}", "and 1000 of 1000 are sure to be honest"),
    (
        f"{DUMMIES} --n 100000 --parameters dummies=1,shares=100000,slots=6",
        "proves no epsilon up to 40",
    ),
    (
        f"{DUMMIES} --n 100000 --parameters {OF_1E5} --epsilon0-if-colluding 8",
        "leave it out where --parameters are given",
    ),
    (
        "--mechanism split_mix --k 16 --n 1000 --delta 1e-6 --target 1 --epsilon0-if-colluding 8",
        "no true message to randomize",
    ),
    ("--mechanism cancelling --k 16 --n 2 --delta 1e-6 --target 1", "are the most that a report"),
    (
        "--mechanism cancelling --k 16 --n 2 --delta 1e-6 --target 1 --rounds 3",
        "keeps 3 releases together at 1 (cancelling: a device would send",
    ),
    (
        "--mechanism krr --k 4 --n 9 --delta 1e-3 --epsilon0 1 --parameters a=1",
        "or use blocks or cancelling",
    ),
]


@for_each("words, said", WRONG)
def test_wrong_requests(words: str, said: str, capsys: Capture) -> None:
    """One line, nothing on stdout. Planted: any one check left out -> its case fails."""
    out, err = run(capsys, *shlex.split(words), "--json", status=2)
    assert (out, err.count("\n")) == ("", 1)
    assert said in err
    assert err.startswith("shoal: ")


def test_noise_that_is_cut_off_for_fewer_rounds_says_so(capsys: Capture) -> None:
    """Before anything is shown. Planted: the table shown first -> this fails."""
    few = typed(dict(made("cancelling").spec.parameters))
    asked = (*options("cancelling"), "--parameters", few, "--rounds", "1000")
    out, err = run(capsys, *asked, status=2)
    assert out == ""
    assert "no epsilon holds for 1000 rounds together" in err


def test_several_answers_together_have_a_command_of_their_own(capsys: Capture) -> None:
    _, err = run(capsys, *options(MARGINALS), "--target", "1", status=2)
    assert "shoal tables plan" in err
