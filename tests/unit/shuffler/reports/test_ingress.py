"""What takes many frames at once, without a store: everything refused, and a store that only
notes.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from shoal.clocks.clock import FakeClock
from shoal.errors import Kind, ShoalError
from shoal.ids import KeyId
from shoal.limits import LIMITS
from shoal.shuffler.reports.ingress import Ingress
from shoal.shuffler.reports.opening import Opener
from shoal.shuffler.reports.taken import Answer
from shoal.shuffler.stores.store import AdmittedRows

OVER = KeyId(b"\x07" * KeyId.SIZE)


class Keyless:
    """A task book without a key; those of one key's windows are over."""

    def __init__(self) -> None:
        self.keys, self.keys_by_raw_id, self.verifiers = (
            dict[Any, Any](),
            dict[Any, Any](),
            dict[Any, Any](),
        )

    def over(self, key_id: KeyId) -> bool:
        return key_id == OVER


class NotingStore:
    def __init__(self) -> None:
        self.calls: list[int] = []
        self.failure: ShoalError | None = None

    async def append_rows(self, groups: Sequence[AdmittedRows]) -> list[list[Kind | None]]:
        self.calls.append(len(groups))
        if self.failure is not None:
            raise self.failure
        return [[None] * group.count for group in groups]


def ingress(folder: Path) -> tuple[Ingress, NotingStore]:
    store = NotingStore()
    return Ingress(cast(Any, Keyless()), cast(Any, store), Opener(folder, 0), FakeClock(0)), store


def refused() -> list[tuple[bytes, Kind]]:
    size = LIMITS.frame_sizes[0]
    return [
        (b"", Kind.INVALID),
        (bytes(size), Kind.INVALID),
        ((b"\x01\x01\x00" + bytes(8)).ljust(size, b"\x00"), Kind.UNKNOWN_KEY),
        ((b"\x01\x01\x00" + OVER.raw).ljust(size, b"\x00"), Kind.WINDOW_CLOSED),
    ]


async def test_frames_that_are_refused_wait_behind_the_same_commits(tmp_path: Path) -> None:
    """Sooner, whoever sees both sides of the wire could tell them from others. Planted: no call of
    the store for them -> this fails.
    """
    one, store = ingress(tmp_path)
    cases = refused()
    assert await one.take([frame for frame, _ in cases]) == [
        Answer(kind, None) for _, kind in cases
    ]
    assert store.calls == [0]
    assert one.refused == {Kind.INVALID: 2, Kind.UNKNOWN_KEY: 1, Kind.WINDOW_CLOSED: 1}
    assert await one.take([]) == []
    assert store.calls == [0]


async def test_what_is_no_frame_costs_next_to_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """2,000 empty frames fit into 4 KB: none of them is looked into, and of equal headers one.
    Planted: a look for each -> fails.
    """
    looked: list[bytes] = []
    real = Ingress._not_ours

    def noting(self: Ingress, frame: bytes) -> ShoalError:
        looked.append(frame)
        return real(self, frame)

    monkeypatch.setattr(Ingress, "_not_ours", noting)
    one, _ = ingress(tmp_path)
    strange = b"\x01\x01\x00" + bytes(8)
    frames = (
        [b""] * 900
        + [bytes(100)] * 100
        + [strange.ljust(LIMITS.frame_sizes[0], bytes([n % 250])) for n in range(1_000)]
    )
    answers = await one.take(frames)
    assert [answer.kind for answer in answers] == [Kind.INVALID] * 1_000 + [
        Kind.UNKNOWN_KEY
    ] * 1_000
    assert one.refused == {Kind.INVALID: 1_000, Kind.UNKNOWN_KEY: 1_000}
    assert len(looked) == 1


async def test_a_store_that_closes_fails_all_alike_and_counts_nothing(tmp_path: Path) -> None:
    one, store = ingress(tmp_path)
    store.failure = ShoalError(Kind.UNAVAILABLE, "stopping")
    with pytest.raises(ShoalError, match="stopping"):
        await one.take([frame for frame, _ in refused()])
    assert not one.refused


def test_an_answer_prints_no_key() -> None:
    """Planted: ack_key without repr=False -> this fails."""
    answer = Answer(Kind.WINDOW_FULL, b"secretsecretsecretsecretsecretse")
    assert "secret" not in repr(answer)
    assert (answer.status, Answer(None, None).status) == (Kind.WINDOW_FULL.value, 0)
