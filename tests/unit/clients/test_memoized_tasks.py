"""A device answers no memoized task whose repetition would promise nothing, whoever signed it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from shoal import mechanisms
from shoal.approximate import GaussianLaw
from shoal.clients import core
from shoal.clients.core import assign
from shoal.crypto.trust import trust_schedule, trust_task
from shoal.errors import Kind, ShoalError
from tests.worlds.devices.clients import World, make_world

BASE = make_world()
WORLD = World(
    replace(BASE.task, memoized=True), BASE.authority, BASE.analyzer, BASE.hop, BASE.services
)


def assigned(world: World) -> Any:
    trusted = trust_task(world.signed_task, world.authorities)
    return assign(trusted, trust_schedule(world.signed_schedule, trusted))


def test_a_memoized_task_with_a_finite_epsilon0_and_one_message_is_answered() -> None:
    assert assigned(WORLD).epsilon0 == assigned(BASE).epsilon0
    assert assigned(WORLD).task.memoized


class Broken:
    """The real mechanism but for what a task of several messages, or without epsilon0, would
    have.
    """

    def __init__(self, real: Any, messages: int, law: Any) -> None:
        self.messages, self.report_size, self.name, self._law = (
            messages,
            real.report_size,
            "broken",
            law,
        )

    def privacy(self) -> Any:
        return self._law


@pytest.mark.parametrize(
    ("messages", "pure", "words"), [(2, True, "2 messages"), (1, False, "no finite epsilon0")]
)
def test_others_are_refused_before_anything_is_randomized(
    monkeypatch: pytest.MonkeyPatch, messages: int, pure: bool, words: str
) -> None:
    """Planted: the check left out of ``assign`` -> the task of two messages is taken, and this
    fails.
    """
    made = mechanisms.create(WORLD.task.mechanism, WORLD.task.domain)
    law = made.privacy() if pure else GaussianLaw(1.0, 1.0)
    monkeypatch.setattr(core, "create_any", lambda *_: Broken(made, messages, law))
    world = World(
        replace(WORLD.task, messages=messages),
        BASE.authority,
        BASE.analyzer,
        BASE.hop,
        BASE.services,
    )
    with pytest.raises(ShoalError, match=words) as error:
        assigned(world)
    assert error.value.kind is Kind.INVALID
    if pure:
        assigned(
            World(
                replace(world.task, memoized=False),
                BASE.authority,
                BASE.analyzer,
                BASE.hop,
                BASE.services,
            )
        )
