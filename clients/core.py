"""The rules of a device, without sockets, disk or clock: preparing a report, naming its window, and
what each answer means.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import Enum, unique
from types import MappingProxyType
from typing import TYPE_CHECKING

from shoal.clocks.backoff import Backoff
from shoal.crypto.admission.open import OPEN
from shoal.crypto.campaign import OneTask
from shoal.crypto.discovery_steps import level_asked
from shoal.crypto.sealing import WindowSealer
from shoal.domain import Discovery
from shoal.entropy import SYSTEM, Entropy
from shoal.errors import Kind, ShoalError
from shoal.ids import TaskId
from shoal.limits import LIMITS
from shoal.mechanisms.longitudinal.protocol import Longitudinal
from shoal.mechanisms.several.protocol import Several
from shoal.mechanisms.several.registry import check_shape, create_any
from shoal.mechanisms.vectors.protocol import VectorRandomizer
from shoal.privacy import epsilon0_upper
from shoal.task import Admission

if TYPE_CHECKING:
    from shoal.crypto.admission.admission import Prover
    from shoal.crypto.admission.enrolment import DeviceIdentity
    from shoal.crypto.campaign import Campaign
    from shoal.crypto.discovery_steps import SignedStep
    from shoal.crypto.trust import TrustedSchedule, TrustedTask
    from shoal.mechanisms.base import Mechanism
    from shoal.questions.discovery import DiscoveryLevel
    from shoal.task import Task, WindowPlan


@unique
class ReportState(Enum):
    """Where a report stands. QUEUED is the only one that changes."""

    QUEUED = "queued"  # on this device, will be sent
    ACKED = "acked"  # on the shuffler's disk: a verified receipt says so
    REFUSED = "refused"  # a final no, and no attempt can have been stored
    # a final no after an attempt whose fate was never learnt: counted once or not at all
    UNKNOWN = "unknown"
    # the owner took the consent back: the bytes are deleted and never sent again
    WITHDRAWN = "withdrawn"
    # no report at all, so in no outbox: this device drew another window of the task by itself
    NOT_ASKED = "not asked"


@unique
class Action(Enum):
    """What becomes of the queue entry. DONE and DROP are final; RETRY sends the same bytes later;
    REFRESH re-reads tasks first.
    """

    DONE = "done"
    RETRY = "retry"
    REFRESH = "refresh"
    DROP = "drop"


# Every kind has an entry. Kinds that no shuffler answers with (they are this device's own troubles,
# or somebody in between speaks) keep the report: only an answer that says "never" ends it.
ACTION_OF: Mapping[Kind, Action] = MappingProxyType(
    {
        Kind.INVALID: Action.DROP,
        Kind.UNKNOWN_TASK: Action.REFRESH,
        Kind.UNKNOWN_KEY: Action.REFRESH,
        Kind.TOO_EARLY: Action.RETRY,
        Kind.WINDOW_CLOSED: Action.DROP,
        Kind.WINDOW_FULL: Action.DROP,
        Kind.OVERLOADED: Action.RETRY,
        Kind.OVERSIZE: Action.DROP,
        Kind.UNAVAILABLE: Action.RETRY,
        Kind.DEADLINE: Action.RETRY,
        Kind.UNAUTHENTICATED: Action.DROP,
        Kind.FORBIDDEN: Action.DROP,
        # a receipt that doesn't verify: forged or damaged, the report may be anywhere
        Kind.BAD_SIGNATURE: Action.RETRY,
        Kind.CONFLICT: Action.DROP,
        Kind.TOO_FEW: Action.RETRY,
        Kind.MISMATCH: Action.RETRY,
        Kind.CONFIG: Action.RETRY,
        Kind.KEY_FILE: Action.RETRY,
        Kind.REFUSED: Action.RETRY,
        Kind.PORT_IN_USE: Action.RETRY,
        Kind.INTERNAL: Action.RETRY,
        Kind.NOT_FOUND: Action.RETRY,
        Kind.ABORTED: Action.RETRY,  # of rounds of secure aggregation, never of a frame
    }
)

# Answers that promise that this attempt left nothing behind.
NOT_STORED: frozenset[Kind] = frozenset(
    {
        Kind.UNKNOWN_TASK,
        Kind.UNKNOWN_KEY,
        Kind.TOO_EARLY,
        Kind.OVERLOADED,
        Kind.CONFIG,
        Kind.KEY_FILE,
    }
    | {kind for kind, action in ACTION_OF.items() if action is Action.DROP}
)


@dataclass(frozen=True, slots=True)
class AttemptVerdict:
    """What one failed attempt means. ``doubtful``: from now on some attempt may have been
    stored.
    """

    action: Action
    state: ReportState
    doubtful: bool


def judge(kind: Kind, doubtful: bool) -> AttemptVerdict:
    """The meaning of failure ``kind``, when earlier attempts were ``doubtful`` or not.

    A refusal after a doubtful attempt is UNKNOWN, not REFUSED: "window full" may well be said by a
    shuffler that counted the first attempt and whose reply was lost.
    """
    action = ACTION_OF[kind]
    after = doubtful or kind not in NOT_STORED
    if action is Action.DROP:
        return AttemptVerdict(action, ReportState.UNKNOWN if after else ReportState.REFUSED, after)
    return AttemptVerdict(action, ReportState.QUEUED, after)


@dataclass(frozen=True, slots=True)
class Assignment:
    """A verified task with its verified keys and its randomizer: everything that a report needs but
    the value.

    ``campaign``: what the owner agrees to, of which the task is a step. ``epsilon0``: of one
    report, rounded up: what holds even if shuffler and analyzer work together. Of a memoized task:
    of what the device keeps, and so of all windows of an unchanged value; ``epsilon_first`` is then
    what one window's report alone promises, where that is less, and ``longitudinal`` the mechanism,
    if it has a memory of its own. A task that is summed in rounds has no randomizer (``mechanism``
    None); ``epsilon_apart`` is then the certificate of a round's sum, which holds while they don't.
    Where devices send several messages, ``mechanism`` is None too and ``several`` what makes them:
    ``epsilon0`` is infinite then, but where the true message is randomized, and ``epsilon_apart``
    None. Where they randomize a vector it is None as well, and ``vectors`` does.
    """

    campaign: Campaign
    trusted: TrustedTask
    keys: TrustedSchedule
    mechanism: Mechanism | None
    epsilon0: float
    epsilon_apart: float | None = None
    epsilon_first: float | None = None
    longitudinal: Longitudinal | None = None
    several: Several | None = None
    vectors: VectorRandomizer | None = None
    # what ``seal`` keeps of the window that it sealed for last, and when its reports expire
    sealers: dict[int, tuple[WindowSealer, int]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    # of a discovery: the steps that are known, by window. Only ever more
    steps: dict[int, SignedStep] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    @property
    def task(self) -> Task:
        """What is asked, as its authority signed it."""
        return self.trusted.task

    @property
    def task_id(self) -> TaskId:
        """The hash of the task's bytes."""
        return self.trusted.task_id

    def named(self, window: int) -> TaskId:
        """What a report tells the shuffler that it answers: the task, or what a later window of a
        discovery asks.
        """
        return self.steps[window].name if window in self.steps else self.task_id

    def level(self, window: int) -> DiscoveryLevel | None:
        """What a window of a discovery asks; None of every other task. Raises UNAVAILABLE: that is
        not known yet; WINDOW_CLOSED: the discovery is over.
        """
        discovery = self.task.domain
        if not isinstance(discovery, Discovery):
            return None
        steps = {number: signed.step for number, signed in self.steps.items()}
        level = level_asked(discovery, steps, window)
        if level is not None:
            return level
        if any(step.is_over and step.window <= window for step in steps.values()):
            raise ShoalError(
                Kind.WINDOW_CLOSED,
                f"task {self.task.name} has found what it looked for: it takes no more answers",
            )
        raise ShoalError(
            Kind.UNAVAILABLE,
            f"task {self.task.name}: what window {window} asks is not known yet: it is answered "
            "when its shuffler says so",
        )


