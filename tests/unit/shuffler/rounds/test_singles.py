"""Helper mode between device, shuffler and analyzer, without sockets: what is stored, what is
delivered, and that one set is summed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shoal import failpoints
from shoal.clients.memory.rounds_ledger import MemoryLedger
from shoal.crypto.admission.enrolment import DeviceIdentity, issue
from shoal.crypto.admission.revocation import revoked
from shoal.crypto.secagg.single import Submission, submit, window_label
from shoal.crypto.secagg.terms import RoundTerms
from shoal.crypto.signing import SigningKey
from shoal.entropy import SeededEntropy
from shoal.errors import Kind, ShoalError
from shoal.limits import LIMITS
from shoal.protos import pairwise_pb2
from tests.worlds.rounds.helper_mode import (
    DIMENSION,
    NOW,
    PLAN,
    TERMS,
    WINDOW,
    World,
    device,
    shown,
)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(RoundTerms, "served", lambda *_: TERMS)  # the world's task is no real one
    return World.make(tmp_path)


async def test_the_sum_of_a_window(world: World) -> None:
    """Planted: no commit of the transaction -> nothing is there to deliver."""
    for number in range(1, 6):
        answer = await world.arrive(device(number)[0])
        assert answer.phase == pairwise_pb2.PHASE_DONE
    assert await world.conclude() == ""
    (found,) = world.sums.of(TERMS.task_id, 0)
    assert (found.survivors, set(found.vector.tolist())) == (5, {15})
    assert found.round_id == window_label(TERMS.task_id, 0)


async def test_repeats_change_nothing(world: World) -> None:
    """The same submission again is acknowledged again and counted once; another vector of the
    device is refused.

    Planted: the device's hash without its digest compared -> the second half fails.
    """
    (one, identity), others = device(1), [device(n)[0] for n in (2, 3)]
    for submission in (one, *others, one):
        assert (await world.arrive(submission)).phase == pairwise_pb2.PHASE_DONE
    assert world.store.count(WINDOW) == 3
    again = submit(
        TERMS, identity, np.full(DIMENSION, 9, np.int64), MemoryLedger(), SeededEntropy(99)
    )
    with pytest.raises(ShoalError) as error:
        await world.arrive(again)
    assert error.value.kind is Kind.CONFLICT
    assert await world.conclude() == ""
    assert set(world.sums.of(TERMS.task_id, 0)[0].vector.tolist()) == {6}


async def test_what_was_acknowledged_survives_a_restart(world: World) -> None:
    """Planted: no commit before the answer -> the count is 0 after the restart."""
    for number in (1, 2, 3):
        await world.arrive(device(number)[0])
    world.restart_shuffler()
    assert world.store.count(WINDOW) == 3
    assert await world.conclude() == ""
    assert set(world.sums.of(TERMS.task_id, 0)[0].vector.tolist()) == {6}


async def test_bytes_behind_the_last_commit_are_overwritten(world: World) -> None:
    """A crash between file and transaction leaves a row that never counted.

    Planted: appended at the end of the file without truncating it -> the sum fails.
    """
    await world.arrive(device(1)[0])
    failpoints.arm("singles.commit=eio@1")
    try:
        with pytest.raises(ShoalError):
            await world.arrive(device(2)[0])
    finally:
        failpoints.arm("")
    for number in (3, 4):
        await world.arrive(device(number)[0])
    assert await world.conclude() == ""
    assert set(world.sums.of(TERMS.task_id, 0)[0].vector.tolist()) == {8}


async def test_an_unusable_row_leaves_its_pad_out(world: World) -> None:
    """A hostile device costs itself its vote, not the window its sum."""
    hostile, identity = device(7)
    from shoal.crypto.admission.enrolled import prove

    garbage = bytes(len(hostile.sealed))
    single = pairwise_pb2.Single(proof=prove(identity, TERMS.task_id, 0, [garbage]), seed=bytes(32))
    await world.arrive(Submission(bytes(16), garbage, single))
    for number in (1, 2, 3):
        await world.arrive(device(number)[0])
    assert await world.conclude() == ""
    (found,) = world.sums.of(TERMS.task_id, 0)
    assert (found.survivors, set(found.vector.tolist())) == (3, {6})


async def test_only_one_set_is_ever_summed(world: World) -> None:
    """An analyzer that took rows and later refuses one wants the difference of two sums: no pad is
    given.

    Planted: ``fix`` without its check -> the second delivery gets other pads.
    """
    for number in (1, 2, 3, 4):
        await world.arrive(device(number)[0])
    lost: list[str] = []

    async def without_sum(method: str, messages: AsyncIterator[bytes]) -> bytes:
        if method == "SumSingles":
            async for message in messages:
                lost.append(message.hex())
            raise ShoalError(Kind.UNAVAILABLE, "gone")
        return await world.send(method, messages)

    with pytest.raises(ShoalError):
        await world.conclude(without_sum)
    assert lost  # pads of all four went out

    async def refusing(method: str, messages: AsyncIterator[bytes]) -> bytes:
        async for _ in messages:
            pass
        assert method == "DeliverSingles"
        return pairwise_pb2.VectorsReply(unusable=[2]).SerializeToString()

    with pytest.raises(ShoalError) as error:
        await world.conclude(refusing)
    assert error.value.kind is Kind.CONFLICT
    world.analyzer = World.collector(world.sums)  # the analyzer restarts, and behaves
    assert await world.conclude() == ""
    assert set(world.sums.of(TERMS.task_id, 0)[0].vector.tolist()) == {10}
    assert await world.conclude() == ""  # again: the sum is on disk


async def test_a_set_below_the_least_is_not_summed(world: World) -> None:
    """Neither by few devices nor by an analyzer that calls most rows unusable. Planted: no second
    check -> the pads of two go out.
    """
    for number in (1, 2):
        await world.arrive(device(number)[0])
    assert await world.conclude() == "too few vectors came"
    assert world.calls == []
    world.store.forget(WINDOW)
    world.restart_shuffler()
    for number in (1, 2, 3, 4):
        await world.arrive(device(number)[0])

    async def refusing(method: str, messages: AsyncIterator[bytes]) -> bytes:
        async for _ in messages:
            pass
        assert method == "DeliverSingles"
        return pairwise_pb2.VectorsReply(unusable=[0, 1]).SerializeToString()

    assert await world.conclude(refusing) == "too few vectors came"


@pytest.mark.parametrize(("refused", "reason"), [(2, ""), (3, "too few vectors came")])
async def test_an_analyzer_refuses_no_more_rows_than_may_be_lost(
    world: World, refused: int, reason: str
) -> None:
    """Of 8 rows 2 may go, though survivors_min is 3: else it could leave one honest row among those
    of devices that it knows.

    Planted: survivors_min as the only bound -> the pads of five rows go out.
    """
    for number in range(1, 9):
        await world.arrive(device(number)[0])
    summed: list[int] = []

    async def refusing(method: str, messages: AsyncIterator[bytes]) -> bytes:
        chunks = [message async for message in messages]
        if method == "DeliverSingles":
            return pairwise_pb2.VectorsReply(unusable=range(refused)).SerializeToString()
        summed.append(pairwise_pb2.PadsChunk.FromString(chunks[0]).devices)
        return pairwise_pb2.UnmaskRoundReply(done=True).SerializeToString()

    assert await world.conclude(refusing) == reason
    assert summed == ([] if reason else [6])


async def test_an_empty_window_is_over_at_once(world: World) -> None:
    assert await world.conclude() == ""
    assert world.calls == []


async def test_the_order_of_delivery_is_drawn_anew(world: World) -> None:
    """And is not that of arrival. Planted: rows in order of arrival -> this fails (it would pass by
    chance once in 8! squared).
    """
    arrived = [device(n)[0] for n in range(8)]
    for one in arrived:
        await world.arrive(one)
    size, orders = TERMS.sealed_vector_bytes, list[list[int]]()

    async def looking(method: str, messages: AsyncIterator[bytes]) -> bytes:
        data = b"".join(
            [pairwise_pb2.SinglesChunk.FromString(message).data async for message in messages]
        )
        rows = [data[i : i + size] for i in range(0, len(data), size)]
        orders.append([[one.sealed for one in arrived].index(row) for row in rows])
        raise ShoalError(Kind.UNAVAILABLE, "gone")

    for _ in range(2):
        with pytest.raises(ShoalError):
            await world.conclude(looking)
    assert sorted(orders[0]) == sorted(orders[1]) == list(range(8))
    assert list(range(8)) not in orders
    assert orders[0] != orders[1]


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"total": 5}, Kind.INVALID),
        ({"chunk": b""}, Kind.INVALID),
        ({"offset": 1}, Kind.INVALID),
        ({"chunk": bytes(300 * 1024)}, Kind.OVERSIZE),
        ({"digest": b""}, Kind.INVALID),
        ({"digest": bytes(32)}, Kind.UNAUTHENTICATED),
        ({"proof": b""}, Kind.UNAUTHENTICATED),
    ],
)
async def test_bad_chunks_are_refused(world: World, changes: dict[str, Any], kind: Kind) -> None:
    good = {"offset": 0, "total": TERMS.sealed_vector_bytes, "chunk": b"abc", **shown(1)}
    with pytest.raises(ShoalError) as error:
        await world.step(
            pairwise_pb2.Step(session=bytes(16), upload=pairwise_pb2.Upload(**{**good, **changes}))
        )
    assert error.value.kind is kind
    assert (world.singles._staged, world.singles._uploads) == (0, {})


async def test_chunks_may_come_again_but_not_others(world: World) -> None:
    total = TERMS.sealed_vector_bytes
    for chunk, received in ((b"abc", 3), (b"abc", 3), (b"abcd", 4)):
        upload = pairwise_pb2.Upload(offset=0, total=total, chunk=chunk, **shown(1))
        assert (
            await world.step(pairwise_pb2.Step(session=bytes(16), upload=upload))
        ).received == received
    with pytest.raises(ShoalError) as error:
        await world.step(
            pairwise_pb2.Step(
                session=bytes(16), upload=pairwise_pb2.Upload(offset=0, total=total, chunk=b"x")
            )
        )
    assert error.value.kind is Kind.CONFLICT
    with pytest.raises(ShoalError) as error:
        await world.step(pairwise_pb2.Step(session=b"short", poll=pairwise_pb2.Poll()))
    assert error.value.kind is Kind.INVALID
    with pytest.raises(ShoalError) as error:
        await world.step(pairwise_pb2.Step(session=bytes(16), join=pairwise_pb2.Join()))
    assert error.value.kind is Kind.INVALID


async def test_a_window_that_is_over_takes_nothing(world: World) -> None:
    with pytest.raises(ShoalError) as error:
        await world.singles.step(
            TERMS, pairwise_pb2.Step(session=bytes(16), poll=pairwise_pb2.Poll()), NOW, open_=False
        )
    assert error.value.kind is Kind.WINDOW_CLOSED


async def test_many_at_once_share_commits(world: World) -> None:
    """Every one is answered. Planted: the flush ending after its first batch -> this hangs until
    its timeout.
    """
    terms = TERMS
    ones = [device(n)[0] for n in range(12)]
    answers = await asyncio.gather(*(world.arrive(one, terms=terms) for one in ones))
    assert {answer.phase for answer in answers} == {pairwise_pb2.PHASE_DONE}
    assert world.store.count(WINDOW) == 12


async def test_a_bug_in_the_store_leaves_nobody_waiting(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: only ShoalError caught -> the device waits until its deadline."""

    def broken(arrivals: object) -> list[Kind | None]:
        raise ValueError("a bug")

    monkeypatch.setattr(world.store, "add", broken)
    with pytest.raises(ShoalError) as error:
        async with asyncio.timeout(5):
            await world.arrive(device(1)[0])
    assert error.value.kind is Kind.INTERNAL
    assert "bug" not in error.value.message
    monkeypatch.undo()
    monkeypatch.setattr(RoundTerms, "served", lambda *_: TERMS)
    assert (await world.arrive(device(2)[0])).phase == pairwise_pb2.PHASE_DONE


