"""``shoal demo --federated`` as a user runs it: real services, and a model that devices follow from
signed releases.
"""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from shoal.cli import extras
from shoal.cli.demo.federated.asked import DELTA, plan_of
from shoal.cli.demo.federated.beside import accuracy
from shoal.cli.demo.federated.patients import load_patients
from shoal.cli.demo.options import Learnt
from shoal.cli.main import main
from shoal.clients.rounds.learning import follow, signed_release
from shoal.codec import decode_signed_task
from shoal.crypto.trust import trust_task
from shoal.questions.learning import after_round, begin_learning
from shoal.questions.plan_words import check_learning
from tests.sizes import FULL, size
from tests.worlds.pytorch import needs_pytorch

DEVICES, ROUNDS = size(60, 455), size(2, 6)
PROGRAM = "shoal.cli.main" if FULL else "tests.worlds.rounds.quick"
Capture = pytest.CaptureFixture[str]


@needs_pytorch
@pytest.mark.timeout(size(240, 1_800))
def test_a_network_is_learnt_through_real_services(tmp_path: Path) -> None:
    """As above, of 513 weights: what the signed releases say is the network whose accuracy is told,
    beside the same one and a logistic regression by a curator. One round at reduced size.
    Planted: the logistic regression's plan signed for the network's devices -> MISMATCH, exit
    status 1, fails; another seed of the first weights in the demo's model -> another accuracy.
    """
    rounds = size(1, 6)
    line = [
        *(sys.executable, "-m", PROGRAM, "demo", "--federated", "--model", "network"),
        *("--devices", f"{DEVICES}", "--rounds", f"{rounds}", "--json", "-"),
    ]
    done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2_000:]
    results = json.loads(done.stdout)
    plan = plan_of(rounds, adaptive=False, learnt=Learnt.NETWORK)
    assert results["model"] == {"words": plan.model.words, "weights": 513}
    assert plan.words in results["tasks"][0]["question"]
    assert {"federated", "central", "open", "central_logistic"} <= results["accuracy"].keys()
    assert 1.98 < results["composed"]["epsilon_upper"] <= 2.0
    files = sorted((tmp_path / "shoal-demo" / "releases").iterdir())
    (signed_task,) = (tmp_path / "shoal-demo" / "tasks").glob("*.task")
    data = signed_task.read_bytes()
    trusted = trust_task(data, {decode_signed_task(data).authority})
    check_learning(trusted.task, plan)
    state, (_, held_out) = begin_learning(plan), load_patients()
    for file, told in zip(files, results["rounds"], strict=True):
        signed = signed_release(file.read_bytes())
        state = follow(plan, trusted.task, trusted.task_id, state, signed)
        assert told["accuracy"] == accuracy(plan.model, state.weights, held_out)
    key = tmp_path / "shoal-demo" / "authority"
    assert main(["verify", "--authority", str(key), "--accept-open", *map(str, files)]) == 0


def test_a_network_without_pytorch_is_one_line(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before anything is made. Planted: no such check -> the line comes later, and a folder is
    left; fails.
    """

    def found(name: str) -> object:
        return None if name == "torch" else find_spec(name)

    monkeypatch.setattr(extras, "find_spec", found)
    monkeypatch.setitem(sys.modules, "torch", None)
    line = ["demo", "--out", f"{tmp_path / 'out'}", "--federated", "--model", "network"]
    assert main(line) == 2
    err = capsys.readouterr().err
    assert "pip install 'shoal[network]'" in err
    assert err.count("\n") == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.timeout(size(240, 1_800))
def test_a_model_is_learnt_through_real_services(tmp_path: Path) -> None:
    """Every window has a sum that is exactly its devices' (the demo fails if not), each costs more
    of the one promise, and the model is what the signed releases say: anybody computes it from
    them. The last release composes all windows as the demo does.

    Planted: a release handed to devices without its signature -> exit status 1, fails; another
    device's noise in what the demo compares with -> exit status 1; a model of the last round but
    one in the results -> another accuracy, fails.
    """
    line = [
        *(sys.executable, "-m", PROGRAM, "demo", "--federated", "--adaptive"),
        *("--devices", f"{DEVICES}", "--rounds", f"{ROUNDS}", "--json", "results.json"),
    ]
    done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2_000:]
    results = json.loads((tmp_path / "results.json").read_text())
    rounds, plan = results["rounds"], plan_of(ROUNDS, adaptive=True)
    assert [one["window"] for one in rounds] == list(range(ROUNDS))
    assert [task["release"]["window"] for task in results["tasks"]] == list(range(ROUNDS))
    assert all(one["withheld"] is None for one in rounds)
    assert all(0.9 * DEVICES <= one["devices"] <= DEVICES for one in rounds)
    spent = [one["epsilon_so_far"] for one in rounds]
    assert spent == sorted(spent)
    assert 1.98 < spent[-1] <= 2.0
    assert results["composed"]["epsilon_upper"] == spent[-1]
    told = results["tasks"][-1]["release"]["privacy"]
    assert told["delta_cumulative"] == pytest.approx(DELTA)
    assert told["epsilon_cumulative_upper"] == pytest.approx(spent[-1], rel=1e-6)
    assert rounds[0]["clip"] == plan.clip
    assert rounds[-1]["clip"] != plan.clip  # it followed the gradients
    model, (_, held_out) = begin_learning(plan), load_patients()
    for one, task in zip(rounds, results["tasks"], strict=True):
        release = task["release"]
        totals = np.array([estimate["value"] for estimate in release["estimates"]])
        assert one["clip"] == pytest.approx(model.clip)
        model = after_round(plan, model, totals, release["n"])
        assert one["accuracy"] == accuracy(plan.model, model.weights, held_out)
    assert "The promise" in done.stdout
    files = sorted((tmp_path / "shoal-demo" / "releases").iterdir())
    assert len(files) == ROUNDS
    (signed_task,) = (tmp_path / "shoal-demo" / "tasks").glob("*.task")
    data = signed_task.read_bytes()
    trusted = trust_task(data, {decode_signed_task(data).authority})
    state = begin_learning(plan)
    for file in files:  # as a device of somebody's own follows them
        signed = signed_release(file.read_bytes())
        state = follow(plan, trusted.task, trusted.task_id, state, signed)
    assert (state.weights == model.weights).all()
    key = tmp_path / "shoal-demo" / "authority"
    options = ["--authority", str(key), "--accept-open"]
    assert main(["verify", *options, *map(str, files)]) == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--federated", "--secagg"], "leave --secagg"),
        (["--federated", "--near-central"], "leave --secagg, --near-central"),
        (["--federated", "--mechanism", "krr"], "--mechanism and --setting out"),
        (["--rounds", "3"], "go with --federated"),
        (["--adaptive"], "go with --federated"),
        (["--model", "network"], "go with --federated"),
        (["--model", "logistic", "--secagg"], "go with --federated"),
        (["--federated", "--devices", "456"], "at most so many --devices"),
        (["--federated", "--model", "network", "--recipe", "emoji-popularity"], "--recipe asks"),
    ],
)
def test_what_does_not_go_with_it_is_one_line(
    arguments: list[str], words: str, tmp_path: Path, capsys: Capture
) -> None:
    """Nothing is started. Planted: no check -> another demo runs than was asked for; PyTorch looked
    for before options are compared -> what is missing is said where it is not, fails.
    """
    assert main(["demo", "--out", f"{tmp_path / 'out'}", *arguments]) == 2
    err = capsys.readouterr().err
    assert words in err
    assert err.count("\n") == 1
