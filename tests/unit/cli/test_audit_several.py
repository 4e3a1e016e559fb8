"""``shoal audit`` of mechanisms of several messages: the messages of a batch, mixed."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable

import numpy as np
import pytest

from shoal.accounting.audit.audit import Views
from shoal.accounting.audit.several import Messages, several_views
from shoal.cli.audit import attacks as module
from shoal.mechanisms.several.names import BLOCKS, MARGINALS, NAMES
from tests.cases import for_each
from tests.unit.cli.test_audit import Capture, run

COMMON = shlex.split("--target 2 --delta 0.01 --trials 3000 --seed 3")
CELLS = {"signed_count": 2}  # of others: 3
# of several answers together, and of maps, --k says nothing
ONE_ANSWER = tuple(name for name in NAMES if name not in (BLOCKS, MARGINALS))


def options(name: str) -> list[str]:
    return [name, "--k", str(CELLS.get(name, 3)), *COMMON]


@for_each("name", ONE_ANSWER)
def test_honest_mixtures_pass(name: str, capsys: Capture) -> None:
    """Five devices by default, against the bound of the noise that is built for them; of one
    device's messages nothing is claimed. Planted: the claim of another delta -> this fails.
    """
    status, out, err = run(capsys, *options(name), "--json")
    value = json.loads(out)
    assert status == 0
    assert list(value) == ["mechanism", "parameters", "k", "passed", "local", "shuffled"]
    assert (value["mechanism"], value["k"]) == (name, CELLS.get(name, 3))
    assert (value["passed"], value["local"]) == (True, None)
    shuffled = value["shuffled"]
    assert (shuffled["n"], shuffled["delta"], shuffled["trials"]) == (5, 0.01, 1500)
    assert value["parameters"].get("shares", 5) == 5
    assert 1.9 < shuffled["epsilon_claimed"] <= 2.0
    assert 0.2 < shuffled["epsilon_measured_lower"] < 2.0
    assert "shuffled, n = 5" in err


def test_the_messages_of_one_device_keep_an_epsilon0_that_is_claimed(capsys: Capture) -> None:
    """Of a true message that is randomized too. Planted: the option ignored -> this fails."""
    status, out, _ = run(
        capsys, *options("signed_count"), "--epsilon0-if-colluding", "2.1", "--json"
    )
    value = json.loads(out)
    assert status == 0
    assert (value["local"]["n"], value["local"]["delta"]) == (1, 0.0)
    assert value["local"]["epsilon_claimed"] == pytest.approx(2.1)
    assert 1.2 < value["local"]["epsilon_measured_lower"] < 2.1
    assert "uniform" in value["parameters"]


def of_the_victim(make: Callable[..., Views]) -> Callable[..., Views]:
    """The grouping is left in: the others' messages can be told apart."""

    def seen(messages: Messages) -> Messages:
        kept = messages.devices % 5 == 4
        return Messages(messages.numbers[kept], messages.devices[kept])

    return lambda *arguments, **named: make(*arguments, **named, seen=seen)


@for_each("name", ONE_ANSWER)
def test_a_broken_mixture_exits_with_1(
    name: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: an exit status of 0 whatever was measured -> this fails."""
    monkeypatch.setattr(module, "several_views", of_the_victim(several_views))
    status, out, err = run(capsys, *options(name))
    assert status == 1
    assert "REFUTED" in out
    assert "more was measured than is claimed" in err


def test_in_words_and_by_a_seed(capsys: Capture) -> None:
    """Planted: the seed ignored -> this fails."""
    one, two = (run(capsys, *options("dummies"))[1] for _ in range(2))
    assert one == two
    assert "Of one device's messages, seen together, nothing is claimed" in one
    assert "The randomizer holds" in one


def test_help_has_an_example(capsys: Capture) -> None:
    status, out, _ = run(capsys, "--help")
    assert status == 0
    assert "shoal audit cancelling --k 3 --target 2" in " ".join(out.split())


@for_each(
    "words, said",
    [
        ("dummies --k 3", "dummies wants a target: --target EPS is"),
        ("dummies --k 3 --target 0", "dummies wants a target: --target EPS is"),
        ("dummies --k 3 --target nan", "dummies wants a target: --target EPS is"),
        ("dummies --k 3 --target 31", "dummies wants a target: --target EPS is"),
        ("dummies --k 3 --target 1 --epsilon0 1", "takes no --epsilon0 or --setting"),
        ("dummies --k 3 --target 1 --setting a", "takes no --epsilon0 or --setting"),
        ("dummies --target 1", "wants --k"),
        ("signed_count --k 3 --target 1", "leave --k out, or give 2"),
        ("split_mix --k 3 --target 1 --epsilon0-if-colluding 1", "no true message to randomize"),
        ("dummies --k 3 --target 1 --n 0", "n must be"),
        ("dummies --k 3 --target 1 --trials 9", "trials must be"),
        ("dummies --k 3 --target 1 --delta 1", "delta"),
        ("cancelling --k 16 --target 1 --n 1", "are the most that a report may have"),
        ("krr --k 3", "--epsilon0 is missing"),
        ("krr --k 3 --epsilon0 1 --target 1", "krr sends one message: give --epsilon0"),
        ("krr --k 3 --epsilon0 1 --epsilon0-if-colluding 1", "krr sends one message"),
    ],
)
def test_bad_arguments(words: str, said: str, capsys: Capture) -> None:
    """One line, exit status 2. Planted: any check left out -> its case fails."""
    status, out, err = run(capsys, *shlex.split(words))
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert said in err


def test_no_more_than_a_step_is_held_at_once(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bundles are drawn some ten thousand messages at a time, however many trials there are, so
    that memory is bounded and the bar moves. Planted: audit's own step -> this fails.
    """
    most = 0

    def counted(*arguments: object, **named: object) -> Views:
        def views(which: int, trials: int) -> dict[str, np.ndarray]:
            nonlocal most
            most = max(most, trials)
            return {"nothing": np.zeros(trials)}

        return views

    monkeypatch.setattr(module, "several_views", counted)
    run(capsys, "dummies", "--k", "3", "--n", "1000", *COMMON)
    assert 0 < most * 1000 <= 50_000
