"""Every purpose that a device was asked for: how it stands, and what is said where an answer about
it can't be kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from shoal.clients.owner.consent import DENIED
from shoal.clients.owner.policy import never_answered
from shoal.errors import ShoalError

if TYPE_CHECKING:
    from shoal.clients.reports.outcomes import TaskStatus
    from shoal.clients.settings.config import AgentConfig


def purposes(
    config: AgentConfig, statuses: Iterable[TaskStatus], stored: Mapping[str, str]
) -> list[dict[str, Any]]:
    """Every purpose that a task, the configuration, the fleet or an answer names, by its words: how
    it stands, and who said so. ``stored``: as for ``consent.consent_to``. A task of which no yes
    would count asks for nothing.
    """
    policy = config.effective_policy
    written, ceiling = config.policy.purposes, policy.ceiling
    asked: dict[str, list[str]] = {}
    for status in statuses:
        if never_answered(policy, status.assignment):
            continue
        asked.setdefault(status.assignment.task.purpose, []).append(status.assignment.task.name)
    return [
        {
            "purpose": purpose,
            "consent": policy.consent(purpose, stored),
            "written": written.get(purpose),
            "answered": stored.get(purpose),
            "fleet": DENIED if ceiling.forbids(purpose) else None,
            "tasks": asked.get(purpose, []),
        }
        for purpose in sorted({*asked, *written, *stored, *ceiling.denied})
    ]


def not_kept(error: ShoalError, file: str, purpose: str) -> ShoalError:
    """A disk that is full must not stand between an owner and his no: what the configuration denies
    needs no write of the memory.
    """
    words = f'"{_toml(purpose)}"' if purpose else "the purpose's words in quotation marks"
    return ShoalError(
        error.kind,
        f"{error.message}; the answer was not kept. To deny it all the same, write {words} = "
        '"denied" under [policy.purposes] in '
        f"{file} and send SIGHUP to a running agent: once it has read the file it sends nothing "
        "for that purpose, and what waits is "
        "deleted when there is room",
    )


def _toml(text: str) -> str:
    """Inside a basic string of TOML; nothing in it can steer a terminal."""
    shown = ("\\" + c if c in '"\\' else c if c.isprintable() else f"\\U{ord(c):08x}" for c in text)
    return "".join(shown)
