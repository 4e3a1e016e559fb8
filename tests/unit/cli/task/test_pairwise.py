"""A task of sums from its TOML file to its signed bytes: written, linted, signed, shown; every
mistake is one line and status 2.
"""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from shoal.accounting.guarantee import Remaining
from shoal.accounting.lint import sums as sum_lint
from shoal.accounting.sums.sum_task import check_sum
from shoal.cli.main import main
from shoal.cli.task.file import read_task
from shoal.cli.task.pairwise_show import derived, with_graph
from shoal.cli.task.sample import sample
from shoal.codec import decode_signed_task, decode_task
from shoal.crypto.keyfiles import load_signing_key
from shoal.crypto.secagg.parameters import parameters_for
from shoal.domain import Norm, Vector
from shoal.errors import Kind, ShoalError
from shoal.secagg import Mode, PairwisePlan
from shoal.task import Admission, Aggregator, Task
from tests.worlds.tasks import PAIRWISE, PLAN, TASK, pairwise, pairwise_plan

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


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with keys and a filled-in sums.toml, made by the commands that an operator uses."""
    folder = tmp_path_factory.mktemp("made")
    roles = {
        "key_authority": "authority",
        "shuffler": "shuffler",
        "analyzer": "analyzer",
        "enrolment": "enrolment",
    }
    for role in roles.values():
        assert main(["keys", "signing", "--out", str(folder / f"{role}.key")]) == 0
    values = {
        f"keys.{name}": load_signing_key(folder / f"{role}.key").public.hex()
        for name, role in roles.items()
    }
    (folder / "ca.pem").write_bytes(TASK.shuffler_ca)
    values |= {
        "windows.count": "3",
        "windows.start": "2026-01-01T00:00:00Z",
        "pairwise.cohort_max": "120",
        "min_batch": "200",
    }
    settings = (part for item in values.items() for part in ("--set", "=".join(item)))
    assert main(["task", "new", "--pairwise", "--out", str(folder / "sums.toml"), *settings]) == 0
    return folder


@pytest.fixture
def desk(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of that folder, and the working directory."""
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def edit(old: str, new: str) -> None:
    text = Path("sums.toml").read_text()
    assert old in text
    Path("sums.toml").write_text(text.replace(old, new, 1))


def test_the_sample_is_a_task_that_can_be_signed(desk: Path, capsys: Capture) -> None:
    """Written, filled in, linted, signed and shown by commands alone; what is signed is what was
    written.

    Planted: ``[pairwise]`` left out of the tables that are read, or noise for cohort_max -> this
    fails.
    """
    out, _ = run(capsys, "task", "lint", "sums.toml")
    assert "error:" not in out
    assert "rounds of 96 to 120 devices, of which 77 must survive; noise for 67 honest ones" in out
    run(capsys, "task", "sign", "sums.toml", "--key", "authority.key", "--out", "sums.task")
    task = decode_task(decode_signed_task((desk / "sums.task").read_bytes()).data)
    assert (task.aggregator, task.admission) == (Aggregator.PAIRWISE, Admission.ENROLLED)
    assert task.domain == Vector(2, Norm.L2, 400.0, 1_000, ("visits", "visits squared"))
    assert task.pairwise is not None
    assert task.pairwise.mode is Mode.DEFAULT
    assert (task.pairwise.cohort_min, task.pairwise.survivors_min, task.pairwise.dropout_ppm) == (
        96,
        77,
        200_000,
    )
    assert check_sum(task).epsilon_upper <= 1.0
    shown = json.loads(run(capsys, "task", "show", "sums.task", "--json")[0])
    assert shown["cells"] == ["visits", "visits squared"]
    assert shown["guaranteed_epsilon"] == check_sum(task).epsilon_upper
    assert shown["rounds"]["word_bits"] == task.pairwise.word_bits
    assert (shown["rounds"]["norm"], shown["rounds"]["clip"], shown["rounds"]["dimension"]) == (
        "l2",
        400.0,
        2,
    )
    assert len(shown["enrolment_key"]) == 64
    text, _ = run(capsys, "task", "show", "sums.task")
    for name in (
        "survivors min",
        "neighbours",
        "noise stderr per round",
        "clip",
        "mechanism",
        "guaranteed epsilon",
    ):
        assert name in text


