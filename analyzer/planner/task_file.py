"""A plan as a task file, with the texts, keys and addresses that were told; what was not told says
FILL IN. `shoal task lint` certifies the file at the plan's own epsilon.
"""

from __future__ import annotations

import importlib.resources
import math
import re
import unicodedata
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import tomlkit

from shoal.accounting.meaning import bound_text
from shoal.analyzer.planner.result import Plan
from shoal.domain import AnswerRecord, Categories, Discovery, Domain, Numeric, Places, Vector
from shoal.questions.coordinates import MICRO
from shoal.questions.place_paths import PlacePaths
from shoal.questions.record import all_pairs
from shoal.questions.spelling import readable
from shoal.task import PPM

if TYPE_CHECKING:
    from shoal.analyzer.planner.frontier.option import SeveralOption
    from shoal.secagg import PairwisePlan
    from shoal.task import MechanismSpec

_BLANK = "FILL IN"
_NUMBERED = re.compile(r"category [0-9]+")  # names that a plan for so many categories gives
_NAME_MOST = 40  # characters of a name that is made of a question
_DAY = 86_400
_DELIVERY_DAYS = 6  # beyond a window and its grace: reports may wait so long for the analyzer
_COMMENTS_AT = 36  # column of the template's comments
_PARSED = 1e-6  # of a millionth: what a fraction in binary may lack
_LETTERS = str.maketrans({"ä": "ae", "ö": "oe", "ü": "ue", "ß": "ss", "ø": "o", "ł": "l"})


@dataclass(frozen=True, slots=True)
class Settings:
    """Values for a task file, by table; empty where nothing was told."""

    texts: dict[str, Any] = field(default_factory=dict)
    windows: dict[str, Any] = field(default_factory=dict)
    keys: dict[str, str] = field(default_factory=dict)
    shuffler: dict[str, str] = field(default_factory=dict)

    def fill(self, document: Any) -> None:
        """Put them into a planned task, each without the words that ask for it."""
        if not (self.texts or self.windows or self.keys or self.shuffler):
            return
        windows = document["windows"]
        for table, values in (
            (document, self.texts),
            (windows, {"length_s": int(windows["length_s"]), **self.windows}),
            (document["keys"], self.keys),
            (document["shuffler"], self.shuffler),
        ):
            for key, value in values.items():
                _put(table, key, value)
        if len(self.keys) == len(document["keys"]):
            document["keys"].trivia.comment = "# Ed25519 public keys, 64 hex digits each:"
        labels = document["domain"].get("labels")
        if labels is not None and not any(map(_numbered, labels)):
            document["domain"]["labels"] = tomlkit.value(
                labels.as_string().replace("FILL IN, if these are not the names; ", "")
            )
        if "length_s" not in self.windows:
            return
        length = self.windows["length_s"]
        grace = self.windows.get("grace_s", min(_DAY, length))
        document["retention_s"] = length + grace + _DELIVERY_DAYS * _DAY
        windows["grace_s"] = grace
        windows["skew_s"] = min(int(windows["skew_s"]), length)


def _numbered(label: object) -> bool:
    return isinstance(label, str) and _NUMBERED.fullmatch(label) is not None


def _put(table: Any, key: str, value: Any) -> None:
    item = tomlkit.item(value)
    if key in table:
        said = table[key].trivia.comment.removeprefix("# FILL IN").lstrip(": ")
        table[key] = item
        if said:
            item.comment(said.removeprefix("# "))
            written = len(f"{key} = {item.as_string()}")
            item.trivia.comment_ws = " " * max(2, _COMMENTS_AT - written)
        else:
            item.trivia.comment = item.trivia.comment_ws = ""
    else:
        table.add(key, item)  # tomlkit puts it above the first table


def name_of(question: str) -> str:
    """A task's name from the first words of a text; empty where no letter of it will do."""
    plain = unicodedata.normalize("NFKD", question.lower().translate(_LETTERS))
    words = re.findall(r"[a-z0-9]+", re.sub(r"[\u0300-\u036f'’]", "", plain))
    name = ""
    for word in words:
        longer = f"{name}-{word}" if name else word[:_NAME_MOST]
        if len(longer) > _NAME_MOST:
            break
        name = longer
    return name