async def test_a_forgotten_window_leaves_nothing(world: World) -> None:
    for number in (1, 2, 3):
        await world.arrive(device(number)[0])
    assert world.store.windows() == {WINDOW}
    world.store.forget(WINDOW)
    world.store.forget(WINDOW)
    assert (world.store.windows(), world.store.count(WINDOW)) == (set(), 0)
    assert not list(world.folder.glob("singles-*"))


async def test_a_window_takes_as_many_as_its_words_hold(world: World) -> None:
    """Repeats cost nothing. Planted: no count in the store -> the fourth is stored, and the sum
    could wrap.
    """
    terms = replace(TERMS, plan=replace(PLAN, cohort_max=4, cohort_min=4))
    ones = [device(n)[0] for n in range(5)]
    for one in [*ones[:4], ones[0]]:
        await world.arrive(one, terms=terms)
    with pytest.raises(ShoalError) as error:
        await world.arrive(ones[4], terms=terms)
    assert (error.value.kind, world.store.count(WINDOW)) == (Kind.WINDOW_FULL, 4)


async def test_strangers_are_refused(world: World) -> None:
    one, _ = device(1)
    stranger = SigningKey.generate()
    forged = DeviceIdentity(
        stranger, issue(SigningKey.generate(), stranger.public, int(NOW) - 10, int(NOW) + 10)
    )
    other = submit(replace(TERMS), forged, np.zeros(DIMENSION, np.int64), MemoryLedger())
    with pytest.raises(ShoalError) as error:
        await world.arrive(other)
    assert error.value.kind is Kind.UNAUTHENTICATED
    assert (world.store.count(WINDOW), world.singles._staged) == (0, 0)
    with pytest.raises(ShoalError) as error:
        # nothing was uploaded
        await world.step(pairwise_pb2.Step(session=one.session, single=one.single))
    assert error.value.kind is Kind.INVALID