def test_every_key_of_the_sample_can_be_set_or_is_a_comment() -> None:
    """Those that are commented out have the defaults that the program has. Planted: another default
    for mask_s -> this fails.
    """
    text = sample(
        ["target_epsilon=0.5", "pairwise.mode=strict", "domain.norm=l1", "pairwise.dropout=0.1"],
        pairwise=True,
    )
    assert 'mode = "strict"' in text
    assert 'norm = "l1"' in text
    assert "dropout = 0.1 " in text
    plan = PairwisePlan(
        PLAN.mode,
        PLAN.cohort_min,
        PLAN.cohort_max,
        PLAN.survivors_min,
        PLAN.dropout_ppm,
        PLAN.word_bits,
    )
    for name in ("join_s", "share_s", "mask_s", "unmask_s"):
        assert re.search(f"^# {name} = {getattr(plan, name)}\\b", text, re.MULTILINE)
    for setting in ("pairwise.epsilon0=3", "mechanism.name=krr", "mode=strict", "pairwise.mode"):
        with pytest.raises(ShoalError, match="no such key in the sample"):
            sample([setting], pairwise=True)
    with pytest.raises(ShoalError, match="no such key in the sample"):
        sample(["pairwise.mode=strict"])


def test_what_the_sample_calls_a_default_is_one(desk: Path) -> None:
    """With those lines left out, and with the commented ones written out, it is the same task but
    for its salt.

    Planted: another default for mask_s, dropout or the unit -> this fails.
    """
    text = Path("sums.toml").read_text()
    same = [replace(read_task(Path("sums.toml")), salt=bytes(16))]
    bare = "\n".join(
        line for line in text.splitlines() if not re.match("(mode|noise|dropout|unit) = ", line)
    )
    full = re.sub(r"^# ((join|share|mask|unmask)_s = )", r"\1", text, flags=re.MULTILINE)
    for one in (bare, full):
        assert one != text
        Path("sums.toml").write_text(one)
        same.append(replace(read_task(Path("sums.toml")), salt=bytes(16)))
    assert len(set(same)) == 1


@pytest.mark.parametrize("mode", ["default", "strict", "helper"])
@pytest.mark.parametrize(
    ("norm", "noise"), [("l2", "skellam"), ("l1", "discrete_laplace"), ("coordinate", "skellam")]
)
def test_every_mode_norm_and_noise(
    desk: Path, capsys: Capture, mode: str, norm: str, noise: str
) -> None:
    """Numbers are JSON that any parser reads, and the noise is the one that fits the norm unless
    told otherwise.
    """
    edit("min_batch = 200", "min_batch = 100")
    edit('mode = "default"', f'mode = "{mode}"')
    edit('norm = "l2"', f'norm = "{norm}"')
    edit('noise = "skellam"', "# noise")
    made = json.loads(
        run(capsys, "task", "lint", "sums.toml", "--json")[0], parse_constant=pytest.fail
    )
    assert made["errors"] == []
    assert 0.9 < made["certificate"]["epsilon_upper"] <= 1.0
    assert (made["certificate"]["epsilon_together"] == made["certificate"]["epsilon_upper"]) == (
        mode == "strict"
    )
    assert ("neighbours" in made["rounds"]) == (mode != "helper")
    assert read_task(Path("sums.toml")).mechanism.name == noise
    out, _ = run(capsys, "task", "lint", "sums.toml")
    assert f"mode {mode}:" in out
    assert ("neighbours" in out) == (mode != "helper")
    assert ("one sum per window, of" in out) == (mode == "helper")


def test_an_epsilon0_that_is_infinite_is_null_or_inf(desk: Path, capsys: Capture) -> None:
    """Where a share alone proves nothing. Planted: epsilon0 shown as it is -> ``Infinity``, which
    is no JSON, and this fails.
    """
    run(capsys, "task", "sign", "sums.toml", "--key", "authority.key", "--out", "sums.task")
    task = decode_task(decode_signed_task((desk / "sums.task").read_bytes()).data)
    real = check_sum(task)
    nothing = type(real)(
        **{
            **{f: getattr(real, f) for f in real.__slots__},
            "epsilon0": float("inf"),
            "remaining": Remaining(real.epsilon_upper, float("inf")),
        }
    )
    with mock.patch.object(sum_lint, "check_sum", return_value=nothing):
        for command in (("lint", "sums.toml"), ("show", "sums.task")):
            json.loads(run(capsys, "task", *command, "--json")[0], parse_constant=pytest.fail)
        out, _ = run(capsys, "task", "lint", "sums.toml")
    assert "if shuffler and analyzer collude, epsilon0 inf" in out
    assert "together can read every vector" in out


