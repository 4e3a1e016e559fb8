"""Memoized answers: one permanent report per device and value, sent again in every window. What
that costs, and who may do it.

R_i(x) is the report that device i draws once for the value x and keeps; in window w it sends
R_i(x_w) again, sealed anew. Where a value is rounded at random before it is randomized (numeric
domains), that rounding is a part of R_i and is kept too: drawn anew in each window it would send an
unchanged value as two reports, whose frequencies over many windows give away where between two
levels it lies.

*An unchanged value.* Compare a device that has the value x in all windows with one that has x' in
all of them. The device's part of everything that anybody ever sees is a function of R_i(x) and of
coins that no value decides, so all windows together are a post-processing of one draw: (epsilon0,
0), however many windows there are, whoever else answers, whether or not anybody shuffles.

*One window.* As long as one window of the task was opened, the reports in it are independent draws
of all devices, like those of any other task: the ordinary central certificate holds, and composes
with other tasks as usual.

*Two windows or more.* No central figure is claimed. The other devices' reports are the same in both
windows: they hide nothing any more once they are known. Let one device stay away from the second
window: the difference of the two histograms is its permanent report, in the clear, so epsilon0 is
all that is left, and adding up what the windows' certificates say bounds nothing. As one part of a
larger composition the task counts once, as a pure (epsilon0, 0) mechanism: give whoever looks on
the permanent report at the outset, and all windows of the task are functions of it; other tasks may
be chosen after it, adaptively.

*What it does not promise.* A value that changes is answered by another permanent report. Histories
that change in the same windows differ by epsilon0 for each of the values, as any answers do.
Histories that differ in *whether* the value changed are not hidden at all: two different reports
prove a change, with certainty, if they can be told to be one device's. So no figure is about one
window's answer while the others stay as they are, and a repeated report that few others send is
recognised from window to window (``rarest``).

*Memory.* All of this is about a device that keeps its permanent reports. One that loses them (a
store that is lost, consent that was withdrawn and given again: the memory is deleted then) draws
anew, and an unchanged value has cost epsilon0 twice.

*Mechanisms with a memory of their own* (``mechanisms.longitudinal``: RAPPOR, LOLOHA, chained unary
encoding, dBitFlip). There R_i(x) is the device's choice, and the permanent answer of the value's
key; a window's report is fresh noise on it. For R_i in this sense all of the above holds, with
epsilon0 of ``permanent()``, the *lifetime epsilon*, in the place of one report's: an unchanged
value costs it once over all windows; each further key costs it again, so no more than ``keys``
times it is ever charged; and when the key changed is not promised to stay hidden. The reports of
*one* window, seen alone, are independent draws of all devices with the law ``privacy()``, each with
a choice, a permanent answer and noise that no other report of that window shares: the ordinary
certificate holds for them, with the smaller epsilon0 of one report. From the second opened window
on the noise of the reports is fresh but what lies below it is not, so nothing below the lifetime
epsilon is claimed. Adding up one report's epsilon0 over the windows is no bound in general: reports
from one permanent answer are not independent, and two may show together what neither shows.

*Who may.* Mechanisms with a finite epsilon0 whose report is one message. Where epsilon0 is infinite
(dummies, approximate laws) the lifetime promise would be empty, and where a report has several
messages what one window hides among the others' messages the next one shows again. A sum by secure
aggregation draws its noise for every round.

*Checked* by exact enumeration of all that can be seen of several windows at small sizes: what
is promised holds, and what is not promised fails there
(tests/unit/accounting/composition/test_memoized.py, test_memoized_memory.py).
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Protocol

from shoal.errors import Kind, ShoalError
from shoal.mechanisms.longitudinal.protocol import Longitudinal
from shoal.privacy import FiniteLaw, KaryLaw, LocalPrivacy, epsilon0_upper
from shoal.task import Task

# The same words wherever memoized answers are spoken of.
PROMISE = (
    "a value that does not change costs epsilon0 once, over all windows; each further distinct "
    "value costs epsilon0 again, and that the"
    " value changed may show"
)
ALONE = (
    "the task is memoized: its central figures are about one window seen alone, and once two "
    "windows were opened nothing below epsilon0"
    " is promised of all of them together"
)

# The same of mechanisms with a memory of their own.
PROMISE_KEPT = (
    "a value that does not change costs the lifetime epsilon once, over all windows; each further "
    "permanent answer that the device draws,"
    " because its value changed, costs it again, and that the value changed may show"
)
ALONE_KEPT = (
    "the task is memoized: its central figures are about one window seen alone, and once two "
    "windows were opened nothing below the lifetime"
    " epsilon is promised of all of them together"
)
REPEATED_KEPT = (
    "one report per device in the batch, drawn from a permanent answer that the device drew once "
    "with fresh randomness and keeps for all"
    " windows in which the value is the same"
)

REPEATED = (
    "one report per device in the batch, drawn once with fresh randomness and sent again in every "
    "window in which the value is the same"
)

FORGOTTEN = (
    "a device that loses its memory of the task (its store is lost, or consent was withdrawn and "
    "given again) draws anew: that costs what a"
    " further distinct value costs"
)

# Where ``rarest`` is not known. A seed of its own, or a long bitmap, is next to unique.
RECOGNISED = (
    "it is not known how many devices send the same report, and it may be none: then whoever sees "
    "two windows recognises the device by what"
    " it repeats, and sees whether its value changed"
)


# Where a mechanism has a memory of its own: a choice that reports show, or permanent bits below
# fresh noise.
RECOGNISED_KEPT = (
    "what a device chose or drew once lies below all of its reports: whoever sees many windows may "
    "recognise the device by it, and see"
    " whether its value changed"
)


_SHARED = (
    "The estimates of its windows share their noise: averaging them does not make the error "
    "smaller. A device whose budget is used up"
    " repeats its last report, so that they may lag behind changes."
)
_SHARED_KEPT = (
    "The estimates of its windows share the noise of the permanent answers: averaging them does "
    "not make that smaller. A device whose"
    " budget is used up goes on with its last permanent answer, so that they may lag behind "
    "changes."
)


class MemoizedRandomizer(Protocol):
    """What is asked of a mechanism here (``shoal.mechanisms.Mechanism``)."""

    @property
    def name(self) -> str:
        """The mechanism's name, for messages."""
        ...

    @property
    def messages(self) -> int:
        """Messages of one report: a report of several is refused."""
        ...

    def privacy(self) -> LocalPrivacy:
        """The output law of one report, all of it drawn anew."""
        ...


