"""Release files of real releases, whole and changed in every place."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from shoal.analyzer.batches.manifest_signatures import FOLDER, ManifestSignatures
from shoal.analyzer.config import AnalyzerConfig
from shoal.analyzer.results.checkable import checkable
from shoal.analyzer.store import FILE_NAME, AnalyzerStore
from shoal.checker.check import check_release, check_releases
from shoal.checker.errors import UnreadableError
from shoal.checker.findings import Outcome
from shoal.cli.main import main
from shoal.crypto.keyfiles import load_signing_key
from shoal.crypto.signing import SigningContext, SigningKey
from shoal.ids import Digest
from shoal.protos import release_pb2, task_pb2
from shoal.services.settings import load_settings
from tests.cases import for_each
from tests.vectors.frozen_corpus import VERSIONS, unpack

File = dict[str, Any]
Capture = pytest.CaptureFixture[str]


@cache
def corpus() -> tuple[dict[str, bytes], SigningKey]:
    """Release files of a frozen analyzer by the task's name, and its key. The shuffler's signatures
    are made as the shuffler makes them.
    """
    with TemporaryDirectory() as temporary:
        home = unpack("services", Path(temporary), VERSIONS[-1])
        config = load_settings(AnalyzerConfig, home / "analyzer" / "analyzer.toml")
        signatures = ManifestSignatures(config.data_dir / FOLDER)
        shuffler = load_signing_key(home / "shuffler" / "signing.key")
        store = AnalyzerStore(config.data_dir / FILE_NAME, read_only=True)
        with store.reading() as db:
            for (manifest,) in db.execute("SELECT manifest FROM batches").fetchall():
                signed = shuffler.sign(SigningContext.MANIFEST, manifest)
                signatures.keep(Digest.of(manifest), signed)
        store.close()
        files = {name.partition("-")[0]: data for name, data in checkable(config)}
        return files, load_signing_key(config.signing_key)


def file_of(name: str) -> File:
    loaded: File = json.loads(corpus()[0][name])
    return loaded


def authority(file: File) -> bytes:
    return base64.b64decode(file["signed"]["task_authority"])


def outcomes(file: File) -> dict[str, Outcome]:
    report = check_release(json.dumps(file).encode(), [authority(file_of("visits"))])
    return {one.what: one.outcome for one in report.checked}


def wrong(file: File) -> list[str]:
    return [what for what, outcome in outcomes(file).items() if outcome is Outcome.WRONG]


@for_each("name", ["visits", "hours"])
def test_a_whole_file_holds(name: str) -> None:
    """All but the total over several releases, which one file can't show.

    Planted: a chain that leaves out the schedule; another context for manifests; n_certified of all
    reports instead of the honest ones -> each fails.
    """
    found = outcomes(file_of(name))
    still = [what for what, outcome in found.items() if outcome is not Outcome.HOLDS]
    assert still == ["epsilon of all releases so far, together"]
    assert found[still[0]] is Outcome.OPEN


def test_what_is_not_known_here_is_open_and_never_holds() -> None:
    """A longitudinal mechanism, and a sum by secure aggregation. Planted: an unknown law taken for
    confirmed -> fails.
    """
    for name in ("colours", "moments"):
        found = outcomes(file_of(name))
        assert Outcome.WRONG not in found.values()
        promises = [outcome for what, outcome in found.items() if what.startswith("epsilon:")]
        assert promises == [Outcome.OPEN]


def test_an_authority_that_is_not_trusted_is_wrong_and_none_is_open() -> None:
    data = corpus()[0]["visits"]
    (first, *_) = check_release(data, [bytes(32)]).checked
    assert first.outcome is Outcome.WRONG
    (first, *_) = check_release(data).checked
    assert first.outcome is Outcome.OPEN


PARTS = [
    *("release", "release_signature", "task", "task_signature", "schedule"),
    *("schedule_signature", "manifest", "manifest_signature"),
]


@for_each("part", PARTS)
def test_a_bit_that_flips_is_wrong_or_unreadable(part: str) -> None:
    """In the last byte, one in the middle, and the first. Planted: any of the five signatures not
    looked at -> fails.
    """
    for at in (-1, 0, 20):
        file = file_of("visits")
        data = bytearray(base64.b64decode(file["signed"][part]))
        data[at] ^= 1
        file["signed"][part] = base64.b64encode(bytes(data)).decode()
        try:
            assert wrong(file)
        except UnreadableError:
            continue


OF_ANOTHER = {
    "release": "the release is of this task",
    "task": "the key schedule is of this task",
    "schedule": "the key schedule is of this task",
    "manifest": "the release names this manifest",
}


@for_each("part", OF_ANOTHER)
def test_parts_of_another_release_are_wrong(part: str) -> None:
    """Everything in them is signed well, and by the right keys. Planted: any of the hashes and ids
    not compared -> fails.
    """
    file, other = file_of("visits"), file_of("hours")
    for name in (part, f"{part}_signature", "task_authority"):
        file["signed"][name] = other["signed"][name]
    assert OF_ANOTHER[part] in wrong(file)


def test_only_the_honest_of_the_smallest_batch_are_counted() -> None:
    """Planted: all reports of it counted -> fails."""
    file = file_of("visits")
    task = task_pb2.Task.FromString(base64.b64decode(file["signed"]["task"]))
    task.honest_fraction_ppm = 500_000
    file["signed"]["task"] = base64.b64encode(task.SerializeToString()).decode()
    assert "the promise counts the honest of the smallest batch" in wrong(file)


SHOWN: dict[str, Callable[[File], None]] = {
    "n": lambda file: file["release"].update(n=file["release"]["n"] + 1),
    "value": lambda file: file["release"]["estimates"][0].update(value=1.0),
    "interval": lambda file: file["release"]["estimates"][0].update(ci_low=0.0),
    "an estimate less": lambda file: file["release"]["estimates"].pop(),
    "epsilon": lambda file: file["release"]["privacy"].update(epsilon_upper=0.1),
    "delta": lambda file: file["release"]["privacy"].update(delta=1e-9),
    "method": lambda file: file["release"]["privacy"].update(method="better"),
    "assumptions": lambda file: file["release"]["privacy"].update(assumptions=[]),
    "rejected": lambda file: file["release"].update(rejected={"other": 1}),
    "law": lambda file: file["law"]["parameters"].update(yes_if_no="5"),
    "mechanism": lambda file: file["law"].update(mechanism="unary"),
    "no privacy": lambda file: file["release"].update(privacy=None),
}


@for_each("name", SHOWN)
def test_what_is_shown_is_held_against_what_was_signed(name: str) -> None:
    """Planted: a field that is left out of the comparison -> its case fails."""
    file = file_of("visits")
    SHOWN[name](file)
    assert wrong(file) == ["what the file shows is what was signed"]


def signed_anew(change: Callable[[release_pb2.Release], None]) -> File:
    """By an analyzer that lies: its signature is good."""
    file = file_of("visits")
    release = release_pb2.Release.FromString(base64.b64decode(file["signed"]["release"]))
    change(release)
    data = release.SerializeToString(deterministic=True)
    signature = corpus()[1].sign(SigningContext.RELEASE, data)
    file["signed"]["release"] = base64.b64encode(data).decode()
    file["signed"]["release_signature"] = base64.b64encode(signature).decode()
    return file


def less(field: str) -> Callable[[release_pb2.Release], None]:
    def change(release: release_pb2.Release) -> None:
        setattr(release.privacy, field, getattr(release.privacy, field) * 0.99)

    return change


def _together(release: release_pb2.Release) -> None:
    """Less than the release alone: of several files one can't tell more."""
    release.privacy.epsilon_cumulative_upper = release.privacy.epsilon_upper * 0.99


