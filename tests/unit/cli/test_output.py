"""What commands print where there is little room: tables on narrow terminals, and a disk that is
full.
"""

from __future__ import annotations

import errno
import io
import resource
import tomllib
from pathlib import Path

import pytest
from rich.console import Console
from rich.table import Table

from shoal.cli import main as entry
from shoal.cli.output import plain_table, say_table, write_new
from shoal.errors import Kind, ShoalError
from tests.cases import for_each

Capture = pytest.CaptureFixture[str]


def printed(table: Table, width: int) -> str:
    screen = Console(file=io.StringIO(), width=width)
    say_table(table, screen)
    assert isinstance(screen.file, io.StringIO)
    return screen.file.getvalue()


def table_of(*, no_wrap: bool) -> Table:
    table = Table(title="a title that is longer than the terminal is wide")
    for name in ("mechanism", "epsilon <=", "epsilon >=", "n"):
        table.add_column(name, no_wrap=no_wrap)
    table.add_row("hadamard_response standard", "0.02536", "0.02535", "1,234,567")
    return table


@for_each("no_wrap", [False, True])
@for_each("width", [20, 40, 60, 80])
def test_a_table_cuts_no_figure_short(width: int, no_wrap: bool) -> None:
    """Whatever the terminal: a cut figure is a wrong one. Planted: the table printed by rich alone
    -> "0.0…", and this fails below 80.
    """
    text = printed(table_of(no_wrap=no_wrap), width)
    assert "…" not in text
    for word in ("hadamard_response", "standard", "0.02536", "0.02535", "1,234,567"):
        assert word in text


def test_a_table_that_fits_is_left_as_it_is() -> None:
    """Planted: the padding always taken away -> this fails."""
    assert "│ hadamard_response standard │ 0.02536    │" in printed(table_of(no_wrap=False), 80)


@pytest.mark.parametrize("terminal", [True, False])
def test_cells_without_lines_between_them_never_touch(terminal: bool) -> None:
    """``windowwhen``, ``outpatient-visit7``: neither a person nor awk could tell them apart.
    Planted: all padding taken away where the table is too wide -> fails, for both.
    """
    table = plain_table("why", "task", "window")
    table.add_row("lost", "outpatient-visit", "7")
    out = io.StringIO()
    say_table(table, Console(file=out, width=20, force_terminal=terminal, color_system=None))
    assert [line.split() for line in out.getvalue().splitlines()] == [
        ["why", "task", "window"],
        ["lost", "outpatient-visit", "7"],
    ]


def test_where_nobody_looks_a_name_is_on_one_line() -> None:
    """grep finds a name of two words, and one with a hyphen, in what is piped on. Planted: the
    table as wide as 80 columns -> fails.
    """
    table = Table("task", "what it asks")
    name = "outpatient-visits of the year"
    table.add_row(name, "how often did you visit " * 5)
    assert name in printed(table, 40)


def test_a_dash_is_stdout_or_refused(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: ``named`` not called by ``write_new`` -> a file called "-", and this fails."""
    monkeypatch.chdir(tmp_path)
    assert entry.main(["task", "new", "--out", "-"]) == 0
    shown = capsys.readouterr()
    assert tomllib.loads(shown.out)["name"]
    for command in (
        ["keys", "signing", "--out", "-"],
        ["keys", "ca", "--out", "-"],
        [
            "keys",
            "hpke",
            "--role",
            "shuffler",
            "--key",
            "signing.key",
            "--out",
            "keys",
            "--public",
            "-",
        ],
        ["plan", "yes_no", "--n", "2000", "--epsilon", "0.5", "--emit", "-"],
    ):
        assert entry.main(command) == 2, command
        assert "not to stdout" in capsys.readouterr().err
    with pytest.raises(
        ShoalError, match="not to stdout"
    ):  # for a command that does not look before
        write_new(Path("-"), b"")
    assert not (tmp_path / "-").exists()


def test_a_full_disk_is_no_bug(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: OSError left to what catches bugs -> "a bug; run again", and this fails."""

    def run(_: list[str]) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(entry, "_run", run)
    monkeypatch.setattr(entry, "_drop_output", lambda: None)
    assert entry.main(["plan"]) == 1
    assert (
        capsys.readouterr().err
        == "shoal: cannot write: No space left on device: make room there, or write elsewhere\n"
    )


def test_another_oserror_is_one(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    """What nobody foresaw is not blamed on the disk. Planted: every OSError taken for a full disk
    -> this fails.
    """

    def run(_: list[str]) -> int:
        raise OSError(errno.EBADF, "Bad file descriptor")

    monkeypatch.setattr(entry, "_run", run)
    monkeypatch.delenv("SHOAL_DEBUG", raising=False)
    assert entry.main(["plan"]) == 1
    assert "unexpected OSError: a bug" in capsys.readouterr().err


def test_output_that_fits_the_buffer_is_written_before_the_end(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A short answer reaches the disk only when it is flushed: there its failure must still be
    seen. Planted: no flush -> this fails.
    """

    class Full(io.StringIO):
        def flush(self) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(entry, "_run", lambda _: 0)
    monkeypatch.setattr(entry, "_drop_output", lambda: None)
    monkeypatch.setattr("sys.stdout", Full())
    assert entry.main(["epsilon"]) == 1
    assert "make room there" in capsys.readouterr().err


@for_each("taken", [0, 10])
def test_a_file_that_does_not_fit_is_not_there_at_all(tmp_path: Path, taken: int) -> None:
    """The kernel takes ``taken`` bytes of it, as a full disk does. Planted: what was written left
    -> half a model in a file of its name, fails.
    """
    path = tmp_path / "model.json"
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (taken, before[1]))
    try:
        with pytest.raises(ShoalError, match="cannot write") as refused:
            write_new(path, b"x" * 100)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert refused.value.kind is Kind.CONFIG
    assert not path.exists()
    write_new(path, b"whole")
    assert path.read_bytes() == b"whole"


def test_ctrl_c_leaves_no_half_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: errors of the disk alone cleared up after -> fails."""
    whole, path = Path.open, tmp_path / "model.json"

    class Interrupted(io.BytesIO):
        def write(self, data: object) -> int:
            assert path.exists()
            raise KeyboardInterrupt

    def opened(one: Path, mode: str) -> Interrupted:
        whole(one, mode).close()
        return Interrupted()

    monkeypatch.setattr(Path, "open", opened)
    with pytest.raises(KeyboardInterrupt):
        write_new(path, b"x" * 100)
    assert not path.exists()


def test_a_name_that_is_taken_keeps_what_it_has(tmp_path: Path) -> None:
    """A file, a folder, a device; and a folder that can't be one. Planted: the file of that name
    removed with the failure -> fails.
    """
    taken = tmp_path / "taken"
    taken.write_bytes(b"theirs")
    for path in (taken, tmp_path, Path("/dev/full")):
        with pytest.raises(ShoalError, match="exists: move it away"):
            write_new(path, b"ours")
    with pytest.raises(ShoalError, match="cannot make the folder"):
        write_new(taken / "model.json", b"ours")
    assert taken.read_bytes() == b"theirs"
    assert [one.name for one in tmp_path.iterdir()] == ["taken"]