async def test_a_device_has_one_upload_at_a_time(world: World) -> None:
    """However many sessions it begins; one of another device stays. Planted: uploads known by their
    session alone -> this fails.
    """
    for number, session in ((2, 9), (1, 1), (1, 2), (1, 3)):
        upload = pairwise_pb2.Upload(
            offset=0, total=TERMS.sealed_vector_bytes, chunk=b"x", **shown(number)
        )
        await world.step(pairwise_pb2.Step(session=bytes([session]) * 16, upload=upload))
    assert set(world.singles._uploads) == {bytes([9]) * 16, bytes([3]) * 16}
    assert world.singles._staged == 2 * 1025
    upload = pairwise_pb2.Upload(offset=1, total=TERMS.sealed_vector_bytes, chunk=b"x")
    with pytest.raises(ShoalError) as error:
        await world.step(pairwise_pb2.Step(session=bytes([1]) * 16, upload=upload))
    assert error.value.kind is Kind.INVALID


async def test_many_small_uploads_do_not_fill_the_memory(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session of one byte costs what it takes; what is too slow goes when room is short, though
    it goes on; a vector on its way stays.

    Planted: bytes alone are counted -> the fifth is taken. Planted: the last chunk's time instead
    of the first's -> nothing is dropped.
    """
    monkeypatch.setattr(
        "shoal.shuffler.rounds.singles.LIMITS", replace(LIMITS, staged_bytes=4 * 1024 + 8)
    )

    async def byte(number: int, offset: int, now: float) -> int:
        upload = pairwise_pb2.Upload(
            offset=offset, total=TERMS.sealed_vector_bytes, chunk=b"x", **shown(number)
        )
        answer = await world.singles.step(
            TERMS, pairwise_pb2.Step(session=bytes([number]) * 16, upload=upload), now, open_=True
        )
        return answer.received

    for number in range(4):
        assert await byte(number, 0, NOW) == 1
    for number in range(4):
        assert await byte(number, 1, NOW + PLAN.mask_s) == 2
    with pytest.raises(ShoalError) as error:
        await byte(4, 0, NOW + PLAN.mask_s)
    assert error.value.kind is Kind.OVERLOADED
    assert error.value.retry_after_s > 0
    assert await byte(4, 0, NOW + PLAN.mask_s + 1) == 1
    assert await byte(0, 0, NOW + PLAN.mask_s + 1) == 1  # the slow ones begin again
    assert world.singles._staged == 2 * 1025


@pytest.mark.parametrize("after", [0, 1])
async def test_a_revoked_device_keeps_nothing_here(
    world: World, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    """Refused at its first chunk, and at its seed where it was revoked in between. Planted: either
    not looked at -> fails.
    """
    looks: list[bytes] = []

    def check(device_key: bytes) -> None:
        looks.append(device_key)
        if len(looks) > after:
            raise revoked()

    step = world.singles.step
    monkeypatch.setattr(
        world, "step", lambda one, terms=TERMS: step(terms, one, NOW, open_=True, check=check)
    )
    with pytest.raises(ShoalError) as error:
        await world.arrive(device(1)[0])
    assert error.value.kind is Kind.UNAUTHENTICATED
    assert len(looks) == after + 1
    assert world.store.count(WINDOW) == 0
