"""The operator's and the authority's commands, end to end through the command line's own entry
point.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from shoal.cli.main import main
from shoal.cli.task.sample import sample
from shoal.clients.settings.config import EnrolmentFiles
from shoal.crypto.admission.enrolment import verify_certificate
from shoal.crypto.task_folder import load_task_folder
from shoal.protos import keys_pb2
from shoal.storage.toml import read_toml
from tests.cases import for_each

Capture = pytest.CaptureFixture[str]


def run(capsys: Capture, *arguments: str, status: int = 0) -> tuple[str, str]:
    """Run ``shoal ...``; returns what it printed. The exit status must be ``status``, and no
    traceback may show.
    """
    code = main(list(arguments))
    shown = capsys.readouterr()
    assert code == status, shown.err
    assert "Traceback" not in shown.err
    assert "a bug" not in shown.err
    return shown.out, shown.err


@pytest.fixture
def desk(tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with keys, certificates and a filled-in task.toml, made by the commands that an
    operator uses.
    """
    monkeypatch.chdir(tmp_path)
    keys = {
        role: run(capsys, "keys", "signing", "--out", f"{role}/signing.key")[0].strip()
        for role in ("authority", "shuffler", "analyzer")
    }
    run(capsys, "keys", "ca", "--out", "tls")
    run(
        capsys,
        "keys",
        "cert",
        "--ca",
        "tls",
        "--name",
        "shuffler",
        "--san",
        "localhost",
        "--out",
        "shuffler",
    )
    values = {
        f"keys.{name}": keys[role]
        for name, role in (
            ("key_authority", "authority"),
            ("shuffler", "shuffler"),
            ("analyzer", "analyzer"),
        )
    }
    values |= {
        "shuffler.ca": "tls/ca.pem",
        "windows.count": "3",
        "windows.start": "2026-01-01T00:00:00Z",
    }
    run(
        capsys,
        "task",
        "new",
        "--out",
        "visits.toml",
        *(part for item in values.items() for part in ("--set", "=".join(item))),
    )
    (tmp_path / "authority.hex").write_text(keys["authority"])
    return tmp_path


def sign(capsys: Capture) -> None:
    run(
        capsys,
        "task",
        "sign",
        "visits.toml",
        "--key",
        "authority/signing.key",
        "--out",
        "tasks/visits.task",
    )
    run(
        capsys,
        "keys",
        "hpke",
        "--role",
        "analyzer",
        "--windows",
        "3",
        "--key",
        "analyzer/signing.key",
        "--out",
        "analyzer/keys",
        "--public",
        "analyzer.pub",
    )
    run(
        capsys,
        "keys",
        "hpke",
        "--role",
        "shuffler",
        "--key",
        "shuffler/signing.key",
        "--out",
        "shuffler/keys",
        "--public",
        "shuffler.pub",
    )


SCHEDULE = (
    "keys",
    "schedule",
    "--task",
    "tasks/visits.task",
    "--shuffler",
    "shuffler.pub",
    "--key",
    "authority/signing.key",
)


def test_from_nothing_to_a_task_folder_that_services_load(desk: Path, capsys: Capture) -> None:
    """Keys, certificates, task, schedule: what comes out is what the services verify and load."""
    sign(capsys)
    run(capsys, *SCHEDULE, "--analyzer", "analyzer.pub", "--out", "tasks/visits.keys")
    authority = bytes.fromhex((desk / "authority.hex").read_text())
    served = list(load_task_folder(desk / "tasks", {authority}).served.values())
    assert [one.task.name for one in served] == ["outpatient-visit"]
    assert len(set(served[0].keys.analyzer_keys)) == 3
    # one hop key for all windows: a frame's key id does not tell the window
    assert len(set(served[0].keys.hop_keys)) == 1
    shown = json.loads(
        run(capsys, "keys", "show", "tasks/visits.keys", "--task", "tasks/visits.task")[0]
    )
    assert [w["window"] for w in shown["windows"]] == [0, 1, 2]
    for window in shown["windows"]:
        for role in ("analyzer", "shuffler"):
            path = (
                desk
                / role
                / "keys"
                / f"{window['analyzer_key_id' if role == 'analyzer' else 'hop_key_id']}.key"
            )
            assert path.stat().st_mode & 0o777 == 0o600