@pytest.mark.parametrize(
    ("old", "new", "names"),
    [
        ('aggregator = "pairwise"', 'aggregator = "sum"', "pairwise: not with"),
        ('aggregator = "pairwise"', "", 'pairwise: not with aggregator = "shuffled"'),
        ('aggregator = "pairwise"', "aggregator = 1", "aggregator"),
        (
            "[pairwise]",
            '[mechanism]\nname = "krr"\n[pairwise]',
            'mechanism: not with aggregator = "pairwise"',
        ),
        ("[pairwise]", "[rounds]", "rounds"),
        ('admission = "enrolled"', 'admission = "open"', "keys.enrolment"),
        ('admission = "enrolled"', "", "keys.enrolment"),
        ("min_batch = 200", "min_batch = 50", "min_batch is at least survivors_min"),
        ("min_batch = 200", "min_batch = 200\nmax_batch = 500", "max_batch must be 0"),
        ("delta = 1e-8", "delta = 0", "delta"),
        ("delta = 1e-8", "delta = nan", "delta"),
        ("delta = 1e-8", "delta = 1e-101", "delta"),
        ("target_epsilon = 1.0", "target_epsilon = 0", "epsilon"),
        ("target_epsilon = 1.0", "target_epsilon = 1e-9", "raise epsilon"),
        ("length_s = 604800", "length_s = 299", "skew"),
        (
            'kind = "vector"',
            'kind = "yes_no"',
            'domain.kind: with aggregator = "pairwise" it is "vector"',
        ),
        ('names = ["visits", "visits squared"]', "", "domain.dimension"),
        ('names = ["visits", "visits squared"]', 'names = ["a", "a"]', "distinct"),
        ('names = ["visits", "visits squared"]', "names = [1, 2]", "domain.names"),
        ('names = ["visits", "visits squared"]', 'names = ["a", "b"]\ndimension = 3', "names"),
        ('names = ["visits", "visits squared"]', "dimension = -3", "coordinates"),
        ('names = ["visits", "visits squared"]', "dimension = 20000000", "coordinates"),
        (
            'names = ["visits", "visits squared"]',
            'names = ["a", "b\\u001b[2K"]',
            "control characters",
        ),
        ('norm = "l2"', 'norm = "l3"', "domain.norm: one of l1, l2, coordinate"),
        ('norm = "l2"', "", "domain.norm: required"),
        ("clip = 400.0", "clip = nan", "clip"),
        ("clip = 400.0", "clip = inf", "clip"),
        ("clip = 400.0", "clip = -1", "clip"),
        ("clip = 400.0", 'clip = "400"', "domain.clip"),
        ("clip = 400.0", "", "domain.clip: required"),
        ("clip = 400.0", "clip = 400.0\nlevels = 3", "domain.levels: no such key"),
        ("clip = 400.0", "clip = 400.0\ngrid = 0", "grid"),
        ("clip = 400.0", "clip = 400.0\ngrid = 1000.5", "domain.grid"),
        ('mode = "default"', 'mode = "secure"', "pairwise.mode: one of default, strict, helper"),
        ('noise = "skellam"', 'noise = "gaussian"', "skellam or discrete_laplace"),
        ("cohort_max = 120", "", "pairwise.cohort_max: required"),
        ("cohort_max = 120", "cohort_max = 120\ncohort_min = 121", "cohort_max"),
        ("cohort_max = 120", "cohort_max = 120\ncohort_min = 0", "cohort_min"),
        ("cohort_max = 120", "cohort_max = 20000", "10000 devices"),
        ("cohort_max = 120", "cohort_max = -1", "cohort_max"),
        (
            "cohort_max = 120",
            "cohort_max = 120\nneighbours = 30",
            "pairwise.neighbours: no such key",
        ),
        ("cohort_max = 120", "cohort_max = 120\nword_bits = 16", "pairwise.word_bits: no such key"),
        ("cohort_max = 120", "cohort_max = 120\njoin_s = 0", "join_s"),
        ("dropout = 0.2", "dropout = 1.0", "pairwise.dropout"),
        ("dropout = 0.2", "dropout = -0.1", "pairwise.dropout"),
        ("dropout = 0.2", "dropout = nan", "pairwise.dropout"),
        ("dropout = 0.2", "dropout = 0.9999999", "dropout"),
        ("dropout = 0.2", "dropout = true", "pairwise.dropout"),
        ("honest_fraction = 0.9", "honest_fraction = 0.00001", "honest_fraction"),
        ("honest_fraction = 0.9", "honest_fraction = 0.02", "would hide nobody"),
    ],
)
def test_a_bad_task_is_one_line_that_names_the_key(
    desk: Path, capsys: Capture, old: str, new: str, names: str
) -> None:
    """Neither linted nor signed. Planted: any of the checks behind these lines removed -> its line
    fails.
    """
    edit(old, new)
    _, error = run(capsys, "task", "lint", "sums.toml", status=2)
    assert names in error
    assert "sums.toml" in error
    assert error.count("\n") == 1
    run(
        capsys,
        "task",
        "sign",
        "sums.toml",
        "--key",
        "authority.key",
        "--out",
        "sums.task",
        status=2,
    )
    assert not Path("sums.task").exists()


