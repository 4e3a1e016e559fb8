"""The Planner's form: what was typed, what is wrong with it and what would be right, and the
question that it makes for the planner.

Sliders stand beside two of the fields, on a scale of round numbers. One that was moved (its place
is not the one that the page was made with) counts for more than its field: so it works without
scripts.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction

from shoal.accounting.accountant import LARGEST_EPSILON0
from shoal.accounting.several_messages.messages import LARGEST_EPSILON
from shoal.analyzer.discovery.plan import DiscoveryRequest
from shoal.analyzer.planner.accuracy.answers import request_for
from shoal.analyzer.planner.frontier.maps import MapPlan, MapRequest
from shoal.analyzer.planner.question import Frequencies, Mean, Quantiles, Question, Request, Sum
from shoal.console.operator.planner.places import WAY_NAMES, lacking
from shoal.console.operator.planner.several import ONE
from shoal.console.operator.planner.words import WordsQuestion
from shoal.domain import Categories, Places, YesNo
from shoal.errors import ShoalError
from shoal.limits import LIMITS
from shoal.mechanisms.several.names import NAMES
from shoal.pictures.axes import number
from shoal.questions.coordinates import exact_microdegrees
from shoal.questions.spelling import LETTERS
from shoal.task import SHUFFLER_NOISE

KINDS = {
    "yes_no": "yes or no",
    "categories": "one of several",
    "mean": "a number: its mean",
    "sum": "a number: its sum",
    "quantiles": "a number: its quantiles",
    "words": "a word that nobody has listed",
    "places": "a place on a map",
    "vectors": "a list of numbers",
}
MOST_DEVICES, MOST_ANSWERS, MOST_WINDOWS, MOST_QUANTILES = 100_000_000, 1_000, 1_000, 9
USUAL = {
    "kind": "yes_no",
    "answers": "5",
    "low": "0",
    "high": "100",
    "unit": "",
    "at": "50",
    "n": "10,000",
    "off": "2",
    "of": "percent",
    "most": "50",
    "letters": "8",
    "spare": "2",
    "map": "48, 11.3, 48.3, 11.8",
    "rows": "32",
    "columns": "32",
    "epsilon": "1",
    "way": "",
    "dimension": "16",
    "norm": "l2",
    "clip": "1",
    "learn": "",
    "step": "1",
    "hidden": "16",
    "adaptive": "",
    "lost": "20",
    "not_enrolled": "",
    "one_visit": "",
    "means": "",
    "fresh": "",
    "windows": "1",
    "memoized": "",
    "changes": "0",
    "honest": "90",
    "delta": "1e-8",
    "cap": "",
    "several": "",
    "choose": "",
    "question": "",
    "purpose": "",
    "labels": "",
    "days": "7",
}
# what a task may be written of: "" is what is recommended, ONE the plan of one message
CHOICES = {"": "what is recommended", ONE: "one message per device"} | {
    name: name for name in NAMES if name != SHUFFLER_NOISE
}
_FIRST, _MOST_SPARE = 2, 20  # letters of a word that are asked for first; windows
_GROUPED = re.compile(r"[+-]?[0-9]{1,3}(?:[ ,_'][0-9]{3})+(?:\.[0-9]*)?")
_STEPS = (1.0, 1.5, 2.0, 3.0, 5.0, 7.0)


def _scale(low: float, high: float) -> tuple[float, ...]:
    """Round numbers from ``low`` to ``high``, six in each power of ten."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    values = [float(f"{step * 10.0**power:.2g}") for power in powers for step in _STEPS]
    return tuple(value for value in values if low <= value <= high)


DEVICES = _scale(100, 10_000_000)
SHARES = _scale(0.01, 30)  # percent, of the devices or of a range


@dataclass(frozen=True, slots=True)
class Slider:
    """``at``: its place on ``values``, which are written as they would be typed."""

    values: tuple[str, ...]
    at: int


