"""Task files for every registered mechanism: name, epsilon0, setting; what lint and show say; one
line for what is wrong.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from shoal.accounting.composition.compose import compose
from shoal.accounting.composition.memoized import recognised
from shoal.accounting.lint.findings import LintResult
from shoal.accounting.lint.task import lint
from shoal.accounting.several_messages.of_domain import design_several
from shoal.accounting.several_messages.of_mechanism import losses_of
from shoal.cli.main import main
from shoal.cli.task.command import describe
from shoal.cli.task.file import read_task
from shoal.cli.task.frame import with_frame
from shoal.cli.task.sample import sample
from shoal.codec import Signed, encode_signed_task, encode_task
from shoal.crypto.admission.members import frame_bytes
from shoal.crypto.signing import SigningContext, SigningKey
from shoal.crypto.trust import trust_task
from shoal.domain import AnswerRecord, Categories, Domain, Numeric, Places, Words, YesNo
from shoal.mechanisms import REGISTRY, Mechanism, create, design, serves
from shoal.mechanisms.several.registry import create as several
from shoal.privacy import PureLaw
from shoal.questions.record import all_pairs
from shoal.task import MechanismSpec, Task
from tests.cases import for_each
from tests.sizes import FULL
from tests.worlds.tasks import ATTRIBUTES
from tests.worlds.tasks import task as make_task

Capture = pytest.CaptureFixture[str]
LABELS = tuple("abcdefgh")
DOMAINS: dict[str, tuple[str, Domain]] = {
    "categories": (f"labels = {list(LABELS)}", Categories(LABELS)),
    "yes_no": ("", YesNo()),
    "numeric": ("low = 0.0\nhigh = 4.0\nlevels = 5", Numeric(0.0, 4.0, 5)),
    "places": (
        "south = 48.1\nwest = 11.5\nnorth = 48.136\neast = 11.554\nrows = 2\ncolumns = 3",
        Places(48_100_000, 11_500_000, 48_136_000, 11_554_000, 2, 3),
    ),
    "words": ('labels = ["flu", "cafe\u0301"]', Words(("flu", "caf\u00e9"))),
}
KIND = {
    name: next(kind for kind, (_, domain) in DOMAINS.items() if serves(name, domain))
    for name in REGISTRY
}
EVERY = [
    (name, one.name) for name in REGISTRY for one in REGISTRY[name].settings(DOMAINS[KIND[name]][1])
]


def write(folder: Path, *settings: str, kind: str = "yes_no") -> Path:
    (folder / "ca.pem").write_text("-----BEGIN CERTIFICATE-----\n")
    keys = [
        f"keys.{name}={'0' * 62}{number:02}"
        for number, name in enumerate(("key_authority", "shuffler", "analyzer"), 10)
    ]
    path = folder / "visits.toml"
    text = sample([*keys, *settings, "target_epsilon=2", "min_batch=300"])
    path.write_text(text.replace('kind = "yes_no"', f'kind = "{kind}"\n{DOMAINS[kind][0]}', 1))
    return path


@for_each("name, setting", EVERY)
def test_every_setting_of_every_mechanism_can_be_asked_for(
    tmp_path: Path, name: str, setting: str
) -> None:
    """Planted: the setting dropped on its way to ``design`` -> this fails."""
    kind = KIND[name]
    path = write(
        tmp_path,
        f"mechanism.name={name}",
        "mechanism.epsilon0=1.5",
        f"mechanism.setting={setting}",
        kind=kind,
    )
    made = read_task(path)
    assert made.mechanism == design(name, DOMAINS[kind][1], 1.5, setting)
    if FULL or setting == REGISTRY[name].settings(DOMAINS[kind][1])[-1].name:
        assert not lint(made).errors  # of the first setting: below


@for_each("name", REGISTRY)
def test_lint_and_show_say_how_long_a_report_is(tmp_path: Path, capsys: Capture, name: str) -> None:
    """No setting: the first. Planted: the frame of another suite -> this fails."""
    kind = KIND[name]
    path = write(tmp_path, f"mechanism.name={name}", "mechanism.epsilon0=1.5", kind=kind)
    made = read_task(path)
    size = create(made.mechanism, made.domain).report_size
    assert main(["task", "lint", str(path)]) == 0
    words = f"{name}: a report is {size} byte{'s' * (size > 1)}, sent in a frame of 512 bytes"
    assert words in " ".join(capsys.readouterr().out.split())
    assert main(["task", "lint", str(path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["report_bytes"], found["frame_bytes"]) == (size, 512)
    assert main(["keys", "signing", "--out", str(tmp_path / "authority.key")]) == 0
    signed = tmp_path / "visits.task"
    assert (
        main(
            [
                "task",
                "sign",
                str(path),
                "--key",
                str(tmp_path / "authority.key"),
                "--out",
                str(signed),
            ]
        )
        == 0
    )
    capsys.readouterr()
    assert main(["task", "show", str(signed), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["mechanism"], shown["parameters"]) == (name, dict(made.mechanism.parameters))
    assert (shown["messages"], shown["report_bytes"], shown["frame_bytes"]) == (1, size, 512)


@for_each("name", ["signed_count", "cancelling", "dummies", "ranges"])
def test_noise_of_several_messages_is_chosen_for_all_windows_of_the_task(
    tmp_path: Path, name: str
) -> None:
    """Thirty windows together have an epsilon. Planted: ``windows`` of the file left out of the
    design -> infinity, fails.
    """
    kind = "numeric" if name == "ranges" else "yes_no"
    path = write(tmp_path, f"mechanism.name={name}", "windows.count=30", "delta=1e-6", kind=kind)
    lines = path.read_text().splitlines()
    path.write_text("\n".join(line for line in lines if not line.startswith("epsilon0")))
    made = read_task(path)
    losses = losses_of(several(made.mechanism, made.domain), made.n_certified, 1e-6)
    assert losses is not None
    assert compose([(losses, 30)], 1e-6).epsilon_upper < 2.0 * 30
    assert not any("windows together" in warning for warning in lint(made).warnings)
    assert main(["task", "lint", str(path)]) == 0


@for_each("name", ["signed_count", "cancelling", "dummies"])
def test_a_true_message_may_be_randomized(tmp_path: Path, name: str, capsys: Capture) -> None:
    """By its line in the sample. Planted: the key read and left alone -> infinity, fails."""
    path = write(tmp_path, f"mechanism.name={name}", "delta=1e-6")
    text = path.read_text().replace("# epsilon0_if_colluding", "epsilon0_if_colluding")
    lines = [line for line in text.splitlines() if not line.startswith("epsilon0 ")]
    path.write_text("\n".join(lines))
    made = read_task(path)
    epsilon0 = several(made.mechanism, made.domain).epsilon0
    assert 8.0 - 1e-9 < epsilon0 <= 8.0
    assert main(["task", "lint", str(path)]) == 0
    losses = losses_of(several(made.mechanism, made.domain), made.n_certified, 1e-6)
    assert losses is not None
    together = compose([(losses, made.windows.count)], 1e-6).epsilon_upper
    assert together < made.windows.count * 2.0
    assert not any("windows together" in warning for warning in lint(made).warnings)
    assert "with epsilon0 8" in " ".join(capsys.readouterr().out.split())
    numbers = ", ".join(f"{key} = {value}" for key, value in made.mechanism.parameters)
    path.write_text("\n".join(lines).replace("setting =", f"parameters = {{ {numbers} }} #"))
    assert main(["task", "lint", str(path)]) != 0
    assert "leave one of the two out" in " ".join(capsys.readouterr().err.split())


def test_the_sample_takes_an_epsilon0_if_colluding() -> None:
    """Planted: its comment left one -> a key that there is not, fails."""
    assert "\nepsilon0_if_colluding = 6.5" in sample(["mechanism.epsilon0_if_colluding=6.5"])
    assert "\nepsilon0_if_colluding" not in sample([])


def test_a_single_message_has_no_epsilon0_if_colluding(tmp_path: Path, capsys: Capture) -> None:
    """One line that says what to give. Planted: the key taken and left alone -> fails."""
    path = write(tmp_path, "delta=1e-6")
    path.write_text(path.read_text().replace("# epsilon0_if_colluding", "epsilon0_if_colluding"))
    assert main(["task", "lint", str(path)]) != 0
    assert "give epsilon0 instead" in " ".join(capsys.readouterr().err.split())


def test_the_sample_names_every_mechanism() -> None:
    """Planted: the names typed into the sample -> the next one registered is missing, and this
    fails.
    """
    assert all(f'"{name}"' in sample([]) for name in REGISTRY)


@for_each(
    "settings, words",
    [
        (("mechanism.name=nothing",), ("mechanism.name", "local_hash", "unary")),
        (
            ("mechanism.name=unary", "mechanism.setting=olh"),
            ("mechanism.setting", "oue", "sue", "p=0.9"),
        ),
        (
            ("mechanism.name=local_hash", "mechanism.setting=g=3"),
            ("mechanism.setting", "olh", "blh"),
        ),
        (("mechanism.setting=oue",), ("mechanism.setting", "standard")),
        (("mechanism.name=kmean",), ("mechanism.name", "numeric")),
        (("mechanism.epsilon0=0",), ("mechanism.epsilon0", "above 0")),
        (("mechanism.epsilon0=nan",), ("mechanism.epsilon0", "above 0")),
    ],
)
def test_what_is_wrong_is_one_line_that_lists_what_is_right(
    tmp_path: Path, capsys: Capture, settings: tuple[str, ...], words: tuple[str, ...]
) -> None:
    assert main(["task", "lint", str(write(tmp_path, *settings))]) == 2
    error = capsys.readouterr().err
    assert all(word in error for word in words), error
    assert error.count("\n") == 1


def test_a_setting_goes_with_epsilon0_alone(tmp_path: Path, capsys: Capture) -> None:
    path = write(tmp_path, "mechanism.name=krr", "mechanism.setting=standard")
    path.write_text(
        path.read_text().replace(
            "epsilon0 = 1.0986122886681098", "parameters = { k = 2, uniform = 5 }"
        )
    )
    assert main(["task", "lint", str(path)]) == 2
    assert "goes with epsilon0" in capsys.readouterr().err


# --- what can't hold, and what is rarely meant ----------------------------------------------------


def of(name: str, domain: Domain, setting: str = "", **changes: object) -> Task:
    made = create(design(name, domain, 2.0, setting), domain)
    changed = {
        "domain": domain,
        "mechanism": made.spec,
        "report_size": made.report_size,
        "target_epsilon": 2.0,
        **changes,
    }
    return make_task(**changed)


def test_long_reports_are_warned_of_and_reports_that_fit_no_frame_are_refused() -> None:
    """A bitmap of 2,000 bytes takes a larger frame than other tasks; 64 messages of 4 KiB fit none.

    Planted: the frame of a single message -> the last is accepted, and this fails.
    """
    result = LintResult((), None)
    wide = Categories(tuple(f"c{i}" for i in range(16_000)))
    assert with_frame(of("local_hash", wide), result) == result
    long = with_frame(of("unary", wide), result)
    assert not long.errors
    assert "4,096" in long.warnings[0]
    assert with_frame(of("krr", wide, suite=3), result) == result
    assert frame_bytes(of("krr", wide, suite=3)) == 4_096
    huge = with_frame(replace(of("krr", wide), report_size=4_096, messages=64), result)
    assert "fits no frame" in huge.errors[0]


@dataclass(frozen=True)
class Unknown:
    """A mechanism of whose law nothing is known but the ratio."""

    made: Mechanism

    def __getattr__(self, name: str) -> object:
        return getattr(self.made, name)

    def privacy(self) -> PureLaw:
        return PureLaw(self.made.privacy().max_ratio)


def test_a_certificate_of_a_ratio_alone_is_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    """And no other. Planted: every method warned of -> fails."""
    task = of("krr", Categories(LABELS))
    assert not any("nothing but epsilon0" in message for message in lint(task).warnings)
    monkeypatch.setattr(
        "shoal.accounting.lint.task.create_any", lambda spec, domain: Unknown(create(spec, domain))
    )
    assert any("nothing but epsilon0" in message for message in lint(task).warnings)


@for_each("name", REGISTRY)
def test_memoized_reports_that_may_be_unique_are_warned_of(name: str) -> None:
    """Planted: silence where it is not known how many reports are alike -> fails for hashes and
    bitmaps.
    """
    domain = DOMAINS[KIND[name]][1]
    task = of(name, domain, memoized=True, min_batch=100_000)
    why = recognised(task, create(task.mechanism, domain))
    linted = lint(task)
    assert (why is None) is not any(
        "recognise the device" in text or "recognises the device" in text
        for text in linted.warnings
    )
    assert why is None or any(why in text for text in linted.warnings)
    assert why is not None or name not in {"local_hash", "unary", "l_unary", "dbitflip"}
    assert not linted.errors


def test_words_are_normalized_in_a_task_file_and_refused_where_nothing_serves_them(
    tmp_path: Path, capsys: Capture
) -> None:
    """Planted: the labels handed on as they are written -> the constructor refuses them, and the
    first line fails.
    """
    path = write(tmp_path, "mechanism.name=krr", kind="words")
    assert main(["task", "lint", str(path)]) == 2
    assert "krr lists the cells of its domain" in capsys.readouterr().err
    path.write_text(path.read_text().replace('"flu"', "7"))
    assert main(["task", "lint", str(path)]) == 2
    assert "domain.labels.0: must be a text in quotes" in capsys.readouterr().err


RECORD = """
together = {together}
{marginals}
[[domain.attributes]]
name = "age"
labels = ["young", "old"]
lower_bounds = [0, 40]
[[domain.attributes]]
name = "sex"
labels = ["f", "m"]
[[domain.attributes]]
name = "health"
labels = ["good", "fair", "poor"]
"""


def write_record(folder: Path, mechanism: str, *, together: bool, marginals: str = "") -> Path:
    path = write(folder, f"mechanism.name={mechanism}")
    lines = path.read_text().splitlines(keepends=True)
    kept = "".join(line for line in lines if not line.startswith(("epsilon0 =", "setting =")))
    text = kept.replace(
        'kind = "yes_no"',
        'kind = "record"' + RECORD.format(together=str(together).lower(), marginals=marginals),
    )
    path.write_text(text)
    return path


def test_a_record_in_a_task_file(tmp_path: Path, capsys: Capture) -> None:
    """All pairs unless told; listed ones in any order; the noise for all at once follows from the
    target. Planted: the list not looked at; names of a marginal in the order they are written ->
    fails.
    """
    made = read_task(write_record(tmp_path, "marginals", together=True))
    assert made.domain == AnswerRecord(ATTRIBUTES, all_pairs(3), together=True)
    assert dict(made.mechanism.parameters)["tables"] == made.fewest_messages == 3
    assert not lint(made).errors
    listed = 'marginals = [["health"], ["sex", "age"]]'
    path = write_record(tmp_path, "dummies", together=False, marginals=listed)
    assert read_task(path).domain == AnswerRecord(ATTRIBUTES, ((0, 1), (2,)))
    for given, mends in (
        ('marginals = [["sex", "size"]]', "size is no attribute: one of age, sex, health"),
        ('marginals = [["sex", "sex"]]', "each once"),
        ('marginals = [["sex"]]', "asks for age"),
    ):
        path = write_record(tmp_path, "dummies", together=False, marginals=given)
        assert main(["task", "lint", str(path)]) == 2
        error = capsys.readouterr().err
        assert mends in error
        assert error.count("\n") == 1
    for mechanism, together in (("dummies", True), ("marginals", False)):
        assert (
            main(["task", "lint", str(write_record(tmp_path, mechanism, together=together))]) == 2
        )
        assert "mechanism" in capsys.readouterr().err


def test_a_map_in_a_task_file(tmp_path: Path, capsys: Capture) -> None:
    """Degrees become microdegrees exactly, and what is finer is refused by name. Planted: rounded
    to microdegrees -> the finer one passes.
    """
    path = write(tmp_path, "mechanism.name=krr")
    box = "south = 48\nwest = {west}\nnorth = 48.3\neast = 11.8\nrows = 4\ncolumns = {columns}"
    text = path.read_text()

    def file(west: str, columns: int = 5) -> Path:
        there = box.format(west=west, columns=columns)
        path.write_text(text.replace('kind = "yes_no"', f'kind = "places"\n{there}'))
        return path

    made = read_task(file("-11.300001"))
    assert made.domain == Places(48_000_000, -11_300_001, 48_300_000, 11_800_000, 4, 5)
    assert shown_of(made)["map"].startswith("4 x 5 cells of 8,340 m (north-south) x 343 km")
    for west, columns, mends in (
        ("11.3000001", 5, "domain.west: the bounds of a map are degrees with at most 6 digits"),
        ("nan", 5, "domain.west: the bounds"),
        ("11.8", 5, "date line"),
        ("11.3", 65_535, "fewer rows or columns"),
        ('"11.3"', 5, "domain.west: must be a number"),
    ):
        assert main(["task", "lint", str(file(west, columns))]) == 2
        error = capsys.readouterr().err
        assert mends in error
        assert error.count("\n") == 1


def test_show_says_that_the_shuffler_is_trusted_for_noise() -> None:
    """Of a task whose shuffler adds noise, and of no other. Planted: said of every task without an
    epsilon0 -> fails.
    """
    spec = design_several("shuffler_noise", YesNo(), 900, 1.0, 1e-6, windows=1)
    noisy = replace(make_task(domain=YesNo()), mechanism=spec)
    shown = shown_of(noisy)
    assert "to add noise" in shown["trusts"]
    assert shown["added_messages"] == 2 * 2 * 27
    assert shown["epsilon0"] is None
    bad = replace(noisy, mechanism=MechanismSpec.of("shuffler_noise", k=2))
    assert shown["lies"] == "a device that lies moves a count by 1 at most"
    assert (shown_of(bad)["added_messages"], shown_of(bad)["lies"]) == (None, None)
    plain = shown_of(make_task(domain=YesNo()))
    assert plain.keys() & {"trusts", "added_messages", "lies"} == set()


def shown_of(task: Task) -> dict[str, Any]:
    key = SigningKey.generate()
    task = replace(task, key_authority=key.public)
    data = encode_task(task)
    signed = encode_signed_task(Signed(data, key.public, key.sign(SigningContext.TASK, data)))
    return describe(trust_task(signed, {key.public}))
