"""A task as people write it: a TOML file, turned into a validated Task. Every mistake is one line
naming the key.
"""

from __future__ import annotations

import math
import os
from datetime import UTC
from pathlib import Path
from typing import Any

from shoal.accounting.several_messages.of_domain import design_several
from shoal.accounting.sums.sum_task import SumDesign, design_sum
from shoal.cli.output import public_key, read_bytes
from shoal.cli.task.schema import (
    ADMISSIONS,
    DOMAINS,
    MODES,
    NORMS,
    SUITES,
    CategoriesTable,
    DiscoveryTable,
    MapTable,
    MechanismTable,
    NumericTable,
    PairwiseTaskFile,
    PlacesTable,
    RecordTable,
    ShuffledTaskFile,
    TaskFile,
    VectorTable,
    WindowsTable,
    WordsTable,
    checked,
)
from shoal.cli.task.unfilled import unfilled, unset_keys
from shoal.domain import (
    AnswerRecord,
    Categories,
    Discovery,
    Domain,
    Numeric,
    Places,
    Vector,
    Words,
    YesNo,
    normal,
)
from shoal.errors import Kind, ShoalError
from shoal.mechanisms import REGISTRY, design
from shoal.mechanisms.several.names import NAMES, is_several
from shoal.mechanisms.several.registry import create_any, fewest_messages
from shoal.mechanisms.vectors.registry import design as design_of_vectors
from shoal.mechanisms.vectors.registry import is_of_vectors
from shoal.mechanisms.vectors.registry import settings as settings_of_vectors
from shoal.questions.coordinates import exact_microdegrees
from shoal.questions.discovery import Alphabet
from shoal.questions.layout import NamedShape, named_shape
from shoal.questions.place_paths import PlacePaths
from shoal.questions.record import Attribute, all_pairs
from shoal.questions.spelling import LETTERS, spell
from shoal.storage.toml import read_toml
from shoal.task import (
    OF_VECTORS,
    PPM,
    Admission,
    Aggregator,
    MechanismSpec,
    Task,
    WindowPlan,
    honest,
    windows_of_a_device,
)

USUAL_GRID = 1 << 20  # steps, of a vector whose reports are shuffled


def read_task(path: Path) -> Task:
    """The Task of a TOML file, with a fresh salt. Raises CONFIG with the file's and the key's
    name.
    """
    values = read_toml(path)
    if unset_keys(values):  # all at once: who has yet to fill in a file wants no riddle per line
        left = "; ".join(unfilled(values, path.parent))
        raise ShoalError(Kind.CONFIG, f"{path.name}: still to be filled in: {left}")
    try:
        if values.get("aggregator") == "pairwise":
            return _summed(path, values)
        return _shuffled(path, values)
    except ShoalError as error:
        if error.kind is Kind.CONFIG:
            raise
        raise ShoalError(Kind.CONFIG, f"{path.name}: {error}") from None


def _shuffled(path: Path, values: dict[str, Any]) -> Task:
    _refuse_table(path, values, "pairwise", "shuffled")
    file = checked(ShuffledTaskFile, values, path.name)
    domain = _domain(path.name, file.domain)
    if isinstance(domain, Vector) != is_of_vectors(file.mechanism.name):
        raise _wrong(
            path.name,
            "mechanism.name",
            f"a vector is randomized by {', '.join(OF_VECTORS)}, which takes nothing else; to sum "
            'it, set aggregator = "pairwise"',
        )
    if is_several(file.mechanism.name):
        spec = _several(path.name, file, domain)
    else:
        spec = _mechanism(path.name, file.mechanism, domain)
    made = create_any(spec, domain)
    return Task(
        domain=domain,
        mechanism=spec,
        report_size=made.report_size,
        messages=made.messages,
        fewest_messages=fewest_messages(made),
        **_common(path, file),
    )


def _summed(path: Path, values: dict[str, Any]) -> Task:
    _refuse_table(path, values, "mechanism", "pairwise")
    file = checked(PairwiseTaskFile, values, path.name)
    if not 1e-100 <= file.delta < 1:
        raise _wrong(path.name, "delta", "at least 1e-100 and below 1: 1e-6 or less is usual")
    sum_design = _sum_design(path.name, file)
    return Task(
        domain=sum_design.domain,
        mechanism=sum_design.mechanism,
        report_size=sum_design.plan.vector_bytes(sum_design.domain.dimension),
        aggregator=Aggregator.PAIRWISE,
        pairwise=sum_design.plan,
        **_common(path, file),
    )


def _wrong(file: str, key: str, reason: str) -> ShoalError:
    return ShoalError(Kind.CONFIG, f"{file}: {key}: {reason}")


def _refuse_table(path: Path, values: dict[str, Any], table: str, aggregator: str) -> None:
    """Raises CONFIG for the table that belongs to the other aggregator."""
    if table in values:
        raise _wrong(path.name, table, f'not with aggregator = "{aggregator}": leave it out')