_NOTHING_TOLD = Settings()


def task_text(
    plan: Plan,
    length_s: int = 604_800,
    told: Settings = _NOTHING_TOLD,
    several: SeveralOption | None = None,
) -> str:
    """The TOML text. With keys and addresses filled in, `shoal task lint` certifies it at the
    plan's own epsilon. ``length_s``: of a window, if it isn't told. ``several``: what was chosen of
    several messages, in place of the plan's choice.
    """
    request = plan.request
    chosen = _of_plan(plan) if several is None else _of_several(several)
    terms = FileTerms(
        request.n,
        request.min_batch,
        float(request.honest_fraction),
        request.delta,
        request.windows,
        memoized=request.memoized,
    )
    return file_text(chosen, terms, length_s, told)


@dataclass(frozen=True, slots=True)
class FileTerms:
    """What a file says beside its question and mechanism. ``n``: devices it was planned for."""

    n: int
    min_batch: int
    honest_fraction: float
    delta: float
    windows: int
    memoized: bool = False


def file_text(
    chosen: ChosenTask,
    terms: FileTerms,
    length_s: int,
    told: Settings = _NOTHING_TOLD,
    command: str = "shoal plan",
) -> str:
    """The TOML text of what a ``command`` chose."""
    text = (
        importlib.resources.files("shoal.analyzer.planner")
        .joinpath("planned.toml" if chosen.rounds is None else "vectors/planned_sum.toml")
        .read_text("utf-8")
    )
    document: Any = tomlkit.parse(text)
    document |= {
        "min_batch": terms.min_batch,
        "honest_fraction": honest_value(terms.honest_fraction),
        "delta": terms.delta,
        "target_epsilon": tomlkit.value(chosen.target),
    }
    _describe(document["domain"], chosen.domain)
    if chosen.rounds is None:
        document["memoized"] = terms.memoized
        _describe_mechanism(document["mechanism"], chosen)
    else:
        _describe_rounds(document["pairwise"], chosen.spec, chosen.rounds)
    windows = document["windows"]
    windows["start"] = tomlkit.value(datetime.now(UTC).strftime("%Y-%m-%dT00:00:00Z"))
    windows["length_s"] = length_s
    windows["length_s"].trivia.comment_ws = " " * max(1, 25 - len(str(length_s)))
    windows["count"] = terms.windows
    told.fill(document)
    written = document.as_string()
    if written.count(_BLANK) == 1:
        written = written.replace(f"Fill in what says {_BLANK}, check", "Check")
    return (
        f"# Planned by `{command}`: {chosen.title}, for {terms.n} devices, central epsilon <= "
        f"{chosen.together or chosen.target}.\n{written}"
    )


@dataclass(frozen=True, slots=True)
class ChosenTask:
    """What a file says of the mechanism: texts, and the target of one window as it is written.
    ``rounds``: of a sum by secure aggregation, whose noise is ``spec``. ``together``: the target as
    a person reads it, where windows are planned together.
    """

    title: str
    spec: MechanismSpec
    domain: Domain
    target: str
    promise: str = ""
    rounds: PairwisePlan | None = None
    together: str = ""


def _describe_mechanism(table: Any, chosen: ChosenTask) -> None:
    _say(table, f"planned: {chosen.promise}", 25)
    table["name"] = chosen.spec.name
    integers = ", ".join(f"{name} = {value}" for name, value in chosen.spec.parameters)
    table["parameters"] = tomlkit.value(f"{{ {integers} }}")


def _describe_rounds(table: Any, noise: MechanismSpec, rounds: PairwisePlan) -> None:
    table["mode"], table["noise"] = rounds.mode.name.lower(), noise.name
    table["cohort_max"], table["cohort_min"] = rounds.cohort_max, rounds.cohort_min
    table["dropout"] = rounds.dropout_ppm / PPM


def _of_plan(plan: Plan) -> ChosenTask:
    choice, epsilon = plan.choice, plan.request.epsilon
    if choice.spec is None:
        raise TypeError("a choice has its integers")
    return ChosenTask(
        choice.candidate.title,
        choice.spec,
        choice.candidate.domain,
        repr(epsilon) if epsilon is not None else bound_text(choice.epsilon_upper, digits=6),
        promise_of(choice.epsilon0),
    )


