"""The help of ``shoal load``, and what it says of a file that is no task."""

from __future__ import annotations

from dataclasses import fields
from inspect import signature
from pathlib import Path

import pytest

from shoal.cli.load import command as load
from shoal.cli.load import options as load_options
from shoal.cli.load.options import LoadOptions
from shoal.cli.main import main
from shoal.clients.fleet.misbehaviour import Carrier
from shoal.errors import ShoalError


def test_help_shows_examples_that_parse(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every example of --help is a command that the parser takes. Planted: an option of another
    name -> fails.
    """
    seen: list[LoadOptions] = []
    monkeypatch.setattr(load, "run", seen.append)
    examples = [
        line.split()
        for line in load_options.HELP.replace("\\\n", "").splitlines()
        if line.startswith("    shoal load")
    ]
    assert len(examples) >= 5
    for example in examples:
        assert main(example[1:]) == 0
    assert [one.way for one in seen].count(Carrier.MQTT) == 1
    assert {one.plan for one in seen} == {False, True}
    assert {name.name for name in fields(LoadOptions)} == set(signature(load.load).parameters)


def test_a_bad_task_file_is_named(tmp_path: Path) -> None:
    for name in ("odd.task", "odd.keys"):
        (tmp_path / name).write_bytes(b"\xff\xff")
    with pytest.raises(ShoalError, match=r"^odd\.task: "):
        load.run(LoadOptions(devices=3, task=[tmp_path / "odd.task"]))
