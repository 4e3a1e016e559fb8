"""Uploads of a round: pieces in order, repeats harmless, a second vector refused, a full disk told,
nothing left.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal import failpoints
from shoal.entropy import SeededEntropy
from shoal.errors import Kind, ShoalError
from shoal.limits import LIMITS
from shoal.shuffler.rounds.vectors import VectorSpool

SIZE = 1_000
ONE, TWO = b"\x01" * 16, b"\x02" * 16
VECTOR = SeededEntropy("vector").bytes(SIZE)


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[VectorSpool]:
    made = VectorSpool(tmp_path, SIZE, 3)
    yield made
    failpoints.arm("")
    made.close()


def refused(spool: VectorSpool, *arguments: object) -> Kind:
    with pytest.raises(ShoalError) as error:
        spool.write(*arguments)  # type: ignore[arg-type]
    return error.value.kind


def test_a_vector_comes_in_pieces(spool: VectorSpool, tmp_path: Path) -> None:
    """Planted: the digest of the last piece alone -> another digest."""
    assert spool.received(ONE) == 0
    assert spool.write(ONE, 0, SIZE, VECTOR[:300]) == 300
    assert spool.complete(ONE) is None
    assert spool.write(ONE, 300, SIZE, VECTOR[300:]) == SIZE
    digest = spool.complete(ONE)
    assert digest is not None
    assert digest.raw == hashlib.sha256(VECTOR).digest()
    assert b"".join(spool.stream([ONE], 128)) == VECTOR
    assert list(tmp_path.iterdir()) == []  # the file has no name


def test_repeats_and_overlaps_of_the_same_bytes_change_nothing(spool: VectorSpool) -> None:
    """Planted: overlaps hashed again -> another digest."""
    spool.write(ONE, 0, SIZE, VECTOR[:500])
    assert spool.write(ONE, 0, SIZE, VECTOR[:500]) == 500
    assert spool.write(ONE, 100, SIZE, VECTOR[100:200]) == 500
    assert spool.write(ONE, 400, SIZE, VECTOR[400:]) == SIZE
    assert spool.write(ONE, 0, SIZE, VECTOR) == SIZE
    digest = spool.complete(ONE)
    assert digest is not None
    assert digest.raw == hashlib.sha256(VECTOR).digest()


@pytest.mark.parametrize(
    ("offset", "total", "chunk", "kind"),
    [
        (0, SIZE - 1, b"x", Kind.INVALID),
        (0, SIZE, b"", Kind.INVALID),
        (301, SIZE, b"x", Kind.INVALID),  # a gap
        (300, SIZE, bytes(701), Kind.INVALID),  # beyond the end
        (1 << 63, SIZE, b"x", Kind.INVALID),
        (0, SIZE, bytes(LIMITS.upload_bytes + 1), Kind.OVERSIZE),
        (299, SIZE, bytes((VECTOR[299] ^ 1,)), Kind.CONFLICT),
        (0, SIZE, bytes(300) + VECTOR[300:], Kind.CONFLICT),
    ],
)
def test_what_does_not_fit_is_refused_and_changes_nothing(
    spool: VectorSpool, offset: int, total: int, chunk: bytes, kind: Kind
) -> None:
    """Planted: bytes from before not compared -> the conflicts pass, and a second vector stands in
    the first one's place.
    """
    spool.write(ONE, 0, SIZE, VECTOR[:300])
    assert refused(spool, ONE, offset, total, chunk) is kind
    assert spool.received(ONE) == 300
    assert spool.write(ONE, 300, SIZE, VECTOR[300:]) == SIZE
    assert b"".join(spool.stream([ONE], SIZE)) == VECTOR


def test_a_round_takes_as_many_vectors_as_it_has_seats(spool: VectorSpool) -> None:
    for number in range(3):
        spool.write(bytes((number,)), 0, SIZE, b"x")
    assert refused(spool, b"\x03", 0, SIZE, b"x") is Kind.OVERLOADED
    assert spool.received(b"\x03") == 0


def test_a_full_disk_is_told_and_the_same_bytes_go_on_later(spool: VectorSpool) -> None:
    """Planted: OSError let through -> an incident number instead of "later"."""
    spool.write(ONE, 0, SIZE, VECTOR[:300])
    failpoints.arm("vectors.write=enospc@1")
    assert refused(spool, ONE, 300, SIZE, VECTOR[300:]) is Kind.OVERLOADED
    assert spool.received(ONE) == 300
    failpoints.arm("vectors.write=eio@1")
    assert refused(spool, ONE, 300, SIZE, VECTOR[300:]) is Kind.INTERNAL
    assert spool.write(ONE, 300, SIZE, VECTOR[300:]) == SIZE
    assert b"".join(spool.stream([ONE], SIZE)) == VECTOR


def test_only_complete_vectors_are_delivered(spool: VectorSpool) -> None:
    spool.write(ONE, 0, SIZE, VECTOR[:-1])
    with pytest.raises(ShoalError) as error:
        b"".join(spool.stream([ONE], SIZE))
    assert error.value.kind is Kind.INTERNAL


def test_after_the_end_nothing_is_kept(spool: VectorSpool) -> None:
    spool.write(ONE, 0, SIZE, VECTOR)
    before = len(os.listdir("/proc/self/fd"))
    spool.close()
    spool.close()
    assert len(os.listdir("/proc/self/fd")) == before - 1
    assert refused(spool, ONE, 0, SIZE, VECTOR) is Kind.WINDOW_CLOSED
    assert spool.complete(ONE) is None


def test_a_folder_that_is_gone_is_told(tmp_path: Path) -> None:
    with pytest.raises(ShoalError) as error:
        VectorSpool(tmp_path / "nowhere", SIZE, 1)
    assert error.value.kind is Kind.INTERNAL


@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.integers(0, SIZE - 1), st.integers(1, SIZE)), max_size=40
    ),
    st.integers(1, 3 * SIZE),
)
def test_rows_of_any_pieces_come_out_whole(
    tmp_path_factory: pytest.TempPathFactory, pieces: list[tuple[int, int, int]], most: int
) -> None:
    """Against a model: per session the bytes held from the beginning on."""
    vectors = [SeededEntropy(f"vector {number}").bytes(SIZE) for number in range(3)]
    spool = VectorSpool(tmp_path_factory.getbasetemp(), SIZE, 3)
    held = [0, 0, 0]
    for number, offset, length in [
        *pieces,
        *((n, at, SIZE) for n in range(3) for at in range(0, SIZE, SIZE)),
    ]:
        end = min(offset + length, SIZE)
        if offset > held[number]:
            assert (
                refused(spool, bytes((number,)), offset, SIZE, vectors[number][offset:end])
                is Kind.INVALID
            )
            continue
        held[number] = max(held[number], end)
        assert (
            spool.write(bytes((number,)), offset, SIZE, vectors[number][offset:end]) == held[number]
        )
    assert (
        b"".join(spool.stream([b"\x02", b"\x00", b"\x01"], most))
        == vectors[2] + vectors[0] + vectors[1]
    )
    assert all(len(piece) <= most for piece in spool.stream([b"\x00", b"\x01"], most))
    spool.close()


def test_many_devices_at_once(tmp_path: Path) -> None:
    """Eight threads, one session each: no piece lands in another's row."""
    spool = VectorSpool(tmp_path, SIZE, 8)
    vectors = [SeededEntropy(f"thread {number}").bytes(SIZE) for number in range(8)]

    def upload(number: int) -> None:
        for at in range(0, SIZE, 50):
            spool.write(bytes((number,)), at, SIZE, vectors[number][at : at + 50])

    threads = [threading.Thread(target=upload, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert b"".join(spool.stream([bytes((number,)) for number in range(8)], 333)) == b"".join(
        vectors
    )
    spool.close()