def promise_of(epsilon0: float) -> str:
    """What a file says of a mechanism's epsilon0; infinity: it has none."""
    if math.isfinite(epsilon0):
        return f"epsilon0 = {bound_text(epsilon0, digits=6)}"
    return "no epsilon0, so owners have to agree by name"


def _of_several(option: SeveralOption) -> ChosenTask:
    promise = promise_of(option.epsilon0)
    return ChosenTask(option.title, option.spec, option.domain, repr(option.epsilon), promise)


def _say(item: Any, text: str, blanks: int) -> None:
    """Write a comment behind an item, so many blanks away."""
    item.comment(text)
    item.trivia.comment_ws = " " * blanks


def _describe(table: Any, domain: Domain) -> None:
    """Fill the table of a domain, with a line between it and the next one."""
    if isinstance(domain, Categories):
        _describe_categories(table, domain)
    elif isinstance(domain, Numeric):
        levels = tomlkit.item(domain.levels)
        _say(levels, "planned", 2)
        table |= {
            "kind": "numeric",
            "low": domain.low,
            "high": domain.high,
            "levels": levels,
            "clip": domain.clip,
            "unit": domain.unit,
        }
    elif isinstance(domain, Discovery):
        table |= {
            "kind": "discovery",
            "first": domain.first,
            "longest": domain.longest,
            "most": domain.most,
        }
        if domain.fresh:
            table["fresh"] = True
        if isinstance(domain.alphabet, PlacePaths):
            table["places"] = _map(domain.alphabet)
        else:
            table["leave_out"] = [readable(word) for word in domain.known]
    elif isinstance(domain, Places):
        table |= {
            "kind": "places",
            **_box(domain),
            "rows": domain.rows,
            "columns": domain.columns,
        }
    elif isinstance(domain, Vector):
        table |= _vector_values(domain)
    elif isinstance(domain, AnswerRecord):
        _describe_record(table, domain)
    else:
        table["kind"] = "yes_no"
    table.add(tomlkit.nl())


def honest_value(share: float) -> Any:
    """An honest fraction as a file says it: millionths, downward, as plan and task count them. More
    than was planned for would be less noise.
    """
    return tomlkit.value(f"{math.floor(share * PPM + _PARSED) / PPM:.6f}")


def _vector_values(domain: Vector) -> dict[str, Any]:
    """The table of a vector's domain."""
    names = list(domain.names)
    return {
        "kind": "vector",
        **({"names": names} if names else {"dimension": domain.dimension}),
        "norm": domain.norm.name.lower(),
        "clip": domain.clip,
        "unit": domain.unit,
        "grid": domain.grid,
    }


def _box(places: Places) -> dict[str, float]:
    """The bounds of a map in degrees."""
    return {side: getattr(places, side) / MICRO for side in ("south", "west", "north", "east")}


def _map(paths: PlacePaths) -> Any:
    found = tomlkit.inline_table()
    found.update({**_box(paths.box), "across": paths.across})
    return found


def _describe_record(table: Any, record: AnswerRecord) -> None:
    names = [one.name for one in record.attributes]
    table |= {"kind": "record", "together": record.together}
    if record.marginals != all_pairs(len(names)):
        table["marginals"] = [[names[at] for at in marginal] for marginal in record.marginals]
    attributes = tomlkit.aot()
    for one in record.attributes:
        attribute = tomlkit.table()
        attribute |= {"name": one.name, "labels": list(one.answers.names)}
        attributes.append(attribute)
    table["attributes"] = attributes


def _describe_categories(table: Any, domain: Categories) -> None:
    blank = (
        'planned; "no answer" is added by itself'
        if domain.lower_bounds
        else 'FILL IN, if these are not the names; "no answer" is added by itself'
    )
    labels = "".join(f"  {tomlkit.string(name).as_string()},\n" for name in domain.names)
    table |= {"kind": "categories", "labels": tomlkit.value(f"[  # {blank}\n{labels}]")}
    if domain.lower_bounds:
        table["lower_bounds"] = list(domain.lower_bounds)
