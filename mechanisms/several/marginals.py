"""Marginals of a record, all at once: every device sends one true message in each of them, among a
Poisson number of dummies in every cell.

The account is that of several tables (``accounting.several_messages.tables``): two records differ
in at most one pair of cells of each marginal, and noise is independent over all cells. Estimates
are counts of the cells less the mean of their dummies, unbiased, each with the same error: that of
the noise alone, since every device answers everywhere. They need not agree where marginals
overlap; tables that do are made of them (``analyzer.tables``).
"""

from __future__ import annotations

from dataclasses import dataclass

from shoal.domain import AnswerRecord
from shoal.entropy import Entropy
from shoal.mechanisms.base import Estimate, Tally, invalid
from shoal.mechanisms.several import noise_of_batch
from shoal.mechanisms.several.in_tables import InTables
from shoal.mechanisms.several.names import MARGINALS
from shoal.mechanisms.several.noise_law import NoiseLaw, Truth
from shoal.mechanisms.several.parameters import spec_of
from shoal.mechanisms.several.true_message import estimated
from shoal.task import MechanismSpec


@dataclass(frozen=True, slots=True)
class AllMarginals(InTables):
    """``record``: answered in all of its marginals; ``noise``: dummies in as many cells as they
    have, with a true message in each. Raises INVALID for anything else.
    """

    record: AnswerRecord
    noise: NoiseLaw

    def __post_init__(self) -> None:
        if not self.record.together:
            raise invalid(
                f"{MARGINALS} answers in all marginals of a record: set together = true, or take "
                "another mechanism"
            )
        noise, record = self.noise, self.record
        fits = noise.cells == record.cells and noise.truths == len(record.marginals)
        if noise.truth is not Truth.CELL or noise.signed or not fits:
            raise invalid(
                f"the noise of {MARGINALS} is dummies in all cells of the marginals, which are "
                f"{record.cells}: set k = {record.cells} and tables = {len(record.marginals)}"
            )

    @property
    def name(self) -> str:
        """The family's name."""
        return MARGINALS

    @property
    def spec(self) -> MechanismSpec:
        """The name with its integers."""
        return spec_of(MARGINALS, self.noise)

    @property
    def labels(self) -> tuple[str, ...]:
        """One per cell of the marginals, as the record has them."""
        return self.record.labels

    @property
    def law(self) -> NoiseLaw:
        """See ``InTables``."""
        return self.noise

    @property
    def answers(self) -> int:
        """Records, by their numbers."""
        return self.record.combinations

    def _truths(self, value: int, _: Entropy) -> tuple[int, ...]:
        return self.record.cells_of(value)

    def estimate(self, tally: Tally, reports: int) -> Estimate:
        """Numbers of devices, one per cell of each marginal."""
        values = self.without_noise(tally, reports)
        return estimated(self.labels, values, self.noise, None, reports)

    def expected_stderr(self, reports: int) -> float:
        """In devices: the same in every cell of every marginal."""
        return noise_of_batch.deviation(self.noise, reports)

    def stderr_of(self, reports: int, holders: float) -> float:
        """The same, however many hold the cell."""
        return self.expected_stderr(reports)
