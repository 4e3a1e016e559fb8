"""The owner's rules for values: coarsening and redaction, on the device, before anything is encoded
or randomized. Pure.

A rule belongs to a task by name or to all tasks of a purpose. What it does, in this order:
``redact``, ``redact_below`` and ``redact_above`` (no answer), ``replace``, ``round_to``,
``at_least`` and ``at_most``. Rules run one after the other as they are written, a fleet's after the
owner's; each sees what the one before it left. A rule that does not fit the value's type gives no
answer: the raw value never passes a rule that could not be followed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from types import MappingProxyType
from typing import Any, TypeVar

from shoal.clients.settings.toml_tables import TomlTable
from shoal.domain import NO_ANSWER, Categories, Domain, Numeric, Value, Vector, YesNo
from shoal.errors import Kind, ShoalError
from shoal.questions.answers import number_of, yes_or_no
from shoal.task import Task

Number = int | float
_MOST_RULES = 1_000
_MOST_ITEMS = 1_000  # of one rule's ``redact`` or ``replace``
_MOST_BITS = 4_096  # of an integer that is written as text
_NUMBERS = ("round_to", "at_least", "at_most", "redact_below", "redact_above")
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class Rule:
    """What happens to the values of one ``task`` (by name) or of one ``purpose`` (its exact words);
    exactly one of the two.

    ``round_to``: down to a multiple, above 0. ``at_least``, ``at_most``: numbers beyond are moved
    there. ``replace``: texts, or labels of the question, by others. ``redact``: texts, labels or
    numbers that get no answer. ``redact_below``, ``redact_above``: numbers strictly beyond get no
    answer. ``fleet``: from the fleet's file. Raises CONFIG naming the key.
    """

    task: str = ""
    purpose: str = ""
    round_to: Number | None = None
    at_least: Number | None = None
    at_most: Number | None = None
    replace: Mapping[str, str] = field(default_factory=dict)
    redact: tuple[str | Number, ...] = ()
    redact_below: Number | None = None
    redact_above: Number | None = None
    fleet: bool = False

    def __post_init__(self) -> None:
        if bool(self.task) == bool(self.purpose):
            raise _bad(
                "task", 'each rule names either a task = "its name" or a purpose = "its words"'
            )
        for key in _NUMBERS:
            value = getattr(self, key)
            if value is not None and (
                isinstance(value, bool) or not isinstance(value, int | float) or not _finite(value)
            ):
                raise _bad(key, "must be a number")
        if self.round_to is not None and not self.round_to > 0:
            raise _bad("round_to", "a number above 0: values are rounded down to a multiple of it")
        if self.at_least is not None and self.at_most is not None and self.at_least > self.at_most:
            raise _bad("at_most", "not below at_least")
        if len(self.redact) > _MOST_ITEMS or len(self.replace) > _MOST_ITEMS:
            raise _bad(
                "redact" if len(self.redact) > _MOST_ITEMS else "replace",
                f"at most {_MOST_ITEMS} entries",
            )
        if not all(
            isinstance(value, str | int | float) and not isinstance(value, bool)
            for value in self.redact
        ):
            raise _bad("redact", 'a list of texts and numbers; of a yes/no question "yes" or "no"')
        if not all(
            isinstance(old, str) and isinstance(new, str) for old, new in self.replace.items()
        ):
            raise _bad("replace", 'a table of texts, as in { "flu" = "other" }')
        if not (
            self.redact or self.replace or any(getattr(self, key) is not None for key in _NUMBERS)
        ):
            raise _bad(
                "redact",
                "the rule does nothing: give it one of "
                f"{', '.join((*_NUMBERS, 'replace', 'redact'))}",
            )
        object.__setattr__(self, "replace", MappingProxyType(dict(self.replace)))

    def __hash__(self) -> int:
        return hash(
            (
                self.task,
                self.purpose,
                self.redact,
                tuple(sorted(self.replace.items())),
                *(getattr(self, key) for key in _NUMBERS),
            )
        )

    def concerns(self, task: Task) -> bool:
        """Whether this rule gives the value of that task."""
        return task.name == self.task if self.task else task.purpose == self.purpose


def apply(rules: Iterable[Rule], task: Task, value: V) -> V | Value:
    """The value as the rules leave it, None for no answer. Without a rule for this task it is
    returned as it came.

    Call it before ``domain.encode``. A vector that a rule concerns becomes None too, which is
    summed as zero: rules are for single answers.
    """
    mine = [rule for rule in rules if rule.concerns(task)]
    if not mine:
        return value
    if isinstance(task.domain, Vector) or not isinstance(value, bool | int | float | str):
        return None
    left: Value = value
    for rule in mine:
        if left is not None:
            left = _follow(rule, task.domain, left)
    return left


def _follow(rule: Rule, domain: Domain, value: bool | int | float | str) -> Value:
    """What one rule makes of a value."""
    if any(_same(entry, value, domain) for entry in rule.redact):
        return None
    if rule.redact_below is not None or rule.redact_above is not None:
        number = _number(value)
        if number is None or (rule.redact_below is not None and number < rule.redact_below):
            return None
        if rule.redact_above is not None and number > rule.redact_above:
            return None
    if rule.replace:
        if isinstance(domain, Numeric):
            return None  # texts of a question that has none: a rule for something else
        value = next(
            (
                _answer(new, domain)
                for old, new in rule.replace.items()
                if _same(old, value, domain)
            ),
            value,
        )
    if rule.round_to is None and rule.at_least is None and rule.at_most is None:
        return value
    number = _number(value)
    if number is not None and rule.round_to is not None:
        number = _down(number, rule.round_to)
    if number is not None and rule.at_least is not None:
        number = max(number, rule.at_least)
    if number is not None and rule.at_most is not None:
        number = min(number, rule.at_most)
    return number


def settle(rules: Iterable[Rule], task: Task, value: Value, otherwise: str | None) -> Value:
    """What a value becomes under the rules, if it, or what they make of it, is an answer to the
    question.

    What is none is refused where somebody typed it (``otherwise`` None), and is ``otherwise`` where
    a device reads it by itself: NO_ANSWER, or a text that is an answer. Raises INVALID with the
    answers that are accepted; never quotes the value.
    """
    ruled, domain = apply(rules, task, value), task.domain
    if value is None or domain.understands(ruled) or (ruled is None and domain.understands(value)):
        return ruled
    if otherwise is None:
        raise ShoalError(
            Kind.INVALID,
            f"this is no answer to task {task.name}, and nothing was charged or sent: give "
            f"{domain.accepted}",
        )
    return otherwise if domain.understands(otherwise) and otherwise != NO_ANSWER else None


def _same(entry: str | Number, value: bool | int | float | str, domain: Domain) -> bool:
    """Equal as a text (case and spaces around it don't matter), as a number, or as the label of the
    cell that the value falls into.
    """
    wanted = _text(entry).strip().casefold()
    if wanted in {_text(value).strip().casefold(), _label(value, domain).casefold()}:
        return True
    left, right = _number(entry), _number(int(value) if isinstance(value, bool) else value)
    return left is not None and left == right


def _text(value: bool | int | float | str) -> str:
    """Python writes no decimals of very long integers (it raises): those are told apart as numbers,
    and by their hexadecimals.
    """
    return hex(value) if isinstance(value, int) and value.bit_length() > _MOST_BITS else str(value)


def _label(value: bool | int | float | str, domain: Domain) -> str:
    """The label of a value that is an answer to the question; "" for one that isn't, and where
    cells are drawn at random.
    """
    if isinstance(domain, Categories):
        cell = domain.encode(value)
        return domain.names[cell] if cell < len(domain.names) else ""
    if isinstance(domain, YesNo):
        # Not by its cell: "no" stands for every unreadable value too, and those are no answer that
        # a rule could name.
        said = yes_or_no(value)
        return "" if said is None else "yes" if said else "no"
    return ""


def _answer(text: str, domain: Domain) -> str | Number:
    """What to answer so that the label ``text`` is counted: of ranges of numbers, where it
    begins.
    """
    if isinstance(domain, Categories) and domain.lower_bounds and text in domain.names:
        return domain.lower_bounds[domain.names.index(text)]
    return text


def _number(value: bool | int | float | str) -> Number | None:
    """A finite number, read as the domain reads it; None for a text that is none, and for yes and
    no.
    """
    return None if isinstance(value, bool) else number_of(value)


def _down(number: Number, step: Number) -> Number | None:
    """The largest multiple of ``step`` that is not above ``number``, computed in the decimals that
    people wrote.
    """
    exact = _exact(step)
    multiple = math.floor(_exact(number) / exact) * exact
    if multiple.denominator == 1:
        return int(multiple)
    try:
        return float(multiple)
    except OverflowError:
        return None


def _exact(number: Number) -> Fraction:
    """0.3 is three tenths, not the binary number next to it."""
    return Fraction(number) if isinstance(number, int) else Fraction(repr(number))


def describe(rule: Rule) -> str:
    """One line for the owner: whose values, and what becomes of them, in the order in which it
    happens.
    """
    parts = []
    gone = [*(f'"{value}"' if isinstance(value, str) else f"{value}" for value in rule.redact)]
    gone += [f"below {rule.redact_below}"] if rule.redact_below is not None else []
    gone += [f"above {rule.redact_above}"] if rule.redact_above is not None else []
    if gone:
        parts.append(f"no answer for {', '.join(gone)}")
    parts += [f'"{old}" becomes "{new}"' for old, new in rule.replace.items()]
    if rule.round_to is not None:
        parts.append(f"rounded down to a multiple of {rule.round_to}")
    if rule.at_least is not None:
        parts.append(f"at least {rule.at_least}")
    if rule.at_most is not None:
        parts.append(f"at most {rule.at_most}")
    whose = f"task {rule.task}" if rule.task else f'purpose "{rule.purpose}"'
    return f"{whose}{' (by the fleet)' if rule.fleet else ''}: {'; '.join(parts)}"


def rules_from(tables: Sequence[Any], *, fleet: bool = False) -> tuple[Rule, ...]:
    """The rules of a configuration file's [[rules]], in its order. Raises CONFIG naming rule (from
    1) and key.
    """
    if len(tables) > _MOST_RULES:
        raise ShoalError(Kind.CONFIG, f"rules: at most {_MOST_RULES}")
    return tuple(_rule(number, values, fleet) for number, values in enumerate(tables, 1))


def _rule(number: int, values: Any, fleet: bool) -> Rule:
    if not isinstance(values, dict):
        raise ShoalError(Kind.CONFIG, "rules: must be tables: write [[rules]] above each")
    table = TomlTable(f"rules[{number}]", values)
    fields: dict[str, Any] = {key: table.take(key, str, "") for key in ("task", "purpose")}
    fields |= {key: table.exact_number(key) for key in _NUMBERS}
    fields |= {
        "replace": table.take("replace", dict, {}),
        "redact": tuple(table.take("redact", list, [])),
    }
    table.end()
    try:
        return Rule(**fields, fleet=fleet)
    except ShoalError as error:
        raise ShoalError(Kind.CONFIG, f"rules[{number}].{error}") from None


def _finite(value: Number) -> bool:
    return isinstance(value, int) or math.isfinite(value)


def _bad(key: str, why: str) -> ShoalError:
    return ShoalError(Kind.CONFIG, f"{key}: {why}")
