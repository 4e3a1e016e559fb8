"""A question that takes several signed tasks, one after another: what is asked next, and whether a
task that came is that.

A campaign is one signed promise to the owners of devices, and a rule that makes each step, a task,
from the releases of the steps before. Both sides follow the same rule: whoever publishes asks
``next`` what to publish, and a device takes part in that step and in no other (``check_step``). So
nobody can slip a step in, change one, or ask one twice. Today every task is a campaign of one step,
and its own promise: ``OneTask``.

Pure. A member inherits tests/conformance/campaign/suite.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from shoal.errors import Kind, ShoalError

if TYPE_CHECKING:
    from shoal.crypto.trust import TrustedTask
    from shoal.ids import TaskId
    from shoal.protos.release_pb2 import Release


class Campaign(Protocol):
    """One promise, kept by tasks that follow from it. Immutable."""

    @property
    def promise(self) -> TaskId:
        """The id of the signed bytes that promise all of it: what an owner accepts is kept under
        it, and holds for every step.
        """
        ...

    def next(self, releases: Sequence[Release]) -> TrustedTask | None:
        """The step that follows these releases; None: the campaign is over. The same releases give
        the same step, on every machine.

        ``releases``: the last one of each step so far, oldest first, which the caller trusts: it
        verified their signatures, or they come from its own store. Raises MISMATCH where they are
        not those of its steps.
        """
        ...


@dataclass(frozen=True, slots=True)
class OneTask:
    """A campaign of one step. The task is its own promise: both have one id, the digest of the
    bytes that were signed.
    """

    task: TrustedTask

    @property
    def promise(self) -> TaskId:
        """See ``Campaign.promise``."""
        return self.task.task_id

    def next(self, releases: Sequence[Release]) -> TrustedTask | None:
        """See ``Campaign.next``: the task, then nothing."""
        if not releases:
            return self.task
        if len(releases) > 1 or releases[0].task_id != self.promise.raw:
            raise ShoalError(
                Kind.MISMATCH,
                f"task {self.task.task.name}: a release that is not its own: give the one release "
                "of this task",
            )
        return None


def check_step(campaign: Campaign, releases: Sequence[Release], step: TrustedTask) -> None:
    """Return if ``step`` is what the campaign asks after these releases, to the last byte and by
    the same authority.

    Raises REFUSED for any other task: changed, repeated, too early, of another campaign. Raises
    MISMATCH as ``Campaign.next`` does.
    """
    if campaign.next(releases) != step:
        raise ShoalError(
            Kind.REFUSED,
            f"task {step.task.name}: its campaign does not ask it now: nothing is answered, tell "
            "whoever published it",
        )