def _common(path: Path, file: TaskFile) -> dict[str, Any]:
    """The fields of a Task that do not depend on how answers are aggregated."""
    keys = file.keys
    admission, enrolment_key = _admission(path.name, file)
    return {
        "salt": os.urandom(16),
        "name": file.name,
        "purpose": file.purpose,
        "question": file.question,
        "windows": _windows(file.windows),
        "min_batch": file.min_batch,
        "max_batch": file.max_batch,
        "honest_fraction_ppm": _honest_ppm(file),
        "delta": file.delta,
        "target_epsilon": file.target_epsilon,
        "key_authority": public_key(keys.key_authority, f"{path.name}: keys.key_authority"),
        "shuffler_key": public_key(keys.shuffler, f"{path.name}: keys.shuffler"),
        "analyzer_key": public_key(keys.analyzer, f"{path.name}: keys.analyzer"),
        "shuffler_address": file.shuffler.address,
        "shuffler_ca": read_bytes(path.parent / file.shuffler.ca, 64 * 1024),
        "retention_s": file.retention_s,
        "suite": SUITES[file.suite].value,
        "admission": admission,
        "enrolment_key": enrolment_key,
        "memoized": file.memoized,
    }


def _honest_ppm(file: TaskFile) -> int:
    """Downward: a smaller honest fraction is the safe side."""
    return int(file.honest_fraction * PPM + 1e-6)


def _admission(name: str, file: TaskFile) -> tuple[Admission, bytes]:
    """Who may report, and the key that certifies them: empty where that is anybody."""
    admission, key = ADMISSIONS[file.admission], file.keys.enrolment
    if admission is Admission.ENROLLED:
        return admission, public_key(key, f"{name}: keys.enrolment")
    if key:
        raise _wrong(
            name,
            "keys.enrolment",
            'only with admission = "enrolled": set that too, or leave the key out',
        )
    return admission, b""


def _windows(table: WindowsTable) -> WindowPlan:
    return WindowPlan(
        start_s=int(table.start.astimezone(UTC).timestamp()),
        length_s=table.length_s,
        count=table.count,
        grace_s=table.grace_s,
        skew_s=table.skew_s,
    )


def _domain(name: str, values: dict[str, Any]) -> Domain:
    kind = values.get("kind")
    if kind is None:
        raise _wrong(name, "domain.kind", "required, but missing")
    if not isinstance(kind, str) or kind not in DOMAINS:
        raise _wrong(name, "domain.kind", f"one of {', '.join(DOMAINS)}")
    table = checked(DOMAINS[kind], values, name, "domain.")
    match table:
        case CategoriesTable():
            return Categories(tuple(table.labels), tuple(table.lower_bounds))
        case NumericTable():
            return Numeric(table.low, table.high, table.levels, table.clip, table.unit)
        case WordsTable():
            return Words(tuple(normal(word) or word for word in table.labels))
        case DiscoveryTable():
            known = {spell(word, table.longest) for word in table.leave_out}
            alphabet: Alphabet = LETTERS
            if table.places is not None:
                box = _places(name, table.places, "domain.places")
                alphabet = PlacePaths(box, table.places.across)
            return Discovery(
                table.first,
                table.longest,
                table.most,
                tuple(sorted(known)),
                alphabet,
                table.fresh,
            )
        case RecordTable():
            return _record(name, table)
        case PlacesTable():
            return _places(name, table)
        case VectorTable():
            return _vector(name, table)
    return YesNo()


def _vector(name: str, table: VectorTable) -> Vector:
    """Of a vector whose reports are shuffled. Raises CONFIG without a dimension."""
    dimension = _dimension(name, table)
    norm, grid = NORMS[table.norm], USUAL_GRID if table.grid is None else table.grid
    layout = _layout(name, table)
    return Vector(dimension, norm, table.clip, grid, tuple(table.names), table.unit, layout)


def _dimension(name: str, table: VectorTable) -> int:
    named = len(table.names) or sum(one.size for one in _layout(name, table))
    dimension = named if table.dimension is None else table.dimension
    if dimension == 0:
        raise _wrong(
            name,
            "domain.dimension",
            "give names, one per coordinate, or layout, or dimension, their number",
        )
    return dimension


def _layout(name: str, table: VectorTable) -> tuple[NamedShape, ...]:
    """Raises CONFIG naming the array that is none."""
    try:
        return tuple(map(named_shape, table.layout))
    except ShoalError as error:
        raise _wrong(name, "domain.layout", error.message) from None


def _record(name: str, table: RecordTable) -> AnswerRecord:
    """Marginals by name, in any order. Raises CONFIG for a name that is no attribute's."""
    attributes = tuple(
        Attribute(one.name, Categories(tuple(one.labels), tuple(one.lower_bounds)))
        for one in table.attributes
    )
    names = [one.name for one in attributes]
    for one in table.marginals or ():
        unknown = [each for each in one if each not in names]
        if unknown:
            raise _wrong(
                name, "domain.marginals", f"{unknown[0]} is no attribute: one of {', '.join(names)}"
            )
    marginals = (
        all_pairs(len(names))
        if table.marginals is None
        else tuple(sorted(tuple(sorted(map(names.index, one))) for one in table.marginals))
    )
    return AnswerRecord(attributes, marginals, table.together)


