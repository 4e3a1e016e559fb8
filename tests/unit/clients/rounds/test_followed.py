"""A model that a running device follows in a folder: at the right releases, or not at all."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from shoal.clients.rounds import followed, release_files
from shoal.clients.rounds.followed import ModelInFolder, row_answer
from shoal.clients.rounds.learning import answer
from shoal.clients.rounds.trial import model_so_far
from shoal.errors import Kind, ShoalError
from shoal.questions.learning import begin_learning
from shoal.questions.network import LACKING, Network
from tests.cases import for_each
from tests.worlds.devices.clients import World, make_world
from tests.worlds.learning import NAMES, PLAN, learning_world, release_file

TOTALS = (9.0, -4.5, 1.8)  # of 90 devices
OTHERS = (-9.0, 4.5, 1.8)
ROW = '{"row": [0.6, -0.2], "yes": true}'


@pytest.fixture(scope="module")
def world() -> World:
    return learning_world()


def model_in(world: World, folder: Path) -> ModelInFolder:
    return ModelInFolder(world.task, world.task_id, folder)


def refused(model: ModelInFolder, window: int) -> str:
    """The line for the owner."""
    with pytest.raises(ShoalError) as caught:
        model.at(window)
    assert caught.value.kind is Kind.UNAVAILABLE
    assert "\n" not in caught.value.message
    assert "no window is answered" in caught.value.message
    with pytest.raises(ShoalError) as looked:
        ModelInFolder.check(model, window)
    assert looked.value.message == caught.value.message
    return caught.value.message


def test_a_window_is_asked_at_the_releases_before_it(world: World, tmp_path: Path) -> None:
    """None in the first; then as ``shoal agent learn`` has it, whether they came one by one or all
    at once, and whatever is there of later windows and of other tasks. Planted: one release more
    followed, or one less -> fails.
    """
    release_file(world, tmp_path / "another.json", 0, OTHERS, task_id=bytes(32))
    (tmp_path / "notes.txt").write_text("{")
    step_by_step = model_in(world, tmp_path)
    for window in range(PLAN.rounds):
        state = step_by_step.at(window)
        assert state.done == window
        own = [tmp_path / f"{at}.json" for at in range(window)]
        expected = model_so_far(world.task, world.task_id, own)
        assert (state.weights == expected.weights).all()
        release_file(world, tmp_path / f"{window}.json", window, (9.0 + window, -4.5, 1.8))
    for window in (3, 0, 2):  # after a restart; and a clock that is set back
        restarted = model_in(world, tmp_path)
        for model in (restarted, step_by_step):
            assert model.at(window).done == window
        assert (restarted.at(window).weights == step_by_step.at(window).weights).all()


def test_a_release_is_followed_once_and_a_withheld_one_moves_nothing(
    world: World, tmp_path: Path
) -> None:
    """The same file twice, under two names. Planted: followed twice -> "window 1 comes next"."""
    release_file(world, tmp_path / "0.json", 0, TOTALS)
    (tmp_path / "copy.json").write_bytes((tmp_path / "0.json").read_bytes())
    release_file(world, tmp_path / "1.json", 1, TOTALS, withheld="too few")
    model = model_in(world, tmp_path)
    assert (model.at(2).weights == model_in(world, tmp_path).at(1).weights).all()


def spoil(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-40])


def forge(file: Path) -> None:
    content = json.loads(file.read_text())
    content["signed"]["release_signature"] = "A" * 86 + "=="
    file.write_text(json.dumps(content))


def link(file: Path) -> None:
    file.unlink()
    file.symlink_to("nowhere")


def pipe(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


@for_each("harm", [Path.unlink, spoil, forge, link, pipe])
def test_without_a_release_nothing_is_asked(
    world: World, tmp_path: Path, harm: Callable[[Path], None]
) -> None:
    """Missing, cut, signed by another, a link to nothing, a pipe: nothing is followed beyond it,
    and with the release it goes on. Planted: signatures not verified -> the forged one is followed,
    fails; the next release taken -> fails.
    """
    files = [release_file(world, tmp_path / f"{at}.json", at, TOTALS) for at in range(3)]
    kept = files[1].read_bytes()
    harm(files[1])
    model = model_in(world, tmp_path)
    assert model.at(1).done == 1
    for window in (2, 3):
        told = refused(model, window)
        assert "the release of window 1 is not in" in told
        assert ("'1.json' there: damaged, or not signed" in told) == (harm is not Path.unlink)
    if os.path.lexists(files[1]):
        files[1].unlink()
    files[1].write_bytes(kept)
    assert model.at(3).done == 3


def test_rubbish_beside_a_release_stops_nobody(world: World, tmp_path: Path) -> None:
    """Whoever fills the folder. Planted: an unsigned file of the window taken for another release
    -> fails.
    """
    file = release_file(world, tmp_path / "0.json", 0, TOTALS)
    forge(release_file(world, tmp_path / "00.json", 0, OTHERS))
    (tmp_path / "a\nb.json").write_text("[" * 100_000)
    (tmp_path / "folder.json").mkdir()
    model = model_in(world, tmp_path)
    assert (model.at(1).weights == model_so_far(world.task, world.task_id, [file]).weights).all()
    file.unlink()
    # it was followed: nothing of it is needed any more
    assert model.at(1).done == 1
    assert "3 more" not in refused(model, 2)
    assert "and 2 more there" in refused(model, 2)


def test_two_signed_releases_of_one_window_stop_the_model(world: World, tmp_path: Path) -> None:
    """At once, or one after the other was followed, even in its place; a pair of a later window
    concerns nobody yet. Planted: the first one taken -> fails; what was followed forgotten -> the
    last is fine, fails.
    """
    first = release_file(world, tmp_path / "0.json", 0, TOTALS)
    for name in ("1.json", "1b.json"):
        release_file(world, tmp_path / name, 1, TOTALS if "b" in name else OTHERS)
    model = model_in(world, tmp_path)
    assert model.at(1).done == 1
    assert "another release of window 1" in refused(model, 2)
    (tmp_path / "1b.json").unlink()
    assert model.at(2).done == 2
    kept = first.read_bytes()
    release_file(world, first, 0, OTHERS)
    assert "another release of window 0" in refused(model, 2)
    first.write_bytes(kept)
    assert model.at(2).done == 2


def test_what_can_not_be_read_is_said(world: World, tmp_path: Path) -> None:
    """A folder that is not there yet, and a release that no model follows."""
    model = model_in(world, tmp_path / "releases")
    assert "cannot read" in refused(model, 0)
    release_file(world, tmp_path / "releases" / "0.json", 0, (1e15, 0.0, 0.0))
    assert model.at(0).done == 0
    with pytest.raises(ShoalError, match="no model follows them") as caught:
        model.at(1)
    assert caught.value.kind is Kind.UNAVAILABLE


def test_a_file_is_read_once_and_a_new_one_under_its_name_again(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: every file read at every look -> fails; by its name alone -> the spoilt one stays
    spoilt, fails.
    """
    read: list[str] = []

    def counting(file: Path) -> release_files.HandedRelease:
        read.append(file.name)
        return release_files.read_release(file)

    monkeypatch.setattr(followed, "read_release", counting)
    file = release_file(world, tmp_path / "0.json", 0, TOTALS)
    kept = file.read_bytes()
    spoil(file)
    model = model_in(world, tmp_path)
    for _ in range(3):
        refused(model, 1)
    assert read == ["0.json"]
    file.write_bytes(kept)
    for _ in range(3):
        model.at(1)
    assert read == ["0.json"] * 3  # looked at, and followed


