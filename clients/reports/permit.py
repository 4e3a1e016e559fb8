"""Whether this device may answer a task, and under which terms: the owner's policy, the answers and
charges in the device's memory, and what a task's certificate guarantees.
"""

from __future__ import annotations

import asyncio

from shoal.clients.core import Assignment
from shoal.clients.memory.device_memory import Memory
from shoal.clients.owner.guarantees import Guarantees
from shoal.clients.owner.policy import check, counted_on
from shoal.clients.reports.answering import Terms, check_affordable
from shoal.clients.settings.config import AgentConfig


class Permit:
    """Of one device, for its event loop. ``check`` and ``consent`` block for the disk; the others
    have the memory's thread wait for it.
    """

    def __init__(self, config: AgentConfig, memory: Memory, guarantees: Guarantees) -> None:
        self.policy = config.effective_policy
        self._keep_values, self._memory, self._guarantees = config.keep_values, memory, guarantees

    def check(self, assignment: Assignment) -> None:
        """Raises REFUSED where the owner does not stand behind a task; MISMATCH while the device's
        memory was set back and its owner has not confirmed it.
        """
        self._memory.check()
        commitments, within = self._memory.commitments, self._within_cap(assignment)
        check(
            self.policy,
            assignment.campaign,
            assignment.trusted,
            assignment.epsilon0,
            assignment.epsilon_apart,
            consents=commitments.consents(),
            accepted=None if within else commitments.accepted(assignment.campaign.promise),
        )

    def _within_cap(self, assignment: Assignment) -> bool:
        """Whether the owner's cap lets the task's epsilon pass: no yes to it is looked up then."""
        epsilon = counted_on(self.policy, assignment.epsilon0, assignment.epsilon_apart)
        return epsilon <= self.policy.max_epsilon0

    def consent(self, purpose: str) -> str:
        """allowed, denied or "not asked"."""
        return self.policy.consent(purpose, self._memory.commitments.consents())

    async def ask(self, assignment: Assignment) -> None:
        """As ``check``, for an event loop."""
        await self._memory.run(lambda: self.check(assignment))

    async def ask_affordable(self, assignment: Assignment, window: int | None = None) -> None:
        """Raises REFUSED where the owner or the budget does not stand behind an answer, whatever
        its value: nothing is charged. ``window`` None: any that has no answer.
        """
        await self.ask(assignment)
        terms = await self.terms(assignment, "")
        await self._memory.run(
            lambda: check_affordable(assignment, window, self._memory.commitments, terms)
        )

    async def terms(self, assignment: Assignment, source: str) -> Terms:
        """Under which this device answers. ``source``: where the value came from, in a word.

        The certificate is looked up once per task, which may take seconds: with consent alone.
        Raises as ``ask`` does.
        """
        if assignment.task_id not in self._guarantees:
            await self.ask(assignment)
            await asyncio.to_thread(self._guarantees.epsilon, assignment)
        central, policy = self._guarantees.epsilon(assignment), self.policy
        exact = None if central is None else lambda: central
        return Terms(
            policy.limit_nano,
            self._keep_values,
            source,
            exact,
            policy.max_epsilon0,
            policy.sums_if_apart,
        )