def assign(trusted: TrustedTask, keys: TrustedSchedule) -> Assignment:
    """Build the task's randomizer.

    Raises INVALID if its integers don't fit or it can't be memoized, MISMATCH if the task misstates
    its reports.
    """
    task, campaign = trusted.task, OneTask(trusted)  # no task says yet that it is one of several
    if task.pairwise is not None:
        # of the accountant, which an agent loads for the tasks that want it alone
        from shoal.accounting.sums.sum_task import check_sum

        certificate = check_sum(task)
        return Assignment(
            campaign,
            trusted,
            keys,
            None,
            certificate.remaining.together,
            certificate.epsilon_upper,
        )
    made = create_any(task.mechanism, task.domain)
    check_shape(task, made)
    if isinstance(made, Several):
        return Assignment(campaign, trusted, keys, None, made.epsilon0, several=made)
    if isinstance(made, VectorRandomizer):
        alone = epsilon0_upper(made.privacy())
        return Assignment(campaign, trusted, keys, None, alone, vectors=made)
    mechanism = made
    if task.memoized:
        # of the accountant, too
        from shoal.accounting.composition.memoized import check_memoized, lifetime_epsilon

        check_memoized(task, mechanism)
        per_report, lifetime = (
            epsilon0_upper(mechanism.privacy()),
            lifetime_epsilon(task, mechanism),
        )
        longitudinal = mechanism if isinstance(mechanism, Longitudinal) else None
        return Assignment(
            campaign,
            trusted,
            keys,
            mechanism,
            lifetime,
            epsilon_first=per_report if per_report < lifetime else None,
            longitudinal=longitudinal,
        )
    return Assignment(campaign, trusted, keys, mechanism, epsilon0_upper(mechanism.privacy()))


def window_at(name: str, plan: WindowPlan, now: float) -> int:
    """The window that the device's clock names. Raises TOO_EARLY before the first and WINDOW_CLOSED
    after the last.
    """
    window = plan.current(now)
    if window is not None:
        return window
    if now < plan.start_s:
        raise ShoalError(
            Kind.TOO_EARLY,
            f"task {name} begins at {_utc(plan.start_s)}: report then, or check this device's "
            "clock",
        )
    raise ShoalError(
        Kind.WINDOW_CLOSED,
        f"task {name} ended at {_utc(plan.end_of(plan.count - 1))}: it takes no more answers; "
        "if that is still to come, check this device's clock",
    )


