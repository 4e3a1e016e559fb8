"""The samples for a broker hold together: names, ports and limits are the same in every file, and
it keeps and tells nothing.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from shoal.ids import TaskId
from shoal.limits import LIMITS
from shoal.mqtt import topics
from tests.cases import for_each
from tests.unit.packaging.test_deploy import DEPLOY, compose, schema_check

TAG, REPLY = topics.tag_of(bytes(32)), topics.new_reply()
UP, DOWN, TASKS, STEPS = (
    topics.up_topic(TAG, REPLY),
    topics.down_topic(REPLY),
    topics.task_topic(TaskId(bytes(32))),
    topics.step_topic(TaskId(bytes(32))),
)
MAY = {  # who, how: exactly these topics
    ("", "write"): {UP},
    ("", "read"): {DOWN, TASKS, STEPS},
    ("shuffler", "write"): {DOWN, STEPS},
    ("shuffler", "read"): {UP},
    ("publisher", "write"): {TASKS},
    ("publisher", "read"): set[str](),
}


def conf() -> dict[str, str]:
    lines = [
        line
        for line in (DEPLOY / "mosquitto.conf").read_text().splitlines()
        if line and line[0] != "#"
    ]
    found = dict(line.split(" ", 1) for line in lines)
    assert len(found) == len(lines), "a key twice"
    return found


def rules() -> list[tuple[str, str, str]]:
    """(user or "", read or write, filter)."""
    found, user = [], ""
    for line in (DEPLOY / "mosquitto.acl").read_text().splitlines():
        words = line.split()
        if not words or words[0][0] == "#":
            continue
        if words[0] == "user":
            user = words[1]
        else:
            assert words[0] == "topic"
            found.append((user, words[1], words[2]))
    return found


def fits(pattern: str, topic: str) -> bool:
    """MQTT 5 section 4.7, without "#"."""
    ours, theirs = pattern.split("/"), topic.split("/")
    return (
        "#" not in pattern
        and len(ours) == len(theirs)
        and all(a in ("+", b) for a, b in zip(ours, theirs, strict=True))
    )


@for_each("who, how", list(MAY))
def test_everybody_may_do_what_they_must_and_nothing_else(who: str, how: str) -> None:
    """Planted: a device that may write replies, or a rule that ends in # -> this fails."""
    allowed = [pattern for user, word, pattern in rules() if (user, word) == (who, how)]
    every = (UP, DOWN, TASKS, STEPS)
    assert {topic for topic in every if any(fits(pattern, topic) for pattern in allowed)} == MAY[
        who, how
    ]
    assert len(rules()) == sum(map(len, MAY.values()))


def test_the_broker_keeps_and_tells_nothing() -> None:
    """Planted: persistence true, or log_type all -> this fails."""
    found = conf()
    assert found["persistence"] == "false"
    assert found["connection_messages"] == "false"
    assert found["log_type"] == "error"
    assert "require_certificate" not in found, "a certificate would name a device"
    assert found["allow_anonymous"] == "true"
    assert int(found["max_packet_size"]) >= LIMITS.bundle_bytes + 1_024
    assert int(found["max_queued_bytes"]) >= LIMITS.bridge_bytes


def test_the_shuffler_finds_the_broker() -> None:
    mqtt = (DEPLOY / "shuffler.toml").read_text().partition("# [mqtt]\n")[2]
    shuffler: dict[str, Any] = tomllib.loads(re.sub(r"^# ", "", mqtt, flags=re.MULTILINE))
    host, _, port = shuffler["broker"].rpartition(":")
    assert port == conf()["listener"]
    assert any(user == shuffler["username"] for user, _, _ in rules())
    broker = compose()["services"]["broker"]
    assert broker["ports"] == [f"{port}:{port}"]
    assert host in broker["networks"]["front"]["aliases"]
    assert "front" in compose()["services"]["shuffler"]["networks"]
    assert "link" not in broker["networks"]


def test_compose_starts_the_broker_only_if_asked_and_hardened() -> None:
    """Planted: dropping ``<<: *hardened`` -> this fails."""
    broker, shuffler = compose()["services"]["broker"], compose()["services"]["shuffler"]
    assert broker["profiles"] == ["mqtt"]
    assert "build" not in broker
    for key in (
        "read_only",
        "cap_drop",
        "security_opt",
        "ulimits",
        "mem_limit",
        "memswap_limit",
        "pids_limit",
        "restart",
        "tmpfs",
    ):
        assert broker[key] == shuffler[key], key
    assert int(broker["user"].partition(":")[0]) > 0
    (volume,) = broker["volumes"]
    source, folder, mode = volume.split(":")
    assert (source, mode) == ("./broker", "ro")
    paths = [conf()[key] for key in ("certfile", "keyfile", "password_file", "acl_file")]
    assert all(path.startswith(f"{folder}/") for path in [*paths, broker["command"][-1]])


def test_the_check_of_compose_sees_the_broker(tmp_path: Path) -> None:
    text = (DEPLOY / "compose.yaml").read_text()
    broken = text.replace('profiles: ["mqtt"]', "profiles: mqtt")
    assert YAML(typ="safe").load(broken)["services"]["broker"]["profiles"] == "mqtt"
    (tmp_path / "compose.yaml").write_text(broken)
    assert schema_check(tmp_path / "compose.yaml").returncode != 0
