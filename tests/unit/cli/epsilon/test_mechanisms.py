"""``shoal epsilon``: the stable JSON, the table, and one line for every wrong argument."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from fractions import Fraction
from itertools import product

import pytest
import typer
from typer.testing import CliRunner

from shoal.accounting import certify
from shoal.cli.epsilon.command import register
from shoal.errors import Kind, ShoalError
from shoal.mechanisms.parts import laws
from shoal.privacy import LocalPrivacy
from tests.cases import for_each
from tests.sizes import size
from tests.unit.accounting.laws import kary, pure

KEYS = [
    "epsilon_upper",
    "epsilon_lower",
    "epsilon0",
    "delta",
    "n",
    "honest_fraction",
    "relation",
    "method",
    "assumptions",
]
OPTIONS: dict[str, list[str]] = {
    "any": [],
    "rr": [],
    "krr": ["--k", "7"],
    "kmean": ["--k", "7"],
    "sue": [],
    "oue": [],
    "hash": ["--g", "5"],
    "subset": ["--k", "9", "--subset-size", "3"],
    "hadamard": [],
}
LAWS: dict[str, Callable[[float], LocalPrivacy]] = {
    "any": pure,
    "rr": lambda epsilon0: kary(2, epsilon0),
    "krr": lambda epsilon0: kary(7, epsilon0),
    "kmean": lambda epsilon0: kary(7, epsilon0),
    "sue": lambda epsilon0: laws.sue(Fraction(math.exp(epsilon0))),
    "oue": lambda epsilon0: laws.oue(Fraction(math.exp(epsilon0))),
    "hash": lambda epsilon0: laws.local_hash(5, Fraction(math.exp(epsilon0))),
    "subset": lambda epsilon0: laws.subset(9, 3, Fraction(math.exp(epsilon0))),
    "hadamard": lambda epsilon0: laws.hadamard_bit(Fraction(math.exp(epsilon0))),
}


def run(*arguments: str) -> str:
    app = typer.Typer()
    register(app)
    result = CliRunner().invoke(app, list(arguments))
    if isinstance(result.exception, ShoalError):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.output


def test_json_is_the_certificate() -> None:
    """Planted: a key added to the JSON -> this fails."""
    value = json.loads(
        run(
            "--mechanism",
            "krr",
            "--epsilon0",
            "4",
            "--k",
            "16",
            "--n",
            "100000",
            "--delta",
            "1e-8",
            "--json",
        )
    )
    assert list(value) == KEYS
    assert value["epsilon_upper"] == pytest.approx(0.133845, abs=1e-6)
    assert value["epsilon_upper"] / value["epsilon_lower"] < 1.00001
    assert (value["n"], value["delta"], value["honest_fraction"], value["relation"]) == (
        100_000,
        1e-8,
        1.0,
        "replace-one",
    )


@for_each(
    "mechanism, epsilon0",
    [
        *product(list(OPTIONS)[:4], [1e-6, 0.5, math.log(3), 1.0, 4.0, 7.3, 20.0][:: size(2, 1)]),
        *product(list(OPTIONS)[4:], [1e-6, 1.0, 4.0][:: size(2, 1)]),
    ],
)
def test_epsilon0_is_never_above_the_asked(mechanism: str, epsilon0: float) -> None:
    """And within 1e-9 of it. Planted: the other end of the threshold's search -> this fails."""
    extra = OPTIONS[mechanism]
    value = json.loads(
        run(
            "--mechanism",
            mechanism,
            "--epsilon0",
            repr(epsilon0),
            "--n",
            "500",
            "--delta",
            "1e-6",
            "--json",
            *extra,
        )
    )
    assert epsilon0 * (1 - 1e-9) - 1e-17 <= value["epsilon0"] <= epsilon0
    law = LAWS[mechanism](epsilon0)
    expected = certify(law, 500, 1e-6)
    assert value["epsilon_upper"] == pytest.approx(expected.epsilon_upper, rel=1e-7)
    assert value["epsilon_lower"] == pytest.approx(expected.epsilon_lower, rel=1e-7)


def test_typed_decimals_are_exact() -> None:
    """0.7 of 10 is 7 here, and 9/10 is understood. Planted: float(...) -> 6, this fails."""
    common = ["--mechanism", "rr", "--epsilon0", "1", "--n", "10", "--delta", "1e-3", "--json"]
    assert any(
        "7 of the 10" in line
        for line in json.loads(run(*common, "--honest-fraction", "0.7"))["assumptions"]
    )
    assert any(
        "9 of the 10" in line
        for line in json.loads(run(*common, "--honest-fraction", "9/10"))["assumptions"]
    )


def test_table_for_people() -> None:
    text = run("--mechanism", "any", "--epsilon0", "4", "--n", "100000", "--delta", "1e-8")
    assert "0.150668" in text  # rounded up
    assert "0.149256" in text  # rounded down
    assert "guesses the right one at most 53.8 %" in text
    assert "ln 3" in text


def test_help_has_an_example() -> None:
    assert "shoal epsilon --mechanism krr" in run("--help").replace("\n", " ").replace("  ", " ")


@for_each(
    "change, words",
    [
        ({"--n": "0"}, "n must be"),
        ({"--delta": "0"}, "delta"),
        ({"--delta": "1"}, "delta"),
        ({"--delta": "nan"}, "delta"),
        ({"--delta": "1e-300"}, "delta"),
        ({"--epsilon0": "0"}, "--epsilon0"),
        ({"--epsilon0": "-1"}, "--epsilon0"),
        ({"--epsilon0": "nan"}, "--epsilon0"),
        ({"--epsilon0": "inf"}, "--epsilon0"),
        ({"--epsilon0": "1e6"}, "--epsilon0"),
        ({"--k": "1"}, "--k"),
        ({"--k": None}, "--k"),
        ({"--mechanism": "any"}, "takes no --k"),
        ({"--mechanism": "rr"}, "takes no --k"),
        ({"--mechanism": "dice"}, "--mechanism must be one of any, rr"),
        ({"--g": "4"}, "takes no --g: leave it out, or use hash"),
        ({"--mechanism": "hash", "--k": None}, "wants --g"),
        ({"--mechanism": "hash", "--k": None, "--g": "1"}, "--g, a whole number from 2"),
        ({"--mechanism": "subset"}, "wants --subset-size"),
        ({"--mechanism": "subset", "--subset-size": "5"}, "--subset-size"),
        ({"--mechanism": "subset", "--subset-size": "0"}, "--subset-size"),
        (
            {"--mechanism": "subset", "--subset-size": "1", "--k": "5000"},
            "--k, a whole number from 2 to 4096",
        ),
        ({"--honest-fraction": "0"}, "honest fraction"),
        ({"--honest-fraction": "1.5"}, "honest fraction"),
        ({"--honest-fraction": "most"}, "--honest-fraction"),
        ({"--honest-fraction": "1/0"}, "--honest-fraction"),
        ({"--honest-fraction": "nan"}, "--honest-fraction"),
    ],
)
def test_bad_arguments(change: dict[str, str | None], words: str) -> None:
    """Each is CONFIG (exit status 2) with one line. Planted: a check removed -> that case fails."""
    good: dict[str, str | None] = {
        "--mechanism": "krr",
        "--epsilon0": "1",
        "--k": "5",
        "--n": "10",
        "--delta": "1e-3",
    }
    arguments = good | change
    with pytest.raises(ShoalError, match=words) as error:
        run(
            *[
                part
                for name, value in arguments.items()
                if value is not None
                for part in (name, value)
            ]
        )
    assert error.value.kind is Kind.CONFIG
    assert "\n" not in str(error.value)
