"""agent.toml: every key, every mistake, one line."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path

import pytest

from shoal.clients.memory.sqlite_file import private_file
from shoal.clients.owner.fleet_policy import FleetPolicy
from shoal.clients.owner.policy import BY_NAME, Policy
from shoal.clients.owner.rules import _NUMBERS, Rule
from shoal.clients.settings.config import AgentConfig, EnrolmentFiles
from shoal.clients.settings.mqtt import FeedsConfig, ShufflerFeed
from shoal.clients.sources.spec import SourceSpec
from shoal.errors import Kind, ShoalError
from tests.cases import for_each
from tests.worlds.devices.clients import CA

ROOT = Path(__file__).resolve().parents[4]
SAMPLE, FLEET_SAMPLE = ROOT / "deploy" / "agent.toml", ROOT / "deploy" / "fleet.toml"
CODE = "".join(
    (ROOT / "clients" / name).read_text()
    for name in ("settings/config.py", "settings/mqtt.py", "owner/rules.py")
)
GOOD = """
tasks = "tasks"
outbox = "outbox.db"
outbox_rows = 100
[policy]
authorities = ["{key}"]
max_epsilon0 = 4
min_batch_floor = 1000
lifetime_epsilon = 12.5
[policy.purposes]
"Planning" = "allowed"
"Advertising" = "denied"
[send]
deadline_s = 5
retry_first_s = 0.5
retry_most_s = 60.0
insecure = true
gap_s = 7.5
[enrolment]
certificate = "device.cert"
key = "keys/device.key"
[measure]
mean_s = 90
[ledger]
keep_values = true
[sources.visits]
kind = "json"
file = "data/visits.json"
pointer = "/n"
timeout_s = 2
task_id = "{id}"
[sources.load]
kind = "http"
url = "http://127.0.0.1:9/x"
releases = "data/releases"
[[rules]]
task = "visits"
round_to = 10
[feeds]
every_s = 60
mqtt = true
[[feeds.shuffler]]
address = "s.example:7443"
[mqtt]
broker = "localhost:1883"
protocol = "3.1.1"
uplink = true
""".format(key="ab" * 32, id="0a" * 4)


def load(tmp_path: Path, text: str) -> AgentConfig:
    path = tmp_path / "agent.toml"
    path.write_text(text)
    return AgentConfig.load(path)


def test_every_key_is_read(tmp_path: Path) -> None:
    config = load(tmp_path, GOOD)
    assert (config.tasks, config.outbox) == (tmp_path / "tasks", tmp_path / "outbox.db")
    assert (
        config.outbox_rows,
        config.deadline_s,
        config.retry_first_s,
        config.retry_most_s,
        config.insecure,
    ) == (
        100,
        5.0,
        0.5,
        60.0,
        True,
    )
    assert config.enrolment == EnrolmentFiles(
        tmp_path / "device.cert", tmp_path / "keys" / "device.key"
    )
    policy = config.policy
    assert (policy.authorities, policy.max_epsilon0, policy.min_batch_floor) == (
        frozenset({b"\xab" * 32}),
        4.0,
        1000,
    )
    assert dict(policy.purposes) == {"Planning": "allowed", "Advertising": "denied"}
    assert policy.lifetime_epsilon == 12.5
    assert (config.send_gap_s, config.measure_mean_s, config.keep_values, config.uplink) == (
        7.5,
        90.0,
        True,
        True,
    )
    visits = SourceSpec("json", 2.0, tmp_path / "data" / "visits.json", "/n", task_id="0a" * 4)
    assert dict(config.sources) == {
        "visits": visits,
        "load": SourceSpec(
            "http", url="http://127.0.0.1:9/x", releases=tmp_path / "data" / "releases"
        ),
    }
    assert config.rules == (Rule(task="visits", round_to=10),)
    assert config.feeds == FeedsConfig(60.0, True, (ShufflerFeed("s.example:7443"),))
    assert config.mqtt is not None
    assert (config.mqtt.host, config.mqtt.port, config.mqtt.protocol, config.mqtt.insecure) == (
        "localhost",
        1883,
        "3.1.1",
        True,
    )
    assert config.learnt_folder == tmp_path / "outbox.db.tasks"
    assert (config.fleet, config.fleet_policy, config.notes) == (None, None, [])
    assert config.effective_policy == policy


DEFAULTS = {
    "send": ("deadline_s", "retry_first_s", "retry_most_s", "insecure", "send_gap_s"),
    "top": (
        "outbox_rows",
        "uplink",
        "keep_values",
        "feeds",
        "mqtt",
        "measure_mean_s",
        "fleet",
        "enrolment",
        "rules",
    ),
}


def test_the_sample_is_complete_and_its_comments_state_the_defaults(tmp_path: Path) -> None:
    """Read as it is, every value is the default; with every commented key switched on it is read
    too, and where the comment states the default as the key's value, it is that. Planted: change a
    default -> fails; leave a key out of the sample -> fails.
    """
    text = SAMPLE.read_text()
    plain = AgentConfig.load(SAMPLE)
    bare = AgentConfig(plain.tasks, plain.outbox, plain.policy)
    for name in (*DEFAULTS["send"], *DEFAULTS["top"]):
        assert getattr(plain, name) == getattr(bare, name), name
    assert (dict(plain.sources), dict(plain.policy.purposes), plain.policy.lifetime_epsilon) == (
        {},
        {},
        math.inf,
    )

    FleetPolicy.load(FLEET_SAMPLE)
    (tmp_path / "fleet.toml").write_text(FLEET_SAMPLE.read_text())
    (tmp_path / "broker-password").write_text("secret\n")
    (tmp_path / "broker-password").chmod(0o600)
    (tmp_path / "broker-ca.pem").write_bytes(CA)
    full = load(tmp_path, switched_on(text).replace("/etc/shoal/", f"{tmp_path}/"))
    assert [getattr(plain, name) for name in DEFAULTS["send"]] == [
        getattr(full, name) for name in DEFAULTS["send"]
    ]
    assert (
        full.outbox_rows,
        full.uplink,
        full.keep_values,
        full.feeds.mqtt,
        full.feeds.every_s,
    ) == (10_000, False, False, False, 3_600.0)
    assert full.policy.sums_if_apart is plain.policy.sums_if_apart is False
    assert full.policy.max_delta == plain.policy.max_delta == 1e-4
    assert full.policy.owner_devices == plain.policy.owner_devices == 1
    assert full.policy.infinite_epsilon0 == plain.policy.infinite_epsilon0 == BY_NAME
    assert full.policy.lifetime_epsilon == 100.0
    assert full.enrolment == EnrolmentFiles(tmp_path / "device.cert", tmp_path / "device.key")
    assert full.feeds.shufflers == (
        ShufflerFeed("shuffler.example:7443", tmp_path / "shuffler-ca.pem"),
    )
    assert full.mqtt is not None
    assert (full.mqtt.host, full.mqtt.port, full.mqtt.password, full.mqtt.protocol) == (
        "broker.example",
        8883,
        "secret",
        "5",
    )
    assert {name: spec.kind for name, spec in full.sources.items()} == {
        "visits": "json",
        "battery": "command",
        "model": "json",
    }
    assert [rule.task or rule.purpose for rule in full.rules] == [
        "visits",
        "Planning of outpatient clinics",
    ]
    assert full.fleet_policy == FleetPolicy.load(FLEET_SAMPLE)
    taken = re.findall(r"\.(?:take|number|texts|exact_number|table)\(\"([a-z_0-9]+)\"", CODE)
    assert len(taken) > 30
    for name in {*taken, *_NUMBERS}:
        assert re.search(rf"\b{name}\b", text), name


def switched_on(text: str) -> str:
    """A sample with every commented key and table in it."""
    return re.sub(r"^# (\[|[a-z_0-9]+ = )", r"\1", text, flags=re.MULTILINE)


@for_each(
    "old, new, key",
    [
        ('tasks = "tasks"', "", "tasks: required"),
        ('outbox = "outbox.db"', "", "outbox: required"),
        ('outbox = "outbox.db"', "outbox = 3", "outbox: must be a text"),
        ("outbox_rows = 100", "outbox_rows = 0", "outbox_rows: 1 to 10000"),
        ("outbox_rows = 100", "outbox_rows = 10001", "outbox_rows: 1 to 10000"),
        ("outbox_rows = 100", "outbox_rows = true", "outbox_rows: must be a whole number"),
        (
            "outbox_rows = 100",
            "outboxrows = 100",
            'outboxrows: no such key: remove it or mend its name (did you mean "outbox_rows"?)',
        ),
        (
            "min_batch_floor = 1000",
            "min_batchfloor = 1000",
            'missing (is "min_batchfloor" meant to be it?)',
        ),
        ("max_epsilon0 = 4", "", "policy.max_epsilon0: required"),
        ("max_epsilon0 = 4", "max_epsilon0 = 0", "policy.max_epsilon0: a finite"),
        ("max_epsilon0 = 4", "max_epsilon0 = inf", "policy.max_epsilon0: a finite"),
        ("max_epsilon0 = 4", "max_epsilon0 = nan", "policy.max_epsilon0: a finite"),
        ("max_epsilon0 = 4", 'max_epsilon0 = "4"', "policy.max_epsilon0: must be a number"),
        *(
            ("= 4", f"= 4\nmax_delta = {value}", f"policy.max_delta: {why}")
            for value, why in (
                ("0", "a number above 0 and below 1"),
                ("-1e-6", "a number above 0"),
                ("1", "a number above 0 and below 1"),
                ("inf", "a number above 0"),
                ("nan", "a number above 0"),
                ('"1e-6"', "must be a number"),
                ("true", "must be a number"),
            )
        ),
        ("min_batch_floor = 1000", "min_batch_floor = 1", "policy.min_batch_floor: at least 2"),
        (
            "min_batch_floor = 1000",
            "min_batch_floor = 10.5",
            "policy.min_batch_floor: must be a whole number",
        ),
        ("min_batch_floor = 1000", "", "policy.min_batch_floor: required"),
        (
            "min_batch_floor = 1000",
            "min_batch_floor = 1000\nlifetime = 3",
            "policy.lifetime: no such key",
        ),
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
        ("[policy]", "[police]", "policy"),
        ("lifetime_epsilon = 12.5", "owner_devices = 0", "policy.owner_devices: the number of"),
        ("lifetime_epsilon = 12.5", "owner_devices = 1001", "1 to 1000"),
        ("lifetime_epsilon = 12.5", "owner_devices = 1.5", "policy.owner_devices: must be"),
        (
            "lifetime_epsilon = 12.5",
            'infinite_epsilon0 = "yes"',
            'policy.infinite_epsilon0: "by name" asks',
        ),
        (
            "lifetime_epsilon = 12.5",
            "lifetime_epsilon = 0",
            "policy.lifetime_epsilon: a number above 0",
        ),
        (
            "lifetime_epsilon = 12.5",
            "lifetime_epsilon = nan",
            "policy.lifetime_epsilon: a number above 0",
        ),
        (
            "lifetime_epsilon = 12.5",
            f"lifetime_epsilon = {10**400}",
            "policy.lifetime_epsilon: too large",
        ),
        (
            "lifetime_epsilon = 12.5",
            'lifetime_epsilon = "x"',
            "policy.lifetime_epsilon: must be a number",
        ),
        ("gap_s = 7.5", "gap_s = -1", "send.gap_s: 0 to 86400"),
        ("mean_s = 90", "mean_s = 0", "measure.mean_s: 0.001"),
        ("mean_s = 90", "mean = 0", "measure.mean: no such key"),
        ("keep_values = true", "keep_values = 1", "ledger.keep_values: must be true or false"),
        ('kind = "json"', 'kind = "ini"', "sources.visits.kind: one of"),
        ('kind = "json"', "", "sources.visits.kind: required"),
        ('pointer = "/n"', 'pointer = "n"', "sources.visits.pointer: "),
        ("timeout_s = 2", "timeout_s = 31", "sources.visits.timeout_s: "),
        ("0a0a0a0a", "0A", "sources.visits.task_id: "),
        (
            'file = "data/visits.json"',
            'file = "data/visits.json"\ncommand = "rm"',
            "sources.visits.command: no such key",
        ),
        (
            'file = "data/visits.json"',
            'file = "data/visits.json"\nargv = [1]',
            "sources.visits.argv: must be a list of texts",
        ),
        (
            'url = "http://127.0.0.1:9/x"',
            'url = "http://elsewhere.example/x"',
            "sources.load.url: ",
        ),
        ("[sources.load]", "[sources]\nx = 1\n[sources.load]", "sources.x: must be a table"),
        ("[[rules]]", "[rules]", "rules: must be a list"),
        ("round_to = 10", "round_to = 0", "rules[1].round_to: a number above 0"),
        ("round_to = 10", 'round_to = "10"', "rules[1].round_to: must be a number"),
        ("round_to = 10", "", "rules[1].redact: the rule does nothing"),
        ("round_to = 10", "round = 10", "rules[1].round: no such key"),
        ("every_s = 60", "every_s = 5", "feeds.every_s: 10 to"),
        ("every_s = 60", "every = 5", "feeds.every: no such key"),
        ('"s.example:7443"', '"s.example"', "feeds.shuffler[1].address: HOST:PORT"),
        ("[[feeds.shuffler]]", "[feeds.shuffler]", "feeds.shuffler: must be a list"),
        ('broker = "localhost:1883"', "", "mqtt.broker: required"),
        ('broker = "localhost:1883"', 'broker = "localhost"', "mqtt.broker: HOST:PORT"),
        ('broker = "localhost:1883"', 'broker = "example.org:1883"', "mqtt: without TLS only"),
        (
            'broker = "localhost:1883"',
            'broker = "localhost:1883"\nca = "none.pem"',
            "mqtt.ca: cannot read none.pem",
        ),
        (
            'broker = "localhost:1883"',
            'broker = "localhost:1883"\ntopic = "x"',
            "mqtt.topic: no such key",
        ),
        ('protocol = "3.1.1"', 'protocol = "4"', 'mqtt.protocol: "5" or'),
        ('protocol = "3.1.1"', 'password_file = "p"', "mqtt.username: required"),
        ("uplink = true", 'uplink = "yes"', "mqtt.uplink: must be true or false"),
        ('outbox = "outbox.db"', 'outbox = "outbox.db"\nfleet = "none.toml"', "none.toml"),
    ],
)
def test_every_mistake_names_the_file_and_the_key(
    tmp_path: Path, old: str, new: str, key: str
) -> None:
    """Planted: skip ``end()`` of a table -> its unknown keys pass."""
    assert old in GOOD
    with pytest.raises(ShoalError) as caught:
        load(tmp_path, GOOD.replace(old, new, 1))
    assert caught.value.kind is Kind.CONFIG
    assert caught.value.message.startswith("agent.toml: ")
    assert key in caught.value.message
    assert "\n" not in caught.value.message


def test_an_outbox_is_the_same_under_every_name(tmp_path: Path) -> None:
    """And what stands beside it. Planted: links kept -> other files beside each; a loop, or a link
    to nothing, taken -> no typed error.
    """
    policy = Policy(frozenset({bytes(32)}), 4.0, 100, {})
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "link.db").symlink_to("../outbox.db")
    (tmp_path / "loop.db").symlink_to(tmp_path / "loop.db")
    one, other = (
        AgentConfig(tmp_path, tmp_path / name, policy) for name in ("outbox.db", "folder/link.db")
    )
    assert (one.outbox, one.ledger) == (other.outbox, other.ledger)
    with pytest.raises(ShoalError) as caught:
        private_file(AgentConfig(tmp_path, tmp_path / "loop.db", policy).outbox, "outbox")
    assert caught.value.kind is Kind.CONFIG
    (tmp_path / "dangling.db").symlink_to(tmp_path / "nowhere.db")
    with pytest.raises(ShoalError) as caught:
        private_file(tmp_path / "dangling.db", "outbox")
    assert caught.value.kind is Kind.CONFIG


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
    """Planted: the device's own reader, which did not know RecursionError -> a traceback instead of
    CONFIG, fails.
    """
    path = tmp_path / "agent.toml"
    path.write_text("x = " + "[" * 50_000)
    with pytest.raises(ShoalError) as refused:
        AgentConfig.load(path)
    assert refused.value.kind is Kind.CONFIG
    assert "nested too deeply" in refused.value.message


def test_the_fleets_file_tightens_however_the_configuration_was_made(tmp_path: Path) -> None:
    """Its rules are the last ones, once. Planted: rules added up at every ``replace`` -> twice,
    fails; the owner's policy used -> fails.
    """
    (tmp_path / "fleet.toml").write_text(
        'max_epsilon0 = 1.5\n[[rules]]\npurpose = "Planning"\nat_most = 5\n'
    )
    config = load(
        tmp_path, GOOD.replace('outbox = "outbox.db"', 'outbox = "outbox.db"\nfleet = "fleet.toml"')
    )
    assert (config.policy.max_epsilon0, config.effective_policy.max_epsilon0) == (4.0, 1.5)
    expected = (Rule(task="visits", round_to=10), Rule(purpose="Planning", at_most=5, fleet=True))
    assert config.rules == expected
    assert replace(config, outbox_rows=7).rules == expected
    assert replace(config, fleet_policy=None).rules == expected[:1]
    (tmp_path / "fleet.toml").write_text("max_epsilon0 = 9\n")
    loose = load(
        tmp_path, GOOD.replace('outbox = "outbox.db"', 'outbox = "outbox.db"\nfleet = "fleet.toml"')
    )
    assert loose.notes == [
        "fleet.toml: no effect: max_epsilon0 = 9: above the owner's 4, which stays; it only bounds "
        "what the owner may accept task by task"
    ]


def test_keeping_values_is_one_setting_in_two_places(tmp_path: Path) -> None:
    policy = Policy(frozenset({bytes(32)}), 1.0, 2)
    for config in (
        AgentConfig(tmp_path, tmp_path / "o", policy, keep_values=True),
        AgentConfig(tmp_path, tmp_path / "o", replace(policy, keep_values=True)),
    ):
        assert config.keep_values
        assert config.policy.keep_values
        assert config.effective_policy.keep_values
