"""What a local randomizer of vectors offers: its report is of the whole vector.

A ``Mechanism`` draws from a cell of a list; this one from an integer vector, the quantized value of
a ``Vector`` domain (``quantize``). All else is alike: one message of constant size, tallies that
add, a law in integers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

from shoal.arrays import NDArray, np
from shoal.mechanisms.base import Estimate, Tally

if TYPE_CHECKING:
    from shoal.domain import Vector
    from shoal.entropy import Entropy
    from shoal.privacy import LocalPrivacy
    from shoal.task import MechanismSpec


MEAN_OF_COORDINATE = ": mean, no answer as 0"
"""What follows a coordinate's name in the label of its estimate: the mean over all devices, in
which those without a vector count with zeros.
"""


@runtime_checkable
class VectorRandomizer(Protocol):
    """A randomizer of vectors with its integers filled in. Immutable, without state: safe to share
    between threads and processes.
    """

    @property
    def domain(self) -> Vector:
        """What is asked for: the device's vector, before it is quantized."""
        ...

    @property
    def name(self) -> str:
        """The family's name in tasks."""
        ...

    @property
    def spec(self) -> MechanismSpec:
        """The name with its integers: what a task carries."""
        ...

    @property
    def report_size(self) -> int:
        """Bytes of a report."""
        ...

    @property
    def messages(self) -> int:
        """Messages of one report: 1."""
        ...

    def randomize_vector(self, vector: NDArray[np.int64], entropy: Entropy) -> tuple[bytes, ...]:
        """One report of a quantized vector, int64[dimension]: a device's draw. Which words are
        drawn, and how many, never depends on the vector. Raises INVALID for another shape, and for
        coordinates beyond the grid, before anything is drawn.
        """
        ...

    def valid(self, reports: NDArray[np.uint8]) -> NDArray[np.bool_]:
        """bool[rows]: which of uint8[rows, report_size] it could have written. Raises INVALID for
        another width.
        """
        ...

    def tally(self, reports: NDArray[np.uint8]) -> Tally:
        """Sums over uint8[rows, report_size]. Raises INVALID if a row is not ``valid``."""
        ...

    def estimate(self, tally: Tally) -> Estimate:
        """The mean vector over the devices, in the domain's unit: one value per coordinate, each
        with its name and ``MEAN_OF_COORDINATE``. Raises INVALID for a tally of another mechanism.
        """
        ...

    def expected_stderr(self, n: int, squares: NDArray[np.float64]) -> NDArray[np.float64]:
        """float64[dimension]: the standard error of each coordinate of the mean of ``n`` >= 1
        devices whose squared coordinates are on average ``squares``, in clips: 0 to 1.
        """
        ...

    def privacy(self) -> LocalPrivacy:
        """The output law of one report, in the integers that are drawn from."""
        ...
