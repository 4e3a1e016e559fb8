"""Releases from files: what ``shoal results export`` wrote as ``json`` or ``release``, one release
alone, or the results.json of ``shoal demo`` with its truths.

A file may come from anywhere: whatever a page or a table reads of it is checked here, by type and
range, so that a wrong one is one line that names the file and the place.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from shoal.analyzer.results.files.exports import CHECKABLE
from shoal.analyzer.results.maps.released import BOUNDS, law_shown, places_of
from shoal.analyzer.results.reading import in_order
from shoal.analyzer.results.report_page import certificate_of
from shoal.analyzer.results.totals import layout_of_json
from shoal.errors import Kind, ShoalError
from shoal.limits import LIMITS, MIB
from shoal.mechanisms.several.tree import CellTree
from shoal.questions.layout import check_layout

_ARRAY_NAME = re.compile(r"[0-9a-f]{64}-[0-9]{1,5}\.npy")
MOST_BYTES = 256 * MIB  # of one file
Truth = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class ReleaseFiles:
    """``releases``: in order, each (task, window) once, in the shape of ``release_json.to_json``.
    ``truths``: true values by label, by task id, where a file tells them.
    """

    releases: tuple[dict[str, Any], ...]
    truths: Mapping[str, Truth]


def read_release_files(path: Path) -> ReleaseFiles:
    """Of a file, or of all ``*.json`` of a folder. Raises CONFIG, INVALID; CONFLICT where two files
    tell different things of one window.
    """
    if path.is_dir():
        files = sorted(path.glob("*.json"))
        if not files:
            raise ShoalError(
                Kind.CONFIG,
                f"{path}: no *.json there: shoal results export --format json writes releases",
            )
    else:
        files = [path]
    found: dict[tuple[str, int], dict[str, Any]] = {}
    truths: dict[str, Truth] = {}
    for file in files:
        for release, truth in _of_file(file):
            key = release["task_id"], release["window"]
            if found.setdefault(key, release) != release:
                raise ShoalError(
                    Kind.CONFLICT,
                    f"{file}: window {key[1]} of task {key[0][:8]} is there twice and differs: "
                    "keep one of the files",
                )
            if truth:
                truths[release["task_id"]] = truth
    return ReleaseFiles(tuple(in_order(found.values())), truths)


def _of_file(file: Path) -> Iterator[tuple[dict[str, Any], Truth]]:
    try:
        with file.open("rb") as opened:
            data = opened.read(MOST_BYTES + 1)
    except OSError as error:
        raise ShoalError(
            Kind.CONFIG, f"cannot read {file}: {error.strerror or 'unreadable'}"
        ) from None
    if len(data) > MOST_BYTES:
        raise ShoalError(Kind.CONFIG, f"{file} is larger than {MOST_BYTES // MIB} MiB")
    try:
        value = json.loads(data, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise ShoalError(
            Kind.INVALID,
            f"{file}: not JSON: give a file of shoal results export --format json",
        ) from None
    if isinstance(value, dict) and value.get("format") == CHECKABLE:
        value = value.get("release")  # what its readers see; shoal verify checks it
    if isinstance(value, dict) and isinstance(value.get("tasks"), list):
        rows = [_demo_row(file, row) for row in value["tasks"]]
    else:
        rows = [(row, {}) for row in (value if isinstance(value, list) else [value])]
    for at, (row, truth) in enumerate(rows):
        where = f"{file}: release {at + 1}"
        _check(where, row, _RELEASE)
        _check_rows(where, row)
        yield row, truth


def _no_constant(text: str) -> float:
    raise ValueError(text)


def _demo_row(file: Path, row: Any) -> tuple[Any, Truth]:
    release = row.get("release") if isinstance(row, dict) else None
    truth = row.get("truth") if isinstance(row, dict) else None
    told = truth if isinstance(truth, dict) else {}
    if not all(_number(value) for value in told.values()):
        raise ShoalError(Kind.INVALID, f"{file}: truth: give numbers by label, or leave it out")
    return release, told


def _number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _bound(value: object) -> bool:
    """An epsilon: null where nothing is promised."""
    return value is None or (_number(value) and float(value) >= 0.0)  # type: ignore[arg-type] # a number, by the first half


def _finite_bound(value: object) -> bool:
    return value is not None and _bound(value)


def _count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 63


def _share(value: object) -> bool:
    return _number(value) and 0.0 < float(value) <= 1.0  # type: ignore[arg-type] # a number


def _text(value: object) -> bool:
    return isinstance(value, str)


def _hash(value: object) -> bool:
    return isinstance(value, str) and len(value) == 64 and set(value) <= set("0123456789abcdef")


def _texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def _counts(value: object) -> bool:
    return isinstance(value, dict) and all(map(_count, value.values()))


def _objects(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(each, dict) for each in value)


def _chance(value: object) -> bool:
    return _number(value) and 0.0 <= float(value) <= 1.0  # type: ignore[arg-type] # a number


Check = Callable[[object], bool]
_RELEASE: dict[str, Check] = {
    "task_id": _hash,
    "name": _text,
    "window": _count,
    "n": _count,
    "rejected": _counts,
    "estimates": _objects,
    "privacy": lambda value: isinstance(value, dict),
    "damaged": _count,
    "manifest_hash": _hash,
    "withheld": lambda value: value is None or isinstance(value, str),
}
_PRIVACY: dict[str, Check] = {
    "epsilon0": _bound,
    "epsilon_upper": _finite_bound,
    "epsilon_lower": _finite_bound,
    "delta": lambda value: _number(value) and 0.0 <= float(value) < 1.0,  # type: ignore[arg-type] # a number
    "n_certified": _count,
    "honest_fraction": _share,
    "relation": _text,
    "method": _text,
    "assumptions": _texts,
    "epsilon_at_received_n": _bound,
    "unit": _text,
    "epsilon_cumulative_upper": _bound,
    "delta_cumulative": lambda value: _number(value) and 0.0 <= float(value) <= 1.0,  # type: ignore[arg-type] # a number
    "windows_composed": _count,
    "tasks_composed": _count,
}
_ESTIMATE: dict[str, Check] = {
    "label": _text,
    "value": _number,
    "stderr": _number,
    "ci_low": _number,
    "ci_high": _number,
}
_QUANTILE: dict[str, Check] = {
    "share": _share,
    "value": _number,
    "ci_low": _number,
    "ci_high": lambda value: value is None or _number(value),
}
_RECORD: dict[str, Check] = {
    "attributes": lambda value: (
        _objects(value)
        and all(_text(each.get("name")) and _texts(each.get("labels")) for each in value)  # type: ignore[attr-defined] # objects
    ),
    "marginals": lambda value: isinstance(value, list) and all(map(_texts, value)),
}
_ARRAY: dict[str, Check] = {
    "file": lambda value: isinstance(value, str) and _ARRAY_NAME.fullmatch(value) is not None,
    "dtype": lambda value: value == "<i8",
    "length": lambda value: _count(value) and 1 <= value <= LIMITS.vector_words,  # type: ignore[operator] # a number
    "segment": lambda value: _count(value) and 1 <= value <= LIMITS.vector_words,  # type: ignore[operator] # a number
    "sha256": lambda value: isinstance(value, str) and set(value) <= set("0123456789abcdef"),
    "clip": lambda value: _number(value) and float(value) > 0,  # type: ignore[arg-type] # a number
    "grid": lambda value: _count(value) and value != 0,
    "stderr": _finite_bound,
    "reach": _finite_bound,
    "norm": _finite_bound,
    "first": lambda value: isinstance(value, list) and len(value) <= 8 and all(map(_number, value)),
}
_MEMOIZED: dict[str, Check] = {"lifetime_epsilon": _finite_bound, "windows": _count}
_DRAWN: dict[str, Check] = {"draws_one_of": lambda value: _count(value) and bool(value)}
_ROUNDS: dict[str, Check] = {
    "mode": _text,
    "rounds": _count,
    "aborted": _counts,
    "noise_stderr": _number,
    "one_round_noise_stderr": _number,
    "rounding_stderr": _number,
    "epsilon_analyzer": _bound,
    "epsilon_together": _bound,
}


def _check(where: str, value: object, checks: Mapping[str, Check]) -> None:
    """Raises INVALID, naming the first key that is missing or is not what it should be."""
    if not isinstance(value, dict):
        raise ShoalError(
            Kind.INVALID,
            f"{where}: no release: give a file of shoal results export --format json",
        )
    for name, good in checks.items():
        if name not in value or not good(value[name]):
            what = "missing" if name not in value else "not what a release has there"
            raise ShoalError(
                Kind.INVALID,
                f"{where}: {name}: {what}: write it anew by shoal results export --format json",
            )


def _check_discovered(where: str, release: dict[str, Any]) -> None:
    if "discovered" not in release:
        return
    _check(where, release, {"discovered": lambda value: isinstance(value, dict)})
    if "draws_one_of" in release["discovered"]:
        _check(f"{where}: discovered", release["discovered"], _DRAWN)


def _check_rows(where: str, release: dict[str, Any]) -> None:
    _check(f"{where}: privacy", release["privacy"], _PRIVACY)
    for row in release["estimates"]:
        _check(f"{where}: estimates", row, _ESTIMATE)
    if "quantiles" in release:
        _check(where, release, {"quantiles": lambda value: bool(value) and _objects(value)})
        for row in release["quantiles"]:
            _check(f"{where}: quantiles", row, _QUANTILE)
    _check_discovered(where, release)
    if "ranges" in release:
        _check_ranges(f"{where}: ranges", release)
    if "map" in release:
        _check_map(f"{where}: map", release)
    if "memoized" in release["privacy"]:
        _check(f"{where}: memoized", release["privacy"]["memoized"], _MEMOIZED)
    if "rounds" in release:
        _check(f"{where}: rounds", release["rounds"], _ROUNDS)
    else:
        _check_certificate(f"{where}: privacy", release["privacy"])
    if "processed" in release:
        size = len(release["estimates"])
        _check(
            f"{where}: processed",
            release["processed"],
            {
                "counts": lambda value: (
                    isinstance(value, list) and len(value) == size and all(map(_count, value))
                ),
                "method": _text,
                "note": _text,
            },
        )
    if "array" in release:
        _check_array(f"{where}: array", release["array"])
    if "distribution" in release:
        _check_distribution(f"{where}: distribution", release["distribution"])
    if "record" in release:
        _check(f"{where}: record", release["record"], _RECORD)


def _check_array(where: str, array: dict[str, Any]) -> None:
    """That it can be read, and that its named arrays, if it has any, are all of it."""
    _check(where, array, _ARRAY)
    count = -(-array["length"] // array["segment"])
    _check(
        where,
        array,
        {"sha256": lambda value: isinstance(value, str) and len(value) == 64 * count},
    )
    if "layout" not in array:
        return
    _check(where, array, {"layout": lambda value: bool(value) and _texts(value)})
    try:
        check_layout(layout_of_json(array), array["length"])
    except ShoalError as error:
        raise ShoalError(Kind.INVALID, f"{where}: {error.message}") from None


def _check_ranges(where: str, release: dict[str, Any]) -> None:
    """That ranges can be asked of it."""
    value, cells = release["ranges"], len(release["estimates"])

    def rising(given: object) -> bool:
        return (
            isinstance(given, list)
            and len(given) == cells - 1
            and all(map(_number, given))
            and all(low < high for low, high in pairwise(given))
        )

    _check(
        where,
        value,
        {
            "base": _count,
            "levels": _count,
            "node_stderr": _finite_bound,
            "starts": rising,
            "rounded": lambda given: isinstance(given, bool),
        },
    )
    try:
        CellTree(cells, value["base"], value["levels"])
    except ShoalError as error:
        raise ShoalError(Kind.INVALID, f"{where}: {error.message}") from None


def _check_map(where: str, release: dict[str, Any]) -> None:
    """That it can be drawn, and rectangles asked of it."""
    value = release["map"]
    chances = dict.fromkeys(("kept", "other"), _chance)
    sizes: dict[str, Check] = {"rows": _count, "columns": _count, "side": _count}
    _check(where, value, {**dict.fromkeys(BOUNDS, _number), **sizes, **chances})
    _check(where, value, {"noise_stderr": _finite_bound})
    try:
        places, _ = places_of(value), law_shown(value)
    except ShoalError as error:
        raise ShoalError(Kind.INVALID, f"{where}: {error.message}") from None
    if places.size != len(release["estimates"]):
        raise ShoalError(
            Kind.INVALID,
            f"{where}: it has another number of cells than there are estimates: write it anew by "
            "shoal results export --format json",
        )


def _check_certificate(where: str, privacy: dict[str, Any]) -> None:
    """That the figures can be those of one certificate, whose bounds are in order."""
    try:
        certificate_of(privacy)
    except (ShoalError, OverflowError) as error:
        raise ShoalError(
            Kind.INVALID, f"{where}: {error}: write it anew by shoal results export --format json"
        ) from None


def _check_distribution(where: str, value: object) -> None:
    def numbers(given: object) -> bool:
        return isinstance(given, list) and len(given) > 0 and all(map(_number, given))

    def quantiles(given: object) -> bool:
        try:
            return (
                isinstance(given, dict)
                and len(given) > 0
                and all(0.0 < float(share) < 1.0 and _number(at) for share, at in given.items())
            )
        except ValueError:
            return False

    _check(
        where,
        value,
        {
            "method": _text,
            "note": _text,
            "answered": lambda given: given is None or _number(given),
            "quantiles": quantiles,
            "edges": numbers,
            "shares": numbers,
        },
    )
    edges, shares = value["edges"], value["shares"]  # type: ignore[index] # an object: _check
    rising = all(low < high for low, high in pairwise(edges))
    if len(edges) != len(shares) + 1 or not rising:
        raise ShoalError(
            Kind.INVALID,
            f"{where}: edges: one more than shares, increasing: write it anew by shoal results "
            "export --format json",
        )
