"""``shoal audit``: what it prints, when it fails, and one line for every wrong argument."""

from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray

from shoal.accounting import certify
from shoal.cli.audit import attacks as module
from shoal.cli.main import main
from shoal.domain import Categories, Domain, Numeric, Places, YesNo
from shoal.entropy import Entropy
from shoal.mechanisms import REGISTRY, Mechanism, create, design, serves
from shoal.mechanisms.categories.unary import UnaryEncoding, law, least_one_if_zero
from shoal.mechanisms.parts.thresholds import WORDS
from shoal.privacy import LocalPrivacy, SymmetricLaw
from shoal.task import MechanismSpec
from tests.cases import for_each

Capture = pytest.CaptureFixture[str]
COMMON = ("--n", "20", "--delta", "0.05", "--trials", "4000", "--seed", "3")


def run(capsys: Capture, *arguments: str) -> tuple[int, str, str]:
    status = main(["audit", *arguments])
    out, err = capsys.readouterr()
    return status, out, err


@for_each(
    "name, extra, k",
    [
        ("binary_rr", (), 2),
        ("krr", ("--k", "2"), 2),
        ("krr", ("--k", "16"), 16),
        ("kmean", ("--k", "6"), 6),
    ],
)
def test_honest_randomizers_pass(
    name: str, extra: tuple[str, ...], k: int, capsys: Capture
) -> None:
    status, out, _ = run(capsys, "--mechanism", name, "--epsilon0", "2", *extra, *COMMON, "--json")
    value = json.loads(out)
    assert status == 0
    assert (value["mechanism"], value["k"], value["passed"]) == (name, k, True)
    assert (value["local"]["n"], value["shuffled"]["n"]) == (1, 20)
    assert value["local"]["epsilon_claimed"] == pytest.approx(2.0)
    assert (value["local"]["delta"], value["shuffled"]["delta"]) == (0.0, 0.05)
    assert value["shuffled"]["epsilon_claimed"] < 2.0
    assert 1.2 < value["local"]["epsilon_measured_lower"] < 2.0
    assert value["local"]["trials"] == 2000


@for_each("name", sorted(REGISTRY))
def test_every_registered_randomizer_is_attacked(name: str, capsys: Capture) -> None:
    """By its name alone, with the number of cells where it has one; the attack comes near what is
    claimed of one report.

    Planted: statistics of views that are all one number; the first two cells attacked where the
    last is the furthest -> fails.
    """
    only_yes_no = not any(
        serves(name, domain)
        for domain in (Categories(("a", "b")), Numeric(0, 1, 2), Places(0, 0, 9, 9, 1, 3))
    )
    # Of more buckets a device that speaks of one of them hardly ever speaks of the victim's two.
    cells = 3 if name == "dbitflip" else 9
    status, out, _ = run(
        capsys,
        name,
        "--epsilon0",
        "2",
        *(() if only_yes_no else ("--k", str(cells))),
        *COMMON,
        "--json",
    )
    value = json.loads(out)
    assert status == 0
    assert (value["mechanism"], value["k"]) == (name, 2 if only_yes_no else cells)
    # So few trials do not see all of these two: the ratio is reached by rare reports alone.
    least = {"exponential": 0.6, "gaussian": 1.0, "planar": 0.6}.get(name, 1.2)
    assert (
        least < value["local"]["epsilon_measured_lower"] < value["local"]["epsilon_claimed"] <= 2.0
    )


@for_each(
    "k, name",
    [(k, name) for k in (2, 40) for name in ("unary", "hadamard_response", "local_hash")],
)
def test_other_numbers_of_cells(k: int, name: str, capsys: Capture) -> None:
    """Two cells, and more than are listed as a table. And a setting is taken: its integers are in
    the result.
    """
    setting = {"unary": "p=0.9", "hadamard_response": "B=2", "local_hash": "blh"}[name]
    status, out, _ = run(
        capsys, name, "--setting", setting, "--k", str(k), "--epsilon0", "1.5", *COMMON, "--json"
    )
    domain = YesNo() if k == 2 else Categories(tuple(f"c{i}" for i in range(k - 1)))
    value = json.loads(out)
    assert status == 0
    assert value["parameters"] == dict(design(name, domain, 1.5, setting).parameters)
    assert 0.8 < value["local"]["epsilon_measured_lower"] < 1.5


@dataclass(frozen=True)
class Leaky:
    """Truth too often: one report in three is the answer itself."""

    honest: Mechanism

    def privacy(self) -> LocalPrivacy:
        return self.honest.privacy()

    def randomize(self, values: NDArray[np.int64], entropy: Entropy) -> NDArray[np.uint8]:
        plain = entropy.words(values.size) % np.uint64(3) == 0
        return np.where(
            plain[:, None, None],
            values.astype(np.uint8)[:, None, None],
            self.honest.randomize(values, entropy),
        )


