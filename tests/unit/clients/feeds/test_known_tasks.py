"""What a device believes: the order of verification, one bad file alone, one schedule per task over
time.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from shoal import codec
from shoal.clients.feeds.known_tasks import KnownTasks
from shoal.clients.memory.outbox import MemoryOutbox
from shoal.clients.owner.policy import Policy
from shoal.codec import Signed
from shoal.crypto.hpke import generate
from shoal.crypto.signing import SigningContext, SigningKey
from shoal.crypto.suites import SuiteId
from shoal.crypto.trust import TrustedTask, trust_task
from shoal.errors import Kind, ShoalError
from shoal.ids import TaskId
from tests.cases import for_each
from tests.worlds.devices.clients import World, make_world


def book_of(folder: Path, world: World, outbox: MemoryOutbox | None = None) -> KnownTasks:
    known_tasks = KnownTasks(folder, Policy(world.authorities, 4.0, 2), outbox or MemoryOutbox())
    known_tasks.refresh()
    return known_tasks


def _problem(folder: Path, world: World) -> Kind:
    known_tasks = book_of(folder, world)
    assert known_tasks.all() == []
    with pytest.raises(ShoalError) as caught:
        known_tasks.find("visits")
    assert caught.value is known_tasks.problems["visits"]
    assert "visits" in caught.value.message
    assert "\n" not in caught.value.message
    return caught.value.kind


def test_a_good_pair_is_found_by_name_and_id(tmp_path: Path) -> None:
    world = make_world()
    world.write(tmp_path)
    known_tasks = book_of(tmp_path, world)
    assert [one.task_id for one in known_tasks.all()] == [world.task_id]
    for name in ("visits", world.task_id.hex, world.task_id.short):
        assert known_tasks.find(name).task_id == world.task_id
    for name in ("visit", world.task_id.hex[:7], ""):
        with pytest.raises(ShoalError) as caught:
            known_tasks.find(name)
        assert caught.value.kind is Kind.UNKNOWN_TASK
        assert "visits" in caught.value.message


def test_an_unsigned_task_is_refused(tmp_path: Path) -> None:
    world = make_world()
    world.signed_task = codec.encode_signed_task(
        Signed(world.task_bytes, world.authority.public, b"")
    )
    world.write(tmp_path)
    assert _problem(tmp_path, world) is Kind.BAD_SIGNATURE


def test_a_task_of_another_authority_is_refused_even_if_its_signature_verifies(
    tmp_path: Path,
) -> None:
    world, stranger = make_world(), make_world()
    stranger.write(tmp_path)
    assert _problem(tmp_path, world) is Kind.FORBIDDEN


@for_each("place", [20, 100, -80, -1])
def test_a_tampered_task_is_refused_before_it_is_read(tmp_path: Path, place: int) -> None:
    """One flipped bit, anywhere. Planted: parse before verifying -> another kind than the three
    below, or none.
    """
    world = make_world()
    damaged = bytearray(world.signed_task)
    damaged[place] ^= 1
    world.signed_task = bytes(damaged)
    world.write(tmp_path)
    assert _problem(tmp_path, world) in {Kind.BAD_SIGNATURE, Kind.FORBIDDEN, Kind.INVALID}


def test_a_task_changed_and_claimed_under_the_old_signature_is_refused(tmp_path: Path) -> None:
    world = make_world()
    weaker = make_world(epsilon0=9.0, authority=world.authority)
    old = codec.decode_signed_task(world.signed_task)
    world.signed_task = codec.encode_signed_task(
        Signed(weaker.task_bytes, old.authority, old.signature)
    )
    world.write(tmp_path)
    assert _problem(tmp_path, world) is Kind.BAD_SIGNATURE


def test_schedules_that_do_not_belong_are_refused(tmp_path: Path) -> None:
    """By another key authority; of another task; for another number of windows; damaged;
    missing.
    """
    world = make_world()
    longer = make_world(count=5, authority=world.authority)
    damaged = bytearray(world.signed_schedule)
    damaged[-1] ^= 1
    cases = [
        (world.schedule(world.hop, by=SigningKey.generate()), Kind.FORBIDDEN),
        (world.schedule(world.hop, task_id=TaskId(bytes(32))), Kind.MISMATCH),
        (longer.schedule(world.hop, task_id=world.task_id), Kind.MISMATCH),
        (bytes(damaged), Kind.BAD_SIGNATURE),
        (b"", Kind.FORBIDDEN),
    ]
    for schedule, kind in cases:
        world.signed_schedule = schedule
        world.write(tmp_path)
        assert _problem(tmp_path, world) is kind
    (tmp_path / "visits.keys").unlink()
    assert _problem(tmp_path, world) is Kind.CONFIG


def test_a_task_signature_does_not_pass_as_one_of_a_schedule(tmp_path: Path) -> None:
    world = make_world()
    data = codec.decode_signed_schedule(world.signed_schedule).data
    signature = world.authority.sign(SigningContext.TASK, data)
    world.signed_schedule = codec.encode_signed_schedule(
        Signed(data, world.authority.public, signature)
    )
    world.write(tmp_path)
    assert _problem(tmp_path, world) is Kind.BAD_SIGNATURE


def test_two_schedules_for_one_task_over_time_are_refused(tmp_path: Path) -> None:
    """The second, properly signed, is refused, and from then on the first as well: nobody can say
    which one the others have.

    Planted: no ``pin`` -> the second passes; the strike not asked for at each look -> the first is
    taken again.
    """
    world, outbox = make_world(), MemoryOutbox()
    world.write(tmp_path)
    known_tasks = book_of(tmp_path, world, outbox)
    first = world.signed_schedule
    world.signed_schedule = world.schedule(generate(SuiteId.X25519_AES128))
    world.write(tmp_path)
    known_tasks.refresh()
    assert known_tasks.all() == []
    assert known_tasks.problems["visits"].kind is Kind.CONFLICT
    assert book_of(tmp_path, world, outbox).problems["visits"].kind is Kind.CONFLICT
    world.signed_schedule = first
    world.write(tmp_path)
    known_tasks.refresh()
    assert known_tasks.all() == []
    with pytest.raises(ShoalError) as caught:
        known_tasks.find("visits")
    assert caught.value.kind is Kind.CONFLICT


def test_the_shelf_of_what_feeds_brought_is_read_beside_the_folder(tmp_path: Path) -> None:
    """It need not exist; the same task in both is no problem; a second schedule in it strikes the
    task of the owner's folder too.

    Planted: tasks that were loaded before the strike stay -> the last part fails.
    """
    world, outbox = make_world(), MemoryOutbox()
    learnt = make_world(authority=world.authority, name="steps")
    world.write(tmp_path / "tasks")
    known_tasks = KnownTasks(
        tmp_path / "tasks", Policy(world.authorities, 4.0, 2), outbox, tmp_path / "shelf"
    )
    known_tasks.refresh()
    assert [one.task.name for one in known_tasks.all()] == ["visits"]
    learnt.write(tmp_path / "shelf")
    world.write(tmp_path / "shelf")
    known_tasks.refresh()
    assert [one.task.name for one in known_tasks.all()] == ["steps", "visits"]
    assert known_tasks.problems == {}
    world.signed_schedule = world.schedule(generate(SuiteId.X25519_AES128))
    world.write(tmp_path / "shelf")
    known_tasks.refresh()
    assert [one.task.name for one in known_tasks.all()] == ["steps"]
    with pytest.raises(ShoalError) as caught:
        known_tasks.find("visits")
    assert caught.value.kind is Kind.CONFLICT
    assert {one.trusted.task_id for one in known_tasks.unusable if one.trusted} == {world.task_id}


def test_a_file_is_verified_once_and_again_when_it_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: no memory of what was read -> three; the stamp of the task alone -> the changed
    schedule goes unseen.
    """
    looks: list[bytes] = []

    def counting(data: bytes, authorities: frozenset[bytes]) -> TrustedTask:
        looks.append(data)
        return trust_task(data, authorities)

    monkeypatch.setattr("shoal.clients.feeds.known_tasks.trust_task", counting)
    world = make_world()
    world.write(tmp_path)
    (tmp_path / "junk.task").write_bytes(b"junk")
    (tmp_path / "junk.keys").write_bytes(b"junk")
    known_tasks = book_of(tmp_path, world)
    for _ in range(3):
        known_tasks.refresh()
    assert len(looks) == 2
    (tmp_path / "visits.keys").write_bytes(b"damaged")
    known_tasks.refresh()
    assert len(looks) == 3
    assert known_tasks.all() == []
    (tmp_path / "visits.keys").write_bytes(world.signed_schedule)
    known_tasks.refresh()
    assert len(known_tasks.all()) == 1


