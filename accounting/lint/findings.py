"""What lint finds in a task: errors, warnings, and the guarantee where there is one."""

from __future__ import annotations

from dataclasses import dataclass

from shoal.accounting.guarantee import Guarantee


@dataclass(frozen=True, slots=True)
class Finding:
    error: bool
    message: str


@dataclass(frozen=True, slots=True)
class LintResult:
    """``guarantee`` is None where the task can promise nothing: its mechanism itself is wrong."""

    findings: tuple[Finding, ...]
    guarantee: Guarantee | None

    @property
    def errors(self) -> tuple[str, ...]:
        return tuple(finding.message for finding in self.findings if finding.error)

    @property
    def warnings(self) -> tuple[str, ...]:
        return tuple(finding.message for finding in self.findings if not finding.error)
