"""What lint finds in a task: errors, warnings, and the certificate where there is one."""

from __future__ import annotations

from dataclasses import dataclass

from shoal.accounting.certificate import Certificate
from shoal.accounting.sums.pairwise import PairwiseCertificate


@dataclass(frozen=True, slots=True)
class Finding:
    error: bool
    message: str


@dataclass(frozen=True, slots=True)
class LintResult:
    """``certificate`` is None where the mechanism itself is wrong."""

    findings: tuple[Finding, ...]
    certificate: Certificate | PairwiseCertificate | None

    @property
    def errors(self) -> tuple[str, ...]:
        return tuple(finding.message for finding in self.findings if finding.error)

    @property
    def warnings(self) -> tuple[str, ...]:
        return tuple(finding.message for finding in self.findings if not finding.error)