def test_one_bad_file_costs_its_own_task_alone(tmp_path: Path) -> None:
    world = make_world()
    world.write(tmp_path)
    (tmp_path / "junk.task").write_bytes(b"\xff\xff\xff")
    (tmp_path / "huge.task").write_bytes(bytes(1 << 20))
    (tmp_path / "copy.task").write_bytes(world.signed_task)
    (tmp_path / "copy.keys").write_bytes(world.signed_schedule)
    known_tasks = book_of(tmp_path, world)
    assert [one.task.name for one in known_tasks.all()] == ["visits"]
    assert {name: error.kind for name, error in known_tasks.problems.items()} == {
        "junk": Kind.INVALID,
        "huge": Kind.OVERSIZE,
        "visits": Kind.CONFLICT,  # copy.* came first: the second file of one task is the problem
    }


def test_two_tasks_of_one_name_are_told_apart_by_id(tmp_path: Path) -> None:
    world = make_world()
    other = make_world(authority=world.authority, epsilon0=2.0)
    world.write(tmp_path)
    for suffix, data in ((".task", other.signed_task), (".keys", other.signed_schedule)):
        (tmp_path / f"second{suffix}").write_bytes(data)
    known_tasks = book_of(tmp_path, world)
    with pytest.raises(ShoalError) as caught:
        known_tasks.find("visits")
    assert caught.value.kind is Kind.CONFLICT
    assert other.task_id.short in caught.value.message
    assert known_tasks.find(other.task_id.short).task_id == other.task_id


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(ShoalError) as caught:
        book_of(tmp_path / "none", make_world())
    assert caught.value.kind is Kind.CONFIG


def test_a_paused_window_gets_no_answer_while_it_lasts(tmp_path: Path) -> None:
    """By the word of the task's own shuffler alone. Planted: any shuffler's word taken -> a
    stranger silences others' tasks, fails. Planted: the window not looked at -> fails.
    """
    world = make_world()
    world.write(tmp_path)
    known_tasks = book_of(tmp_path, world)
    (one,) = known_tasks.all()
    address, plan = one.task.shuffler_address, one.task.windows

    def open_in(window: int) -> bool:
        try:
            known_tasks.check_open(one, plan.start_of(window) + 1.0)
        except ShoalError as error:
            return error.kind is not Kind.UNAVAILABLE  # after that the device looks again
        return True

    assert known_tasks.pause("stranger.example:7443", {one.task_id: frozenset()})
    assert open_in(0)
    assert known_tasks.pause(address, {one.task_id: frozenset({1})})
    assert not known_tasks.pause(address, {one.task_id: frozenset({1})})
    assert [open_in(0), open_in(1)] == [True, False]
    assert known_tasks.pause(address, {one.task_id: frozenset()})
    assert [open_in(0), open_in(1)] == [False, False]
    assert known_tasks.pause(address, {})
    assert [open_in(0), open_in(1)] == [True, True]
