"""Names on the broker. They say which shuffler is meant, and nothing about task, window or device.

    shoal/v1/up/<tag>/<reply>     frames, from devices
    shoal/v1/down/<reply>         replies, to the connection that drew <reply>
    shoal/v1/tasks/<task id>      signed tasks, retained
    shoal/v1/steps/<task id>      what a discovery asks last, retained; from its shuffler

``tag``: hex of the first 8 bytes of SHA-256("shoal/v1/mqtt" || 0x00 || shuffler_key): all tasks of
a shuffler share it. ``reply``: hex of 16 random bytes, drawn anew for every connection. Hex is
lower case; nothing else is read. Several shufflers with one key take frames by the shared
subscription $share/shoal-<tag>/shoal/v1/up/<tag>/+: the broker gives each frame to one of them.
"""

from __future__ import annotations

import hashlib
import re

from shoal.entropy import SYSTEM, Entropy
from shoal.errors import Kind, ShoalError
from shoal.ids import TaskId

_UP = "shoal/v1/up"
_DOWN = "shoal/v1/down"
_TASKS = "shoal/v1/tasks"
_STEPS = "shoal/v1/steps"
_REPLY_SIZE = 16  # bytes
_TAG_SIZE = 8  # bytes
_KEY_SIZE = 32  # bytes of an Ed25519 public key
_TAG = re.compile(rf"[0-9a-f]{{{2 * _TAG_SIZE}}}")
_REPLY = re.compile(rf"[0-9a-f]{{{2 * _REPLY_SIZE}}}")

TASKS_FILTER = f"{_TASKS}/+"
STEPS_FILTER = f"{_STEPS}/+"


def tag_of(shuffler_key: bytes) -> str:
    """16 hex digits that name a shuffler. Raises INVALID unless the key has 32 bytes."""
    if len(shuffler_key) != _KEY_SIZE:
        raise ShoalError(Kind.INVALID, f"a shuffler's public key has {_KEY_SIZE} bytes")
    return hashlib.sha256(b"shoal/v1/mqtt\x00" + shuffler_key).digest()[:_TAG_SIZE].hex()


def new_reply(entropy: Entropy = SYSTEM) -> str:
    """A fresh reply id: 32 hex digits of 128 random bits."""
    return entropy.bytes(_REPLY_SIZE).hex()


def up_topic(tag: str, reply: str) -> str:
    """Where a device publishes a frame. Raises INVALID unless both parts are of the form above."""
    return f"{_UP}/{_checked(_TAG, tag, 'tag')}/{_checked(_REPLY, reply, 'reply id')}"


def up_filter(tag: str) -> str:
    """What a shuffler subscribes to. Raises INVALID."""
    return f"{_UP}/{_checked(_TAG, tag, 'tag')}/+"


def shared_filter(tag: str) -> str:
    """What each of several shufflers with one key subscribes to: a frame comes to one of them.
    Raises INVALID.
    """
    return f"$share/shoal-{_checked(_TAG, tag, 'tag')}/{up_filter(tag)}"


def down_topic(reply: str) -> str:
    """Where the reply to a frame goes, and what a device subscribes to. Raises INVALID."""
    return f"{_DOWN}/{_checked(_REPLY, reply, 'reply id')}"


def reply_of(topic: str, tag: str) -> str | None:
    """The reply id of an uplink topic of this tag; None for any other topic."""
    prefix = f"{_UP}/{tag}/"
    reply = topic.removeprefix(prefix)
    return reply if topic.startswith(prefix) and _REPLY.fullmatch(reply) else None


def task_topic(task_id: TaskId) -> str:
    """Where a task's bundle is published, retained."""
    return f"{_TASKS}/{task_id.raw.hex()}"


def step_topic(task_id: TaskId) -> str:
    """Where the last step of a discovery is published, retained."""
    return f"{_STEPS}/{task_id.raw.hex()}"


def task_of(topic: str) -> TaskId | None:
    """The task id that a task topic names; None for any other topic. Unsigned: the bundle itself
    says which task it is.
    """
    return _named(_TASKS, topic)


def task_of_steps(topic: str) -> TaskId | None:
    """The same of a topic of steps."""
    return _named(_STEPS, topic)


def _named(above: str, topic: str) -> TaskId | None:
    text = topic.removeprefix(f"{above}/")
    if text == topic or not re.fullmatch(rf"[0-9a-f]{{{2 * TaskId.SIZE}}}", text):
        return None
    return TaskId(bytes.fromhex(text))


def _checked(form: re.Pattern[str], text: str, what: str) -> str:
    if not form.fullmatch(text):
        raise ShoalError(Kind.INVALID, f"an MQTT {what} is lower-case hex of one length")
    return text