def test_show_tells_what_a_task_promises(desk: Path, capsys: Capture) -> None:
    sign(capsys)
    shown = json.loads(run(capsys, "task", "show", "tasks/visits.task", "--json")[0])
    assert shown["guaranteed_epsilon"] < shown["target_epsilon"]
    assert shown["epsilon0"] <= 1.0986122886681098
    assert "question" in run(capsys, "task", "show", "tasks/visits.task")[0]


def test_lint_refuses_what_cannot_hold(desk: Path, capsys: Capture) -> None:
    """A target out of reach, in the message and as JSON, and nothing is signed. Planted: ``>``
    turned into ``<`` in lint -> fails.
    """
    text = Path("visits.toml").read_text().replace("target_epsilon = 0.5", "target_epsilon = 0.01")
    Path("visits.toml").write_text(text)
    _, error = run(capsys, "task", "lint", "visits.toml", status=2)
    assert "target_epsilon 0.01 can't be met" in error
    code = main(["task", "lint", "visits.toml", "--json"])
    assert code == 2
    assert json.loads(capsys.readouterr().out)["errors"]
    run(
        capsys,
        "task",
        "sign",
        "visits.toml",
        "--key",
        "authority/signing.key",
        "--out",
        "tasks/visits.task",
        status=2,
    )
    assert not Path("tasks/visits.task").exists()


@pytest.mark.parametrize(
    ("old", "new", "names"),
    [
        ("min_batch = 10000", "min_batch = 1", "min_batch"),
        ("min_batch = 10000", 'min_batch = "many"', "min_batch"),
        ("min_batch = 10000", "min_batch = 10000\nskip_missing = true", "skip_missing"),
        ("retention_s = 1209600", "retention_s = 3600", "retention_s"),
        ("honest_fraction = 0.9", "honest_fraction = 1.5", "honest_fraction"),
        ("honest_fraction = 0.9", "honest_fraction = nan", "honest_fraction"),
        ("delta = 1e-8", "delta = 0", "delta"),
        ('kind = "yes_no"', 'kind = "maybe"', "kind"),
        ('kind = "yes_no"', 'kind = "yes_no"\nlabels = ["a"]', "labels"),
        ('name = "binary_rr"', 'name = "laplace"', "mechanism"),
        ('name = "binary_rr"', 'name = "krr"\nparameters = { k = 3 }', "epsilon0"),
        ("epsilon0 = 1.0986122886681098", "epsilon0 = -1", "epsilon0"),
        ("start = 2026-01-01T00:00:00Z", "start = 2026-01-01T00:00:00", "time zone"),
        ("count = 3", "count = 0", "windows"),
        ('address = "shuffler.example.org:7443"', 'address = "shuffler"', "HOST:PORT"),
        ('"tls/ca.pem"', '"tls/none.pem"', "none.pem"),
        ('admission = "open"', 'admission = "token"', "admission: one of open, enrolled"),
        (
            'admission = "open"',
            'admission = "enrolled"',
            "to be filled in: keys.enrolment (64 hex digits",
        ),
        (
            'enrolment = ""',
            f'enrolment = "{"ab" * 32}"',
            'keys.enrolment: only with admission = "enrolled"',
        ),
        ("[windows]", "[window]", "window"),
        ("delta = 1e-8", "delta = = 1", "visits.toml"),
    ],
)
def test_a_bad_task_is_one_line_that_names_the_key(
    desk: Path, capsys: Capture, old: str, new: str, names: str
) -> None:
    text = Path("visits.toml").read_text()
    assert old in text
    Path("visits.toml").write_text(text.replace(old, new, 1))
    _, error = run(capsys, "task", "lint", "visits.toml", status=2)
    assert names in error
    assert error.count("\n") == 1


