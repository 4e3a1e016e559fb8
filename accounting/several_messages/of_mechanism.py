"""The account of a mechanism of several messages: one place that says which protocol a ``Several``
is, and so its bound and its law of losses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.accounting.several_messages.noise import METHODS as NOISE_METHODS
from shoal.accounting.several_messages.noise import NoiseProtocol
from shoal.accounting.several_messages.noise_losses import noise_losses
from shoal.accounting.several_messages.randomized_truth import METHODS as RANDOMIZED_METHODS
from shoal.accounting.several_messages.randomized_truth import RandomizedTruth, randomized_losses
from shoal.accounting.several_messages.shuffler_noise import METHOD as SHUFFLER_NOISE
from shoal.accounting.several_messages.shuffler_noise import (
    ShufflerNoiseProtocol,
    shuffler_noise_losses,
)
from shoal.accounting.several_messages.split import METHOD as SPLIT_METHOD
from shoal.accounting.several_messages.split import SplitProtocol
from shoal.errors import Kind, ShoalError
from shoal.mechanisms.several.protocol import Noisy, Several
from shoal.mechanisms.several.shuffler_noise import ShufflerNoise
from shoal.mechanisms.several.split_mix import SplitMix

if TYPE_CHECKING:
    from shoal.accounting.composition.losses import LossLaw
    from shoal.accounting.several_messages.messages import SeveralMessages

METHODS = (*NOISE_METHODS, *RANDOMIZED_METHODS, SPLIT_METHOD, SHUFFLER_NOISE)
"""Methods in bounds and releases of tasks whose devices send several messages."""


def protocol_of(made: Several) -> SeveralMessages:
    """What accounts for a batch of such reports. Raises INTERNAL for a mechanism that has none."""
    if isinstance(made, Noisy):
        noise, truth = NoiseProtocol(made.noise), made.truth_law
        return noise if truth is None else RandomizedTruth(noise, truth)
    if isinstance(made, SplitMix):
        return SplitProtocol(made)
    if isinstance(made, ShufflerNoise):
        return ShufflerNoiseProtocol(made.cell_noise)
    raise ShoalError(Kind.INTERNAL, f"{made.name} has no account")


def losses_of(made: Several, n_honest: int, delta: float) -> LossLaw | None:
    """The law of losses of one release for ``n_honest`` honest devices, in the order of ``delta``,
    the total that it will be composed to; None where nothing is proven. Direction: UPPER.
    """
    protocol = protocol_of(made)
    if isinstance(protocol, RandomizedTruth):
        return randomized_losses(protocol, n_honest, delta)
    if isinstance(made, Noisy):
        return noise_losses(made.noise, n_honest, delta)
    if isinstance(made, SplitMix):
        return SplitProtocol(made).losses(delta) if n_honest >= made.least_devices else None
    if isinstance(made, ShufflerNoise):
        return shuffler_noise_losses(made.cell_noise, delta)
    raise ShoalError(Kind.INTERNAL, f"{made.name} has no law of losses")