def chosen_window(name: str, plan: WindowPlan, now: float, window: int | None) -> int:
    """The window to answer: the clock's, or the given one while it takes reports. Raises TOO_EARLY,
    WINDOW_CLOSED, INVALID.
    """
    if window is None:
        return window_at(name, plan, now)
    if not 0 <= window < plan.count:
        raise ShoalError(
            Kind.INVALID, f"task {name} has no window {window}: it has 0 to {plan.count - 1}"
        )
    if not plan.start_of(window) <= now < plan.deadline_of(window):
        early = now < plan.start_of(window)
        raise ShoalError(
            Kind.TOO_EARLY if early else Kind.WINDOW_CLOSED,
            f"task {name}: window {window} takes no answers now",
        )
    return window


def _utc(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


@dataclass(frozen=True, slots=True)
class SealedReport:
    """A report, randomized once and sealed once: these bytes are what every attempt sends.

    ``expires_s``: Unix seconds after which no service can hold the window any more, by this
    device's clock.
    """

    task_id: TaskId
    window: int
    frame: bytes = field(repr=False)
    ack_key: bytes = field(repr=False)
    expires_s: int


def prover_for(task: Task, identity: DeviceIdentity | None, now: float) -> Prover:
    """What this device shows with a report of a task: nothing where anybody is admitted, whoever it
    is. ``identity``: what it has; ``now``: Unix seconds.

    Raises CONFIG if the task does not admit this device, or not now, or in a way that this version
    has no member for: nothing may be randomized then.
    """
    match task.admission:
        case Admission.OPEN:
            return OPEN
        case Admission.ENROLLED:
            # 0.1 MB: only for enrolled tasks
            from shoal.crypto.admission.enrolled import EnrolledProver

            return EnrolledProver(enrolled_identity(task, identity, now))
    raise ShoalError(
        Kind.CONFIG, f"task {task.name}: its admission is not available in this version"
    )


def enrolled_identity(task: Task, identity: DeviceIdentity | None, now: float) -> DeviceIdentity:
    """This device's identity, if its certificate is one of the task's enrolment authority and holds
    ``now``. Raises CONFIG.
    """
    if identity is None:
        raise ShoalError(
            Kind.CONFIG,
            f"task {task.name} admits enrolled devices alone: have this device enrolled, and name "
            "its certificate and key under "
            "[enrolment] in its configuration",
        )
    # as above
    from shoal.crypto.admission.enrolment import verify_certificate

    try:
        verify_certificate(identity.certificate, task.enrolment_key, now, remember=True)
    except ShoalError as error:
        raise ShoalError(
            Kind.CONFIG, f"task {task.name} admits enrolled devices alone: {error}"
        ) from None
    return identity


def seal(
    assignment: Assignment,
    window: int,
    report: Sequence[bytes],
    entropy: Entropy = SYSTEM,
    prover: Prover = OPEN,
) -> SealedReport:
    """Seal one report, its messages of report_size bytes each, in both layers, with the
    ``prover``'s proof.

    Only the shuffler sees the proof, which is made once and sent again with the frame. Raises
    INVALID for a window the task hasn't.
    """
    task, task_id, keys = assignment.task, assignment.task_id, assignment.keys
    if not 0 <= window < len(keys.analyzer_keys):
        raise ShoalError(
            Kind.INVALID,
            f"task {task.name} has no window {window}: it has 0 to {len(keys.analyzer_keys) - 1}",
        )
    ready = assignment.sealers.get(window)
    if ready is None:
        assignment.sealers.clear()  # the last window's: a device goes from one to the next
        sealer = WindowSealer(
            keys.analyzer_keys[window],
            keys.hop_keys[window],
            task_id,
            window,
            assignment.task.messages,
            assignment.named(window),
        )
        ready = assignment.sealers[window] = sealer, expiry(task, window)
    sealer, expires_s = ready
    frame, ack_key = sealer.seal(report, entropy, prover.prove)
    return SealedReport(task_id, window, frame, ack_key, expires_s)


def expiry(task: Task, window: int) -> int:
    """Unix seconds: beyond the window's grace, the services' retention and the clock skew that the
    task tolerates.
    """
    plan = task.windows
    return max(plan.deadline_of(window), plan.start_of(window) + task.retention_s) + plan.skew_s


def pause(
    attempts: int,
    entropy: Entropy,
    first_s: float = LIMITS.retry_first_s,
    most_s: float = LIMITS.retry_most_s,
    asked_s: float = 0.0,
) -> float:
    """Seconds before the next attempt, after ``attempts`` >= 1 failed ones: ``Backoff.pause``."""
    obeyed_s = max(most_s, LIMITS.retry_after_most_s)
    return Backoff(first_s, most_s, obeyed_s=obeyed_s).pause(attempts, entropy, asked_s)
