"""Topics say which shuffler, and nothing else."""

from __future__ import annotations

import hashlib

import pytest

from shoal.entropy import SeededEntropy
from shoal.errors import Kind, ShoalError
from shoal.ids import TaskId
from shoal.mqtt import topics
from tests.cases import for_each

KEY = bytes(range(32))
TAG = topics.tag_of(KEY)
REPLY = "0123456789abcdef" * 2


def test_the_tag_is_what_the_module_says() -> None:
    """Planted: another label, no separator, more or fewer bytes -> this fails."""
    assert hashlib.sha256(b"shoal/v1/mqtt" + b"\x00" + KEY).hexdigest()[:16] == TAG
    assert topics.tag_of(bytes(32)) != TAG


@pytest.mark.parametrize("key", [b"", bytes(31), bytes(33)])
def test_a_shuffler_key_has_32_bytes(key: bytes) -> None:
    with pytest.raises(ShoalError) as caught:
        topics.tag_of(key)
    assert caught.value.kind is Kind.INVALID


def test_a_reply_id_is_128_fresh_bits() -> None:
    """Planted: an id that is drawn once -> this fails."""
    drawn = [topics.new_reply() for _ in range(100)]
    assert len(set(drawn)) == 100
    assert {len(reply) for reply in drawn} == {32}
    assert topics.new_reply(SeededEntropy("reply")) == SeededEntropy("reply").bytes(16).hex()


def test_names_and_back() -> None:
    assert topics.up_topic(TAG, REPLY) == f"shoal/v1/up/{TAG}/{REPLY}"
    assert topics.up_filter(TAG) == f"shoal/v1/up/{TAG}/+"
    assert topics.down_topic(REPLY) == f"shoal/v1/down/{REPLY}"
    assert topics.reply_of(topics.up_topic(TAG, REPLY), TAG) == REPLY
    task_id = TaskId.of(b"task")
    assert topics.task_topic(task_id) == f"shoal/v1/tasks/{task_id.raw.hex()}"
    assert topics.task_of(topics.task_topic(task_id)) == task_id
    assert topics.TASKS_FILTER == "shoal/v1/tasks/+"


# A shuffler publishes to what reply_of returns: nothing but its own form of id may come out, or
# somebody steers where it writes.
FOREIGN = [
    "",
    "+",
    "#",
    REPLY.upper(),
    REPLY[:-1],
    REPLY + "0",
    REPLY + "/x",
    f"x/{REPLY}",
    REPLY[:-1] + "g",
    REPLY + "\n",
    "é" * 32,
    "٣" * 32,
]


@for_each("reply", FOREIGN)
def test_no_other_reply_id_is_read_or_written(reply: str) -> None:
    """Planted: match instead of fullmatch, isdigit-like classes, no check in down_topic -> this
    fails.
    """
    assert topics.reply_of(f"shoal/v1/up/{TAG}/{reply}", TAG) is None
    for make in (topics.down_topic, lambda text: topics.up_topic(TAG, text)):
        with pytest.raises(ShoalError) as caught:
            make(reply)
        assert caught.value.kind is Kind.INVALID


@for_each(
    "topic",
    [
        "",
        REPLY,
        f"shoal/v1/up/{'0' * 16}/{REPLY}",
        f"shoal/v1/down/{REPLY}",
        f"shoal/v2/up/{TAG}/{REPLY}",
    ],
)
def test_no_other_topic_is_an_uplink(topic: str) -> None:
    assert topics.reply_of(topic, TAG) is None


@for_each("tag", ["", "+", "#", TAG.upper() + "G", TAG[:-1], TAG + "/+"])
def test_a_tag_can_not_widen_a_subscription(tag: str) -> None:
    """Planted: an unchecked tag -> a shuffler configured with "+" would take the frames of all."""
    for make in (topics.up_filter, lambda text: topics.up_topic(text, REPLY)):
        with pytest.raises(ShoalError) as caught:
            make(tag)
        assert caught.value.kind is Kind.INVALID


@for_each("name", ["", "+", "00", "0" * 65, "G" * 64, "٣" * 64])
def test_a_task_topic_names_a_task_or_nothing(name: str) -> None:
    assert topics.task_of(f"shoal/v1/tasks/{name}") is None
    assert topics.task_of(f"shoal/v1/task/{'0' * 64}") is None
