"""A task in plain words, for the owner of a device: who asks what, what becomes of the value, what
is promised, what is not, what it costs.

Loads the accountant, which nothing else on a device's way needs: it is imported with the first
explanation. What a randomizer does is in ``explain_draws``, what a task costs in ``explain_cost``.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from shoal.accounting.composition import memoized
from shoal.accounting.meaning import sentences
from shoal.accounting.of_task import guarantee_of
from shoal.accounting.several_messages.liars import liar_words
from shoal.clients.owner.consent import ALLOWED, DENIED, NOTHING_STORED
from shoal.clients.owner.explain_cost import cost_lines, pays, up
from shoal.clients.owner.explain_draws import randomized_line
from shoal.clients.owner.explain_group import group_lines
from shoal.clients.owner.explain_learning import learning_lines, otherwise_line
from shoal.clients.owner.explain_places import place_lines
from shoal.clients.owner.explain_sums import sum_lines
from shoal.clients.owner.policy import check, never_answered
from shoal.clients.owner.rules import describe
from shoal.crypto.admission.members import frame_bytes
from shoal.domain import NO_ANSWER, AnswerRecord, Discovery, Numeric, Places, Vector, Words, YesNo
from shoal.errors import Kind, ShoalError
from shoal.mechanisms.several.protocol import sizes_tell
from shoal.questions.place_paths import PlacePaths
from shoal.questions.places import ELSEWHERE, metres
from shoal.questions.spelling import ANOTHER
from shoal.task import SHUFFLER_NOISE, Admission

if TYPE_CHECKING:
    from shoal.clients.core import Assignment
    from shoal.clients.owner.policy import Policy
    from shoal.clients.settings.config import AgentConfig
    from shoal.clients.sources.spec import SourceSpec
    from shoal.domain import Domain
    from shoal.mechanisms.several.protocol import Several
    from shoal.task import Task

_ONE_WINDOW = "Promised of one window:"
_MOST_LABELS = 12  # shown of a question's possible answers


def explain(
    assignment: Assignment,
    config: AgentConfig,
    *,
    consents: Mapping[str, str] = NOTHING_STORED,
    accepted: float | None = None,
    spent: int = 0,
    charged: int = 0,
    answered: int = 0,
    kept: bool = False,
) -> list[str]:
    """Lines for people, in the order in which an owner asks. Every epsilon in them is an upper
    bound, rounded up.

    ``consents``, ``accepted``: from the device's memory, as for ``policy.check``. ``spent``:
    nano-epsilon of all tasks so far; ``charged``: of this task alone, in ``answered`` windows.
    ``kept``: the device remembers an answer of this memoized task. Words of the task are in it as
    they are: filter them for a terminal.
    """
    task, policy = assignment.task, config.effective_policy
    consent = policy.consent(task.purpose, consents)
    agreed = "You were not asked about this purpose yet: until you say yes, nothing is sent for it."
    if consent in (ALLOWED, DENIED):
        agreed = (
            "You allowed this purpose."
            if consent == ALLOWED
            else "This purpose is denied: nothing is sent for it."
        )
    if never_answered(policy, assignment):
        agreed = "For this task you are not asked about it: nothing is sent, whatever you say."
    return [
        f'Task {task.name} (id {assignment.task_id.short}) asks: "{task.question}"',
        f"Who asks: the authority {assignment.trusted.authority.hex()}, whose signature this "
        "device trusts.",
        f'What for, in its own words: "{task.purpose}". {agreed}',
        *_value(task, config),
        randomized_line(assignment),
        *_sent(assignment),
        *_batch(task),
        *_promise(assignment),
        *learning_lines(assignment),
        *place_lines(assignment),
        *group_lines(assignment, policy.owner_devices),
        *_no_promise(assignment),
        *cost_lines(assignment, config, accepted, spent, charged, answered),
        _verdict(assignment, policy, consents, accepted, spent, kept),
    ]


def _verdict(
    assignment: Assignment,
    policy: Policy,
    consents: Mapping[str, str],
    accepted: float | None,
    spent: int,
    kept: bool,
) -> str:
    """What the policy says, and of a report within the owner's limit whether the budget pays for
    another window.
    """
    try:
        check(
            policy,
            assignment.campaign,
            assignment.trusted,
            assignment.epsilon0,
            assignment.epsilon_apart,
            consents=consents,
            accepted=accepted,
        )
    except ShoalError as error:
        return f"As things are, this device would send nothing: {error.message}."
    if not pays(assignment, policy, spent, kept=kept):
        return (
            "As things are, this device would send nothing: its budget does not pay for another "
            "window."
        )
    return "As things are, this device would answer it."


def _sent(assignment: Assignment) -> list[str]:
    """How much a window sends, of a task of several messages: what a radio or a quota pays."""
    several, task = assignment.several, assignment.task
    if several is None:
        return []
    least, most, size = task.least_messages, task.messages, several.report_size
    number = f"{least} to {most}" if least < most else f"{most}"
    mean = f", {float(several.mean_messages):.3g} on average" if least < most else ""
    return [
        f"What is sent in a window: {number} message{'s' * (most > 1)} of {size} "
        f"byte{'s' * (size > 1)}{mean}, in one frame of {frame_bytes(task):,} bytes, which is as "
        "large whatever was drawn and whatever you answer."
    ]


# --- the value ------------------------------------------------------------------------------------


def _value(task: Task, config: AgentConfig) -> list[str]:
    spec = config.sources.get(task.name)
    if spec is None:
        lines = [
            "Your value: no source is configured for it; it is whatever `shoal agent report "
            f"{task.name} VALUE` or a program is given."
        ]
    else:
        lines = [
            f"Your value: once per window {_source(spec)} is read, for at most {spec.timeout_s:g} "
            f"seconds. {otherwise_line(spec)}"
        ]
        if (
            spec.otherwise != NO_ANSWER
            and task.pairwise is None
            and not task.domain.understands(spec.otherwise)
        ):
            lines.append(
                f'But "{spec.otherwise}" is none either: it counts as "{NO_ANSWER}". Give '
                f"{task.domain.accepted}."
            )
    lines += [
        f"Before anything else a rule applies: {describe(rule)}."
        for rule in config.rules
        if rule.concerns(task)
    ]
    return [*lines, _cells(task.domain)]


def _source(spec: SourceSpec) -> str:
    place = f", at {spec.pointer}" if spec.pointer else ""
    match spec.kind:
        case "json":
            return f"the JSON file {spec.file}{place}"
        case "sqlite":
            return f"the SQLite file {spec.file}, by the query {spec.query!r}"
        case "command":
            return f"the output of the command `{shlex.join(spec.argv)}`{place}"
        case "http":
            return f"{spec.url}{place}"
    raise ShoalError(Kind.INTERNAL, f"a source of kind {spec.kind} has no words for its owner")


def _record(record: AnswerRecord) -> str:
    members = "; ".join(f"{one.name} ({_listed(one.answers.names)})" for one in record.attributes)
    tables = len(record.marginals)
    asked = (
        f"Each report says them in all of {tables:,} tables of some of these attributes."
        if record.together
        else f"A report says them in one of {tables:,} tables of some of these attributes, which "
        "this device draws by itself, by chance."
    )
    return (
        f"It is several answers together: {members}. What is missing or unreadable becomes "
        f'"no answer" there, and the device takes part all the same. {asked}'
    )


def _places(places: Places) -> str:
    return (
        f"Only one of the {places.size - 1:,} cells of a map is told, not where in it: "
        f"{metres(places.cell_width_m)} from west to east and {metres(places.cell_height_m)} "
        f"from south to north each, in {places.box}. Every place beyond, and a missing or "
        f'unreadable value, becomes "{ELSEWHERE}", and the device takes part all the same.'
    )


def _cells(domain: Domain) -> str:
    if isinstance(domain, Vector):
        return (
            f"It is a list of {domain.dimension:,} numbers, made smaller where it is larger than "
            f"{domain.clip:g} "
            f"(norm {domain.norm.name.lower()}); a missing one counts as zeros."
        )
    if isinstance(domain, YesNo):
        return (
            'It becomes "yes" or "no"; a missing or unreadable value counts as "no", so that the '
            "device takes part all the same."
        )
    if isinstance(domain, Numeric):
        unit = f" {domain.unit}" if domain.unit else ""
        beyond = (
            "values beyond are moved there" if domain.clip else "values beyond count as no answer"
        )
        answers = (
            f"one of {domain.levels:,} levels from {domain.low:g} to {domain.high:g}{unit}, "
            f"rounded at random between two ({beyond})"
        )
    elif isinstance(domain, AnswerRecord):
        return _record(domain)
    elif isinstance(domain, Places):
        return _places(domain)
    elif isinstance(domain, Words):
        return (
            "It may be any text, and becomes a number made of it (its SHA-256, shortened). Counted "
            "are the devices with "
            f'{_listed(domain.names)}; a missing or unreadable value becomes "no answer", and the '
            "device takes part all the same."
        )
    elif isinstance(domain, Discovery):
        return _found(domain)
    else:
        answers = f"one of {len(domain.names):,} answers: {_listed(domain.names)}"
    return (
        f'It becomes {answers}; a missing or unreadable value becomes "no answer", and the device '
        "takes part all the same."
    )


def _found(domain: Discovery) -> str:
    paths = domain.alphabet
    if not isinstance(paths, PlacePaths):
        return (
            "Only how its word begins is told, one letter more from window to window: of "
            f"beginnings that many devices have, at most {domain.most:,}. A word that begins "
            f"otherwise, one of {len(domain.known):,} that are known already, and a missing value "
            f'become "{ANOTHER}", and the device takes part all the same.'
        )
    first, last = paths.across**domain.first, paths.across**domain.longest
    box = paths.box
    return (
        f"Only in which part of a map it lies is told ({box.box}): first of {first:,} rows and "
        "columns, then from window to window in which smaller part of that, if many devices are "
        f"there, at most {domain.most:,} parts. The smallest have "
        f"{metres(box.cell_width_m / last)} from west to east and "
        f"{metres(box.cell_height_m / last)} from south to north. A place that is not among those "
        f'asked for, and a missing or unreadable value, become "{paths.another}", and the device '
        "takes part all the same."
    )


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _MOST_LABELS
    return ", ".join(f'"{name}"' for name in names[:_MOST_LABELS]) + (
        f" and {more:,} more" if more > 0 else ""
    )


# --- the crowd ------------------------------------------------------------------------------------


def _batch(task: Task) -> list[str]:
    plan = task.windows
    windows = "one window" if plan.count == 1 else f"{plan.count:,} windows"
    end = datetime.fromtimestamp(plan.end_of(plan.count - 1), UTC).strftime("%Y-%m-%d %H:%M UTC")
    often, lying = "one report per window, whether or not anything happened", ""
    if task.windows_of_a_device < plan.count:
        often = (
            "one report in all, in one of the windows, which this device draws by itself, by chance"
        )
        lying = (
            f" One that lies may answer in every window: {task.min_batch - task.n_certified:,} "
            "may, of all devices."
        )
    # of a round those who are lost may all have been honest
    honest = (
        f"{task.n_certified:,} of them"
        if task.pairwise is None
        else f"{task.pairwise.honest_survivors(task.honest_fraction_ppm):,} of those in each round"
    )
    return [
        f"From how many: a window is only published with at least {task.min_batch:,} reports; the "
        f"promise counts on {honest} being honest.{lying}",
        f"How often: {often}; {windows} of {_duration(plan.length_s)}, until {end}.",
    ]


def _duration(seconds: int) -> str:
    for unit, size in (("day", 86_400), ("hour", 3_600), ("minute", 60), ("second", 1)):
        if seconds % size == 0:
            count = seconds // size
            return f"{count:,} {unit}{'' if count == 1 else 's'}"
    raise AssertionError("every number is a multiple of 1")


# --- promises -------------------------------------------------------------------------------------


def _promise(assignment: Assignment) -> list[str]:
    task = assignment.task
    try:
        guarantee = guarantee_of(
            task, assignment.several or assignment.vectors or assignment.mechanism
        )
    except ShoalError as error:
        return [f"{_ONE_WINDOW} nothing that this device can compute ({error.message})."]
    if task.pairwise is not None:
        return [_ONE_WINDOW, *sum_lines(task, task.pairwise, guarantee)]
    lines = [_ONE_WINDOW, *(f"  - {line}" for line in sentences(guarantee))]
    if task.memoized:
        assert assignment.mechanism is not None  # noqa: S101 - sums and bundles are not memoized
        promise, alone, _ = memoized.promised(assignment.mechanism)
        if assignment.epsilon_first is None:
            what = (
                "epsilon0"
                if assignment.longitudinal is None
                else "lifetime epsilon, and that of one report,"
            )
            figures = f"{what} = {up(assignment.epsilon0)}"
        else:
            figures = (
                f"lifetime epsilon = {up(assignment.epsilon0)}; one report by itself: "
                f"{up(assignment.epsilon_first)}"
            )
        return [
            *lines,
            f"Mind that {alone}.",
            f"Promised of all windows together: {promise} ({figures}).",
        ]
    return [
        *lines,
        *_all_windows(task, guarantee.epsilon_upper, guarantee.delta, assignment.epsilon0),
    ]


def _all_windows(task: Task, epsilon: float, delta: float, epsilon0: float) -> list[str]:
    """What answering in every window gives away at most, by adding up: the releases' promises, or
    the reports' own.
    """
    count = task.windows_of_a_device
    if task.windows.count > 1 == count:
        enrolled = task.admission is Admission.ENROLLED
        kept = "enrolment key is kept" if enrolled else "memory is kept: wiped, it may answer again"
        return [f"Promised of all windows together: the same, while this device's {kept}."]
    if count == 1:
        return []
    local, central = (
        math.nextafter(count * epsilon0, math.inf),
        math.nextafter(count * epsilon, math.inf),
    )
    words = f"Promised of all {count:,} windows together: epsilon <= "
    if count * delta >= 1.0 or local <= central:
        return (
            [f"{words}{up(local)}."]
            if math.isfinite(local)
            else ["Of all windows together nothing is promised."]
        )
    return [
        f"{words}{up(central)} at delta = {up(math.nextafter(count * delta, 1.0))}, by adding up."
    ]


def _left_of_several(epsilon0: float, windows: int) -> str:
    if math.isinf(epsilon0):
        return "they see your answer itself: nothing of the promise is left"
    if windows == 1:
        return (
            "they see the one randomized answer that this device sent: what it promises by itself "
            f"is left: epsilon0 = {up(epsilon0)}"
        )
    return (
        f"they see the one randomized answer that this device sent in each of {windows:,} windows: "
        f"what these promise by themselves is left: epsilon0 = {up(epsilon0)} of one, and "
        f"{up(math.nextafter(windows * epsilon0, math.inf))} of all together"
    )


def _left_without_honest(assignment: Assignment) -> str:
    """What is left of the promise where too few of the others are honest."""
    if math.isfinite(assignment.epsilon0):
        return "only the promise against shuffler and analyzer together is left"
    if assignment.task.mechanism.name == SHUFFLER_NOISE:
        return "the promise stays: the shuffler's noise does not depend on it"
    return "nothing of the promise is left"


def _no_promise_of_several(assignment: Assignment, several: Several) -> list[str]:
    task = assignment.task
    left = _left_of_several(assignment.epsilon0, task.windows_of_a_device)
    lies = liar_words(several, task.domain)
    lines = [
        f"Not promised: that shuffler and analyzer do not work together. If they do, {left}.",
        f"Not promised: that the result is true. Nobody can check what is sent: {lies}.",
    ]
    if sizes_tell(several):
        lines.append(
            "Not promised: that the shuffler does not read the result. It knows how many messages "
            "this device sent. That says nothing of your answer, but with the result it tells of "
            "the noise that hides it: whoever has both may learn more than is promised."
        )
    if several.name == SHUFFLER_NOISE:
        lines.append(
            "Not promised: that the shuffler adds its noise. You trust it for that: neither this "
            "device nor the analyzer can tell whether it did. If it did not, the analyzer sees "
            "exact counts, though not whose answer is whose."
        )
    return lines


def _who_sends(task: Task) -> str:
    if task.windows_of_a_device < task.windows.count:
        return "in which window a device sends is drawn by chance, whatever its answer is"
    return "every device that takes part sends in every window"


def _no_promise(assignment: Assignment) -> list[str]:
    task = assignment.task
    lines = [
        "Not promised: that nobody sees that this device takes part. The shuffler, and the network "
        "before it, see that something was "
        f"sent, and when; but not what, and {_who_sends(task)}.",
        "Not promised: that nothing is learnt about people like you. What holds for many is the "
        "very result, with or without your answer.",
    ]
    if assignment.several is not None:
        lines += _no_promise_of_several(assignment, assignment.several)
    if assignment.mechanism is not None or assignment.vectors is not None:
        left = f"what one report promises by itself is left: epsilon0 = {up(assignment.epsilon0)}"
        if assignment.epsilon_first is not None:
            left = (
                f"of one report by itself epsilon0 = {up(assignment.epsilon_first)} is left, and "
                "of all reports of an unchanged value the "
                f"lifetime epsilon = {up(assignment.epsilon0)}"
            )
        lines.append(
            f"Not promised: that shuffler and analyzer do not work together. If they do, {left}."
        )
    if task.admission is Admission.OPEN:
        lines.append(
            "Not checked: anybody may take part, so that a share of "
            f"{float(task.honest_fraction):g} of the reports comes from honest "
            f"devices is an assumption; where it fails, {_left_without_honest(assignment)}."
        )
    elif task.admission is Admission.ENROLLED:
        lines.append(
            "Known to the shuffler: which enrolled device takes part. The analyzer does not learn "
            "it."
        )
    else:
        raise ShoalError(Kind.INTERNAL, "this admission has no words for the device's owner")
    linked = (
        memoized.recognised(task, assignment.mechanism)
        if task.memoized and assignment.mechanism is not None
        else None
    )
    if linked is not None:
        lines.append(f"Not promised: that your windows can't be linked: {linked}.")
    if task.memoized:
        same = (
            "The report is"
            if assignment.epsilon_first is None
            else "What the reports are drawn from is"
        )
        lines.append(
            f"Not promised: that a change stays hidden. {same} the same in every window as long as "
            "the value is, so that the value "
            "changed may show, and whoever reads this device's memory can try all answers against "
            "it. Each further value is paid from the "
            "budget of all tasks: when that is used up, and tasks that are not memoized get no "
            "more answers, may show it too."
        )
    return lines
