"""What is wrong with a file, in one line: the mistakes that pydantic finds, for people.

pydantic itself is not imported here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, get_args

from shoal.storage.toml import no_such_key

# What a value of the wrong type should have been, by pydantic's name of the mistake.
_WANTED: Mapping[str, str] = {
    "string_type": "a text in quotes",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    # a text that is none of these, as in the environment
    "int_parsing": "a whole number",
    "float_parsing": "a number",
    "bool_parsing": "true or false",
    "list_type": "a list",
    "dict_type": "a table",
    "model_type": "a table",
    "datetime_type": "a date and time, for example 2026-01-01T00:00:00Z",
}

# A key that one role's file alone has: whose file it is then. Keys of tables are not looked at.
_ROLES: Mapping[str, str] = {
    "delivery_delay_max_s": "a shuffler",
    "commit_ms": "a shuffler",
    "allowed_shufflers": "an analyzer",
    "outbox": "a device's agent",
    "policy": "a device's agent",
    "mechanism": "a task",
}


def first_mistake(error: Any, model: Any) -> str:
    """KEY: what is wrong and how to mend it. ``error``: a ValidationError of ``model``, whose keys
    are those of the file.
    """
    # A key that nobody knows first: where a required one is missing, it is often the same,
    # mistyped.
    # Before that one that tells whose file it is.
    first = min(
        error.errors(),
        key=lambda problem: (
            problem["type"] != "extra_forbidden",
            len(problem["loc"]) > 1 or problem["loc"][:1] not in {(key,) for key in _ROLES},
        ),
    )
    key = ".".join(str(part) for part in first["loc"]) or "file"
    if first["type"] == "extra_forbidden":
        whose = _ROLES.get(key)
        if whose is not None:
            return f"{key}: this is the file of {whose}: give the other one, or remove this key"
        return f"{key}: {no_such_key(str(first['loc'][-1]), _keys_of(model, first['loc'][:-1]))}"
    if first["type"] == "missing":
        return f"{key}: required, but missing"
    if first["type"] in _WANTED:
        return f"{key}: must be {_WANTED[first['type']]}"
    return f"{key}: {_plain(first['msg'])}"


def _keys_of(model: Any, path: tuple[int | str, ...]) -> set[str]:
    """The keys of the table at ``path`` of a model; none where it can't be told."""
    for part in path:
        field = getattr(model, "model_fields", {}).get(part)
        kinds = (field.annotation, *get_args(field.annotation)) if field is not None else ()
        model = next((kind for kind in kinds if hasattr(kind, "model_fields")), None)
    return set(getattr(model, "model_fields", ())) - {"base_dir"}


def _plain(text: str) -> str:
    """What is wanted, without what the library says of itself."""
    return re.sub(r" after validation, not \d+$", "", text.removeprefix("Value error, "))
