"""What a signed task must be, so that devices answer it and a promise can be made for it: the
ranges of docs/WIRE.md, 3, and how its parts fit one another.

A device refuses a task that breaks one of these rules. So whoever shows a release of such a task
shows reports of devices that do something else than the task says; nothing is promised of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from shoal.checker.errors import UnreadableError
from shoal.checker.findings import Outcome, Statement
from shoal.checker.questions.domains import Rule, answers_of, kind_of, rules_of_domain
from shoal.checker.questions.shapes import MOST_MESSAGES, rules_of_mechanism
from shoal.protos import task_pb2

_PPM = 1_000_000
_MOST_REPORTS = 200_000_000
_MOST_WINDOWS = 10_000
_MOST_SECONDS, _MOST_START = 10 * 366 * 86_400, 1 << 40
_MOST_GRACE, _DELIVERY = 366 * 86_400, 3_600
_MOST_BYTES = 4_096  # of a message
_KEY, _SALT = 32, 16
_OF_VECTORS = "privunit"
_WHAT = "the task is one that devices answer"


def refused(task: task_pb2.Task) -> str:
    """Why no device answers it; "" where one may."""
    try:
        return next((wrong for kept, wrong in _rules(task) if not kept), "")
    except UnreadableError as error:
        return str(error)


def answered(task: task_pb2.Task) -> Statement:
    """That it is one that devices answer."""
    wrong = refused(task)
    if wrong:
        return Statement(_WHAT, Outcome.WRONG, wrong)
    asked = "coordinates" if kind_of(task.domain) == "vector" else "answers"
    return Statement(_WHAT, Outcome.HOLDS, f"{answers_of(task.domain):,} {asked}")


def _rules(task: task_pb2.Task) -> Iterator[Rule]:
    yield task.version == 1, "it is of a version that is not known here"
    yield from _batches(task)
    yield from _windows(task.windows)
    yield from _parties(task)
    yield from rules_of_domain(task.domain)
    if task.aggregator == task_pb2.AGGREGATOR_PAIRWISE:
        yield from _sums(task)
    else:
        yield from _reports(task)
        yield from rules_of_mechanism(task)


def _batches(task: task_pb2.Task) -> Iterator[Rule]:
    yield 2 <= task.min_batch <= _MOST_REPORTS, "its smallest batch has no two reports, or too many"
    largest = task.max_batch == 0 or task.min_batch <= task.max_batch <= _MOST_REPORTS
    yield largest, "its largest batch is smaller than its smallest one, or too large"
    share = task.honest_fraction_ppm
    yield 0 < share <= _PPM, f"it takes {share:,} of {_PPM:,} devices to be honest"
    yield 0 < task.delta < 1, "its delta is no chance"
    yield 0 < task.target_epsilon < math.inf, "it has no target epsilon"
    yield task.reports_per_device == 1, "a device has another number of reports than one"


def _windows(plan: task_pb2.Windows) -> Iterator[Rule]:
    yield 1 <= plan.count <= _MOST_WINDOWS, "it has no windows, or too many"
    yield 0 <= plan.start_s < _MOST_START, "its windows begin at no time"
    yield 1 <= plan.length_s <= _MOST_SECONDS, "its windows have no length, or too much"
    yield plan.grace_s <= _MOST_GRACE, "its windows wait too long"
    # else one report of a device could count in either of two windows
    yield plan.skew_s <= plan.length_s, "clocks may be off by more than a window"


def _parties(task: task_pb2.Task) -> Iterator[Rule]:
    keys = task.key_authority, task.shuffler_key, task.analyzer_key
    yield all(len(key) == _KEY for key in keys), "a key of its parties is none"
    yield len(task.salt) == _SALT, "it has no salt"
    yield task.suite in (1, 2, 3), "its reports are sealed in no known way"
    admissions = task_pb2.ADMISSION_OPEN, task_pb2.ADMISSION_ENROLLED
    yield task.admission in admissions, "it lets devices in in no known way"
    enrolled = task.admission == task_pb2.ADMISSION_ENROLLED
    yield len(task.enrolment_key) == enrolled * _KEY, "its enrolment has no key, or has no use"
    needed = task.windows.length_s + task.windows.grace_s + _DELIVERY
    yield task.retention_s >= needed, "its reports are dropped before they are delivered"
    known = task_pb2.AGGREGATOR_SHUFFLED, task_pb2.AGGREGATOR_PAIRWISE
    yield task.aggregator in known, "its answers are added up in no known way"
    sums = task.aggregator == task_pb2.AGGREGATOR_PAIRWISE
    yield task.HasField("pairwise") == sums, "it has rounds without sums, or sums without rounds"
    yield not (task.memoized and sums), "a sum can't be repeated"


def _reports(task: task_pb2.Task) -> Iterator[Rule]:
    kind, name = kind_of(task.domain), task.mechanism.name
    vectors = kind == "vector"
    yield vectors == (name == _OF_VECTORS), f"{name} does not go with this question"
    yield not (task.memoized and vectors), "a vector can't be repeated"
    drawn_anew = "a record can't be repeated: what it tells is drawn anew"
    yield not (task.memoized and kind == "record"), drawn_anew
    yield 1 <= task.messages <= MOST_MESSAGES, "a report has no messages, or too many"
    fewest = task.fewest_messages < task.messages
    yield fewest, "a report has more messages at least than at most"
    yield not task.memoized or task.messages == 1, "of several messages none may be repeated"
    yield 1 <= task.report_size <= _MOST_BYTES, "a message has no bytes, or too many"


def _sums(task: task_pb2.Task) -> Iterator[Rule]:
    """No promise of a sum is confirmed here: what else its rounds must be is not looked at."""
    yield kind_of(task.domain) == "vector", "what is summed is a vector"
    enrolled = task.admission == task_pb2.ADMISSION_ENROLLED
    yield enrolled, "strangers could be all that a device is summed with"
    yield task.messages == 1 and task.max_batch == 0, "a sum is of one vector of every device"
    plan = task.pairwise
    sizes = 2 <= plan.survivors_min <= plan.cohort_min <= plan.cohort_max
    yield sizes and plan.survivors_min <= task.min_batch, "its rounds have other sizes"
