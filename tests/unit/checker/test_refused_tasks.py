"""What no device answers is confirmed by nobody: tasks of every kind, changed in every number, as
the checker and as the rest of Shoal judge them.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache

from shoal import codec
from shoal.accounting.composition.memoized import check_memoized
from shoal.accounting.of_task import guarantee_of
from shoal.accounting.several_messages.of_domain import design_several
from shoal.checker.check import check_releases
from shoal.checker.findings import Outcome
from shoal.checker.promise import decided, honest_of, law_of_task
from shoal.checker.questions.domains import answers_of
from shoal.checker.questions.shapes import _KNOWN
from shoal.checker.questions.terms import answered
from shoal.domain import (
    AnswerRecord,
    Categories,
    Discovery,
    Domain,
    Norm,
    Numeric,
    Places,
    Vector,
    Words,
    YesNo,
)
from shoal.errors import ShoalError
from shoal.mechanisms import design
from shoal.mechanisms.several.protocol import Several
from shoal.mechanisms.several.registry import check_shape, create_any
from shoal.mechanisms.vectors.privunit import design_at
from shoal.mechanisms.vectors.protocol import VectorRandomizer
from shoal.protos import task_pb2
from shoal.questions.domain_codec import encode_domain
from shoal.questions.place_paths import PlacePaths
from shoal.questions.record import Attribute, all_pairs
from shoal.task import MechanismSpec, Task
from tests.cases import for_each
from tests.sizes import FULL
from tests.unit.checker.test_steps import MAP as MAP_WORLD
from tests.unit.checker.test_steps import WORLD, _played_on_a_map, files
from tests.worlds.mutations import mutated
from tests.worlds.release_files import File, task_anew
from tests.worlds.tasks import TASK, shaped

HONEST, DELTA = 400, 1e-6
COLOURS = Categories(("red", "green", "blue"))
BINS = Categories(("few", "some", "many", "most"), (0, 1, 5, 9))
LEVELS = Numeric(0.0, 20.0, 5, unit="visits")
MAP = Places(48_000_000, 11_300_000, 48_300_000, 11_800_000, 4, 5)
BOX = Places(48_000_000, 11_300_000, 48_300_000, 11_800_000, 1, 1)
PARTS = (Attribute("age", Categories(("young", "old"), (0, 40))), Attribute("sex", COLOURS))
DRAWN = AnswerRecord(PARTS, ((0, 1), (1,)))
TOGETHER = AnswerRecord(PARTS, ((0,), (0, 1)), together=True)
WORDS_ASKED = Discovery(first=1, longest=3, most=4, known=(b"\x00\x01\x02",))
ANEW = Discovery(first=1, longest=2, most=3, fresh=True)
PLACES_ASKED = Discovery(first=1, longest=3, most=4, alphabet=PlacePaths(BOX, 2))
VECTOR = Vector(3, Norm.L2, 1.0, 1 << 16)

KINDS: dict[str, tuple[str, Domain]] = {
    "binary_rr": ("binary_rr", YesNo()),
    "krr": ("krr", COLOURS),
    "krr of a record": ("krr", DRAWN),
    "krr of a map": ("krr", MAP),
    "kmean": ("kmean", LEVELS),
    "one_bit_mean": ("one_bit_mean", LEVELS),
    "piecewise": ("piecewise", LEVELS),
    "hadamard": ("hadamard", COLOURS),
    "unary": ("unary", BINS),
    "subset": ("subset", LEVELS),
    "projective": ("projective", MAP),
    "privunit": ("privunit", VECTOR),
    "dummies": ("dummies", COLOURS),
    "dummies of words": ("dummies", WORDS_ASKED),
    "dummies of words, once": ("dummies", ANEW),
    "dummies of places": ("dummies", PLACES_ASKED),
    "ranges": ("ranges", LEVELS),
    "ranges of bins": ("ranges", BINS),
    "marginals": ("marginals", TOGETHER),
    "blocks": ("blocks", MAP),
}


def spec_of(name: str, domain: Domain) -> MechanismSpec:
    if name == "privunit":
        return design_at(64, domain, 1.0)
    if "slots" in _KNOWN[name].integers:
        return design_several(name, domain, HONEST, 2.0, DELTA, windows=1)
    return design(name, domain, 1.0)


@cache
def valid(kind: str) -> task_pb2.Task:
    name, domain = KINDS[kind]
    made = shaped(
        spec_of(name, domain),
        domain,
        min_batch=HONEST + 40,
        honest_fraction_ppm=910_000,
        delta=DELTA,
        target_epsilon=3.0,
    )
    return task_pb2.Task.FromString(codec.encode_task(made))


def judged(data: bytes) -> Task | str:
    """As devices and services judge these bytes: why they refuse them, or the task."""
    try:
        task = codec.decode_task(data)
        made = create_any(task.mechanism, task.domain)
        check_shape(task, made)
        if not isinstance(made, Several | VectorRandomizer):
            check_memoized(task, made)
    except ShoalError as error:
        return str(error)
    return task


def promised(task: Task) -> tuple[float, float] | None:
    """(lower, upper) end of epsilon, as the accountant has it; None where it promises nothing."""
    bare = replace(
        TASK,
        domain=task.domain,
        mechanism=task.mechanism,
        min_batch=task.min_batch,
        honest_fraction_ppm=task.honest_fraction_ppm,
        delta=task.delta,
    )
    return _promised(bare)


@cache
def _promised(bare: Task) -> tuple[float, float] | None:
    try:
        found = guarantee_of(bare)
    except ShoalError:
        return None
    return found.epsilon_lower, found.epsilon_upper


@for_each("kind", KINDS)
def test_a_task_that_is_changed_in_one_number_is_judged_alike(kind: str) -> None:
    """Every number and every part of it, by itself. What devices, services or the accountant refuse
    has no law here; what they take has the same one as ever.

    Planted: any rule left out -> the changes that break it have a law, fails; k compared with one
    more than there are answers -> the task itself is refused.
    """
    base = valid(kind)
    assert answered(base).outcome is Outcome.HOLDS
    for name, data in mutated(base):
        theirs = judged(data)
        changed = task_pb2.Task.FromString(data)
        law = law_of_task(changed)
        if isinstance(theirs, str):
            assert isinstance(law, str), (name, theirs)
        elif not isinstance(law, str):
            assert answered(changed).outcome is Outcome.HOLDS, name
        else:
            assert promised(theirs) is None, (name, law)


CHEAP = ("one_bit_mean", "dummies", "dummies of words")


@for_each("kind", list(KINDS) if FULL else CHEAP)
def test_less_than_the_accountant_proves_to_be_too_little_is_never_confirmed(kind: str) -> None:
    """Of every change that is no nonsense: one per mille below the lower end of epsilon, or the
    task's target where nothing is proven.

    Planted: of the task as it was, the law taken for that of each change; the honest of a batch
    that is five larger; noise that is shared over more devices than are honest -> fails.
    """
    looked_at = 0
    for name, data in mutated(valid(kind)):
        theirs, changed = judged(data), task_pb2.Task.FromString(data)
        law = law_of_task(changed)
        if isinstance(theirs, str) or isinstance(law, str):
            continue
        found = promised(theirs)
        least = changed.target_epsilon if found is None else found[0] * 0.999
        if least > 0:
            honest = honest_of(changed, changed.min_batch)
            decision = decided(law, honest, least, changed.delta)
            assert decision.outcome is not Outcome.HOLDS, (name, found, decision)
            looked_at += 1
    assert looked_at or kind == "krr of a record"


@for_each("kind", KINDS)
def test_a_mechanism_of_another_question_is_judged_alike(kind: str) -> None:
    """The mechanism and the reports of each kind under the question of every other one, with k as
    it was and as it fits.

    Planted: kinds of questions not looked at; a record that is answered in one table taken for one
    that is answered in all -> fails.
    """
    for other in KINDS.values():
        changed = task_pb2.Task.FromString(valid(kind).SerializeToString())
        changed.domain.CopyFrom(encode_domain(other[1]))
        for _ in range(2):
            theirs = judged(changed.SerializeToString(deterministic=True))
            assert isinstance(law_of_task(changed), str) == isinstance(theirs, str), theirs
            for one in changed.mechanism.parameters:
                if one.name == "k":
                    one.value = answers_of(changed.domain)


QUESTIONS: dict[str, Domain] = {
    "words of an open vocabulary": Words(("flu", "cold")),
    "three letters at first": Discovery(first=2, longest=2, most=1),
    "many letters": Discovery(first=1, longest=32, most=2_000),
    "few to follow": Discovery(first=1, longest=2, most=500),
    "no more than begin": Discovery(first=2, longest=3, most=30),
    "sixteen parts": Discovery(first=2, longest=3, most=17, alphabet=PlacePaths(BOX, 4)),
    "four parts": Discovery(first=1, longest=2, most=9, alphabet=PlacePaths(BOX, 2)),
    "all pairs": AnswerRecord((*PARTS, Attribute("no", BINS)), all_pairs(3), together=True),
    **{kind: domain for kind, (_, domain) in KINDS.items()},
}


@for_each("name", QUESTIONS)
def test_answers_are_counted_as_devices_count_them(name: str) -> None:
    """Planted: "no answer" left out; a word's end taken for a letter at level 0; ``most`` taken
    where fewer beginnings there are -> fails.
    """
    domain = QUESTIONS[name]
    cells = domain.cells if isinstance(domain, AnswerRecord) else domain.size
    assert answers_of(encode_domain(domain)) == cells


def _set(field: str, value: object) -> Callable[[task_pb2.Task], object]:
    def change(task: task_pb2.Task) -> None:
        message: object = task
        *path, last = field.split(".")
        for name in path:
            message = getattr(message, name)
        setattr(message, last, value)

    return change


def _integer(name: str, value: int) -> Callable[[task_pb2.Task], object]:
    def change(task: task_pb2.Task) -> None:
        for one in task.mechanism.parameters:
            if one.name == name:
                one.value = value

    return change


def _slots(slots: int, k: int) -> Callable[[task_pb2.Task], object]:
    def change(task: task_pb2.Task) -> None:
        _integer("slots", slots)(task)
        _integer("k", k)(task)
        task.messages = slots

    return change


def _again(task: task_pb2.Task) -> None:
    """The last one counts, for whoever reads a list as a table."""
    task.mechanism.parameters.add(name="k", value=2)


LIES: dict[str, Callable[[task_pb2.Task], object]] = {
    "twice as many honest as there are": _set("honest_fraction_ppm", 2_000_000),
    "nobody honest": _set("honest_fraction_ppm", 0),
    "integers of fewer answers": _slots(12, 2),
    "more to follow than answers": _set("domain.discovery.most", 2_000),
    "a question of more letters": _set("domain.discovery.first", 2),
    "an integer twice": _again,
    "repeated": _set("memoized", True),
    "no report": _set("reports_per_device", 0),
    "several reports": _set("reports_per_device", 2),
    "one device": _set("min_batch", 1),
    "no delta": _set("delta", 0.0),
    "every delta": _set("delta", 1.0),
    "no end of epsilon": _set("target_epsilon", float("inf")),
    "all messages of each": _set("fewest_messages", 0),
    "wide messages": _set("report_size", 9),
    "clocks of two windows": _set("windows.skew_s", 1 << 20),
    "sums without rounds": _set("aggregator", task_pb2.AGGREGATOR_PAIRWISE),
}


def _found(file: File, authority: bytes) -> tuple[Outcome, dict[str, Outcome]]:
    (check,) = check_releases([json.dumps(file).encode()], [authority])
    return check.outcome, {one.what: one.outcome for one in check.checked}


def test_a_task_that_is_signed_anew_holds_as_before() -> None:
    """Else the lies below would be caught for want of a signature."""
    file = files()[0]
    task_anew(file, WORLD, lambda task: setattr(task, "salt", bytes(16)))
    outcome, _ = _found(file, WORLD.authority.public)
    assert outcome is Outcome.HOLDS


@for_each("name", LIES)
def test_a_release_of_a_task_that_no_device_answers_does_not_hold(name: str) -> None:
    """Whole, and signed by all that it names. Planted: no rules at all -> ten of them hold."""
    file = files()[0]
    task_anew(file, WORLD, LIES[name])
    outcome, said = _found(file, WORLD.authority.public)
    assert outcome is not Outcome.HOLDS
    assert said["epsilon: what the release promises"] is not Outcome.HOLDS
    assert said["the task is one that devices answer"] is Outcome.WRONG


def test_a_map_about_which_devices_answer_once_does_not_hold() -> None:
    """Planted: ``fresh`` taken for one window's epsilon, of maps too -> holds, fails."""
    file = copy.deepcopy(_played_on_a_map()[0])
    task_anew(file, MAP_WORLD, _set("domain.discovery.fresh", True))
    outcome, said = _found(file, MAP_WORLD.authority.public)
    assert outcome is Outcome.WRONG
    assert said["epsilon of all windows of the discovery, together"] is not Outcome.HOLDS
