"""For randomizers to which neighbouring cells look much alike: an audit of two that do not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.conformance.mechanisms.checks.statistics import (
    LEAST_SEEN,
    StatisticsSuite,
    audited,
    told,
)

if TYPE_CHECKING:
    from tests.conformance.mechanisms.checks.case import Case


class AuditOfTheEnds(StatisticsSuite):
    """Goes before ``MechanismSuite`` among a member's bases."""

    def names_its_cause(self, case: Case) -> tuple[int, int]:
        return 0, 4

    def test_an_audit_finds_no_more_than_is_claimed_and_nearly_that(self, measured: Case) -> None:
        """Of the outer levels, which reports tell apart that are frequent. Neighbours (cells 0 and
        1) are told apart best by the rarest, or by so little that 200,000 trials do not show most
        of it. Planted: as in the suite.
        """
        mechanism = measured.mechanism
        for cells in ((0, 4), (4, 0)):
            result = audited(self, mechanism, mechanism.randomize, cells, measured.name)
            assert not result.refuted, result
            assert result.epsilon_measured_lower > LEAST_SEEN[1] * told(
                mechanism.privacy(), *cells
            ), result
