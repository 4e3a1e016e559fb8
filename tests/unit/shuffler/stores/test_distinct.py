"""The keys that a window holds: against a plain set, across merges, with shared halves, and the
placing of one commit group.
"""

from __future__ import annotations

import random
import secrets
from collections.abc import Sequence
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.errors import Kind
from shoal.shuffler.core import Capacity
from shoal.shuffler.stores import distinct
from shoal.shuffler.stores.distinct import KeySet, place_joined

# few, so that keys share one half or the other
HALF = st.sampled_from([0, 1, 2, 2**63 - 1, 2**63, 2**64 - 1])
KEY = st.builds(lambda high, low: high.to_bytes(8, "big") + low.to_bytes(8, "big"), HALF, HALF)


def key(number: int) -> bytes:
    return number.to_bytes(16, "big")


@given(
    st.lists(
        st.one_of(st.lists(KEY, max_size=20), st.tuples(st.lists(KEY, max_size=20))), max_size=20
    ),
    st.integers(1, 5),
)
def test_it_is_a_set(steps: list[list[bytes] | tuple[list[bytes]]], recent: int) -> None:
    """``add`` of new ones and ``load`` of anything, merged after a few. Planted: first halves
    compared alone -> fails; no second look at keys that share a first half -> fails; only the
    longest run searched -> fails.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(distinct, "_RECENT", recent)
        keys, model = KeySet(), set[bytes]()
        for step in steps:
            if isinstance(step, tuple):
                keys.load(step[0])
                model.update(step[0])
            else:
                known = keys.known(step)
                assert known == [one in model for one in step]
                keys.add({one for one, old in zip(step, known, strict=True) if not old})
                model.update(step)
            assert len(keys) == len(model)
        assert all(keys.known(sorted(model)))
        assert keys.known([key(77_777)]) == [False]


def test_memory_is_sixteen_bytes_a_key_in_few_runs() -> None:
    """200,000 keys. Planted: a set of bytes for all of them (about 100 bytes a key) -> fails."""
    keys = KeySet()
    for _ in range(200):
        keys.add({secrets.token_bytes(16) for _ in range(1_000)})
    assert len(keys) == 200_000
    assert len(keys._recent) < distinct._RECENT
    assert len(keys._runs) < 6
    assert sum(run.high.nbytes + run.low.nbytes for run in keys._runs) <= 16 * 200_000
    assert "200000" in repr(keys)


class Placed(NamedTuple):
    outcomes: list[Kind | None]
    keys: set[bytes]
    tags: set[bytes]


def place(
    numbers: list[int],
    keys: KeySet,
    capacity: Capacity,
    tags: Sequence[bytes] = (),
    admitted: KeySet | None = None,
) -> Placed:
    """Reports whose keys have these numbers."""
    flat = [key(number) for number in numbers]
    found = place_joined(b"".join(flat), keys, capacity, tags, admitted)
    taken = [flat[at] for at in found.places.tolist()]
    assert taken == sorted(set(taken))
    return Placed(found.outcomes, set(taken), found.tags)


def placed(
    numbers: list[int], keys: KeySet, capacity: Capacity
) -> tuple[list[Kind | None], set[bytes]]:
    """Where anybody is admitted."""
    found = place(numbers, keys, capacity)
    assert not found.tags
    return found.outcomes, found.keys


def test_place_refuses_new_reports_beyond_the_limit_and_takes_repeats() -> None:
    keys = KeySet()
    keys.add({key(1), key(2)})
    outcomes, fresh = placed([1, 3, 3, 4, 5, 2, 4], keys, Capacity(1, 4, 100))
    assert outcomes == [None, None, None, None, Kind.WINDOW_FULL, None, None]
    assert fresh == {key(3), key(4)}
    assert len(keys) == 2  # nothing counts before it is on disk


def test_place_bounds_new_rows_and_takes_repeats_beyond() -> None:
    """Planted: repeats counted -> the third is OVERLOADED."""
    outcomes, fresh = placed([1, 1, 2, 3, 1, 2], KeySet(), Capacity(1, 0, 2))
    assert outcomes == [None, None, None, Kind.OVERLOADED, None, None]
    assert fresh == {key(1), key(2)}
    # not full: a batch can't be larger
    assert placed([1, 2, 3], KeySet(), Capacity(1, 9, 2))[0] == [None, None, Kind.OVERLOADED]


def test_room_is_for_reports_of_as_many_messages_as_there_may_be() -> None:
    """Planted: rows in place of reports -> all are taken, fails."""
    assert placed([1, 2, 3], KeySet(), Capacity(4, 0, 11))[0] == [None, None, Kind.OVERLOADED]
    assert placed([1, 2, 3], KeySet(), Capacity(4, 2, 100))[0] == [None, None, Kind.WINDOW_FULL]


def test_the_last_places_do_not_go_to_who_comes_first() -> None:
    """Reports of one call come in groups of as many messages, and who has one message has drawn no
    noise: of 30 with a place for 6, of which the first 10 have one message, 2 of those get one on
    average. Nor do they go to small first halves, by which the rows of a batch are sorted. 400
    groups; a mean is off by more than 6 standard errors in 1e-8 of all runs; the seed is fixed.

    Planted: in the order of the group -> 6 of those, fails; by the whole key -> the first halves of
    those that are taken are the smallest, fails.
    """
    rng, of_first, rank = random.Random(7), 0, 0  # noqa: S311 - a test
    groups, reports, room = 400, 30, 6
    for _ in range(groups):
        flat = [rng.randbytes(16) for _ in range(reports)]
        found = place_joined(b"".join(flat), KeySet(), Capacity(99, room, 9_999))
        taken = found.places.tolist()
        assert len(taken) == room
        assert [kind is None for kind in found.outcomes] == [at in taken for at in range(reports)]
        of_first += sum(at < 10 for at in taken)
        rank += sum(sorted(flat).index(flat[at]) for at in taken)
    # drawn without replacement: variances 6 (1/3) (2/3) (24/29) and (30^2 - 1) / 12 (24/29) / 6
    assert abs(of_first / groups - 2.0) < 6 * (1.104 / groups) ** 0.5
    assert abs(rank / groups / room - 14.5) < 6 * (10.33 / groups) ** 0.5


@pytest.mark.parametrize("limited", [True, False])
def test_place_against_a_model(limited: bool) -> None:
    """Random groups: never more than the limit of distinct ones, the rest to those whose keys end
    smallest, a repeat of an accepted one is never refused, and exactly the new ones are to be
    written. Planted: the short way for the usual group taken in spite of known keys -> fails.
    """
    rng = random.Random(5)  # noqa: S311 - a test
    for _ in range(300):
        keys, accepted, limit = KeySet(), set[int](), rng.randrange(1, 8)
        for _ in range(4):
            group, before = [rng.randrange(12) for _ in range(rng.randrange(12))], set(accepted)
            outcomes, fresh = placed(
                group,
                keys,
                Capacity(1, limit, 99) if limited else Capacity(1, 0, limit),
            )
            accepted.update(sorted({*group} - accepted)[: limit - len(accepted)])
            full = Kind.WINDOW_FULL if limited else Kind.OVERLOADED
            assert outcomes == [None if value in accepted else full for value in group]
            assert fresh == {key(value) for value in accepted - before}
            keys.add(fresh)
            assert len(keys) == len(accepted) <= limit


# --- admitted devices -----------------------------------------------------------------------------


def test_place_takes_one_new_report_of_a_device() -> None:
    """The first of two; its repeat again; the other of the two never; who was admitted before, only
    with what is there.

    Planted: tags not looked at -> fails. Planted: a tag per report, also of repeats -> the device
    of the last one is admitted, fails.
    """
    keys, admitted = KeySet(), KeySet()
    keys.add({key(1)})
    admitted.add({key(101)})
    numbers, devices = [2, 3, 2, 1, 4, 5, 1], [102, 102, 102, 101, 101, 103, 104]
    found = place(
        numbers,
        keys,
        Capacity(1, 0, 99),
        [key(device) for device in devices],
        admitted,
    )
    assert found.outcomes == [None, Kind.CONFLICT, None, None, Kind.CONFLICT, None, None]
    assert (found.keys, found.tags) == ({key(2), key(5)}, {key(102), key(103)})
    assert (len(keys), len(admitted)) == (1, 1)  # nothing counts before it is on disk


def test_a_report_that_finds_no_room_leaves_no_tag() -> None:
    """Planted: the tag added before the room is looked at -> fails."""
    for capacity, refusal in (
        (Capacity(1, 1, 99), Kind.WINDOW_FULL),
        (Capacity(1, 0, 1), Kind.OVERLOADED),
    ):
        found = place(
            [1, 2, 3],
            KeySet(),
            capacity,
            [key(101), key(102), key(101)],
            KeySet(),
        )
        assert found.outcomes == [None, refusal, Kind.CONFLICT]
        assert found.tags == {key(101)}
        tags = [key(101), key(102), key(101)]
        found = place([2, 1, 3], KeySet(), capacity, tags, KeySet())
        assert found.outcomes == [refusal, None, refusal]  # the third has no other in its way
        assert found.tags == {key(102)}


def test_one_sealed_message_of_two_devices_admits_the_first() -> None:
    """Both are told that it is stored; one row, one tag. Planted: the short way taken in spite of a
    repeat -> two tags, fails.
    """
    found = place([1, 1], KeySet(), Capacity(1, 0, 99), [key(101), key(102)], KeySet())
    assert (found.outcomes, found.keys, found.tags) == ([None, None], {key(1)}, {key(101)})


def test_admission_against_a_model() -> None:
    """Random groups of (device, report): as many new reports as devices that were admitted, never
    two of one device.
    """
    rng = random.Random(6)  # noqa: S311 - a test
    for _ in range(300):
        keys, admitted = KeySet(), KeySet()
        stored, entered = set[int](), dict[int, int]()
        for _ in range(4):
            group = [(rng.randrange(6), rng.randrange(9)) for _ in range(rng.randrange(8))]
            reports, devices = (
                [report for _, report in group],
                [key(100 + device) for device, _ in group],
            )
            found = place(reports, keys, Capacity(1, 0, 99), devices, admitted)
            before = (set(stored), dict(entered))
            for (device, report), outcome in zip(group, found.outcomes, strict=True):
                if report not in stored and device not in entered:
                    stored.add(report)
                    entered[device] = report
                assert outcome is (None if report in stored else Kind.CONFLICT)
            assert found.keys == {key(report) for report in stored - before[0]}
            assert found.tags == {key(100 + device) for device in entered.keys() - before[1].keys()}
            keys.add(found.keys)
            admitted.add(found.tags)
