"""The keys of a task file: their types, ranges and defaults. A key that is none of them is a
mistake.

``shoal task new`` writes a sample in which every key is explained.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields
from datetime import datetime
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError

from shoal.crypto.suites import SuiteId
from shoal.domain import Norm
from shoal.errors import Kind, ShoalError
from shoal.secagg import Mode, PairwisePlan
from shoal.services.validation import first_mistake
from shoal.task import Admission

SUITES = {
    "x25519-aes128": SuiteId.X25519_AES128,
    "x25519-chacha20": SuiteId.X25519_CHACHA20,
    "mlkem768-x25519-aes128": SuiteId.MLKEM768_X25519_AES128,
}
ADMISSIONS = {"open": Admission.OPEN, "enrolled": Admission.ENROLLED}
NORMS = {"l1": Norm.L1, "l2": Norm.L2, "coordinate": Norm.COORDINATE}
# Seconds that a phase takes unless told otherwise.
_PHASES: Mapping[str, Any] = {field.name: field.default for field in fields(PairwisePlan)}
MODES = {"default": Mode.DEFAULT, "strict": Mode.STRICT, "helper": Mode.HELPER}


def _one_of(words: Iterable[str]) -> AfterValidator:
    def check(value: str) -> str:
        if value not in words:
            raise ValueError(f"one of {', '.join(words)}")
        return value

    return AfterValidator(check)


def _fraction(value: float) -> float:
    if not 0 < value <= 1:
        raise ValueError("above 0 and at most 1")
    return value


def _dropout(value: float) -> float:
    if not 0 <= value < 1:
        raise ValueError("at least 0 and below 1")
    return value


def _with_zone(value: datetime) -> datetime:
    if value.tzinfo is None:
        raise ValueError("give a time zone, for example 2026-01-01T00:00:00Z")
    return value


def _vector(kind: str) -> str:
    if kind != "vector":
        raise ValueError('with aggregator = "pairwise" it is "vector"')
    return kind


class TaskFileTable(BaseModel):
    """A table of a task file. No text is taken for a number, and no number for true."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class WindowsTable(TaskFileTable):
    """When the task is asked; seconds."""

    start: Annotated[datetime, AfterValidator(_with_zone)]
    length_s: int
    count: int
    grace_s: int = 0
    skew_s: int = 0


class KeysTable(TaskFileTable):
    """Ed25519 public keys, 64 hex digits each."""

    key_authority: str
    shuffler: str
    analyzer: str
    enrolment: str = ""


class ShufflerTable(TaskFileTable):
    """Where devices submit, and the PEM file that certifies it."""

    address: str
    ca: str


class YesNoTable(TaskFileTable):
    """A question with two answers."""

    kind: str


class CategoriesTable(TaskFileTable):
    """Answers by name, or intervals of a number."""

    kind: str
    labels: list[str]
    lower_bounds: list[int] = []


class NumericTable(TaskFileTable):
    """A number between ``low`` and ``high``, rounded to one of so many levels."""

    kind: str
    low: float
    high: float
    levels: int
    clip: bool = True
    unit: str = ""


class WordsTable(TaskFileTable):
    """Any text; ``labels`` are the words that are counted."""

    kind: str
    labels: list[str]


class MapTable(TaskFileTable):
    """The box of a map that is looked at part by part, in degrees, and how its parts are cut."""

    south: float
    west: float
    north: float
    east: float
    across: int = 4


class DiscoveryTable(TaskFileTable):
    """Words that nobody listed, or places. ``leave_out``: words that are known already;
    ``fresh``: each device answers in one window alone, drawn by itself.
    """

    kind: str
    first: int = 2
    longest: int = 11
    most: int
    leave_out: list[str] = []
    fresh: bool = False
    places: MapTable | None = None


class AttributeTable(TaskFileTable):
    """One attribute of a record: its answers, as those of categories."""

    name: str
    labels: list[str]
    lower_bounds: list[int] = []


class RecordTable(TaskFileTable):
    """Several answers together, and of which of them tables are made: all pairs unless told."""

    kind: str
    attributes: list[AttributeTable]
    marginals: list[list[str]] | None = None
    together: bool = False


class PlacesTable(TaskFileTable):
    """A map: a box in degrees, in rows and columns."""

    kind: str
    south: float
    west: float
    north: float
    east: float
    rows: int
    columns: int


class VectorTable(TaskFileTable):
    """A vector that is clipped in a norm, and summed or randomized."""

    kind: Annotated[str, AfterValidator(_vector)]
    dimension: int | None = None
    names: list[str] = []
    layout: list[str] = []
    norm: Annotated[str, _one_of(NORMS)]
    clip: float
    grid: int | None = None
    unit: str = ""


class MechanismTable(TaskFileTable):
    """The randomizer, by a local epsilon or by its integers."""

    name: str
    epsilon0: float | None = None
    setting: str = ""
    epsilon0_if_colluding: float | None = None
    parameters: dict[str, int] | None = None


class PairwiseTable(TaskFileTable):
    """Rounds of secure aggregation: devices of one, the share of them that may be lost, and the
    seconds of its phases.
    """

    mode: Annotated[str, _one_of(MODES)] = "default"
    noise: str | None = None
    cohort_max: int
    cohort_min: int | None = None
    dropout: Annotated[float, AfterValidator(_dropout)] = 0.2
    join_s: int = _PHASES["join_s"]
    share_s: int = _PHASES["share_s"]
    mask_s: int = _PHASES["mask_s"]
    unmask_s: int = _PHASES["unmask_s"]


class TaskFile(TaskFileTable):
    """What a task of either kind says."""

    name: str
    purpose: str
    question: str
    min_batch: int
    max_batch: int = 0
    honest_fraction: Annotated[float, AfterValidator(_fraction)] = 1.0
    delta: float
    target_epsilon: float
    retention_s: int
    aggregator: Annotated[str, _one_of(("shuffled", "pairwise"))] = "shuffled"
    memoized: bool = False
    admission: Annotated[str, _one_of(ADMISSIONS)] = "open"
    suite: Annotated[str, _one_of(SUITES)] = "x25519-aes128"
    windows: WindowsTable
    keys: KeysTable
    shuffler: ShufflerTable


class ShuffledTaskFile(TaskFile):
    """A task whose reports are shuffled. ``domain``: what ``DOMAINS`` has for its kind."""

    domain: dict[str, Any]
    mechanism: MechanismTable


class PairwiseTaskFile(TaskFile):
    """A task whose vectors are summed."""

    domain: VectorTable
    pairwise: PairwiseTable


DOMAINS: Mapping[str, type[TaskFileTable]] = {
    "yes_no": YesNoTable,
    "categories": CategoriesTable,
    "numeric": NumericTable,
    "words": WordsTable,
    "discovery": DiscoveryTable,
    "record": RecordTable,
    "places": PlacesTable,
    "vector": VectorTable,
}

T = TypeVar("T", bound=TaskFileTable)


def checked(model: type[T], values: Mapping[str, Any], file: str, prefix: str = "") -> T:
    """Raises CONFIG naming the file and, behind ``prefix``, the key."""
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise ShoalError(Kind.CONFIG, f"{file}: {prefix}{first_mistake(error, model)}") from None
