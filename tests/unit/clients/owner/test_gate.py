"""The gate that attempts pass, and that whoever takes a consent back has alone."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from shoal.clients.owner.gate import Gates
from shoal.errors import Kind, ShoalError


async def test_a_gate_is_had_alone_only_when_nobody_is_inside(tmp_path: Path) -> None:
    """Two ``Gates`` are two programs: flock(2) counts opened files. Planted: one lock for all
    purposes -> the second line waits.
    """
    one, other = Gates(tmp_path / "gates"), Gates(tmp_path / "gates")
    async with one.attempt("a"), other.attempt("a"):
        assert await other.clear("b", 5.0)
        assert not await other.clear("a", 0.05)
    assert await other.clear("a", 5.0)


async def test_an_attempt_waits_for_who_has_the_gate_alone(tmp_path: Path) -> None:
    import fcntl
    import os

    gates = Gates(tmp_path / "gates")
    assert await gates.clear("a", 1.0)
    (file,) = (tmp_path / "gates").iterdir()
    handle = os.open(file, os.O_RDWR)
    fcntl.flock(handle, fcntl.LOCK_EX)
    inside = asyncio.Event()

    async def attempt() -> None:
        async with gates.attempt("a"):
            inside.set()

    waiting = asyncio.create_task(attempt())
    for _ in range(50):
        await asyncio.sleep(0)
    assert not inside.is_set()
    os.close(handle)
    await waiting
    assert inside.is_set()


def test_gates_that_can_t_be_made_say_so(tmp_path: Path) -> None:
    (tmp_path / "gates").write_text("a file")
    with pytest.raises(ShoalError) as caught:
        Gates(tmp_path / "gates")
    assert caught.value.kind is Kind.CONFIG
