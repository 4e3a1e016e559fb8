"""What lint finds in a task: errors, warnings, and the guarantee where there is one."""

from __future__ import annotations

from dataclasses import dataclass

from shoal.accounting.guarantee import Guarantee


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that lint says of a task. ``error``: the task is impossible and is not signed; else
    it is a warning. ``message``: one line that says what is wrong and how to mend it.
    """

    error: bool
    message: str


@dataclass(frozen=True, slots=True)
class LintResult:
    """``guarantee`` is None where the task can promise nothing: its mechanism itself is wrong."""

    findings: tuple[Finding, ...]
    guarantee: Guarantee | None

    @property
    def errors(self) -> tuple[str, ...]:
        """The messages of the errors, in the order in which they were found; empty if the task may
        be signed.
        """
        return tuple(finding.message for finding in self.findings if finding.error)

    @property
    def warnings(self) -> tuple[str, ...]:
        """The messages of the warnings, in the order in which they were found."""
        return tuple(finding.message for finding in self.findings if not finding.error)
