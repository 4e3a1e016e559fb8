"""All noise laws by name: what a task's MechanismSpec becomes on a device that takes part in a
sum.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Protocol

from shoal.arrays import NDArray, np
from shoal.entropy import Entropy
from shoal.limits import LIMITS
from shoal.mechanisms.base import Parameter, check_parameters, invalid
from shoal.mechanisms.noise import polya, skellam
from shoal.task import MechanismSpec


class VectorNoise(Protocol):
    """One device's share of the noise of a sum, with its integers filled in. Immutable: safe to
    share between threads.

    The shares of ``shares`` devices add up to the law that the task's certificate is about; those
    of more devices to more.
    """

    @property
    def name(self) -> str:
        """The noise's name in tasks and in the registry."""
        ...

    @property
    def spec(self) -> MechanismSpec:
        """The name with its integers: what a task carries, and ``create_noise`` makes this noise
        of.
        """
        ...

    @property
    def shares(self) -> int:
        """How many devices' shares add up to the certified law."""
        ...

    @property
    def variance(self) -> float:
        """Of one device's share of one coordinate, in grid steps squared. Variances of devices
        add.
        """
        ...

    def sample(self, count: int, entropy: Entropy) -> NDArray[np.int64]:
        """int64[count], independent, each of exactly the stated law if the words of ``entropy`` are
        uniform. Never sees a value.
        """
        ...

    def add_to(self, vector: NDArray[np.int64], entropy: Entropy) -> None:
        """Add ``sample`` of its size to int64[n], in place and with the same words. What is drawn
        does not depend on what the vector holds.
        """
        ...


@dataclass(frozen=True, slots=True)
class NoiseFamily:
    """A registered law: its integers, and how to build one device's share from them."""

    name: str
    summary: str
    parameters: tuple[Parameter, ...]
    create: Callable[[MechanismSpec], VectorNoise]


_SHARES = Parameter(
    "shares", 1, LIMITS.helper_cohort, "honest survivors that the noise is divided among"
)

REGISTRY: Mapping[str, NoiseFamily] = MappingProxyType(
    {
        skellam.NAME: NoiseFamily(
            skellam.NAME,
            "differences of Poisson variables; for vectors clipped in L2",
            (
                _SHARES,
                Parameter(
                    "variance", 1, (1 << 64) - 1, "of the sum of the shares, in grid steps squared"
                ),
            ),
            skellam.create,
        ),
        polya.NAME: NoiseFamily(
            polya.NAME,
            "discrete Laplace as differences of Polya variables; for vectors clipped in L1, no "
            "delta",
            (
                Parameter(
                    "scale",
                    polya.LEAST_SCALE,
                    polya.MOST_SCALE,
                    "65536 times b, in grid steps: P(x) falls by e every b",
                ),
                _SHARES,
            ),
            polya.create,
        ),
    }
)


def create_noise(spec: MechanismSpec) -> VectorNoise:
    """The noise that a task names. Cheap: the table is built by the first ``sample`` (``sample(0,
    ...)`` will do) and kept for later ones.

    That takes milliseconds, a tenth of a second at 10^8 grid steps squared per share, and seconds
    at the largest that is supported. Raises INVALID, naming the parameter, unless every integer
    fits.
    """
    if spec.name not in REGISTRY:
        raise invalid(
            f"there is no noise of that name: choose one of {', '.join(sorted(REGISTRY))}"
        )
    family = REGISTRY[spec.name]
    check_parameters(spec, family.parameters)
    return family.create(spec)