def test_the_arrays_of_a_model_are_named_in_the_task(desk: Path, capsys: Capture) -> None:
    """They say the dimension, and that the vector travels in segments; a wrong one is one line.
    Planted: no segments for a short vector with a layout -> the task is refused, fails.
    """
    names = 'names = ["visits", "visits squared"]'
    edit(names, 'layout = ["weight[3,2]", "bias[]"]')
    run(capsys, "task", "sign", "sums.toml", "--key", "authority.key", "--out", "sums.task")
    task = decode_task(decode_signed_task((desk / "sums.task").read_bytes()).data)
    assert isinstance(task.domain, Vector)
    assert [str(one) for one in task.domain.layout] == ["weight[3,2]", "bias[]"]
    assert (task.domain.dimension, task.pairwise and task.pairwise.segmented) == (7, True)
    edit('"bias[]"', '"../bias[]"')
    _, error = run(capsys, "task", "lint", "sums.toml", status=2)
    assert "domain.layout" in error
    assert error.count("\n") == 1
    edit('"../bias[]"', '"bias[]"')
    edit('mode = "default"', 'mode = "helper"')
    _, error = run(capsys, "task", "lint", "sums.toml", status=2)
    assert "helper mode" in error
    edit('layout = ["weight[3,2]", "bias[]"]', f"dimension = {(1 << 20) + 1}")
    _, error = run(capsys, "task", "lint", "sums.toml", status=2)
    assert "which helper mode has none of: take mode default or strict" in error
    assert error.count("\n") == 1


def test_phases_longer_than_a_window_are_refused(desk: Path, capsys: Capture) -> None:
    """At the second: 360 fit, 359 do not, and the message says how long a round may take."""
    for old, new in (
        ("length_s = 604800", "length_s = 360"),
        ("grace_s = 86400", "grace_s = 0"),
        ("skew_s = 300", "skew_s = 0"),
    ):
        edit(old, new)
    run(capsys, "task", "lint", "sums.toml")
    edit("length_s = 360", "length_s = 359")
    _, error = run(capsys, "task", "lint", "sums.toml", status=2)
    assert "a round may take 360 seconds" in error


def test_a_shuffled_task_takes_no_vector(desk: Path, capsys: Capture) -> None:
    """And the error says what to set."""
    edit('aggregator = "pairwise"', "")
    text = Path("sums.toml").read_text()
    begin, end = text.index("[pairwise]"), text.index("[windows]")
    Path("sums.toml").write_text(
        text[:begin] + '[mechanism]\nname = "krr"\nepsilon0 = 1.0\n' + text[end:]
    )
    _, error = run(capsys, "task", "lint", "sums.toml", status=2)
    assert 'set aggregator = "pairwise"' in error


def test_a_vector_may_be_randomized_in_a_shuffled_task(desk: Path, capsys: Capture) -> None:
    """With a mechanism of vectors, whose epsilon0 and reports are shown. Other norms, settings and
    domains are refused by the key. Planted: the norm not looked at -> fails.
    """
    edit('aggregator = "pairwise"', "")
    text = Path("sums.toml").read_text()
    begin, end = text.index("[pairwise]"), text.index("[windows]")
    table = '[mechanism]\nname = "privunit"\nepsilon0 = 1.0\n'
    Path("sums.toml").write_text(text[:begin] + table + text[end:])
    out, _ = run(capsys, "task", "lint", "sums.toml", "--json")
    assert "epsilon_upper" in json.dumps(json.loads(out)), out
    for old, new, said in (
        ('norm = "l2"', 'norm = "l1"', 'norm = "l2"'),
        ('name = "privunit"', 'name = "privunit"\nsetting = "K=3"', "mechanism.setting"),
        ("epsilon0 = 1.0", "epsilon0 = -1.0", "mechanism.epsilon0"),
        ("clip = 400.0", "clip = 400.0\ngrid = 100", "grid"),
    ):
        edit(old, new)
        _, error = run(capsys, "task", "lint", "sums.toml", status=2)
        assert said in error, error
        edit(new, old)
    run(capsys, "task", "lint", "sums.toml")


