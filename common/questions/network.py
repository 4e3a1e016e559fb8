"""A small network as the model that is learnt (``models``): one hidden layer, tanh, one logit.

PyTorch differentiates it, and nothing else here needs PyTorch. So whoever follows releases, or
predicts, does without; a device that lacks it is told what to install before it answers anything.

*The first weights* can't all be 0: all hidden units would be alike, and stay so. They come from the
signed seed by SHAKE-256 (FIPS 202), so that every device begins at the same point and nobody sends
one. A matrix of weights has variance 1 / (numbers that come in), which keeps tanh where it bends
(LeCun, Bottou, Orr, Mueller, "Efficient BackProp", 1998, section 4.6); intercepts are 0.

*Two machines, two last bits.* The weights follow from releases by single additions and products of
IEEE 754, which are the same everywhere (with a clip that adapts, but for the last bits of its
exponential). A gradient has sums and tanh in it, whose last bits differ
between builds of PyTorch. Only the device's own vector has them; it is clipped, rounded at random
and noised after that, and the account holds for any two vectors. So privacy rests on none of it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from shoal.arrays import NDArray, np
from shoal.errors import Kind, ShoalError
from shoal.questions.models import INTERCEPT, MOST_WEIGHTS, bad_model, likely

if TYPE_CHECKING:
    from collections.abc import Callable

_MOST_HIDDEN = 1_024
_SEEDS = 1 << 63
_DOMAIN = b"shoal/v1/network\0"
LACKING = (
    "this device lacks PyTorch, by which a network's gradient is computed: pip install "
    "'shoal[network]'; nothing was answered"
)


@dataclass(frozen=True, slots=True)
class Network:
    """``features``: numbers of a row. ``hidden``: units of the hidden layer, 1 to 1,024. ``seed``:
    of the first weights, from 0 and below 2^63; public. At most 2^20 weights. Raises INVALID.

    The weights, in order: of the hidden layer hidden x features, then its intercepts; of the
    output one for each unit, then its intercept.
    """

    features: int
    hidden: int
    seed: int

    def __post_init__(self) -> None:
        if not 1 <= self.hidden <= _MOST_HIDDEN:
            raise bad_model(f"a network has 1 to {_MOST_HIDDEN} hidden units, got {self.hidden}")
        if self.features < 1 or self.size > MOST_WEIGHTS:
            raise bad_model(
                f"a network has 1 feature or more and at most {MOST_WEIGHTS} weights, got "
                f"{self.features} features and {self.hidden} hidden units"
            )
        if not 0 <= self.seed < _SEEDS:
            raise bad_model("the seed of a network is 0 or more, and below 2^63")

    @property
    def size(self) -> int:
        """Weights of both layers."""
        return self.hidden * (self.features + 2) + 1

    @property
    def words(self) -> str:
        """All of it."""
        return (
            f"A network of {self.hidden} hidden units over {self.features} numbers, begun at seed "
            f"{self.seed},"
        )

    def names(self, features: tuple[str, ...]) -> tuple[str, ...]:
        """As ``hidden 3: radius``, then ``output: hidden 3`` and the like."""
        units = [f"hidden {unit + 1}" for unit in range(self.hidden)]
        return (
            *(f"{unit}: {name}" for unit in units for name in features),
            *(f"{unit}: {INTERCEPT}" for unit in units),
            *(f"output: {unit}" for unit in units),
            f"output: {INTERCEPT}",
        )

    def begin(self) -> NDArray[np.float64]:
        """float64[size] from the seed: uniform within +-sqrt(3 / numbers that come in)."""
        import hashlib  # an idle device loads none (digests.py)

        matrix, drawn = self.hidden * self.features, self.hidden * (self.features + 1)
        stream = hashlib.shake_256(_DOMAIN + self.words.encode()).digest(8 * drawn)
        words = np.frombuffer(stream, dtype=">u8").astype(np.uint64)
        # odd multiples of 2^-53 between -1 and 1: every step is exact
        even = (words >> np.uint64(11)).astype(np.float64) * 2.0**-52 + (2.0**-53 - 1.0)
        weights = np.zeros(self.size)
        weights[:matrix] = even[:matrix] * math.sqrt(3.0 / self.features)
        weights[matrix + self.hidden : -1] = even[matrix:] * math.sqrt(3.0 / self.hidden)
        return weights

    def gradients(
        self,
        weights: NDArray[np.float64],
        rows: NDArray[np.float64],
        yes: NDArray[np.bool_],
        into: NDArray[np.float64],
    ) -> None:
        """To float64[n, size], by PyTorch. Raises CONFIG without it."""
        try:
            import torch
        except ImportError:
            raise ShoalError(Kind.CONFIG, LACKING) from None
        given = (weights, rows, yes.astype(np.float64))
        tensors = (torch.from_numpy(np.ascontiguousarray(one, np.float64)) for one in given)
        into[:] = _differentiated(self)(*tensors).numpy()

    def predict(
        self, weights: NDArray[np.float64], rows: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """float64[n] in [0, 1], without PyTorch."""
        matrix = self.hidden * self.features
        first = weights[:matrix].reshape(self.hidden, self.features)
        units = np.tanh(rows @ first.T + weights[matrix : matrix + self.hidden])
        return likely(units @ weights[matrix + self.hidden : -1] + weights[-1])


@lru_cache(maxsize=4)
def _differentiated(network: Network) -> Callable[..., Any]:
    """(weights, rows, yes as 0 or 1) -> a gradient of each row, all of them at once."""
    import torch

    matrix, hidden = network.hidden * network.features, network.hidden

    def loss(weights: Any, row: Any, yes: Any) -> Any:
        first = weights[:matrix].reshape(hidden, network.features)
        units = torch.tanh(first @ row + weights[matrix : matrix + hidden])
        logit = weights[matrix + hidden : -1] @ units + weights[-1]
        return torch.nn.functional.binary_cross_entropy_with_logits(logit, yes)

    of_each: Callable[..., Any] = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0))
    return of_each