def less_than_nothing(field: str) -> Callable[[release_pb2.Release], None]:
    return lambda release: setattr(release.privacy, field, math.nan)


LIES: dict[str, tuple[Callable[[release_pb2.Release], None], str]] = {
    "epsilon": (less("epsilon_upper"), "epsilon: what"),
    "epsilon0": (less("epsilon0"), "epsilon0"),
    "together": (_together, "epsilon of all"),
    "received": (less("epsilon_at_received_n"), "epsilon at the reports"),
    "delta": (less("delta"), "name, window, delta"),
    "n_certified": (
        lambda release: setattr(release.privacy, "n_certified", 10_000),
        "the promise counts",
    ),
    "n": (lambda release: setattr(release, "n", 5_000), "reports and refused rows"),
    "too few": (lambda release: setattr(release, "n", 1), "no release below"),
}


@for_each("name", LIES)
def test_an_analyzer_that_signs_a_lie_is_found_out(name: str) -> None:
    """1 % less of an epsilon, and numbers that are not the batch's. Planted: any of the statements
    left out -> its case fails. (The total over releases can't be held against one file.)
    """
    change, said = LIES[name]
    found = wrong(signed_anew(change))
    assert any(what.startswith(said) for what in found)


def withheld(release: release_pb2.Release) -> None:
    release.withheld = "too few reports"