def test_what_lint_refuses_is_in_the_json_too(desk: Path, capsys: Capture) -> None:
    """Rounds are not shown of a task that is refused: its numbers mean nothing."""
    edit('mode = "default"', 'mode = "helper"')
    edit("min_batch = 200", "min_batch = 121")
    assert main(["task", "lint", "sums.toml", "--json"]) == 2
    made = json.loads(capsys.readouterr().out)
    assert "no window could be released" in made["errors"][0]
    assert "rounds" not in made


# --- numbers that are computed --------------------------------------------------------------------


def test_a_hundred_thousand_coordinates_are_numbered_not_listed(
    desk: Path, capsys: Capture
) -> None:
    """Planted: every coordinate's number shown -> the output is longer than 5,000 characters, and
    this fails.
    """
    edit('names = ["visits", "visits squared"]', "dimension = 100000")
    edit('mode = "default"', 'mode = "strict"')
    run(capsys, "task", "lint", "sums.toml")
    run(capsys, "task", "sign", "sums.toml", "--key", "authority.key", "--out", "sums.task")
    assert (desk / "sums.task").stat().st_size < 2_000
    shown = json.loads(run(capsys, "task", "show", "sums.task", "--json")[0])
    assert shown["cells"] == []
    assert shown["rounds"]["dimension"] == 100_000
    assert len(run(capsys, "task", "show", "sums.task")[0]) < 5_000


@pytest.mark.parametrize("mode", [Mode.DEFAULT, Mode.STRICT])
def test_derived_numbers_are_those_that_devices_compute(mode: Mode) -> None:
    """Planted: the threshold of cohort_max given for both ends -> this fails."""
    task = pairwise_plan(mode=mode, cohort_max=400)
    shown: dict[str, Any] = derived(task) or {}
    assert task.pairwise is not None
    ends = [parameters_for(task.pairwise, task.honest_fraction_ppm, n) for n in (100, 400)]
    assert shown["neighbours"] == [one.neighbours for one in ends]
    assert shown["threshold"] == [one.threshold for one in ends]
    assert shown["honest_survivors"] == 70
    assert shown["vector_bytes"] == task.report_size
    assert shown["noise_stderr_per_round"] == pytest.approx((118_000_000 * 80 / 70) ** 0.5 / 100)


def test_shuffled_tasks_have_no_rounds() -> None:
    assert derived(TASK) is None


def test_rounds_that_cannot_be_laid_out_are_refused(desk: Path, capsys: Capture) -> None:
    """Half of the devices corrupt and half lost: no graph stands that. Planted: ``with_graph`` left
    out -> fails.
    """
    edit("honest_fraction = 0.9", "honest_fraction = 0.5")
    edit("dropout = 0.2", "dropout = 0.4")
    edit('mode = "default"', 'mode = "strict"')
    edit("min_batch = 200", "min_batch = 1000")
    _, error = run(capsys, "task", "lint", "sums.toml", status=2)
    assert error.count("\n") == 1
    assert "sums.toml: refused: " in error


def test_layouts_are_tried_at_both_ends() -> None:
    """Planted: only cohort_min tried -> this fails."""
    asked: list[int] = []
    result = sum_lint.lint_sum(PAIRWISE)

    def parameters(plan: object, ppm: int, devices: int) -> object:
        asked.append(devices)
        if devices == 120:
            raise ShoalError(Kind.INVALID, "no such graph")
        return None

    with mock.patch("shoal.cli.task.pairwise_show.parameters_for", parameters):
        assert with_graph(PAIRWISE, result).errors == ("no such graph",)
        assert with_graph(pairwise(), result).warnings == result.warnings
        helper = pairwise_plan(mode=Mode.HELPER)
        assert with_graph(helper, result) is result
    assert {100, 120} <= set(asked)
    assert isinstance(PAIRWISE, Task)


def test_noise_that_drowns_every_total_is_a_warning(desk: Path, capsys: Capture) -> None:
    """4630 against totals of up to 77 * 400 is fine; ten times that is no measurement. Planted: no
    warning, or always one -> this fails.
    """
    out, _ = run(capsys, "task", "lint", "sums.toml")
    assert "no total of" not in out
    edit("target_epsilon = 1.0 ", "target_epsilon = 0.1 ")
    out, _ = run(capsys, "task", "lint", "sums.toml")
    assert "warning: the noise of a sum has a standard error of 4" in out
    assert (
        "no total of 77 devices exceeds 3.08e+04: larger rounds or a larger target_epsilon would "
        "tell more" in out
    )