def test_a_file_that_changes_after_the_look_is_not_followed(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another signed release comes under the name that was looked at. Planted: followed unseen ->
    a model of which no file tells, fails.
    """
    file = release_file(world, tmp_path / "0.json", 0, TOTALS)
    model, look = model_in(world, tmp_path), ModelInFolder._releases

    def looked(self: ModelInFolder, window: int) -> list[tuple[str, bytes]]:
        found = look(self, window)
        release_file(world, file, 0, OTHERS)
        return found

    with monkeypatch.context() as patched:
        patched.setattr(ModelInFolder, "_releases", looked)
        with pytest.raises(ShoalError, match="is being changed") as caught:
            model.at(1)
    assert caught.value.kind is Kind.UNAVAILABLE
    expected = model_so_far(world.task, world.task_id, [file])
    assert (model.at(1).weights == expected.weights).all()


def test_a_task_that_learns_nothing_is_no_model(tmp_path: Path) -> None:
    with pytest.raises(ShoalError, match="learns no model"):
        model_in(make_world(), tmp_path)


def test_a_row_gives_its_gradient(world: World) -> None:
    state = begin_learning(PLAN)
    found = row_answer(PLAN, state, ROW)
    assert found is not None
    assert (found == answer(PLAN, state, np.array([0.6, -0.2]), True)).all()


@for_each(
    "said",
    [
        None, "", 3, True, "[0.6, -0.2]", '{"row": [0.6], "yes": true}', '{"row": [0.6, 1e10], '
        '"yes": true}', '{"row": [NaN, 1], "yes": true}', '{"row": [0.6, Infinity], "yes": false}',
        '{"row": [0.6, -0.2], "yes": 1}', "[" * 100_000,
    ],
)  # fmt: skip
def test_what_is_no_row_is_answered_by_zeros(world: World, said: object) -> None:
    """Never refused: who takes part would say something of it. Planted: ``OwnerRow``'s error passed
    on -> fails.
    """
    found = row_answer(PLAN, begin_learning(PLAN), said)  # type: ignore[arg-type]
    assert found is None or not found.any()


@for_each("said", [ROW, None, '{"row": [NaN, 1], "yes": true}'])
def test_what_a_device_lacks_is_said_whatever_its_row_is(
    monkeypatch: pytest.MonkeyPatch, said: str | None
) -> None:
    """A network without PyTorch. Planted: no gradient of a bad row -> it is answered, fails."""
    monkeypatch.setitem(sys.modules, "torch", None)
    plan = replace(PLAN, model=Network(len(NAMES), 3, 1))
    with pytest.raises(ShoalError) as caught:
        row_answer(plan, begin_learning(plan), said)
    assert (caught.value.kind, caught.value.message) == (Kind.CONFIG, LACKING)
