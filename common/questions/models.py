"""What is learnt in rounds of sums (``learning``): the seam of models, and its first member.

A model is a function of public numbers: its weights, which everybody computes from releases. A
device is asked for the gradient of its loss at them, and that is all that a model does with a
device's row. Clipping and noise come afterwards, and trust nothing that a model returns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from shoal.arrays import NDArray, np
from shoal.errors import Kind, ShoalError

MOST_WEIGHTS = 1 << 20
INTERCEPT = "intercept"


class Model(Protocol):
    """The members of every model that answers yes or no. All arrays are float64; ``yes`` is
    bool[n], ``rows`` is float64[n, features].
    """

    @property
    def features(self) -> int:
        """Numbers of a row, 1 or more."""

    @property
    def size(self) -> int:
        """Weights of the model, and so numbers of a gradient."""

    @property
    def words(self) -> str:
        """All of the model, exactly: they are signed with the task. No two models' are alike."""

    def names(self, features: tuple[str, ...]) -> tuple[str, ...]:
        """Of the weights, in order; all differ. ``features``: of a row's numbers."""

    def begin(self) -> NDArray[np.float64]:
        """float64[size]: before the first round; the same on every machine to the last bit."""

    def gradients(
        self,
        weights: NDArray[np.float64],
        rows: NDArray[np.float64],
        yes: NDArray[np.bool_],
        into: NDArray[np.float64],
    ) -> None:
        """Of each row's logistic loss, written to ``into``: float64[n, size], zeros before; so a
        long vector is in memory once. The other arrays are left as they are. Raises CONFIG if this
        machine lacks what it takes: then the device answers nothing.
        """

    def predict(
        self, weights: NDArray[np.float64], rows: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """float64[n] in [0, 1]: how likely each row is a yes."""


@dataclass(frozen=True, slots=True)
class Logistic:
    """Logistic regression: a weight for each of ``features`` numbers, 1 to 2^20, and the intercept,
    which is the last. Raises INVALID.
    """

    features: int

    def __post_init__(self) -> None:
        if not 1 <= self.features <= MOST_WEIGHTS:
            raise bad_model(f"a row has 1 to {MOST_WEIGHTS} features, got {self.features}")

    @property
    def size(self) -> int:
        """Features and intercept."""
        return self.features + 1

    @property
    def words(self) -> str:
        """All of it."""
        return f"Logistic regression over {self.features} numbers"

    def names(self, features: tuple[str, ...]) -> tuple[str, ...]:
        """The features' own, and that of the intercept."""
        return (*features, INTERCEPT)

    def begin(self) -> NDArray[np.float64]:
        """All weights are 0."""
        return np.zeros(self.size)

    def gradients(
        self,
        weights: NDArray[np.float64],
        rows: NDArray[np.float64],
        yes: NDArray[np.bool_],
        into: NDArray[np.float64],
    ) -> None:
        """To float64[n, features + 1]."""
        off = self.predict(weights, rows) - yes
        np.multiply(off[:, None], rows, out=into[:, :-1])
        into[:, -1] = off

    def predict(
        self, weights: NDArray[np.float64], rows: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """float64[n] in [0, 1]."""
        return likely(rows @ weights[:-1] + weights[-1])


def gradients_of(
    model: Model,
    weights: NDArray[np.float64],
    rows: NDArray[np.float64],
    yes: NDArray[np.bool_],
) -> NDArray[np.float64]:
    """float64[n, model.size]: of each row's logistic loss. Raises as the model does."""
    found = np.zeros((len(rows), model.size))
    model.gradients(weights, rows, yes, found)
    return found


def likely(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    """The logistic function, without overflow."""
    return 0.5 * (1.0 + np.tanh(0.5 * logits))


def bad_model(message: str) -> ShoalError:
    """INVALID, with the one line of everything about models."""
    return ShoalError(Kind.INVALID, f"learning: {message}")
