"""The device: its policy, its outbox, its transports, and a simulator of many devices. Importing
the package loads nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shoal.clients.agent import Agent, ReportOutcome
    from shoal.clients.owner.policy import Policy
    from shoal.clients.settings.config import AgentConfig

__all__ = ["Agent", "AgentConfig", "Policy", "ReportOutcome"]

_HOME = {
    "Agent": "agent",
    "ReportOutcome": "agent",
    "AgentConfig": "settings.config",
    "Policy": "owner.policy",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
