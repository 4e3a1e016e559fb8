"""What `shoal plan --emit` leaves to be said of a task where it was not told: never signed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

UNNAMED = "fill-in-a-name"
UNSAID = "fill in"
NOWHERE = "shuffler.example.org:7443"
_TEXTS = {
    "name": (UNNAMED, "lower case letters, digits, -"),
    "purpose": (UNSAID, "in plain words: owners consent per purpose"),
    "question": (UNSAID, "in plain words, as owners read it"),
}
_KEYS = ("key_authority", "shuffler", "analyzer")


def unfilled(values: Mapping[str, Any], folder: Path) -> list[str]:
    """What of a task file is still to be filled in, each with how; ``folder``: where the file
    is.
    """
    left = [f"{key} ({how})" for key, (blank, how) in _TEXTS.items() if values.get(key) == blank]
    labels = _table(values, "domain").get("labels")
    if isinstance(labels, list) and labels and all(map(numbered, labels)):
        left.append("domain.labels (category 1 is no name that owners understand)")
    keys = unset_keys(values)
    if keys:
        left.append(f"{', '.join(keys)} (64 hex digits each: shoal keys signing prints them)")
    shuffler = _table(values, "shuffler")
    if shuffler.get("address") == NOWHERE:
        left.append("shuffler.address (HOST:PORT that devices reach)")
    ca = shuffler.get("ca")
    if isinstance(ca, str) and not (folder / ca).is_file():
        left.append(f"shuffler.ca (there is no file {ca}: shoal keys ca makes one)")
    return left


def numbered(label: object) -> bool:
    """Whether it is a name that a plan for so many categories gives."""
    return isinstance(label, str) and re.fullmatch(r"category [0-9]+", label) is not None


def unset_keys(values: Mapping[str, Any]) -> list[str]:
    """The public keys that are empty, as ``keys.NAME``; of enrolment where it is wanted."""
    keys = _table(values, "keys")
    wanted = (*_KEYS, "enrolment") if values.get("admission") == "enrolled" else _KEYS
    return [f"keys.{key}" for key in wanted if keys.get(key) == ""]


def _table(values: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    table = values.get(name)
    return table if isinstance(table, Mapping) else {}
