"""``shoal task new``: the commented sample of a task file, with what was given filled in."""

from __future__ import annotations

import importlib.resources
from collections.abc import MutableMapping
from datetime import UTC, datetime
from typing import Any

import tomlkit
from tomlkit.exceptions import TOMLKitError
from tomlkit.items import String, Table

from shoal.errors import Kind, ShoalError
from shoal.mechanisms import REGISTRY
from shoal.mechanisms.several.names import NAMES

# Keys whose defaults the samples show in comments: a value makes a line of it.
_IN_COMMENTS = frozenset(
    {
        "domain.grid",
        "mechanism.epsilon0_if_colluding",
        "pairwise.cohort_min",
        "pairwise.join_s",
        "pairwise.share_s",
        "pairwise.mask_s",
        "pairwise.unmask_s",
    }
)


def sample(settings: list[str], *, pairwise: bool = False) -> str:
    """The commented sample, beginning today, with ``settings`` ("max_batch=12000",
    "keys.shuffler=...") filled in.

    Raises CONFIG for a key that the sample does not have, and for what is no value of TOML.
    """
    text = _blank(pairwise)
    settings_written = [_parts(setting) for setting in settings]
    for path, _ in settings_written:
        if path in _IN_COMMENTS:
            key = path.rpartition(".")[2]
            text = text.replace(f"\n# {key} = ", f"\n{key} = ", 1)
    document = tomlkit.parse(text)
    today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    _fill_in(document, "windows.start", today.strftime("%Y-%m-%dT%H:%M:%SZ"))
    for path, value in settings_written:
        _fill_in(document, path, value)
    return document.as_string()


def _blank(pairwise: bool) -> str:
    name = "pairwise.toml" if pairwise else "shuffled.toml"
    text = importlib.resources.files("shoal.cli.task").joinpath(name).read_text(encoding="utf-8")
    names = ", ".join(f'"{name}"' for name in (*REGISTRY, *NAMES))
    return text.replace("{mechanisms}", names)


def next_version(text: str, start: str, ca: str, settings: list[str]) -> str:
    """A task file with other ``windows.start`` and ``shuffler.ca``, and ``settings`` filled in,
    its comments kept. Raises CONFIG as ``sample`` does.
    """
    document = tomlkit.parse(text)
    known = tomlkit.parse(_blank("pairwise" in document))
    written = [("windows.start", start), ("shuffler.ca", ca), *map(_parts, settings)]
    for path, value in written:
        name, _, key = path.rpartition(".")
        table: Any = document.get(name) if name else document
        default: Any = known.get(name) if name else known
        if isinstance(table, MutableMapping) and key not in table and key in (default or ()):
            table[key] = default[key]  # left out until now: its default goes first, to be replaced
        _fill_in(document, path, value)
    return document.as_string()


def _parts(setting: str) -> tuple[str, str]:
    """Path of the key, and value. Raises CONFIG where there is none."""
    path, separator, value = setting.partition("=")
    if not separator:
        raise _no_such_key(path)
    return path.strip(), value.strip()


def _fill_in(document: tomlkit.TOMLDocument, path: str, value: str) -> None:
    """One value in the place of another, its comment kept; quoted where the sample quotes."""
    name, _, key = path.rpartition(".")
    table: Any = document.get(name) if name else document
    if not isinstance(table, MutableMapping) or key not in table or isinstance(table[key], Table):
        raise _no_such_key(path)
    if isinstance(table[key], String):
        table[key] = tomlkit.string(value)
        return
    try:
        table[key] = tomlkit.value(value)
    except TOMLKitError:
        raise ShoalError(
            Kind.CONFIG,
            f"--set {path}: no value of TOML: give a number, true or false, a date and time with a "
            'zone, or a list as ["a", "b"]',
        ) from None


def _no_such_key(path: str) -> ShoalError:
    return ShoalError(
        Kind.CONFIG,
        f"--set {path}: no such key in the sample: give KEY=VALUE or TABLE.KEY=VALUE, as in "
        '"keys.shuffler=..."',
    )