def check_memoized(task: Task, mechanism: MemoizedRandomizer | None) -> None:
    """Return if the task is not memoized, or if what memoizing promises holds for its mechanism;
    else raise INVALID.

    The same check for lint, device and analyzer: a task that one of them refuses gets no answer.
    """
    if not task.memoized:
        return
    if mechanism is None or task.pairwise is not None:
        raise _refused(task, "a sum by secure aggregation draws new noise in every round")
    if mechanism.messages != 1 or task.messages != 1:
        raise _refused(
            task,
            f"a report of {mechanism.name} has {max(mechanism.messages, task.messages)} messages, "
            "and only one may be repeated",
        )
    lifetime_epsilon(task, mechanism)


def lifetime_epsilon(task: Task, mechanism: MemoizedRandomizer) -> float:
    """epsilon0 of what a device keeps, finite: what an unchanged value costs over all windows, at
    delta = 0. Direction: upper bound.

    Of the permanent report; of a mechanism with a memory of its own of the choice and the permanent
    answer together. Raises INVALID where there is none.
    """
    law = mechanism.permanent() if isinstance(mechanism, Longitudinal) else mechanism.privacy()
    # A law that is only approximately private has no ratio (shoal.approximate): (epsilon0, delta0)
    # is no epsilon0.
    epsilon0 = epsilon0_upper(law) if isinstance(law, LocalPrivacy) else math.inf
    if not math.isfinite(epsilon0):
        raise _refused(
            task,
            f"a report of {mechanism.name} has no finite epsilon0, so its repetition would promise "
            "nothing",
        )
    return epsilon0


def promised(mechanism: object) -> tuple[str, str, str]:
    """(PROMISE, ALONE, REPEATED), or their like for a mechanism with a memory of its own."""
    return (
        (PROMISE_KEPT, ALONE_KEPT, REPEATED_KEPT)
        if isinstance(mechanism, Longitudinal)
        else (PROMISE, ALONE, REPEATED)
    )


def recognised(task: Task, mechanism: MemoizedRandomizer) -> str | None:
    """Why a device's windows may be linked: None where enough others send the same report
    (``rarest`` says how many).
    """
    if isinstance(mechanism, Longitudinal):
        return RECOGNISED_KEPT
    return RECOGNISED if rarest(task, mechanism.privacy()) is None else None


def rarest(task: Task, law: LocalPrivacy) -> float | None:
    """How many of the certified honest reports are expected, at least, to be the same as any given
    report. None: not known.

    n_certified times the smallest probability of an output under any value. Far below 1 a permanent
    report is next to unique: whoever sees two windows recognises the device, and whether its value
    changed. Direction: lower bound, to float rounding.
    """
    if isinstance(law, KaryLaw):
        least = Fraction(law.other, law.total)
    elif isinstance(law, FiniteLaw):
        least = Fraction(min(min(row) for row in law.rows), law.total)
    else:
        return None  # a bound on ratios, or classes of outputs, do not say how likely one output is
    return float(task.n_certified * least)


def sentences(epsilon0: float, windows: int, first: float | None = None) -> list[str]:
    """Plain words on ``windows`` >= 1 opened windows of a memoized task, for pages, results and the
    device's owner.

    ``epsilon0``: the lifetime epsilon; ``first``: of one window's report alone, where that is less:
    then reports are drawn anew, from a permanent answer. Both are upper bounds and shown as such.
    """
    from shoal.accounting.meaning import best_guess, bound_text, percent_text

    anew = first is not None and first < epsilon0
    if anew and first is not None:
        lines = [
            "The task is memoized: a device draws one permanent answer for the same value, and "
            "every window's report anew from that. "
            f"One report alone promises epsilon <= {bound_text(first)}; the lifetime epsilon is "
            f"{bound_text(epsilon0)}. So {PROMISE_KEPT}."
        ]
    else:
        lines = [
            "The task is memoized: a device answers the same value with the same report in every "
            f"window. So {PROMISE}."
        ]
    name = "the lifetime epsilon" if anew else "epsilon0"
    if windows >= 2:
        lines.append(
            f"Together, the {windows} windows opened so far promise epsilon <= "
            f"{bound_text(epsilon0)} for a value that did not change: at "
            f"most {percent_text(best_guess(epsilon0, 0.0))} right guesses between two values. The "
            "central figures are about one window "
            "seen alone."
        )
        lines.append(_SHARED_KEPT if anew else _SHARED)
    else:
        lines.append(
            "One window was opened so far, and its central figures hold; from the second one on, "
            f"{name} = {bound_text(epsilon0)} is "
            "what holds for all of them together."
        )
    return lines


def _refused(task: Task, why: str) -> ShoalError:
    return ShoalError(
        Kind.INVALID, f"task {task.name} can't be memoized: {why}: leave memoized out"
    )