def _places(name: str, table: PlacesTable | MapTable, at: str = "domain") -> Places:
    """Degrees as microdegrees, exactly. Raises CONFIG naming the bound that is finer."""

    def micro(key: str) -> int:
        try:
            return exact_microdegrees(repr(getattr(table, key)))
        except ShoalError as error:
            raise _wrong(name, f"{at}.{key}", error.message) from None

    south, west, north, east = map(micro, ("south", "west", "north", "east"))
    rows, columns = (table.rows, table.columns) if isinstance(table, PlacesTable) else (1, 1)
    return Places(south, west, north, east, rows, columns)


def _mechanism(name: str, table: MechanismTable, domain: Domain) -> MechanismSpec:
    def wrong(key: str, reason: str) -> ShoalError:
        return _wrong(name, f"mechanism.{key}", reason)

    of_vectors = is_of_vectors(table.name)
    if table.name not in REGISTRY and not of_vectors:
        raise wrong("name", f"one of {', '.join((*REGISTRY, *NAMES, *OF_VECTORS))}")
    if table.epsilon0_if_colluding is not None:
        raise wrong(
            "epsilon0_if_colluding",
            f"goes with {', '.join(NAMES)}, which send several messages: give epsilon0 instead",
        )
    if (table.epsilon0 is None) == (table.parameters is None):
        raise wrong("epsilon0", "give either epsilon0 or parameters")
    try:
        ways = (
            settings_of_vectors(table.name, domain)
            if of_vectors
            else REGISTRY[table.name].settings(domain)
        )
        settings = [setting.name for setting in ways]
    except ShoalError as error:
        raise wrong("name", str(error)) from None
    if table.setting and table.setting not in settings:
        raise wrong("setting", f"of {table.name}, one of {', '.join(settings)}")
    if table.epsilon0 is not None:
        if not (math.isfinite(table.epsilon0) and table.epsilon0 > 0):
            raise wrong("epsilon0", f"a finite number above 0, got {table.epsilon0:g}")
        choose = design_of_vectors if of_vectors else design
        return choose(table.name, domain, table.epsilon0, table.setting)
    if table.setting:
        raise wrong(
            "setting",
            "goes with epsilon0: the parameters are all of the integers, leave one of the two out",
        )
    return MechanismSpec.of(table.name, **(table.parameters or {}))


def _several(name: str, file: ShuffledTaskFile, domain: Domain) -> MechanismSpec:
    """Of a mechanism of several messages: its noise follows from the target, and from how many
    devices are sure to be honest.
    """
    table = file.mechanism
    for key, given in (("epsilon0", table.epsilon0 is not None), ("setting", bool(table.setting))):
        if given:
            raise _wrong(
                name,
                f"mechanism.{key}",
                f"not with {table.name}, whose noise is chosen for target_epsilon: leave it out",
            )
    if table.parameters is not None:
        if table.epsilon0_if_colluding is not None:
            raise _wrong(
                name,
                "mechanism.epsilon0_if_colluding",
                "the parameters are all of the integers, leave one of the two out",
            )
        return MechanismSpec.of(table.name, **table.parameters)
    honest_devices = honest(file.min_batch, _honest_ppm(file))
    if honest_devices < 1:
        raise _wrong(name, "min_batch", "honest_fraction x min_batch is below 1: raise it")
    try:
        return design_several(
            table.name,
            domain,
            honest_devices,
            file.target_epsilon,
            file.delta,
            windows=windows_of_a_device(domain, file.windows.count),
            most=file.max_batch,
            epsilon0_if_colluding=table.epsilon0_if_colluding,
        )
    except ShoalError as error:
        raise _wrong(name, "mechanism", error.message) from None


def _sum_design(name: str, file: PairwiseTaskFile) -> SumDesign:
    """Domain, noise and rounds of a pairwise task. Raises CONFIG naming the key, INVALID for what
    cannot be had.
    """
    domain, rounds = file.domain, file.pairwise
    dimension = _dimension(name, domain)
    usual = "discrete_laplace" if domain.norm == "l1" else "skellam"
    return design_sum(
        dimension=dimension,
        norm=NORMS[domain.norm],
        clip=domain.clip,
        noise=usual if rounds.noise is None else rounds.noise,
        mode=MODES[rounds.mode],
        cohort_max=rounds.cohort_max,
        cohort_min=rounds.cohort_min,
        dropout_ppm=round(rounds.dropout * PPM),
        honest_fraction_ppm=_honest_ppm(file),
        epsilon=file.target_epsilon,
        delta=file.delta,
        grid=domain.grid,
        names=domain.names,
        unit=domain.unit,
        layout=_layout(name, domain),
        phases=(rounds.join_s, rounds.share_s, rounds.mask_s, rounds.unmask_s),
    )
