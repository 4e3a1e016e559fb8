"""Rounds that the tests of the shuffler's machine start."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from shoal.errors import Kind, ShoalError
from shoal.secagg import Mode
from tests.worlds.rounds.secagg import Play, World

WORLD = World(5)
STRICT = World(5, Mode.STRICT)
STRANGER = bytes(16)


def kind_of(act: Callable[..., object], *arguments: object) -> Kind:
    with pytest.raises(ShoalError) as caught:
        act(*arguments)
    return caught.value.kind


def session(play: Play, number: int = 0) -> bytes:
    return play.devices[number].session


def changed(message: Any, **fields: bytes) -> Any:
    copy = type(message)()
    copy.CopyFrom(message)
    for name, value in fields.items():
        setattr(copy, name, value)
    return copy
