"""Simulated devices that remember: each has a memory of its own over all windows and tasks, and
answers by the code of a real device, its ledger included.

What a device keeps between windows (permanent answers, where it rounds, what it was charged) lives
in the process that makes the reports, so that it outlasts the processes that send them. What those
get is sealed already: ``SimulatedTask.made``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from shoal.clients.core import Assignment, SealedReport, prover_for
from shoal.clients.memory.commitments import NANO
from shoal.clients.memory.commitments_memory import MemoryCommitments
from shoal.clients.reports.answering import AnswerRequest, Terms, answer
from shoal.clients.reports.own_window import answers_once, draw_window
from shoal.domain import Value
from shoal.entropy import SYSTEM, Entropy
from shoal.errors import Kind, ShoalError
from shoal.ids import TaskId

_TOLD = 100  # devices between two words of progress


class RememberingDevices:
    """``count`` devices whose owners allow whatever they are asked, and say yes by name to an
    epsilon0 that is infinite.
    """

    def __init__(self, count: int, entropy: Entropy = SYSTEM) -> None:
        self._entropy = entropy
        self._memories = [MemoryCommitments(entropy) for _ in range(count)]

    def __len__(self) -> int:
        return len(self._memories)

    def asked(self, assignment: Assignment, window: int, now: float) -> tuple[int, ...]:
        """The devices that answer a window, by number: all, or where each answers one window alone
        those that drew it. Each draws by itself, and once; ``now``: Unix seconds, for its ledger.
        """
        if not answers_once(assignment):
            return tuple(range(len(self)))
        owns = (draw_window(assignment, each, self._entropy, now) for each in self._memories)
        return tuple(
            number for number, own in enumerate(owns) if own is not None and own.window == window
        )

    def answers(
        self,
        assignment: Assignment,
        window: int,
        values: Sequence[Value],
        now: float,
        *,
        central: float,
        told: Callable[[int], None] | None = None,
    ) -> tuple[SealedReport, ...]:
        """One sealed report of every device that is ``asked``, in their order: charged, drawn or
        repeated, and entered in its ledger. ``values``: one per device of all; ``now``:
        Unix seconds; ``central``: what the task's certificate guarantees of one window. ``told``:
        hears how many devices are done.

        Raises INVALID for another number of values, CONFLICT for a window that was answered.
        """
        if len(values) != len(self):
            raise ShoalError(Kind.INVALID, f"{len(self)} devices have one value each")
        prover = prover_for(assignment.task, None, now)
        terms = Terms(None, source="made up", central=lambda: central)
        asks_by_name = math.isinf(assignment.epsilon0)
        made = list[SealedReport]()
        who = self.asked(assignment, window, now)
        for number, device in enumerate(who, 1):
            memory, value = self._memories[device], values[device]
            if asks_by_name and memory.accepted(assignment.campaign.promise) is None:
                memory.accept(assignment.campaign.promise, math.inf)
            request = AnswerRequest(assignment, window, value, prover, terms, now)
            made.append(answer(request, memory, self._entropy))
            if told is not None and (number % _TOLD == 0 or number == len(who)):
                told(number)
        return tuple(made)

    def charged(self, task_id: TaskId) -> list[float]:
        """What each device's ledger charges for a task so far: epsilons, upper bounds."""
        return [memory.tally(task_id).nano / NANO for memory in self._memories]
