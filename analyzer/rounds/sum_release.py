"""From the sums of a window's rounds to the signed release: totals with error bars, and what the
noise guarantees.

Every round's sum carries noise for its own guaranteed survivors, and the analyzer sees each of
them: the certificate is that of one round. A device is in one round of a window, so rounds do not
add up; what they add is noise to the total, and the release says how much.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from operator import add
from pathlib import Path
from typing import Any, Protocol

from shoal.accounting.guarantee import Guarantee
from shoal.accounting.sums.pairwise import certify_sum
from shoal.accounting.sums.spent import spent_by
from shoal.accounting.sums.sum_task import check_sum
from shoal.analyzer import core
from shoal.analyzer.records import Spending, WindowOutcome
from shoal.analyzer.results.privacy import privacy_message
from shoal.analyzer.results.totals import write_totals
from shoal.analyzer.rounds.sum_errors import errors_of_sum, reach_of_sum
from shoal.arrays import NDArray, np
from shoal.codec import VERSION
from shoal.crypto.signing import SigningContext, SigningKey
from shoal.crypto.trust import ServedTask
from shoal.domain import Vector
from shoal.errors import Kind, ShoalError
from shoal.ids import Digest, TaskId
from shoal.mechanisms.parts.sampling import blocks
from shoal.mechanisms.quantize import bounds
from shoal.protos import delivery_pb2, release_pb2
from shoal.storage.released_arrays import array_name
from shoal.task import PPM, Task

UNIT = "one vector of one device in one window"
NO_SUMS = "no round of this window ended with a sum"
TOO_FEW_SURVIVORS = "a sum has fewer survivors than the noise is made for"
TOO_LARGE = "the rounds together have totals beyond 64 bits"
TOO_MANY_SURVIVORS = "a sum has more devices than its words are made for: it may have wrapped"


class FinishedSum(Protocol):
    """One finished round as it is stored: ``vector`` int64[d] in grid steps, over ``survivors``
    devices.
    """

    @property
    def round_id(self) -> Digest:
        """Which round it is of."""
        ...

    @property
    def survivors(self) -> int:
        """Devices whose vectors are in it."""
        ...

    @property
    def vector(self) -> NDArray[np.signedinteger[Any]]:
        """int64[d]: the sum in grid steps, noise included."""
        ...

    def segments(self) -> Iterator[NDArray[np.signedinteger[Any]]]:
        """The same, ``LIMITS.array_segment`` coordinates at a time."""
        ...


def sums_hash(task_id: TaskId, window: int, sums: Sequence[FinishedSum]) -> Digest:
    """What stands where a shuffled release has its manifest's hash: SHA-256 over task, window (4
    bytes) and sorted round ids.
    """
    rounds = b"".join(sorted(finished.round_id.raw for finished in sums))
    return Digest(
        hashlib.sha256(
            b"shoal/v1/secagg/window\x00" + task_id.raw + window.to_bytes(4, "big") + rounds
        ).digest()
    )


def conclude_sums(
    served: ServedTask,
    window: int,
    sums: Sequence[FinishedSum],
    aborted: Mapping[str, int],
    earlier: Sequence[Spending],
    key: SigningKey,
    damaged: int = 0,
    arrays: Path | None = None,
) -> WindowOutcome:
    """The signed bytes of the release of a window. ``aborted``: rounds that ended without a sum, by
    reason. ``damaged``: devices whose vectors were acknowledged, or summed, and are in none of
    ``sums`` because a disk lost or changed them. ``arrays``: the folder for the totals of long
    vectors, which are written before the release names them. Raises OSError (that folder).

    ``earlier``: what every batch and window before this one cost. Withheld when fewer than
    min_batch survivors were summed, the certificate is above the target, or a sum has fewer
    survivors than the certificate is about (no honest party makes one), or more than its words
    hold. A window is charged even when it is withheld: the analyzer has seen its sums, and where
    one was too small it is charged by what came.
    """
    task = served.task
    certificate = check_sum(task)
    survivors = sum(finished.survivors for finished in sums)
    received = _received(task, certificate, sums)
    withheld = _withheld(task, certificate, sums, survivors)
    # a sum of too few devices cost more than the certificate is about
    law = spent_by(task) if received <= certificate.epsilon_upper else None
    charge = Spending(served.task_id, max(certificate.epsilon_upper, received), task.delta, law)
    digest = sums_hash(served.task_id, window, sums).raw
    message = release_pb2.Release(
        version=VERSION,
        task_id=served.task_id.raw,
        name=task.name,
        window=window,
        n=survivors,
        privacy=privacy_message(
            task,
            certificate,
            unit=UNIT,
            received=received,
            assumptions=certificate.assumptions,
            spendings=[*earlier, charge],
        ),
        manifest_hash=digest,
        withheld=withheld or "",
        rounds=_rounds(task, certificate, charge.epsilon_upper, sums, aborted),
        damaged=damaged,
    )
    if not withheld and task.pairwise is not None and task.pairwise.segmented:
        _write_array(message, task, sums, arrays)
    elif not withheld:
        _estimate(message, task, sums)
    release = message.SerializeToString(deterministic=True)
    ack = delivery_pb2.Ack(version=VERSION, manifest_hash=digest).SerializeToString(
        deterministic=True
    )
    return WindowOutcome(
        release=release,
        release_signature=key.sign(SigningContext.RELEASE, release),
        ack=ack,
        ack_signature=key.sign(SigningContext.ACK, ack),
        tally=None,
        spending=charge,
    )


def _withheld(
    task: Task, certificate: Guarantee, sums: Sequence[FinishedSum], survivors: int
) -> str | None:
    """Why nothing may be published; None: publish."""
    if not sums:
        return NO_SUMS
    if min(finished.survivors for finished in sums) < certificate.n:
        return TOO_FEW_SURVIVORS
    if (
        task.pairwise is None
        or max(finished.survivors for finished in sums) > task.pairwise.cohort_max
    ):
        return TOO_MANY_SURVIVORS
    return core.withheld(survivors, task.min_batch, certificate.epsilon_upper, task.target_epsilon)


def total(sums: Sequence[FinishedSum], domain: Vector) -> NDArray[np.float64]:
    """float64[d] in the task's unit: the rounds' sums added as Python integers, so that many 64-bit
    sums can't wrap.

    Each is the float nearest to the exact value: one division of integers.
    """
    clip = Fraction(domain.clip)
    above, below = clip.numerator, clip.denominator * domain.grid
    result = np.zeros(domain.dimension, dtype=np.float64)
    for part in blocks(domain.dimension):  # Python's integers are large: of one block at a time
        added = [0] * (part.stop - part.start)
        for finished in sums:
            added = list(map(add, added, finished.vector[part].tolist()))
        result[part] = [value * above / below for value in added]
    return result


def standard_errors(task: Task, survivors: int) -> tuple[float, float]:
    """(of the noise, of the rounding at most) of each total over that many devices, in the task's
    unit.

    Every device that is in the sum has added a whole share, so the noise is that of all survivors,
    not of the guaranteed ones.
    """
    return errors_of_sum(_domain(task), task.mechanism, survivors)


def _domain(task: Task) -> Vector:
    if not isinstance(task.domain, Vector):
        raise ShoalError(Kind.INVALID, f"task {task.name} is not summed by secure aggregation")
    return task.domain


def reach95(task: Task, survivors: int) -> float:
    """Standard errors to either side that hold the truth with 95 % (``sum_errors``)."""
    return reach_of_sum(task.mechanism, survivors)


def _estimate(release: release_pb2.Release, task: Task, sums: Sequence[FinishedSum]) -> None:
    """Write the totals into the release, one after the other: a long vector's are not held
    twice.
    """
    domain = _domain(task)
    stderr = math.hypot(*standard_errors(task, release.n))
    reach = reach95(task, release.n) * stderr
    totals = total(sums, domain)
    for at, value in enumerate(map(float, totals)):
        label = domain.names[at] if domain.names else str(at)
        release.estimates.add(
            label=label, value=value, stderr=stderr, ci_low=value - reach, ci_high=value + reach
        )


def _write_array(
    release: release_pb2.Release,
    task: Task,
    sums: Sequence[FinishedSum],
    arrays: Path | None,
) -> None:
    """The totals of long vectors: one array beside the release, written segment by segment."""
    if arrays is None:
        raise ShoalError(Kind.INTERNAL, "the totals of long vectors want a folder for their array")
    domain = _domain(task)
    stderr = math.hypot(*standard_errors(task, release.n))
    try:
        told = write_totals(
            arrays / array_name(TaskId(release.task_id), release.window),
            domain.dimension,
            added(sums),
            clip=domain.clip,
            grid=domain.grid,
            stderr=stderr,
            reach=reach95(task, release.n) * stderr,
            layout=domain.layout,
        )
    except OverflowError:
        release.withheld = TOO_LARGE
    else:
        release.array.CopyFrom(told)


def added(sums: Sequence[FinishedSum]) -> Iterator[NDArray[np.int64]]:
    """int64, segment by segment: the rounds' sums added exactly. Raises OverflowError where a total
    leaves 64 bits.
    """
    for parts in zip(*(finished.segments() for finished in sums), strict=True):
        total = parts[0].astype(np.int64)
        for part in parts[1:]:
            more = part.astype(np.int64)
            before, total = total, total + more
            # both had the other sign than what came out
            if bool((((before ^ total) & (more ^ total)) < 0).any()):
                raise OverflowError
        yield total


def _small(task: Task, sums: Sequence[FinishedSum]) -> bool:
    """Whether a round has fewer survivors than the task allows."""
    plan = task.pairwise
    return plan is not None and any(one.survivors < plan.survivors_min for one in sums)


def _received(task: Task, certificate: Guarantee, sums: Sequence[FinishedSum]) -> float:
    """Epsilon at the survivors of the smallest round that came: not guaranteed. Above the guarantee
    only if a round was too small.

    Without a round it is the guarantee: nothing was seen.
    """
    domain, plan = _domain(task), task.pairwise
    if not sums or plan is None:
        return certificate.epsilon_upper
    least = min(finished.survivors for finished in sums)
    share = plan.honest_share(task.honest_fraction_ppm)
    if _small(task, sums):
        # no honest party makes such a sum: all corrupt devices of the largest round may be in it
        corrupt = (PPM - task.honest_fraction_ppm) * plan.cohort_max // PPM
        share = Fraction(max(0, least - corrupt), least) if least else Fraction(0)
    if least * share < 1:
        return certificate.epsilon0
    came = certify_sum(
        task.mechanism,
        bounds(domain),
        domain.dimension,
        survivors=least,
        honest_fraction=share,
        delta=task.delta,
        mode=plan.mode,
    )
    # Noise of more devices hides no less, so that both bounds hold then.
    return (
        came.epsilon_upper
        if least < certificate.n
        else min(came.epsilon_upper, certificate.epsilon_upper)
    )


def _rounds(
    task: Task,
    certificate: Guarantee,
    charged: float,
    sums: Sequence[FinishedSum],
    aborted: Mapping[str, int],
) -> release_pb2.RoundsReport:
    noise, rounding = standard_errors(task, sum(finished.survivors for finished in sums))
    plan = task.pairwise
    return release_pb2.RoundsReport(
        mode=plan.mode.name.lower() if plan else "",
        rounds=len(sums),
        aborted=[
            release_pb2.Rejected(reason=reason, count=count)
            for reason, count in sorted(Counter(aborted).items())
        ],
        noise_stderr=noise,
        # One round of all these devices would have as many times the guaranteed survivors, each
        # with a smaller share.
        one_round_noise_stderr=noise / math.sqrt(len(sums)) if sums else 0.0,
        rounding_stderr=rounding,
        epsilon_analyzer=max(certificate.remaining.analyzer, charged),
        epsilon_together=max(certificate.remaining.together, charged),
    )