def unknown(release: release_pb2.Release) -> None:
    release.MergeFromString(b"\x9a\x06\x05hello")


def ranges_withheld(release: release_pb2.Release) -> None:
    withheld(release)
    for part in ("estimates", "quantiles", "counts", "distribution"):
        release.ClearField(part)
    release.ranges.base = 4


def record_withheld(release: release_pb2.Release) -> None:
    ranges_withheld(release)
    release.ClearField("ranges")
    release.record.together = True


def map_withheld(release: release_pb2.Release) -> None:
    ranges_withheld(release)
    release.ClearField("ranges")
    release.map.places.rows = 4


def drawn_elsewhere(release: release_pb2.Release) -> None:
    release.map.places.rows = 4


def unasked(release: release_pb2.Release) -> None:
    release.record.marginals.add(attributes=[0])


ODD: dict[str, tuple[Callable[[release_pb2.Release], None], str]] = {
    "estimates of a withheld release": (withheld, "a release that is withheld"),
    "ranges of a withheld release": (ranges_withheld, "a release that is withheld"),
    "a record of a withheld release": (record_withheld, "a release that is withheld"),
    "a map of a withheld release": (map_withheld, "a release that is withheld"),
    "a map that nobody asked for": (drawn_elsewhere, "the map is that which was asked for"),
    "tables that nobody asked for": (unasked, "the tables are those"),
    "a field that no release has": (unknown, "the signed bytes hold nothing else"),
    "no number": (less_than_nothing("epsilon_cumulative_upper"), "every bound is a number"),
    "no epsilon": (less_than_nothing("epsilon_upper"), "epsilon: what"),
    "a lower bound above": (
        lambda release: setattr(release.privacy, "epsilon_lower", 99.0),
        "every bound is a number",
    ),
    "lost reports": (lambda release: setattr(release, "damaged", 9), "lost reports are told"),
}


@for_each("name", ODD)
def test_odd_releases_are_found_out(name: str) -> None:
    """Planted: each of these statements left out -> its case fails."""
    change, said = ODD[name]
    assert any(what.startswith(said) for what in wrong(signed_anew(change)))


