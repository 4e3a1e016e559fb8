"""``shoal audit`` of a randomizer of vectors: an honest one passes, broken ones are convicted."""

from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray

from shoal.accounting.audit.audit import audit
from shoal.accounting.audit.vectors import vector_views
from shoal.cli.audit import attacks as module
from shoal.cli.main import main
from shoal.domain import Domain, Norm, Vector
from shoal.entropy import Entropy, SeededEntropy
from shoal.mechanisms.vectors.gaussian_table import candidates
from shoal.mechanisms.vectors.privunit import PrivUnit
from shoal.mechanisms.vectors.registry import create, design
from shoal.privacy import SymmetricLaw, epsilon0_upper
from shoal.task import MechanismSpec
from tests.cases import for_each
from tests.sizes import size

Capture = pytest.CaptureFixture[str]
COMMON = ("--setting", "K=64", "--n", "3", "--delta", "0.05", "--seed", "3")
TRIALS = ("--trials", str(size(1_500, 40_000)))


def run(capsys: Capture, *arguments: str) -> tuple[int, str, str]:
    status = main(["audit", "privunit", *arguments])
    out, err = capsys.readouterr()
    return status, out, err


def test_an_honest_one_passes_and_the_attack_comes_near(capsys: Capture) -> None:
    """Planted: the bits of both answers by the same order -> seen by places alone, fails."""
    status, out, _ = run(capsys, "--epsilon0", "2", *COMMON, *TRIALS, "--json")
    value = json.loads(out)
    assert status == 0
    assert (value["mechanism"], value["k"], value["passed"]) == ("privunit", None, True)
    assert value["parameters"]["candidates"] == 64
    local, shuffled = value["local"], value["shuffled"]
    assert (local["n"], shuffled["n"]) == (1, 3)
    assert 1.0 < local["epsilon_measured_lower"] < local["epsilon_claimed"] <= 2.0
    assert "along" not in local["event"]
    assert 0.3 < shuffled["epsilon_measured_lower"] < shuffled["epsilon_claimed"] < 2.0


class Louder(PrivUnit):
    """It claims epsilon0 = 1 and is built for more."""

    def privacy(self) -> SymmetricLaw:
        return claimed(self.domain).privacy()


def claimed(domain: Domain) -> PrivUnit:
    made = create(design("privunit", domain, 1.0, "K=64"), domain)
    assert isinstance(made, PrivUnit)
    return made


def test_a_broken_one_exits_with_1(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: the claim taken from the integers that were attacked -> passes, and this fails."""

    def broken(spec: MechanismSpec, domain: Domain) -> Louder:
        assert isinstance(domain, Vector)
        inside = spec.get("inside")
        return Louder(domain, 64, inside, spec.get("uniform") // 4)

    monkeypatch.setattr(module, "create_of_vectors", broken)
    status, out, err = run(capsys, "--epsilon0", "1", *COMMON, *TRIALS)
    assert status == 1
    assert "REFUTED" in out
    assert "more was measured than is claimed" in err


@dataclass(frozen=True)
class _Chosen(Entropy):
    """Seeds that were chosen with a look at the vector: all else is drawn as it should be."""

    entropy: Entropy
    sign: int

    def bytes(self, count: int) -> bytes:
        if count != 16:
            return self.entropy.bytes(count)
        seeds = [self.entropy.bytes(count) for _ in range(16)]
        return max(seeds, key=lambda seed: self.sign * int(candidates(seed, 0, 4, 4)[:, 0].sum()))

    def words(self, count: int) -> NDArray[np.uint64]:
        return self.entropy.words(count)


class Choosy(PrivUnit):
    """Of sixteen seeds it keeps the one whose directions suit its vector."""

    def randomize_vector(self, vector: NDArray[np.int64], entropy: Entropy) -> tuple[bytes, ...]:
        sign = int(np.sign(vector[0]))
        return super().randomize_vector(vector, _Chosen(entropy, sign) if sign else entropy)


def test_a_seed_that_looks_at_the_vector_is_convicted() -> None:
    """Its ranks have the law that they should have; where the directions lie gives it away.

    Planted: the statistic of places left out -> not convicted, fails.
    """
    domain = Vector(3, Norm.L2, 1.0, 1 << 20)
    choosy = Choosy(domain, 4, 1, (1 << 64) - (1 << 60))
    epsilon0, entropy = epsilon0_upper(choosy.privacy()), SeededEntropy("choosy")
    result = audit(vector_views(choosy, 1, entropy), epsilon0, 0.0, size(1_500, 5_000))
    assert result.refuted
    assert "along" in str(result.event)


@for_each(
    "extra, word",
    [
        (("--epsilon0", "1", "--k", "5"), "takes no --k"),
        (("--epsilon0", "0"), "--epsilon0"),
        ((), "--epsilon0"),
        (("--epsilon0", "1", "--target", "1"), "--target"),
        (("--epsilon0", "1", "--setting", "K=5"), "K=64"),
    ],
)
def test_bad_arguments(extra: tuple[str, ...], word: str, capsys: Capture) -> None:
    status, out, err = run(capsys, *extra)
    assert (status, out) == (2, "")
    assert word in err
    assert err.count("\n") == 1
