"""The audit: whoever changes a line of it is seen, and what a crash left is no lie."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from shoal.cli.main import main
from shoal.console.signin.audit import Audit, check
from shoal.errors import Kind, ShoalError
from tests.cases import for_each

Lines = list[bytes]


def written(folder: Path, entries: int = 5) -> Path:
    path = folder / "kept" / "audit.jsonl"
    audit = Audit(path, lambda: 1_800_000_000.0)
    for number in range(entries):
        audit.write("takes", f"ada-{number}", "oidc", "viewer", path="/download/all.csv")
    audit.close()
    return path


def _renamed(lines: Lines) -> Lines:
    return [lines[0].replace(b"ada-0", b"eve-0"), *lines[1:]]


def _renumbered(lines: Lines) -> Lines:
    told = [json.loads(line) for line in lines[:1] + lines[2:]]
    return [json.dumps({**entry, "n": at}).encode() + b"\n" for at, entry in enumerate(told)]


@for_each(
    "change",
    [
        _renamed,
        _renumbered,
        lambda lines: lines[1:],
        lambda lines: lines[:2] + lines[3:],
        lambda lines: lines[:-1],
        lambda lines: [lines[1], lines[0], *lines[2:]],
        lambda lines: [*lines, lines[-1]],
        lambda lines: [*lines[:2], lines[1], *lines[2:]],
        lambda _: [],
    ],
)
def test_a_changed_audit_is_seen(tmp_path: Path, change: Callable[[Lines], Lines]) -> None:
    """Planted: the hash of the line before not compared -> a name is changed unseen. Planted: the
    head beside the file not looked at -> the last line goes unseen.
    """
    path = written(tmp_path)
    assert [entry["n"] for entry in check(path).entries] == [0, 1, 2, 3, 4]
    path.write_bytes(b"".join(change(path.read_bytes().splitlines(keepends=True))))
    with pytest.raises(ShoalError) as caught:
        check(path)
    assert caught.value.kind is Kind.BAD_SIGNATURE
    path.unlink()
    path.with_name("audit.jsonl.head").unlink()


def test_one_that_was_written_anew_is_seen_by_a_kept_head(tmp_path: Path) -> None:
    """Planted: the kept head not looked for -> fails."""
    head = check(written(tmp_path, 3)).head
    path = tmp_path / "kept" / "audit.jsonl"
    audit = Audit(path, lambda: 1_800_000_001.0)
    audit.write("takes", "ada", "oidc", "viewer")
    audit.close()
    assert len(check(path, head).entries) == 4
    for file in path.parent.iterdir():
        file.unlink()
    written(tmp_path, 2)
    with pytest.raises(ShoalError, match="--head"):
        check(path, head)


def test_a_line_that_a_crash_cut_is_counted_and_followed(tmp_path: Path) -> None:
    """Planted: the next line begun on the same one -> it is lost, and this fails."""
    path = written(tmp_path, 2)
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"n": 2, "at"')
    audit = Audit(path)
    audit.write("takes", "ada", "oidc", "viewer")
    audit.close()
    checked = check(path)
    assert (len(checked.entries), checked.torn) == (3, 1)


def test_nobody_else_reads_or_writes_it(tmp_path: Path) -> None:
    """Planted: made with the mode of the umask -> fails. Planted: no lock -> two write at once."""
    path = written(tmp_path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.with_name("audit.jsonl.head").stat().st_mode & 0o777 == 0o600
    first = Audit(path)
    with pytest.raises(ShoalError) as caught:
        Audit(path)
    assert caught.value.kind is Kind.CONFLICT
    first.close()
    path.chmod(0o644)
    with pytest.raises(ShoalError, match="chmod 600") as caught:
        Audit(path)
    assert caught.value.kind is Kind.KEY_FILE


def test_the_command_verifies_and_prints(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Planted: printed before it is verified -> entries of a changed file are shown."""
    path = written(tmp_path)
    assert main(["console", "audit", str(path), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [entry["who"] for entry in told["entries"]] == [f"ada-{at}" for at in range(5)]
    assert main(["console", "audit", str(path), "--head", told["head"]]) == 0
    out = capsys.readouterr().out
    assert "ada-4" in out
    assert told["head"] in out
    assert main(["console", "audit", str(path), "--head", "ab" * 32]) == 1
    path.write_bytes(path.read_bytes().replace(b"ada-1", b"eve-1"))
    assert main(["console", "audit", str(path)]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert "line 3 does not follow" in err
    assert main(["console", "audit"]) == 2
    assert main(["console", "audit", str(tmp_path / "none")]) == 2


def test_lines_that_were_lost_are_told_for_ever(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Planted: the kept head not compared at the start -> the next line hides it, and all is
    verified. Planted: the line written at every start -> two of them.
    """
    path = written(tmp_path)
    kept = check(path).head
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:2]))
    for _ in range(2):
        audit = Audit(path)
        audit.write("takes", "ada", "oidc", "viewer")
        audit.close()
    (lost,) = check(path).lost
    assert (lost["n"], lost["detail"]) == (2, {"head": kept, "lines": 3})
    assert main(["console", "audit", str(path)]) == 1
    assert "before entry 2" in capsys.readouterr().err
    with pytest.raises(ShoalError, match="--head"):
        check(path, kept)


def test_a_disk_that_fails_once_makes_no_forgery(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: the line left in the file -> the next one doesn't follow it. Planted: written on
    where it can't be taken back -> the same.
    """
    path = written(tmp_path, 1)
    audit = Audit(path)

    def fails(*_: object) -> None:
        raise OSError(5, "Input/output error")

    def refused() -> None:
        with pytest.raises(ShoalError) as caught:
            audit.write("takes", "ada", "oidc", "viewer")
        assert caught.value.kind is Kind.UNAVAILABLE

    with monkeypatch.context() as broken:
        broken.setattr("os.fsync", fails)
        refused()
    audit.write("takes", "ada", "oidc", "viewer")
    assert len(check(path).entries) == 2
    with monkeypatch.context() as broken:
        broken.setattr("os.fsync", fails)
        broken.setattr("os.ftruncate", fails)
        refused()
    refused()
    audit.close()
    Audit(path).close()
    assert len(check(path).entries) == 3


def test_a_head_that_cannot_be_kept_refuses_nothing(tmp_path: Path) -> None:
    """Planted: its failure raised -> what is on disk is said not to be, and is not done."""
    path = written(tmp_path, 1)
    audit = Audit(path)
    path.with_name("audit.jsonl.head.new").mkdir()
    audit.write("takes", "ada", "oidc", "viewer")
    audit.close()
    assert len(check(path).entries) == 2