def test_devices_are_enrolled_and_a_task_names_their_authority(desk: Path, capsys: Capture) -> None:
    """Three with keys made here, one that made its key itself; a signed task shows who certifies.
    Nothing is overwritten.

    Planted: the certificate of another key written, or of no backdating -> fails.
    """
    root = bytes.fromhex(run(capsys, "keys", "signing", "--out", "enrolment.key")[0].strip())
    enrol = ("keys", "enrol", "--root", "enrolment.key", "--days", "30")
    printed = run(capsys, *enrol, "--out", "devices", "--count", "3")[0].split()
    now = time.time()
    for number, public in enumerate(printed, 1):
        identity = EnrolmentFiles(
            desk / f"devices/device-{number}.cert", desk / f"devices/device-{number}.key"
        ).load()
        certificate = verify_certificate(identity.certificate, root, now)
        assert certificate.device_key == identity.key.public == bytes.fromhex(public)
        assert certificate.not_before_s <= now - 3_599
        assert abs(certificate.not_after_s - now - 30 * 86_400) < 60
        assert (desk / f"devices/device-{number}.key").stat().st_mode & 0o777 == 0o600
    own = run(capsys, "keys", "signing", "--out", "mine/device.key")[0].strip()
    assert run(capsys, *enrol, "--out", "issued", "--device-key", own)[0].strip() == own
    assert [path.name for path in (desk / "issued").iterdir()] == ["device.cert"]
    assert (
        EnrolmentFiles(desk / "issued/device.cert", desk / "mine/device.key")
        .load()
        .key.public.hex()
        == own
    )
    assert "exists" in run(capsys, *enrol, "--out", "issued", "--device-key", own, status=2)[1]
    assert (
        "--count"
        in run(capsys, *enrol, "--out", "issued", "--device-key", own, "--count", "2", status=2)[1]
    )
    assert (
        "--device-key"
        in run(capsys, *enrol, "--out", "more", "--device-key", own[:-2], status=2)[1]
    )
    text = Path("visits.toml").read_text().replace('admission = "open"', 'admission = "enrolled"')
    Path("visits.toml").write_text(text.replace('enrolment = ""', f'enrolment = "{root.hex()}"'))
    sign(capsys)
    shown = json.loads(run(capsys, "task", "show", "tasks/visits.task", "--json")[0])
    assert (shown["admission"], shown["enrolment_key"]) == ("enrolled", root.hex())


def test_the_number_of_keys_must_fit_the_windows(desk: Path, capsys: Capture) -> None:
    sign(capsys)
    run(
        capsys,
        "keys",
        "hpke",
        "--role",
        "analyzer",
        "--windows",
        "2",
        "--key",
        "analyzer/signing.key",
        "--out",
        "two",
        "--public",
        "two.pub",
    )
    _, error = run(
        capsys, *SCHEDULE, "--analyzer", "two.pub", "--out", "tasks/visits.keys", status=2
    )
    assert "3 windows" in error
    _, error = run(
        capsys, *SCHEDULE, "--analyzer", "shuffler.pub", "--out", "tasks/visits.keys", status=2
    )
    assert "--role analyzer" in error
    newer = keys_pb2.RoleKeys.FromString(Path("analyzer.pub").read_bytes())
    newer.version = 2  # planted: the version not looked at -> signed, and this fails
    Path("newer.pub").write_bytes(newer.SerializeToString())
    run(capsys, *SCHEDULE, "--analyzer", "newer.pub", "--out", "tasks/visits.keys", status=2)
    assert not Path("tasks/visits.keys").exists()


def test_an_analyzer_key_serves_one_window(desk: Path, capsys: Capture) -> None:
    """Else it could not be deleted with its window. Planted: keys counted, not compared -> a
    schedule is signed, and this fails.
    """
    sign(capsys)
    message = keys_pb2.RoleKeys.FromString(Path("analyzer.pub").read_bytes())
    message.keys[2] = message.keys[0]
    Path("twice.pub").write_bytes(message.SerializeToString())
    _, error = run(
        capsys, *SCHEDULE, "--analyzer", "twice.pub", "--out", "tasks/visits.keys", status=2
    )
    assert "stands twice" in error
    assert error.count("\n") == 1
    assert not Path("tasks/visits.keys").exists()


def test_another_key_than_the_tasks_key_authority_signs_no_schedule(
    desk: Path, capsys: Capture
) -> None:
    sign(capsys)
    foreign = [
        part if part != "authority/signing.key" else "shuffler/signing.key" for part in SCHEDULE
    ]
    _, error = run(
        capsys, *foreign, "--analyzer", "analyzer.pub", "--out", "tasks/visits.keys", status=1
    )
    assert "key authority" in error
    assert not Path("tasks/visits.keys").exists()