def test_a_broken_one_exits_with_1(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: the exit status taken from the last attack alone -> fails."""

    def leaky(spec: MechanismSpec, domain: Domain) -> Leaky:
        return Leaky(create(spec, domain))

    monkeypatch.setattr(module, "create", leaky)
    status, out, err = run(capsys, "--mechanism", "krr", "--k", "4", "--epsilon0", "1", *COMMON)
    assert status == 1
    assert "REFUTED" in out
    assert "more was measured than is claimed" in err
    status, out, _ = run(
        capsys, "--mechanism", "krr", "--k", "4", "--epsilon0", "1", *COMMON, "--json"
    )
    assert status == 1
    value = json.loads(out)
    assert value["passed"] is False
    assert value["local"]["refuted"] is True


class Twice(UnaryEncoding):
    """The true cell's bit is set by another randomizer: epsilon for each bit instead of for the
    report.
    """

    def privacy(self) -> SymmetricLaw:
        return law(self.k, WORDS // 2, least_one_if_zero(WORDS // 2, 1.0))


def test_a_broken_bitmap_exits_with_1(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    """It claims epsilon0 = 1 and is built for 2. Planted: the supports of a cell always those of
    the first -> passes, and this fails.
    """

    def broken(spec: MechanismSpec, domain: Domain) -> Twice:
        return Twice(domain.labels, WORDS // 2, least_one_if_zero(WORDS // 2, 2.0))

    monkeypatch.setattr(module, "create", broken)
    status, out, _ = run(capsys, "unary", "--k", "9", "--epsilon0", "1", *COMMON)
    assert status == 1
    assert "REFUTED" in out


def test_a_seed_repeats_a_run_and_no_seed_does_not(capsys: Capture) -> None:
    """Planted: the seed ignored -> fails."""
    arguments = (
        "--mechanism",
        "krr",
        "--k",
        "5",
        "--epsilon0",
        "2",
        "--n",
        "10",
        "--trials",
        "2000",
        "--json",
    )
    one, two = (run(capsys, *arguments, "--seed", "9")[1] for _ in range(2))
    assert one == two
    assert run(capsys, *arguments)[1] != run(capsys, *arguments)[1]


def test_table_and_progress(capsys: Capture) -> None:
    status, out, err = run(capsys, "--mechanism", "binary_rr", "--epsilon0", "1", *COMMON)
    assert status == 0
    assert "measured at least" in out
    assert "holds" in out
    assert "The randomizer holds" in out
    assert "event chosen beforehand" in out
    assert "shuffled, n = 20" in err
    claimed = certify(
        create(design("binary_rr", YesNo(), 1.0), YesNo()).privacy(), 20, 0.05
    ).epsilon_upper
    assert f"{claimed:.3f}"[:4] in out


def test_help_has_an_example(capsys: Capture) -> None:
    status, out, _ = run(capsys, "--help")
    assert status == 0
    assert "shoal audit krr --epsilon0 3" in " ".join(out.split())


@for_each(
    "change, word",
    [
        ({"--epsilon0": "0"}, "--epsilon0"),
        ({"--epsilon0": "nan"}, "--epsilon0"),
        ({"--epsilon0": "31"}, "--epsilon0"),
        ({"--n": "0"}, "n must be"),
        ({"--trials": "99"}, "trials"),
        ({"--delta": "0"}, "delta"),
        ({"--delta": "1"}, "delta"),
        ({"--k": "1"}, "--k"),
        ({"--k": None}, "--k"),
        ({"--mechanism": "kmean", "--k": "2"}, "--k"),
        ({"--mechanism": "binary_rr"}, "takes no --k"),
        ({"--mechanism": "nothing"}, "unary"),
        ({"--mechanism": None}, "MECHANISM"),
        ({"--setting": "oue"}, "standard"),
        ({"--mechanism": "subset", "--k": "65536"}, "32768"),
    ],
)
def test_bad_arguments(change: dict[str, str | None], word: str, capsys: Capture) -> None:
    good: dict[str, str | None] = {
        "--mechanism": "krr",
        "--epsilon0": "1",
        "--k": "5",
        "--n": "10",
        "--delta": "0.1",
        "--trials": "200",
    }
    status, out, err = run(
        capsys,
        *[
            part
            for name, value in (good | change).items()
            if value is not None
            for part in (name, value)
        ],
    )
    assert status == 2
    assert out == ""
    assert word in err
    assert err.count("\n") == 1
