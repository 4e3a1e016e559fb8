"""agent.toml: every key, every mistake, one line."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from shoal.clients.config import AgentConfig, EnrolmentFiles
from shoal.crypto.enrolment import enrol
from shoal.crypto.keyfiles import save_signing_key
from shoal.crypto.signing import SigningKey
from shoal.errors import Kind, ShoalError

ROOT = Path(__file__).resolve().parents[3]
SAMPLE = ROOT / "deploy" / "agent.toml"
GOOD = """
tasks = "tasks"
outbox = "outbox.db"
outbox_rows = 100
[policy]
authorities = ["{key}"]
max_epsilon0 = 4
min_batch_floor = 1000
[policy.purposes]
"Planning" = "allowed"
"Advertising" = "denied"
[send]
deadline_s = 5
retry_first_s = 0.5
retry_most_s = 60.0
insecure = true
[enrolment]
certificate = "device.cert"
key = "keys/device.key"
""".format(key="ab" * 32)


def load(tmp_path: Path, text: str) -> AgentConfig:
    path = tmp_path / "agent.toml"
    path.write_text(text)
    return AgentConfig.load(path)


def test_every_key_is_read(tmp_path: Path) -> None:
    config = load(tmp_path, GOOD)
    assert (config.tasks, config.outbox) == (tmp_path / "tasks", tmp_path / "outbox.db")
    assert (config.outbox_rows, config.deadline_s, config.retry_first_s, config.retry_most_s, config.insecure) == (
        100,
        5.0,
        0.5,
        60.0,
        True,
    )
    assert config.enrolment == EnrolmentFiles(tmp_path / "device.cert", tmp_path / "keys" / "device.key")
    policy = config.policy
    assert (policy.authorities, policy.max_epsilon0, policy.min_batch_floor) == (frozenset({b"\xab" * 32}), 4.0, 1000)
    assert dict(policy.purposes) == {"Planning": "allowed", "Advertising": "denied"}


def test_the_sample_is_complete_and_its_comments_state_the_defaults(tmp_path: Path) -> None:
    """Read as it is, and with every commented key switched on, it gives the same values. Planted: change a default -> fails."""
    text = SAMPLE.read_text()
    plain = AgentConfig.load(SAMPLE)
    full = load(tmp_path, re.sub(r"^# ([a-z_0-9]+ = )", r"\1", text, flags=re.MULTILINE))
    names = ("deadline_s", "retry_first_s", "retry_most_s", "outbox_rows", "insecure")
    assert [getattr(plain, name) for name in names] == [getattr(full, name) for name in names]
    assert plain.enrolment is None  # an empty table is none
    assert full.enrolment == EnrolmentFiles(Path("/etc/shoal/device.cert"), Path("/etc/shoal/device.key"))
    assert plain.policy.sums_if_apart is full.policy.sums_if_apart is False
    for name in (*names, "tasks", "outbox", "authorities", "max_epsilon0", "sums_if_apart", "min_batch_floor", "certificate", "key"):
        assert re.search(rf"^(# )?{name} = ", text, re.MULTILINE), name
    assert dict(plain.policy.purposes) == {}


@pytest.mark.parametrize(
    ("old", "new", "key"),
    [
        ('tasks = "tasks"', "", "tasks: required"),
        ('outbox = "outbox.db"', "", "outbox: required"),
        ('outbox = "outbox.db"', "outbox = 3", "outbox: must be a text"),
        ("outbox_rows = 100", "outbox_rows = 0", "outbox_rows: 1 to 10000"),
        ("outbox_rows = 100", "outbox_rows = 10001", "outbox_rows: 1 to 10000"),
        ("outbox_rows = 100", "outbox_rows = true", "outbox_rows: must be a whole number"),
        ("outbox_rows = 100", "outboxrows = 100", "outboxrows: no such key"),
        ("max_epsilon0 = 4", "", "policy.max_epsilon0: required"),
        ("max_epsilon0 = 4", "max_epsilon0 = 0", "policy.max_epsilon0: a finite"),
        ("max_epsilon0 = 4", "max_epsilon0 = inf", "policy.max_epsilon0: a finite"),
        ("max_epsilon0 = 4", "max_epsilon0 = nan", "policy.max_epsilon0: a finite"),
        ("max_epsilon0 = 4", 'max_epsilon0 = "4"', "policy.max_epsilon0: must be a number"),
        ("min_batch_floor = 1000", "min_batch_floor = 1", "policy.min_batch_floor: at least 2"),
        ("min_batch_floor = 1000", "min_batch_floor = 10.5", "policy.min_batch_floor: must be a whole number"),
        ("min_batch_floor = 1000", "", "policy.min_batch_floor: required"),
        ("min_batch_floor = 1000", "min_batch_floor = 1000\nlifetime = 3", "policy.lifetime: no such key"),
        ("ab" * 32, "ab" * 31, "policy.authorities: each is"),
        ("ab" * 32, "zz" * 32, "policy.authorities: each is"),
        ('["' + "ab" * 32 + '"]', "[]", "policy.authorities: at least one"),
        ('["' + "ab" * 32 + '"]', "[7]", "policy.authorities: each is"),
        ('"Planning" = "allowed"', '"Planning" = "yes"', 'policy.purposes: "Planning"'),
        ('"Planning" = "allowed"', '"Planning" = true', 'policy.purposes: "Planning"'),
        ("deadline_s = 5", "deadline_s = 0.5", "send.deadline_s: 1 to 600"),
        ("deadline_s = 5", "deadline_s = nan", "send.deadline_s: 1 to 600"),
        ("retry_first_s = 0.5", "retry_first_s = 0", "send.retry_first_s: 0.01"),
        ("retry_most_s = 60.0", "retry_most_s = 0.1", "send.retry_most_s: 0.5"),
        ("insecure = true", "insecure = 1", "send.insecure: must be true or false"),
        ("insecure = true", "speed = 1", "send.speed: no such key"),
        ("[send]", "[sending]", "sending: no such key"),
        ('certificate = "device.cert"', "", "enrolment.certificate: required"),
        ('key = "keys/device.key"', "", "enrolment.key: required"),
        ('key = "keys/device.key"', "key = 7", "enrolment.key: must be a text"),
        ('key = "keys/device.key"', 'key = "a"\nroot = "b"', "enrolment.root: no such key"),
        ("[send]", "[send", "Expected ']'"),
        ("[policy]", "[police]", "policy.authorities: required"),
    ],
)
def test_every_mistake_names_the_file_and_the_key(tmp_path: Path, old: str, new: str, key: str) -> None:
    """Planted: skip ``end()`` of a table -> its unknown keys pass."""
    assert old in GOOD
    with pytest.raises(ShoalError) as caught:
        load(tmp_path, GOOD.replace(old, new, 1))
    assert caught.value.kind is Kind.CONFIG
    assert caught.value.message.startswith("agent.toml: ")
    assert key in caught.value.message
    assert "\n" not in caught.value.message


def test_unreadable_and_oversized_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(ShoalError) as missing:
        AgentConfig.load(tmp_path / "none.toml")
    assert "none.toml" in missing.value.message
    for content in (b"\xff\xfe", b"# " + b"x" * (1 << 20)):
        (tmp_path / "agent.toml").write_bytes(content)
        with pytest.raises(ShoalError) as caught:
            AgentConfig.load(tmp_path / "agent.toml")
        assert caught.value.kind is Kind.CONFIG


def test_a_file_nested_too_deeply_is_one_line(tmp_path: Path) -> None:
    """Planted: the device's own reader, which did not know RecursionError -> a traceback instead of CONFIG, fails."""
    path = tmp_path / "agent.toml"
    path.write_text("x = " + "[" * 50_000)
    with pytest.raises(ShoalError) as refused:
        AgentConfig.load(path)
    assert refused.value.kind is Kind.CONFIG
    assert "nested too deeply" in refused.value.message


def test_the_files_of_an_identity(tmp_path: Path) -> None:
    """Read, and every mistake named. Planted: certificate and key not compared -> the last fails."""
    root = SigningKey.generate()
    mine, other = (enrol(root, 1_800_000_000, 1_900_000_000) for _ in range(2))
    save_signing_key(tmp_path / "device.key", mine.key)
    files = EnrolmentFiles(tmp_path / "device.cert", tmp_path / "device.key")
    for content, kind, words in (
        (None, Kind.CONFIG, "cannot read device.cert"),
        (b"", Kind.CONFIG, "no signed certificate"),
        (mine.certificate + b"\n", Kind.CONFIG, "no signed certificate"),
        (other.certificate, Kind.CONFIG, "another device key"),
    ):
        if content is not None:
            files.certificate.write_bytes(content)
        with pytest.raises(ShoalError, match=words) as caught:
            files.load()
        assert caught.value.kind is kind
        assert caught.value.message.startswith("enrolment")
    files.certificate.write_bytes(mine.certificate)
    assert files.load().key.public == mine.key.public
    files.key.chmod(0o644)
    with pytest.raises(ShoalError, match="mode 0644") as caught:
        files.load()
    assert caught.value.kind is Kind.KEY_FILE