INVENTED: dict[str, Callable[[File], None]] = {
    "processed": lambda file: file["release"].update(processed={"counts": [1]}),
    "quantiles": lambda file: file["release"].update(quantiles=[{"share": 0.5, "value": 1.0}]),
    "rounds": lambda file: file["release"].update(rounds={"mode": "strict"}),
    "ranges": lambda file: file["release"].update(ranges={"base": 4}),
    "map": lambda file: file["release"].update(map={"rows": 4}),
    "record": lambda file: file["release"].update(record={"marginals": []}),
    "tables": lambda file: file["release"].update(tables={"tables": []}),
    "a better epsilon": lambda file: file["release"]["privacy"].update(epsilon_better=0.001),
    "memoized": lambda file: file["release"]["privacy"].update(memoized={"windows": 1}),
}


@for_each("name", INVENTED)
def test_nothing_is_shown_that_was_not_signed(name: str) -> None:
    """Planted: unknown keys passed over; quantiles, rounds, ranges or memoized not compared ->
    fails."""
    file = file_of("visits")
    INVENTED[name](file)
    assert wrong(file) == ["what the file shows is what was signed"]


def test_a_key_that_stands_twice_and_one_that_is_unknown_are_refused() -> None:
    """Of two, readers could take either. Planted: the last one taken -> fails."""
    text = json.dumps(file_of("visits"))
    for more in ('{"release": {"n": 7}, ', '{"x": 1, '):
        with pytest.raises(UnreadableError):
            check_release(text.replace("{", more, 1).encode())


def test_a_window_that_is_released_twice_is_wrong_in_both_files() -> None:
    """A copy of a file is no other release. Planted: windows not compared -> fails."""
    good = corpus()[0]["visits"]

    def renumbered(release: release_pb2.Release) -> None:
        release.privacy.windows_composed += 1

    for check in check_releases([good, json.dumps(signed_anew(renumbered)).encode()]):
        found = {one.what: one.outcome for one in check.checked}
        assert found["no other of these files tells another story"] is Outcome.WRONG
    (first, copy) = check_releases([good, good])
    assert first.outcome is copy.outcome is Outcome.OPEN


def test_a_batch_that_was_never_opened_is_no_lie() -> None:
    """Its rows are neither counted nor refused. Planted: all rows wanted -> fails."""

    def expired(release: release_pb2.Release) -> None:
        release.n = 0
        release.withheld = "not opened in time"
        for part in ("estimates", "quantiles", "rejected", "counts", "distribution"):
            release.ClearField(part)

    found = outcomes(signed_anew(expired))
    assert found["reports and refused rows are those of the batch"] is Outcome.OPEN


def test_names_from_a_file_draw_nothing_on_a_terminal(tmp_path: Path, capsys: Capture) -> None:
    """Planted: the name printed as it is -> fails."""
    path = tmp_path / "a.release.json"
    escape = signed_anew(lambda release: setattr(release, "name", "\x1b[2J\n  ok    all"))
    path.write_text(json.dumps(escape))
    assert main(["verify", str(path)]) == 1
    shown = capsys.readouterr().out
    assert "\x1b" not in shown
    assert not any(line.startswith("  ok    all") for line in shown.splitlines())


BAD: dict[str, bytes] = {
    "nothing": b"",
    "no JSON": b"{",
    "not a number": b'{"format": NaN}',
    "a list": b"[]",
    "another format": b'{"format": "shoal-backup", "version": 1}',
    "a later version": b'{"format": "shoal-release", "version": 2}',
    "no parts": b'{"format": "shoal-release", "version": 1}',
    "deep": b"[" * 100_000,
    "a version of its own": b'{"format": "shoal-release", "version": "' + b"9\\n" * 3_000 + b'"}',
    "a key that draws": b'{"format": "shoal-release", "version": 1, "\\u001b[2J": 1}',
    "many values": b"[" + b"{}," * 3_000_000 + b"1]",
}


