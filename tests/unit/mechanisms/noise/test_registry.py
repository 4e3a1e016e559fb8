"""Noise by name: what is built, and every way to ask for what cannot be."""

from __future__ import annotations

import subprocess
import sys
import tracemalloc

import numpy as np
import pytest

from shoal.entropy import SeededEntropy
from shoal.errors import Kind, ShoalError
from shoal.mechanisms.noise.polya import PolyaShare
from shoal.mechanisms.noise.registry import REGISTRY, VectorNoise, create_noise
from shoal.mechanisms.noise.skellam import SkellamShare
from shoal.mechanisms.parts.sampling import BLOCK
from shoal.task import MechanismSpec
from tests.cases import for_each

SPECS = (
    MechanismSpec.of("skellam", variance=10_000, shares=60),
    MechanismSpec.of("discrete_laplace", scale=131_072, shares=60),
)


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.name)
def test_a_spec_becomes_its_noise_once(spec: MechanismSpec) -> None:
    """The table is built once per spec. Two draws differ, the same words give the same draw."""
    noise: VectorNoise = create_noise(spec)
    assert (noise.name, noise.spec, noise.shares) == (spec.name, spec, 60)
    assert noise.variance > 0
    again = create_noise(MechanismSpec(spec.name, spec.parameters))
    assert isinstance(again, SkellamShare | PolyaShare)
    assert isinstance(noise, SkellamShare | PolyaShare)
    assert again.sampler is noise.sampler
    first, second = noise.sample(500, SeededEntropy(1)), noise.sample(500, SeededEntropy(2))
    assert first.tolist() == noise.sample(500, SeededEntropy(1)).tolist()
    assert first.tolist() != second.tolist()


@for_each(
    "spec, words",
    [
        (
            MechanismSpec.of("gaussian", variance=1, shares=1),
            "no noise of that name: choose one of discrete_laplace, skellam",
        ),
        (MechanismSpec.of("krr", cells=3), "no noise of that name"),
        (MechanismSpec.of("skellam", variance=1), 'skellam lacks the parameter "shares"'),
        (MechanismSpec.of("skellam", shares=1), 'skellam lacks the parameter "variance"'),
        (
            MechanismSpec.of("skellam", variance=1, shares=1, scale=1),
            'skellam has no parameter "scale"',
        ),
        (MechanismSpec.of("skellam", variance=0, shares=1), '"variance" is 1 to'),
        (MechanismSpec.of("skellam", variance=1, shares=0), '"shares" is 1 to 1000000'),
        (MechanismSpec.of("skellam", variance=1, shares=1_000_001), '"shares" is 1 to 1000000'),
        (
            MechanismSpec.of("skellam", variance=2**64 - 1, shares=1_000),
            "choose a coarser grid, or more survivors",
        ),
        (
            MechanismSpec.of("discrete_laplace", variance=1, shares=1),
            'discrete_laplace has no parameter "variance"',
        ),
        (
            MechanismSpec.of("discrete_laplace", shares=1),
            'discrete_laplace lacks the parameter "scale"',
        ),
        (MechanismSpec.of("discrete_laplace", scale=4_095, shares=1), '"scale" is 4096 to'),
        (
            MechanismSpec.of("discrete_laplace", scale=2**31 + 1, shares=1),
            '"scale" is 4096 to 2147483648',
        ),
    ],
    ids=str,
)
def test_what_cannot_be_is_refused(spec: MechanismSpec, words: str) -> None:
    """Planted: the range check left out -> a rate of 0, a division by zero, an endless table; this
    fails.
    """
    with pytest.raises(ShoalError) as caught:
        create_noise(spec)
    assert caught.value.kind is Kind.INVALID
    assert words in str(caught.value)


def test_parameters_are_named_as_a_spec_sorts_them() -> None:
    for name, family in REGISTRY.items():
        assert name == family.name
        names = [parameter.name for parameter in family.parameters]
        assert names == sorted(names)
        assert all(
            1 <= parameter.low <= parameter.high < 1 << 64 and parameter.meaning
            for parameter in family.parameters
        )


def test_the_package_is_light() -> None:
    """Importing it loads no numpy. Planted: ``np.pi`` at the end of mechanisms/noise/exact.py."""
    code = "import sys, shoal.mechanisms.noise; assert 'numpy' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.name)
def test_noise_is_added_in_place_as_it_is_sampled(spec: MechanismSpec) -> None:
    """With the same words, over more than one block, and without a vector of draws in memory.
    Planted: one half drawn with the other's words -> fails; a sample added -> two vectors more,
    fails.
    """
    noise, count = create_noise(spec), 32 * BLOCK + 7
    added = np.arange(count)
    noise.add_to(added, SeededEntropy("share"))
    entropy = SeededEntropy("share")
    assert isinstance(noise, SkellamShare | PolyaShare)
    halves = [noise.sampler.draw(count, entropy) for _ in range(2)]
    assert (added == np.arange(count) + halves[0] - halves[1]).all()
    assert (noise.sample(count, SeededEntropy("share")) == halves[0] - halves[1]).all()
    entropy = SeededEntropy("long")
    tracemalloc.start()
    try:
        noise.add_to(added, entropy)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 6 * 8 * BLOCK  # blocks alone, whatever the length
