"""What a console has read, and what it says of it when it can't be read again."""

from __future__ import annotations

import threading

from shoal.console.known import Watched
from shoal.errors import Kind, ShoalError


class Source:
    """What a test lets be read: a number that counts, or trouble."""

    def __init__(self) -> None:
        self.reads, self.trouble = 0, False

    def read(self) -> int:
        self.reads += 1
        if self.trouble:
            raise ShoalError(Kind.UNAVAILABLE, "nobody answers")
        return self.reads


def test_what_was_read_is_kept_with_its_age() -> None:
    """Planted: forgotten with the first failure -> fails. Planted: the age of the last attempt ->
    0 for 100, and this fails.
    """
    source, now = Source(), [1_000.0]
    watched = Watched(source.read, 5.0, lambda: now[0])
    assert (watched.look().value, watched.look().trouble) == (1, None)
    now[0] += 4.9
    assert watched.look().value == 1  # not yet again
    now[0] += 95.1
    source.trouble = True
    known = watched.look()
    assert (known.value, known.age_s, known.trouble) == (1, 100.0, "nobody answers")
    now[0] += 5.0
    source.trouble = False
    known = watched.look()
    assert (known.value, known.age_s, known.trouble) == (3, 0.0, None)


def test_what_was_never_read_says_why() -> None:
    """Planted: a failure of ours let through -> the page fails with it."""
    source = Source()
    source.trouble = True
    assert Watched(source.read, 5.0).look().trouble == "nobody answers"
    assert "ZeroDivisionError" in (Watched(lambda: 1 // 0, 5.0).look().trouble or "")


def test_one_reading_is_under_way_however_many_look() -> None:
    """A service that does not answer holds nobody up: the pages show what was read before.
    Planted: every look reads by itself -> as many readings as looks.
    """
    go = threading.Event()
    started: list[None] = []

    def read() -> int:
        started.append(None)
        if len(started) > 1:
            go.wait(60)
        return len(started)

    now = [0.0]
    watched = Watched(read, 5.0, lambda: now[0], patience_s=0.01)
    while watched.look().value != 1:
        pass
    now[0] += 10.0
    assert [watched.look().value for _ in range(5)] == [1] * 5
    assert len(started) == 2
    go.set()
