"""What a simulated device makes: a report of its own, with the code of a real device, or a frame
that breaks one rule.

Every device that reports alone verifies the signed task and the signed key schedule itself,
randomizes and seals. Shared are only parsed values of identical bytes, and vectorised draws of
which each device takes one. Devices behind a relay share the verification, too: it gives the same
answer for the same bytes, and is made anew for each call of the relay. With prepared encapsulations
(``shoal.clients.fleet.pool``) the signatures are verified once per process and reports are sealed
by the block: then the generator is not the limit.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable
from typing import TYPE_CHECKING

from shoal import codec
from shoal.clients.core import Assignment, SealedReport, assign, prover_for, seal, window_at
from shoal.clients.drawing import reports_of
from shoal.clients.fleet.misbehaviour import REPORTING, Conduct, Crafted, craft, over_window
from shoal.clients.fleet.share import Share
from shoal.crypto.admission.enrolled import EnrolledProver
from shoal.crypto.admission.enrolment import enrol
from shoal.crypto.discovery_steps import trust_step
from shoal.crypto.signing import SigningContext, SigningKey, verify
from shoal.crypto.trust import trust_schedule, trust_task
from shoal.task import Admission, Task

if TYPE_CHECKING:
    from shoal.clients.fleet.pool import Pool
    from shoal.crypto.admission.admission import Prover

_DRAWN = 256  # devices whose reports are drawn in one call


class Reporter:
    """The devices of a share as makers of frames. Every method raises ShoalError where the device
    itself refuses.
    """

    def __init__(self, share: Share) -> None:
        self._share = share
        self._draws: list[dict[int, tuple[bytes, ...]]] = [{} for _ in share.tasks]
        self._known: dict[int, tuple[Assignment, codec.Signed, codec.Signed]] = {}
        self._roots = {key.public: key for key in map(SigningKey.from_pem, share.enrolment_roots)}
        # devices under way, and who each is to each authority
        self._enrolled: dict[int, dict[bytes, Prover]] = {}
        # by task: encapsulations, and sealed reports not yet taken
        self._pools: dict[int, tuple[Pool, dict[int, SealedReport]]] = {}
        self._own = array(
            "I",
            (device for device in range(share.devices) if share.conduct_of(device) in REPORTING),
        )

    def prepare(self, progress: Callable[[float], None] | None = None) -> None:
        """Encapsulate for every honest report of the share, each for one use. Takes as long as
        sealing them. Reports of several messages are sealed when they are sent: how many messages
        each has is not known before.

        ``progress`` is told the part that is done, in (0, 1].
        """
        # arrays and prepared keys: only for simulations that prepare
        from shoal.clients.fleet.pool import prepare_pool

        tasks = len(self._share.tasks)
        for task in range(tasks):

            def tell(part: float, before: int = task) -> None:
                if progress is not None:
                    progress((before + part) / tasks)

            assignment = self.assignment(task)
            if assignment.several is not None or self._share.tasks[task].made:
                tell(1.0)
                continue
            pool = prepare_pool(assignment, self.window(task), len(self._own), progress=tell)
            self._pools[task] = (pool, {})

    def report(self, assignment: Assignment, window: int, task: int, device: int) -> SealedReport:
        """Randomize and seal: the device's one report for this task. ``assignment``: verified by
        this device.
        """
        made = self._share.tasks[task].made
        if made:
            return made[device]
        if task in self._pools:
            return self._sealed_ahead(task, device)
        prover = self._prover(assignment.task, device)
        return seal(
            assignment, window, self._drawn(assignment, window, task, device), prover=prover
        )

    def crafted(self, conduct: Conduct, task: int, device: int) -> Crafted:
        """The frame of a device that misbehaves. For SECOND: after its ``report``."""
        assignment = self.assignment(task)
        window = self.window(task)
        late = over_window(assignment, time.time()) if conduct is Conduct.LATE else None
        values = [self._share.tasks[task].values[device]]
        report = reports_of(assignment, values, window=window)[0]
        return craft(
            conduct, assignment, window, report, self._prover(assignment.task, device), late
        )

    def window(self, task: int) -> int:
        """The window to report in, once ``assignment`` was called."""
        if task in self._pools:
            return self._pools[task][0].window
        simulated = self._share.tasks[task]
        if simulated.window is not None:
            return simulated.window
        known = self._known[task][0].task
        return window_at(known.name, known.windows, time.time())

    def assignment(self, task: int) -> Assignment:
        """The task as this device may act upon it: both signatures verified by this device over the
        bytes that it received.

        What parsing gives is a function of those bytes alone, and they are the same for all
        devices: it is done once. So are the signatures where reports are prepared.
        """
        simulated = self._share.tasks[task]
        known = self._known.get(task)
        if known is None:
            trusted = trust_task(simulated.signed_task, self._share.authorities)
            assignment = assign(trusted, trust_schedule(simulated.signed_schedule, trusted))
            if simulated.signed_step:
                known_step = trust_step(simulated.signed_step, trusted.task, trusted.task_id)
                assignment.steps[known_step.step.window] = known_step
            signed = (
                codec.decode_signed_task(simulated.signed_task),
                codec.decode_signed_schedule(simulated.signed_schedule),
            )
            self._known[task] = (assignment, *signed)
            return assignment
        assignment, signed_task, signed_schedule = known
        if task in self._pools:
            return assignment
        verify(signed_task.authority, SigningContext.TASK, signed_task.data, signed_task.signature)
        verify(
            signed_schedule.authority,
            SigningContext.KEY_SCHEDULE,
            signed_schedule.data,
            signed_schedule.signature,
        )
        return assignment

    def _prover(self, task: Task, device: int) -> Prover:
        """Enrolled on the spot, for as long as the task runs, and the same for all of a device's
        tasks of one authority.

        Raises CONFIG for a task of an authority whose key the simulation was not given.
        """
        root = self._roots.get(task.enrolment_key)
        if root is None:
            return prover_for(task, None, 0.0)
        known = self._enrolled.setdefault(device, {})
        if root.public not in known:
            plan = task.windows
            known[root.public] = EnrolledProver(
                enrol(root, plan.start_s - plan.skew_s, plan.deadline_of(plan.count - 1))
            )
        return known[root.public]

    def done(self, device: int) -> None:
        """This device sends nothing more: forget who it was."""
        self._enrolled.pop(device, None)

    def _drawn(
        self, assignment: Assignment, window: int, task: int, device: int
    ) -> tuple[bytes, ...]:
        """This device's randomized report. Drawn with its neighbours' in one vectorised call, each
        draw taken once.
        """
        waiting = self._draws[task]
        if device not in waiting:
            start = device - device % _DRAWN
            values = self._share.tasks[task].values[start : start + _DRAWN]
            reports = reports_of(assignment, values, window=window)
            waiting.update(zip(range(start, start + len(values)), reports, strict=True))
        return waiting.pop(device)

    def _sealed_ahead(self, task: int, device: int) -> SealedReport:
        """As ``report``, from the pool: this device's and those of the next ones that report, in
        one call.
        """
        pool, waiting = self._pools[task]
        # devices overtake one another: blocks are sealed in order until this one's is there
        while device not in waiting:
            # loaded by ``prepare`` already
            from shoal.clients.fleet.pool import BLOCK, make_frames

            assignment = self._known[task][0]
            start = len(self._own) - len(pool)
            block = self._own[start : start + BLOCK]
            values = [self._share.tasks[task].values[member] for member in block]
            everybody = assignment.task.admission is Admission.OPEN
            provers = (
                None if everybody else [self._prover(assignment.task, member) for member in block]
            )
            frames = make_frames(assignment, pool.window, values, pool, provers=provers)
            waiting.update((member, frames.prepared(index)) for index, member in enumerate(block))
        return waiting.pop(device)
