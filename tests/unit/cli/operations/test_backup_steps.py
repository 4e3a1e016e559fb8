"""What discoveries ask, in a backup: put back as it was told, and nothing that was not signed."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from shoal.analyzer.config import AnalyzerConfig
from shoal.analyzer.store import FILE_NAME, AnalyzerStore
from shoal.cli.main import main
from shoal.cli.operations import archive, places
from shoal.crypto.discovery_steps import DiscoveryStep, SignedStep, sign_step
from shoal.crypto.step_folder import STEPS_FOLDER, read_steps
from shoal.ids import Digest
from shoal.services.settings import load_settings
from tests.worlds.operations import Site, agreed
from tests.worlds.services.shuffler import Published
from tests.worlds.words import SMALL, words_world

Capture = pytest.CaptureFixture[str]
SERVICES = ["analyzer", "shuffler"]


class Desk:
    """A discovery that both services serve, in its window 0."""

    def __init__(self, folder: Path) -> None:
        self.site = Site(folder)
        words = words_world().task
        fields = ("domain", "mechanism", "report_size", "messages", "fewest_messages")
        same = {name: getattr(words, name) for name in fields}
        self.published: Published = self.site.ask(count=4, min_batch=words.min_batch, **same)
        (self.site.analyzer_dir / "data").mkdir(mode=0o700)
        AnalyzerStore(self.site.analyzer_dir / "data" / FILE_NAME).close()

    def step(self, window: int, *followed: bytes) -> SignedStep:
        level = SMALL.level(window, followed)
        made = DiscoveryStep(self.published.task_id, window, level, Digest.of(b"a release"))
        return sign_step(made, SMALL, self.site.analyzer)

    def config(self, service: str) -> Path:
        return self.site.analyzer_toml() if service == "analyzer" else self.site.write_config()

    def data(self, service: str) -> Path:
        return self.config(service).parent / "data"

    def tell(self, service: str, *steps: SignedStep) -> None:
        folder = self.data(service) / STEPS_FOLDER
        folder.parent.mkdir(mode=0o700, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
        for one in steps:
            name = f"{self.published.task_id.hex}.{one.step.window}.step"
            (folder / name).write_bytes(one.data)

    def known(self, service: str) -> dict[int, SignedStep]:
        folder = self.data(service) / STEPS_FOLDER
        return read_steps(folder, self.published.task, self.published.task_id)

    def copy(self, service: str, file: Path) -> None:
        config = str(self.config(service))
        assert main(["backup", f"--{service}", config, "--out", str(file)]) == 0

    def lose(self, service: str) -> None:
        data = self.data(service)
        data.rename(data.with_name(f"lost-{time.monotonic_ns()}"))

    def put_back(self, service: str, file: Path) -> list[str]:
        config = str(self.config(service))
        return ["restore", str(file), "--config", config, *agreed(), "--json"]


def change(file: Path, names: Mapping[str, bytes]) -> None:
    """A backup without a passphrase, by somebody else's hand."""
    made = archive.read(file)
    file.unlink()
    archive.write(file, dataclasses.replace(made, files={**made.files, **names}))


@pytest.mark.parametrize("service", SERVICES)
def test_what_was_told_is_put_back(tmp_path: Path, capsys: Capture, service: str) -> None:
    """Whatever the clock says by then: a service without it would ask anew. What is there and
    newer stays. Planted: the folder left out of the copy, or not written -> fails.
    """
    desk, file = Desk(tmp_path), tmp_path / "copy"
    first, second = desk.step(1, b"\x02", b"\x13"), desk.step(2, b"\x02\x01")
    desk.tell(service, first)
    desk.copy(service, file)
    desk.tell(service, second)
    desk.lose(service)
    desk.tell(service, second)
    capsys.readouterr()
    assert main(desk.put_back(service, file)) == 0
    done = json.loads(capsys.readouterr().out)
    assert f"steps/{desk.published.task_id.hex}.1.step" in done["written"]
    assert done["steps_left_out"] == 0
    assert done["discoveries"] == (service == "analyzer")
    assert desk.known(service) == {1: first, 2: second}


@pytest.mark.parametrize("service", SERVICES)
def test_what_nobody_signed_or_contradicts_is_left_out_and_told(
    tmp_path: Path, capsys: Capture, service: str
) -> None:
    """Planted: files written as they come -> another step is there, fails."""
    desk, file = Desk(tmp_path), tmp_path / "copy"
    first, other = desk.step(1, b"\x02"), desk.step(1, b"\x13")
    desk.copy(service, file)
    name = f"steps/{desk.published.task_id.hex}"
    change(
        file,
        {
            f"{name}.1.step": other.data,
            f"{name}.2.step": first.data[:-1],
            f"{name}.3.step": b"",
        },
    )
    desk.lose(service)
    desk.tell(service, first)
    capsys.readouterr()
    assert main(desk.put_back(service, file)) == 0
    assert json.loads(capsys.readouterr().out)["steps_left_out"] == 3
    assert desk.known(service) == {1: first}


def test_names_that_lead_elsewhere_are_refused(tmp_path: Path, capsys: Capture) -> None:
    """Planted: names not looked at -> fails."""
    desk, file = Desk(tmp_path), tmp_path / "copy"
    desk.copy("analyzer", file)
    change(file, {"steps/../keys.step": b"x"})
    desk.lose("analyzer")
    capsys.readouterr()
    assert main(desk.put_back("analyzer", file)) == 2
    assert "this is no backup" in capsys.readouterr().err


def test_who_restores_an_analyzer_is_told_where_later_steps_are(
    tmp_path: Path, capsys: Capture
) -> None:
    """In words, with the folder. Steps of a task that is served no more are not in the copy, and
    no reason to worry. Planted: not told; all files copied -> told as left out, fails.
    """
    desk, file = Desk(tmp_path), tmp_path / "copy"
    desk.tell("analyzer", desk.step(1, b"\x02"))
    folder = desk.data("analyzer") / STEPS_FOLDER
    (folder / f"{'ab' * 32}.1.step").write_bytes(b"of a task that is gone")
    desk.copy("analyzer", file)
    desk.lose("analyzer")
    capsys.readouterr()
    assert main(desk.put_back("analyzer", file)[:-1]) == 0
    told = capsys.readouterr().out
    assert str(folder) in told.replace("\n", "")
    assert "left out" not in told


def test_a_discovery_goes_on_until_its_last_batch_can_come_no_more(tmp_path: Path) -> None:
    """The last window's batch comes after the window. Planted: over with its last window -> who
    restores then is not told where the last step is, fails.
    """
    desk = Desk(tmp_path)
    config = load_settings(AnalyzerConfig, desk.config("analyzer"))
    task, plan = desk.published.task, desk.published.task.windows
    gone = plan.start_of(plan.count - 1) + task.retention_s + plan.skew_s
    told = [
        places.discoveries(config, at)
        for at in (plan.start_of(0) - 1, plan.start_of(0), plan.end_of(3) + 1, gone - 1, gone)
    ]
    assert told == [0, 1, 1, 1, 0]
