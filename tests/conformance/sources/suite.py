"""What every kind of source promises: inherit ``SourceSuite`` and say how a source of that kind is
made to say something, to have nothing to read, and never to answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from shoal.clients.sources.read import SourceReading, read_source
from shoal.clients.sources.spec import SourceSpec
from shoal.domain import Numeric
from shoal.limits import LIMITS
from tests.worlds.devices.sources import children, gone, reading_threads

SECRET = b"314159"  # stands in all that sources say here, and in no reason
DOMAIN = Numeric(0.0, 1_000_000.0, 101)
PATIENT_S = 20.0  # longer than any machine needs; nothing waits for it
SHORT_S = 0.2


class SourceSuite:
    """Nothing of what a source says is repeated, nothing hangs, nothing is left behind."""

    def saying(self, folder: Path, data: bytes) -> AbstractContextManager[SourceSpec]:
        """A source that gives these bytes, in the form that this kind reads."""
        raise NotImplementedError

    def missing(self, folder: Path) -> SourceSpec:
        """A source that reads from what is not there."""
        raise NotImplementedError

    def endless(
        self, folder: Path, timeout_s: float
    ) -> AbstractContextManager[tuple[SourceSpec, Callable[[], Awaitable[None]]]]:
        """A source that never answers while the context lasts, and what to wait for until its
        reading has begun.
        """
        raise NotImplementedError

    async def reading(self, folder: Path, data: bytes) -> SourceReading:
        with self.saying(folder, data) as spec:
            return await read_source(spec)

    async def test_a_number_is_read(self, tmp_path: Path) -> None:
        """Planted: nothing stripped, or bytes given on -> no answer."""
        reading = await self.reading(tmp_path, SECRET)
        assert reading.reason == ""
        assert DOMAIN.understands(reading.value)
        assert float(str(reading.value)) == float(SECRET)

    async def test_a_reading_does_not_print_its_value(self, tmp_path: Path) -> None:
        assert SECRET.decode() not in repr(await self.reading(tmp_path, SECRET))

    async def test_what_is_no_number_is_no_answer(self, tmp_path: Path) -> None:
        """By its reader or by the domain's last cell, never by an exception. Planted: int() of what
        was said, in the reader -> an exception that quotes it.
        """
        reading = await self.reading(tmp_path, b"about " + SECRET)
        assert DOMAIN.encode(reading.value) == DOMAIN.levels
        assert SECRET.decode() not in reading.reason

    @pytest.mark.parametrize("more", [b"\xff", b"9" * LIMITS.source_bytes], ids=["bytes", "long"])
    async def test_what_can_be_no_answer_is_a_reason(self, tmp_path: Path, more: bytes) -> None:
        """Not UTF-8, or longer than anything that is an answer. Planted: the error's own text as
        the reason -> it quotes what was read.
        """
        self.check_refused(await self.reading(tmp_path, SECRET + more))

    async def test_what_is_missing_is_a_reason(self, tmp_path: Path) -> None:
        self.check_refused(await read_source(self.missing(tmp_path)))

    async def test_it_ends_by_itself_when_its_time_is_over(self, tmp_path: Path) -> None:
        """Planted: no time limit in the reader -> the test runs into its own."""
        before = children()
        with self.endless(tmp_path, SHORT_S) as (spec, _):
            self.check_refused(await read_source(spec))
        await self.check_nothing_left(before)

    async def test_a_reading_that_is_cancelled_leaves_nothing(self, tmp_path: Path) -> None:
        """Planted: nothing killed or closed where the caller is cancelled -> a process is left."""
        before = children()
        with self.endless(tmp_path, PATIENT_S) as (spec, begun):
            reading = asyncio.create_task(read_source(spec))
            await begun()
            reading.cancel()
            with pytest.raises(asyncio.CancelledError):
                await reading
        await self.check_nothing_left(before)

    @staticmethod
    def check_refused(reading: SourceReading) -> None:
        assert reading.value is None
        assert reading.reason
        assert "\n" not in reading.reason
        assert len(reading.reason) < 100
        assert SECRET.decode() not in reading.reason

    @staticmethod
    async def check_nothing_left(before: set[int]) -> None:
        await gone("source")
        while await asyncio.to_thread(children) - before:
            pass


async def in_thread() -> None:
    """Until the thread of a reading has begun."""
    while not reading_threads():
        await asyncio.to_thread(lambda: None)