@dataclass(slots=True)
class PlannerForm:
    """``typed``: by field, as it is shown again. ``wrong``: by field, what would be right."""

    typed: dict[str, str]
    wrong: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, values: Mapping[str, str]) -> PlannerForm:
        """From an address; what it lacks is as usual."""
        form = cls({name: values.get(name, usual) for name, usual in USUAL.items()})
        if form.typed["kind"] not in KINDS:
            form.typed["kind"] = USUAL["kind"]
        form._keep_place(values)
        for name, slider in form.sliders().items():
            at, was = values.get(f"{name}_at", ""), values.get(f"{name}_was", "")
            if at != was and at.isdecimal() and int(at[:4]) < len(slider.values):
                form.typed[name] = slider.values[int(at[:4])]
        return form

    def _keep_place(self, values: Mapping[str, str]) -> None:
        """Where devices are counted now instead of percent, say, the error stays where its slider
        was: on the other scale.
        """
        kind, of = values.get("kind_was", self.kind), values.get("of_was", self.typed["of"])
        before = PlannerForm({**self.typed, "kind": kind, "of": of})
        if kind in KINDS and before._measure() != self._measure():
            at = before.sliders()["off"].at
            self.typed["off"] = self.sliders()["off"].values[at]

    def _measure(self) -> str:
        return self.typed["of"] if self.counted else self.kind

    @property
    def kind(self) -> str:
        """One of ``KINDS``."""
        return self.typed["kind"]

    @property
    def counted(self) -> bool:
        """Whether devices are counted; else a figure of a number is asked."""
        return self.kind in {"yes_no", "categories", "words", "places"}

    def sliders(self) -> dict[str, Slider]:
        """By the field that each stands beside."""
        scale = SHARES
        if not (self.counted and self.typed["of"] == "percent"):
            # what a full share is: of the devices, or of the range
            whole = _plain(self.typed["n"]) or 10_000.0
            if not self.counted:
                low, high = _plain(self.typed["low"]), _plain(self.typed["high"])
                span = (high - low) if low is not None and high is not None else 0.0
                whole = (span if span > 0.0 else 100.0) * (whole if self.kind == "sum" else 1.0)
            scale = tuple(float(f"{share * whole / 100.0:.2g}") for share in SHARES)
        return {
            "n": _beside(DEVICES, self.typed["n"]),
            "off": _beside(scale, self.typed["off"]),
        }

    def number(self, name: str, low: float, high: float, *, whole: bool = False) -> float:
        """A number of the form, from ``low`` to ``high``; nan where it is none, which ``wrong``
        then says.
        """
        value = _plain(self.typed[name])
        if value is None or not low <= value <= high or (whole and value != int(value)):
            kind = "a whole number" if whole else "a number"
            self.wrong[name] = f"give {kind} from {_said(low)} to {_said(high)}"
            return math.nan
        return value

    def words(self) -> WordsQuestion | None:
        """What is asked of words; None where something is wrong, which ``wrong`` says."""
        n = self.number("n", 2, MOST_DEVICES, whole=True)
        letters = self.number("letters", _FIRST + 1, LETTERS.most_length, whole=True)
        spare = self.number("spare", 0, _MOST_SPARE, whole=True)
        wanted = self._off(n)
        honest, delta = self.number("honest", 1, 100), self.number("delta", 1e-30, 0.1)
        if not self.wrong and not 1 <= wanted <= n:
            self.wrong["off"] = "give one device or more, and no more than answer"
        if self.typed["fresh"] not in ("", "yes"):
            self.wrong["fresh"] = "the box is ticked or not: tick it again"
        if self.wrong:
            return None
        asked = DiscoveryRequest(
            int(n), 1.0, delta, honest=Fraction(math.floor(honest * 10_000), 1_000_000),
            first=_FIRST, longest=int(letters), spare=int(spare),
        )  # fmt: skip
        drawing = self._drawing(asked, int(n)) if self.typed["fresh"] else asked
        return None if drawing is None else WordsQuestion(drawing, math.floor(wanted))

    def _drawing(self, asked: DiscoveryRequest, devices: int) -> DiscoveryRequest | None:
        """Where each device answers once; None where too few answer, or too many may lie."""
        name = "n"
        try:
            replace(asked, honest=Fraction(1)).drawing(devices)
            name = "honest"
            return asked.drawing(devices)
        except ShoalError as error:
            self.wrong[name] = error.message
            return None

    def places(self) -> MapRequest | None:
        """What is asked of a map; None where something is wrong, which ``wrong`` says."""
        n = self.number("n", 2, MOST_DEVICES, whole=True)
        epsilon = self.number("epsilon", 0.001, LARGEST_EPSILON)
        windows = self.number("windows", 1, MOST_WINDOWS, whole=True)
        honest, delta = self.number("honest", 1, 100), self.number("delta", 1e-30, 0.1)
        if self.typed["way"] not in WAY_NAMES:
            self.wrong["way"] = "there is no such way: choose one of the list"
        places = self._places()
        if self.wrong or places is None:
            return None
        share = Fraction(math.floor(honest * 10_000), 1_000_000)
        found = MapRequest(places, int(n), epsilon, delta, share, int(windows))
        if found.n_honest < 2:
            self.wrong["honest"] = "two honest devices or more are wanted: give more, or raise n"
            return None
        return found

    def check_way(self, plan: MapPlan) -> None:
        """Say in ``wrong`` what the plan of a map lacks of what was chosen."""
        why = lacking(plan, self.typed["way"])
        if why is not None:
            self.wrong["way"] = why

    def _places(self) -> Places | None:
        """The map and its cells; None where something is wrong, which ``wrong`` says."""
        most = LIMITS.cells - 1
        rows, columns = (self.number(each, 1, most, whole=True) for each in ("rows", "columns"))
        bounds = re.split(r"[,;\s]+", self.typed["map"].strip(" ,;"))
        if len(bounds) != 4:
            self.wrong["map"] = "give south, west, north and east in degrees: 48, 11.3, 48.3, 11.8"
            return None
        try:
            south, west, north, east = map(exact_microdegrees, bounds)
            Places(south, west, north, east, 1, 1)
        except ShoalError as error:
            self.wrong["map"] = str(error)
            return None
        if math.isnan(rows) or math.isnan(columns):
            return None
        try:
            return Places(south, west, north, east, int(rows), int(columns))
        except ShoalError as error:
            self.wrong["rows"] = str(error)
            return None

    def request(self) -> Request | None:
        """What the planner is asked; None where something is wrong, which ``wrong`` says."""
        n = self.number("n", 2, MOST_DEVICES, whole=True)
        question = self._question()
        off = self._off(n)
        windows = self.number("windows", 1, MOST_WINDOWS, whole=True)
        honest = self.number("honest", 1, 100)
        delta = self.number("delta", 1e-30, 0.1)
        changes = self._changes(windows)
        cap = self.number("cap", 0.01, LARGEST_EPSILON0) if self.typed["cap"].strip() else None
        self._check_several()
        if self.wrong or question is None:
            return None
        try:
            return request_for(
                question,
                int(n),
                off,
                delta,
                Fraction(math.floor(honest * 10_000), 1_000_000),
                int(windows),
                LARGEST_EPSILON0 if cap is None else cap,
                memoized=self.memoized,
                changes=int(changes),
            )
        except ShoalError as error:
            self.wrong["off" if "error" in str(error) else "n"] = self._plainly(str(error), off)
            return None

    @property
    def memoized(self) -> bool:
        """Whether devices keep an answer and repeat it."""
        return bool(self.typed["memoized"])

    @property
    def several(self) -> bool:
        """Whether several messages per device are compared too."""
        return bool(self.typed["several"])

    def _check_several(self) -> None:
        """What they can't be planned for, in ``wrong``."""
        choose = self.typed["choose"]
        if choose == SHUFFLER_NOISE:
            self.wrong["choose"] = (
                f"{SHUFFLER_NOISE} trusts the shuffler for the noise: a task gets it by its name "
                "alone, so choose another line"
            )
        elif choose not in CHOICES:
            self.wrong["choose"] = "there is no such mechanism: choose one of the list"
        elif choose and not self.several:
            self.wrong["choose"] = (
                "tick several messages per device too, or choose what is recommended"
            )
        if self.typed["several"] not in ("", "yes"):
            self.wrong["several"] = "the box is ticked or not: tick it again"
        elif self.several and self.memoized:
            self.wrong["several"] = "no device repeats them: untick this, or Memoized under More"
        elif self.several and self.typed["cap"].strip():
            self.wrong["several"] = (
                "they have no epsilon0 that could be limited: untick this, or empty the largest "
                "epsilon0 that devices accept"
            )

    def _changes(self, windows: float) -> float:
        """How often a device's value changes between the windows of a memoized question; else 0."""
        if not self.memoized or math.isnan(windows):
            return 0.0
        if windows < 2:
            self.wrong["windows"] = "give 2 or more: what is asked once is never repeated"
            return 0.0
        return self.number("changes", 0, windows - 1, whole=True)

    def _at(self) -> tuple[float, ...] | None:
        """Shares of the devices, ascending; None where something is wrong, which ``wrong`` says."""
        values = [_plain(each) for each in re.split(r"[,;\s]+", self.typed["at"].strip(" ,;%"))]
        shares = sorted({value for value in values if value is not None and 0.1 <= value <= 99.9})
        if len(shares) != len(values) or len(shares) > MOST_QUANTILES:
            self.wrong["at"] = (
                f"give 1 to {MOST_QUANTILES} different numbers from 0.1 to 99.9, for example 25, 50"
            )
            return None
        return tuple(share / 100.0 for share in shares)

    def _plainly(self, text: str, off: float) -> str:
        if "asks nothing" in text:
            return f"a figure that may be off by {number(off)} needs no answers at all: give less"
        return text

    def _question(self) -> Question | None:
        if self.kind == "yes_no":
            return Frequencies(YesNo(), heavy=1.0)
        if self.kind == "categories":
            answers = self.number("answers", 2, MOST_ANSWERS, whole=True)
            most = self.number("most", 0.1, 100)
            if math.isnan(answers) or math.isnan(most):
                return None
            least = 100.0 / (answers + 1)
            if most < least:
                self.wrong["most"] = (
                    f"one of {answers + 1:.0f} has {least:.3g} % at least: give more"
                )
                return None
            return Frequencies(names(int(answers)), heavy=most / 100.0)
        low, high = self.number("low", -1e15, 1e15), self.number("high", -1e15, 1e15)
        if math.isnan(low) or math.isnan(high):
            return None
        if not high - low >= 1e-9:
            self.wrong["high"] = f"give a number above {number(low)}, the smallest value"
            return None
        if len(self.typed["unit"]) > 40 or not self.typed["unit"].isprintable():
            self.wrong["unit"] = "give at most 40 letters"
            return None
        unit = self.typed["unit"].strip()
        if self.kind == "quantiles":
            at = self._at()
            return None if at is None else Quantiles(low, high, at, unit=unit)
        return (Mean if self.kind == "mean" else Sum)(low, high, unit=unit)

    def _off(self, n: float) -> float:
        """How far off a figure may be, in its own unit."""
        if self.counted and self.typed["of"] == "percent":
            return self.number("off", 0.0001, 50) / 100.0 * n
        return self.number("off", 1e-9, 1e18)


def names(count: int) -> Categories:
    """So many answers whose names don't matter yet."""
    return Categories(tuple(f"category {i + 1}" for i in range(count)))


def _plain(text: str) -> float | None:
    """A number as people type it: 10,000 or 2 % or 1e-8; None for anything else, 2,5 too."""
    text = text.strip().removesuffix("%").strip()
    if _GROUPED.fullmatch(text):
        text = re.sub(r"[ ,_']", "", text)
    if not re.fullmatch(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?", text):
        return None
    value = float(text)
    return value if math.isfinite(value) else None


def _said(value: float) -> str:
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e15 else f"{value:g}"


def _beside(values: tuple[float, ...], typed: str) -> Slider:
    """At the round number that is next to what was typed."""
    value = _plain(typed)
    at = len(values) // 2 if value is None else min(bisect_left(values, value), len(values) - 1)
    return Slider(tuple(_typed(each) for each in values), at)


def _typed(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.10g}"
