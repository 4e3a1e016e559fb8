"""From an opened batch to the signed release: estimates with error bars, and the certificate of
what shuffling bought.

Two epsilons stand side by side. The *guaranteed* one is at floor(honest_fraction * min_batch),
fixed before anybody answered; it alone decides whether the release is withheld. The one at
floor(honest_fraction * n) is what the reports that really came would give; strangers could raise
that n, so it is labelled not guaranteed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from shoal.accounting.accountant import FRESH, certify, upper_curve
from shoal.accounting.certificate import Certificate
from shoal.accounting.composition.compose import release_law
from shoal.accounting.composition.loss_bytes import to_bytes
from shoal.accounting.composition.memoized import (
    FORGOTTEN,
    check_memoized,
    lifetime_epsilon,
    promised,
)
from shoal.accounting.guarantee import Guarantee
from shoal.accounting.of_task import guarantee_of
from shoal.accounting.several_messages.liars import liar_words
from shoal.accounting.several_messages.of_mechanism import losses_of
from shoal.analyzer import core
from shoal.analyzer.batches.opening import Opened
from shoal.analyzer.core import Batch
from shoal.analyzer.records import Spending, WindowOutcome
from shoal.analyzer.results.discovered import LevelFindings, findings
from shoal.analyzer.results.maps.released import map_message
from shoal.analyzer.results.privacy import metric_message, privacy_message
from shoal.analyzer.results.processed import (
    counted_cells,
    distribution_of,
    message,
    quantiles_of,
)
from shoal.analyzer.results.ranges import ranges_message
from shoal.analyzer.results.records import (
    of_batch,
    record_message,
    sentences,
)
from shoal.arrays import np
from shoal.codec import VERSION
from shoal.crypto.signing import SigningContext, SigningKey
from shoal.crypto.trust import ServedTask
from shoal.domain import Discovery
from shoal.errors import Kind, ShoalError
from shoal.mechanisms import Estimate, Mechanism, create
from shoal.mechanisms.numbers.distribution import Distribution
from shoal.mechanisms.numbers.quantiles import Quantile
from shoal.mechanisms.several.levels import level_of
from shoal.mechanisms.several.protocol import Several, Summed
from shoal.mechanisms.several.ranges import Ranges
from shoal.mechanisms.several.registry import create_any
from shoal.mechanisms.vectors.protocol import VectorRandomizer
from shoal.privacy import epsilon0_upper
from shoal.protos import delivery_pb2, release_pb2
from shoal.questions.discovery import DiscoveryLevel
from shoal.task import Admission, Task

_NAMED = 20  # windows that were given up, in a release
UNIT = "one report of one device in one window"
MEMOIZED_UNIT = (
    "one report of one device in one window seen alone; over all windows of the task: the one "
    "unchanged value of a device"
)
OPEN_ADMISSION = (
    "admission is open: nothing enforces the honest fraction, it is an assumption about every batch"
)
ENROLLED_ADMISSION = (
    "admission is enrolled: every certified device counts at most once in a window; the honest "
    "fraction is an assumption about enrolled"
    " devices"
)
FRESH_DEVICES = (
    "a device answers in one window, but one that lies may answer in every window: the honest "
    "fraction is that of a window's reports, and of all devices a larger share has to be honest"
)
# what a release says it stands on; an admission that is not here is released by nobody
ADMISSION_LINES = {Admission.OPEN: OPEN_ADMISSION, Admission.ENROLLED: ENROLLED_ADMISSION}


@dataclass(frozen=True, slots=True)
class Prepared:
    """Everything about a release but the composition with earlier ones. ``n``: valid, distinct
    reports.

    ``lifetime``: of a memoized task, epsilon0 of its permanent reports, or of what a mechanism with
    a memory keeps.
    """

    served: ServedTask
    batch: Batch
    opened: Opened
    n: int
    guarantee: Guarantee
    epsilon_at_received_n: float
    withheld: str | None
    estimate: Estimate | None
    law: bytes | None = None
    lifetime: float | None = None
    distribution: Distribution | None = None
    quantiles: tuple[Quantile, ...] = ()
    found: LevelFindings | None = None
    ranges: release_pb2.Ranges | None = None
    metric: release_pb2.Metric | None = None
    map: release_pb2.ReleasedMap | None = None

    @property
    def charge(self) -> Spending:
        """What opening this batch costs. With fewer valid reports than min_batch the guarantee's n
        was not reached: then by what came.
        """
        task, task_id = self.served.task, self.served.task_id
        if self.n < task.min_batch and task.reports_are_rows:
            came = max(self.guarantee.epsilon_upper, self.epsilon_at_received_n)
            return Spending(task_id, came, task.delta, lifetime=self.lifetime)
        return Spending(task_id, self.guarantee.epsilon_upper, task.delta, self.law, self.lifetime)


def valid_reports(batch: Batch, task: Task, opened: Opened) -> int:
    """Valid, distinct reports of an opened batch, never too many. Where a report has several
    messages nothing says which came together, so each refused row counts as a report that is lost;
    so it does where the shuffler adds noise, all of which is valid.
    """
    if task.reports_are_rows:
        return opened.tally.rows
    return max(0, batch.manifest.reports - sum(opened.rejected.values()))


def devices_heard(batch: Batch, opened: Opened, made: Several) -> int:
    """Devices whose noise is among the opened messages, for estimates: a refused row is one of the
    ``mean_messages`` of a report, so that many of them are one report that is lost, rounded down.

    Where whole reports are refused the noise that is taken off is that of the others, on average.
    And a device that lies gains nothing by it: a refused message is one less for a cell, and lifts
    all cells together by the noise of 1 / ``mean_messages`` of a device, which is less than one
    message. Were each of them a report that is lost, as in ``valid_reports``, it would lift every
    cell by the dummies of a device, and all of them by many more than the device has messages.
    """
    refused = sum(opened.rejected.values())
    return max(0, batch.manifest.reports - math.floor(refused / made.mean_messages))


def prepare(
    served: ServedTask, batch: Batch, opened: Opened, level: DiscoveryLevel | None = None
) -> Prepared:
    """The slow part (the accountant: up to a second), without any state. ``level``: what the window
    of a discovery asked; None: nothing.
    """
    task = served.task
    made = create_any(task.mechanism, task.domain)
    if isinstance(made, Several):
        return prepare_several(served, batch, opened, made, level)
    mechanism = made
    if not isinstance(mechanism, VectorRandomizer):
        check_memoized(task, mechanism)
    lifetime = _lifetime(task, mechanism)
    law = mechanism.privacy()
    n = valid_reports(batch, task, opened)
    guarantee = guarantee_of(task, mechanism)
    received = (
        certify(law, n, task.delta, honest_fraction=task.honest_fraction).epsilon_upper
        if n
        else epsilon0_upper(law)
    )
    withheld = core.withheld(n, task.min_batch, guarantee.epsilon_upper, task.target_epsilon)
    estimate = None if withheld else of_batch(mechanism.estimate(opened.tally), task.domain, n)
    losses = (
        to_bytes(release_law(upper_curve, law, task.n_certified, task.delta))
        if n >= task.min_batch
        else None
    )
    cells = None if withheld or isinstance(mechanism, VectorRandomizer) else mechanism
    shape = None if cells is None else distribution_of(cells, opened.tally)
    quantiles = () if cells is None else quantiles_of(cells, task.domain, opened.tally)
    return Prepared(
        served,
        batch,
        opened,
        n,
        guarantee,
        received,
        withheld,
        estimate,
        losses,
        lifetime,
        shape,
        quantiles,
        metric=metric_message(task, guarantee, mechanism),
        map=None if cells is None else map_message(cells, task.domain, n),
    )


def readable_sum(batch: Batch, opened: Opened, made: Summed) -> bool:
    """Whether nothing of a batch is lost or refused, as far as shuffler and analyzer can tell, each
    by itself: what one lost and the other refused could make up for one another in the numbers.
    """
    manifest, rejected = batch.manifest, sum(opened.rejected.values())
    return (
        rejected == manifest.damaged == 0
        and manifest.rows == opened.tally.rows == manifest.reports * made.messages
        and manifest.reports <= made.most_reports
    )


def prepare_several(
    served: ServedTask,
    batch: Batch,
    opened: Opened,
    made: Several,
    level: DiscoveryLevel | None = None,
) -> Prepared:
    """``prepare``, of a task whose devices send several messages.

    The promise is that of ``min_batch`` devices, and more devices don't change it: their noise
    comes on top. It holds of every batch that was taken, however many of its rows are refused:
    those are not of honest devices.
    """
    task, n = served.task, valid_reports(batch, served.task, opened)
    guarantee = guarantee_of(task, made)
    withheld = core.withheld(n, task.min_batch, guarantee.epsilon_upper, task.target_epsilon)
    if withheld is None and isinstance(made, Summed) and not readable_sum(batch, opened, made):
        withheld = core.WITHHELD_NOT_WHOLE
    asks = isinstance(task.domain, Discovery)
    if withheld is None and asks and level is None:
        withheld = core.WITHHELD_NOT_ASKED
    found, estimate = None, None
    drawn = made if withheld or level is None else level_of(made, level)
    heard = devices_heard(batch, opened, drawn)
    if withheld is None and level is not None:
        found = findings(made, level, opened.tally, heard)
        estimate = found.estimate
    elif withheld is None:
        estimate = of_batch(made.estimate(opened.tally, heard), task.domain, heard)
    losses = losses_of(made, task.n_certified, task.delta)
    told = made if isinstance(made, Ranges) and not withheld else None
    return Prepared(
        served,
        batch,
        opened,
        n,
        guarantee,
        guarantee.epsilon_upper,
        withheld,
        estimate,
        None if losses is None else to_bytes(losses),
        distribution=None if told is None else told.distribution(opened.tally, heard),
        quantiles=() if told is None else told.quantiles(opened.tally, heard),
        ranges=None if told is None else ranges_message(told, heard),
        map=None if withheld else map_message(made, task.domain, heard),
        found=found,
    )


def prepare_expired(
    served: ServedTask, batch: Batch, why: str = core.WITHHELD_RETENTION
) -> Prepared:
    """The end of a batch that could not be opened while its retention lasted, or was given up:
    withheld, n = 0, charged at epsilon0, because it may have been opened all the same.

    The accountant is not asked: it may be what kept the batch from its end.
    """
    task = served.task
    made = create_any(task.mechanism, task.domain)
    nothing = Opened(made.tally(np.zeros((0, made.report_size), dtype=np.uint8)), {})
    if isinstance(made, Several):  # whose account was asked for when the task was taken up
        bound = guarantee_of(task, made)
        return Prepared(served, batch, nothing, 0, bound, bound.epsilon_upper, why, None)
    mechanism = made
    local = epsilon0_upper(mechanism.privacy())
    certificate = Certificate(
        epsilon_upper=local,
        epsilon_lower=0.0,
        epsilon0=local,
        delta=task.delta,
        n=task.min_batch,
        honest_fraction=task.honest_fraction,
        method="local guarantee alone: nothing was opened",
        assumptions=(),
    )
    lifetime = _lifetime(task, mechanism)
    return Prepared(
        served,
        batch,
        nothing,
        0,
        certificate,
        local,
        why,
        None,
        lifetime=lifetime,
    )


def _lifetime(task: Task, mechanism: Mechanism | VectorRandomizer) -> float | None:
    """epsilon0 of permanent reports; None where there are none. Vectors are never memoized."""
    if not task.memoized or isinstance(mechanism, VectorRandomizer):
        return None
    return lifetime_epsilon(task, mechanism)


def conclude(
    prepared: Prepared, earlier: Sequence[Spending], key: SigningKey, given_up: Sequence[int] = ()
) -> WindowOutcome:
    """The signed bytes of release and acknowledgement. ``earlier``: what every batch before this
    one cost. ``given_up``: other windows of the task of which nothing is counted, by an operator's
    word.
    """
    release = _message(prepared, earlier, given_up).SerializeToString(deterministic=True)
    ack = delivery_pb2.Ack(
        version=VERSION, manifest_hash=prepared.batch.manifest_hash.raw
    ).SerializeToString(deterministic=True)
    return WindowOutcome(
        release=release,
        release_signature=key.sign(SigningContext.RELEASE, release),
        ack=ack,
        ack_signature=key.sign(SigningContext.ACK, ack),
        tally=None if prepared.withheld else prepared.opened.tally.to_bytes(),
        spending=prepared.charge,
    )


def _message(
    prepared: Prepared, earlier: Sequence[Spending], given_up: Sequence[int]
) -> release_pb2.Release:
    task, manifest = prepared.served.task, prepared.batch.manifest
    rejected = [
        release_pb2.Rejected(reason=reason, count=count)
        for reason, count in sorted(prepared.opened.rejected.items())
    ]
    return release_pb2.Release(
        version=VERSION,
        task_id=manifest.task_id.raw,
        name=task.name,
        window=manifest.window,
        n=prepared.n,
        rejected=rejected,
        estimates=_estimates(prepared.estimate),
        privacy=_privacy(prepared, earlier, given_up),
        manifest_hash=prepared.batch.manifest_hash.raw,
        withheld=prepared.withheld or "",
        distribution=message(prepared.distribution),
        counts="" if prepared.withheld else counted_cells(prepared.estimate, task.domain),
        damaged=manifest.damaged,
        record=None if prepared.withheld else record_message(task.domain),
        quantiles=[
            release_pb2.Quantile(
                share=each.share, value=each.value, ci_low=each.low, ci_high=each.high
            )
            for each in prepared.quantiles
        ],
        discovered=None if prepared.found is None else prepared.found.message(task.windows.count),
        ranges=prepared.ranges,
        map=prepared.map,
    )


def _estimates(estimate: Estimate | None) -> list[release_pb2.Estimate]:
    if estimate is None:
        return []
    rows = zip(
        estimate.labels,
        estimate.values.tolist(),
        estimate.stderr.tolist(),
        estimate.ci_low.tolist(),
        estimate.ci_high.tolist(),
        strict=True,
    )
    return [
        release_pb2.Estimate(label=label, value=value, stderr=error, ci_low=low, ci_high=high)
        for label, value, error, low, high in rows
    ]


def _privacy(
    prepared: Prepared, earlier: Sequence[Spending], given_up: Sequence[int]
) -> release_pb2.Privacy:
    task, spendings = prepared.served.task, [*earlier, prepared.charge]
    return privacy_message(
        task,
        prepared.guarantee,
        unit=MEMOIZED_UNIT if task.memoized else UNIT,
        received=prepared.epsilon_at_received_n,
        assumptions=[*_assumptions(task, prepared.guarantee), *_given_up_words(given_up)],
        spendings=spendings,
        memoized=_memoized(prepared, spendings),
        metric=prepared.metric,
    )


def _memoized(prepared: Prepared, spendings: Sequence[Spending]) -> release_pb2.Memoized | None:
    if prepared.lifetime is None:
        return None
    windows = sum(spending.task_id == prepared.served.task_id for spending in spendings)
    return release_pb2.Memoized(lifetime_epsilon=prepared.lifetime, windows=windows)


def _assumptions(task: Task, guarantee: Guarantee) -> list[str]:
    if task.admission not in ADMISSION_LINES:
        raise ShoalError(Kind.INTERNAL, "this admission has no words for a release")
    admission = ADMISSION_LINES[task.admission]
    if not task.memoized:
        made = create_any(task.mechanism, task.domain)
        lies = [liar_words(made, task.domain)] if isinstance(made, Several) else []
        if isinstance(task.domain, Discovery) and task.domain.fresh:
            lies.append(FRESH_DEVICES)
        return [*guarantee.assumptions, admission, *lies, *sentences(task.domain)]
    promise, alone, repeated = promised(create(task.mechanism, task.domain))
    return [
        *(repeated if line == FRESH else line for line in guarantee.assumptions),
        admission,
        alone,
        promise,
        FORGOTTEN,
    ]


def _given_up_words(windows: Sequence[int]) -> list[str]:
    """What a reader who looks for these windows is told."""
    if not windows:
        return []
    named = ", ".join(map(str, windows[:_NAMED]))
    more = f" and {len(windows) - _NAMED} more" if len(windows) > _NAMED else ""
    return [
        f"the analyzer's operator gave windows of this task up, nothing of them is counted: "
        f"{named}{more}"
    ]