def test_settings_reach_values_that_the_sample_only_mentions_and_lists(tmp_path: Path) -> None:
    """A commented default, and a list with spaces in it. Planted: values without spaces, on lines
    that are no comments, alone are found -> "no such key in the sample", for keys that stand there.
    """
    file = tmp_path / "sums.toml"
    settings = [
        "pairwise.join_s=7",
        "pairwise.cohort_min=450",
        'domain.names=["a", "b", "c"]',
        "domain.grid = 50",
        "name=x",
    ]
    file.write_text(sample(settings, pairwise=True))
    made = read_toml(file)
    assert made["pairwise"]["join_s"] == 7
    assert made["pairwise"]["cohort_min"] == 450
    assert "share_s" not in made["pairwise"]
    assert made["domain"]["names"] == ["a", "b", "c"]
    assert made["domain"]["grid"] == 50
    assert made["name"] == "x"


def test_a_setting_that_the_sample_lacks_is_refused(desk: Path, capsys: Capture) -> None:
    """Planted: any text taken for a value of TOML -> a file that cannot be read is written."""
    for setting in ("keys.nobody=1", "shuffler=1", "min_batch", "keys.key_authority.x=1"):
        _, error = run(capsys, "task", "new", "--out", "other.toml", "--set", setting, status=2)
        assert "no such key" in error
    for setting in ("min_batch=many", "windows.start=soon", 'min_batch=1\nname="x"'):
        _, error = run(capsys, "task", "new", "--out", "other.toml", "--set", setting, status=2)
        assert "no value of TOML" in error
        assert error.count("\n") == 1
    assert not Path("other.toml").exists()


def test_nothing_is_overwritten_and_wide_key_files_are_refused(desk: Path, capsys: Capture) -> None:
    _, error = run(capsys, "task", "new", "--out", "visits.toml", status=2)
    assert "exists" in error
    _, error = run(capsys, "keys", "signing", "--out", "authority/signing.key", status=2)
    os.chmod("authority/signing.key", 0o644)
    _, error = run(
        capsys,
        "task",
        "sign",
        "visits.toml",
        "--key",
        "authority/signing.key",
        "--out",
        "tasks/visits.task",
        status=2,
    )
    assert "chmod 600" in error


def test_a_tampered_task_is_refused(desk: Path, capsys: Capture) -> None:
    sign(capsys)
    signed = bytearray(Path("tasks/visits.task").read_bytes())
    signed[40] ^= 1
    Path("tasks/visits.task").write_bytes(signed)
    _, error = run(capsys, "task", "show", "tasks/visits.task", status=1)
    assert "signature" in error


@for_each(
    "arguments",
    [
        ["nonsense"],
        ["task"],
        ["epsilon", "--n", "10"],
        ["task", "lint"],
        ["keys", "hpke", "--role", "nobody"],
    ],
)
def test_a_wrong_command_line_exits_with_2(arguments: list[str], capsys: Capture) -> None:
    run(capsys, *arguments, status=2)


def test_help_and_version_exit_with_0(capsys: Capture) -> None:
    run(capsys, "--help")
    run(capsys, "--version")
    run(capsys, "task", "lint", "--help")


def test_keys_that_their_owner_has_not_signed_are_scheduled_by_nobody(
    desk: Path, capsys: Capture
) -> None:
    """A key authority can't name keys of its own: neither the analyzer's nor the shuffler's.
    Planted: ``verify_keys`` left out of ``trust_schedule`` -> signed, and taken by devices: fails.
    """
    sign(capsys)
    for role in ("analyzer", "shuffler"):
        where = (
            "--key",
            "authority/signing.key",
            "--out",
            f"own-{role}",
            "--public",
            f"own-{role}.pub",
        )
        run(capsys, "keys", "hpke", "--role", role, "--windows", "3", *where)
        _, error = run(
            capsys,
            *SCHEDULE,
            "--analyzer",
            "analyzer.pub",
            f"--{role}",
            f"own-{role}.pub",
            "--out",
            "own.keys",
            status=1,
        )
        assert f"{role} keys are not signed" in error
    assert not Path("own.keys").exists()