@for_each("name", BAD)
def test_what_is_no_release_file_is_one_line(name: str, tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "a.release.json"
    path.write_bytes(BAD[name])
    assert main(["verify", str(path)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert str(path) in line
    assert line.isprintable()
    assert len(line) < 300 + len(str(path))


def test_integers_for_readers_that_are_no_object_are_refused() -> None:
    """Planted: not looked at -> an AttributeError."""
    for parameters in ("x", 5, [None], True):
        file = file_of("visits")
        file["law"]["parameters"] = parameters
        with pytest.raises(UnreadableError):
            check_release(json.dumps(file).encode())


def test_parts_that_are_no_bytes_are_refused() -> None:
    for part, text in (("release", "?"), ("task", 5), ("schedule", ""), ("release", "AAAA")):
        file = file_of("visits")
        file["signed"][part] = text
        with pytest.raises(UnreadableError):
            check_release(json.dumps(file).encode())


def test_the_command_says_what_holds_and_ends_with_a_status(
    tmp_path: Path, capsys: Capture
) -> None:
    """0 for what holds, 1 for what is open or wrong, and for --accept-open 0 unless it is wrong.

    Planted: the status of the last file alone -> fails. Planted: a file in place of the digits of
    the key not read -> fails.
    """
    files = tmp_path / "files"
    files.mkdir()
    for name in ("hours", "visits"):
        (files / f"{name}.release.json").write_bytes(corpus()[0][name])
    trusted = ["--authority", authority(file_of("visits")).hex()]
    assert main(["verify", str(files), *trusted]) == 1
    assert "nothing wrong" in capsys.readouterr().out
    key = tmp_path / "authority"
    key.write_text(trusted[1] + "\n")
    assert main(["verify", str(files), "--authority", str(key), "--accept-open"]) == 0
    assert "open  the task is of an authority" not in capsys.readouterr().out
    key.write_bytes(b"\xff" * 64)
    assert main(["verify", str(files), "--authority", str(key)]) == 2
    assert main(["verify", str(files), *trusted, "--accept-open"]) == 0
    capsys.readouterr()
    lie = json.dumps(signed_anew(less("epsilon_upper")))
    (files / "a.release.json").write_text(lie)
    (files / "visits.release.json").unlink()
    assert main(["verify", str(files), *trusted, "--accept-open", "--json"]) == 1
    reports = json.loads(capsys.readouterr().out)
    assert [report["outcome"] for report in reports] == ["wrong", "open"]


@for_each("told", ["gone/authority.pub", "8d3f0c", "g" * 64, "a" * 5_000, "", "two\nlines"])
def test_an_authority_that_is_neither_a_file_nor_a_key_is_told_so(
    told: str, capsys: Capture
) -> None:
    """Planted: only what a key is, in the line -> a mistyped path is not found out, and this fails.
    A path that is too long for the system raised: fails.
    """
    assert main(["verify", "any.release.json", "--authority", told]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert f"there is no file {told[:90]!r}"[:-1] in line
    assert "64 hex digits" in line


@for_each("content", ["", "8d3f0c", "x" * 2_000])
def test_a_file_without_a_key_is_named(content: str, tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "authority.pub"
    path.write_text(content)
    assert main(["verify", "any.release.json", "--authority", str(path)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert str(path) in line


def test_an_empty_folder_and_a_file_that_is_not_there_are_one_line(
    tmp_path: Path, capsys: Capture
) -> None:
    for path in (tmp_path, tmp_path / "gone"):
        assert main(["verify", str(path)]) == 2
        assert len(capsys.readouterr().err.splitlines()) == 1


def test_signatures_of_manifests_are_kept_once_and_whole(tmp_path: Path) -> None:
    """A damaged one is as none. Planted: written over by a later one; read whatever its length ->
    fails.
    """
    kept, digest = ManifestSignatures(tmp_path / "manifests"), Digest(bytes(32))
    assert kept.of(digest) == b""
    kept.keep(digest, b"a" * 64)
    kept.keep(digest, b"b" * 64)
    assert kept.of(digest) == b"a" * 64
    (tmp_path / "manifests" / digest.hex).write_bytes(b"a" * 63)
    assert kept.of(digest) == b""
