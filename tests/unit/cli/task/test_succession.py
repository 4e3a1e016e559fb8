"""``shoal task new --from``: the next version of a question with the least typing."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from shoal.cli.main import main
from shoal.cli.task.file import read_task
from shoal.cli.task.succession import differences
from tests.cases import for_each
from tests.worlds.services.shuffler import CA

Capture = pytest.CaptureFixture[str]
NOW = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """The sample, filled in: four weeks that began last Monday or so, with a comment of its own."""
    (tmp_path / "ca.pem").write_bytes(CA.cert_pem)
    out, keys = (
        tmp_path / "old.toml",
        [
            f"keys.{name}={bytes([at]).hex() * 32}"
            for at, name in enumerate(("key_authority", "shuffler", "analyzer"), 1)
        ],
    )
    settings = [
        *keys,
        f"windows.start={NOW - timedelta(days=7):%Y-%m-%dT%H:%M:%SZ}",
        "windows.count=4",
    ]
    command = ["task", "new", "--out", str(out)]
    assert main([*command, *[part for one in settings for part in ("--set", one)]]) == 0
    text = out.read_text().replace("max_batch = 0 ", "# max_batch = 0 ")
    out.write_text(f"# agreed with the clinics\n{text}")
    return out


def test_it_goes_on_where_the_last_one_ends_and_keeps_the_rest(
    old: Path, tmp_path: Path, capsys: Capture
) -> None:
    """Planted: windows that begin today -> both run at once, fails. Planted: a text made anew from
    the fields -> the comment is gone, fails. Planted: the path of the authority as it was -> it is
    not found from another folder, fails.
    """
    out = tmp_path / "next" / "new.toml"
    out.parent.mkdir()
    capsys.readouterr()
    assert main(["task", "new", "--from", str(old), "--out", str(out)]) == 0
    shown = capsys.readouterr().out
    assert "nothing else changes: owners are not asked again" in shown
    before, after = read_task(old), read_task(out)
    assert after.windows.start_s == before.windows.end_of(3)
    assert (after.name, after.purpose, after.mechanism, after.key_authority) == (
        before.name,
        before.purpose,
        before.mechanism,
        before.key_authority,
    )
    assert after.shuffler_ca == before.shuffler_ca
    assert out.read_text().startswith("# agreed with the clinics")
    # a key that the first one left at its default may be set
    more = ("--set", "max_batch=20000", "--set", "purpose=something else", "--start", "2031-05-01")
    again = tmp_path / "again.toml"
    assert main(["task", "new", "--from", str(old), "--out", str(again), *more]) == 0
    assert "every owner is asked again" in capsys.readouterr().out
    third = read_task(again)
    assert (third.max_batch, third.windows.start_s) == (20_000, 1_935_360_000)
    assert main(["task", "lint", str(again)]) == 0


@for_each(
    "arguments, said",
    [
        (("--start", "soon"), "is no date"),
        (("--start", "2031-05-01T00:00"), "with a zone"),
        (("--set", "nothing=1"), "no such key"),
        (("--set", "min_batch=-1"), "min_batch"),
        (("--pairwise",), "leave --pairwise out"),
    ],
)
def test_what_no_task_may_have_leaves_no_file(
    old: Path, tmp_path: Path, capsys: Capture, arguments: tuple[str, ...], said: str
) -> None:
    out = tmp_path / "new.toml"
    capsys.readouterr()
    assert main(["task", "new", "--from", str(old), "--out", str(out), *arguments]) == 2
    shown = capsys.readouterr().err
    assert shown.count("\n") == 1
    assert said in shown
    assert not out.exists()


def test_overlapping_versions_are_told(old: Path, tmp_path: Path, capsys: Capture) -> None:
    out = tmp_path / "new.toml"
    command = ["task", "new", "--from", str(old), "--out", str(out)]
    assert main([*command, "--start", f"{NOW:%Y-%m-%d}", "--set", "mechanism.epsilon0=2.0"]) == 0
    shown = capsys.readouterr().out
    assert "both cost budget" in shown
    assert "begins in the past" in shown
    assert "epsilon0: 2 instead of 1.09" in shown
    assert main(command) == 2  # twice: the first one stays
    assert "exists" in capsys.readouterr().err


def test_the_next_version_of_a_task_of_several_messages_asks_every_owner_again(
    old: Path, tmp_path: Path, capsys: Capture
) -> None:
    """An owner's yes to it is to one version by its name. From such a task to the next, and to one
    from a task of single messages. Planted: only mechanisms with an epsilon0 known -> no file,
    fails; told that owners are not asked -> fails.
    """
    lines = old.read_text().splitlines()
    left = [line for line in lines if not line.startswith(("epsilon0 =", "setting ="))]
    several = tmp_path / "several.toml"
    several.write_text("\n".join(left).replace('name = "binary_rr"', 'name = "signed_count"'))
    out = tmp_path / "new.toml"
    capsys.readouterr()
    assert main(["task", "new", "--from", str(several), "--out", str(out)]) == 0
    shown = capsys.readouterr().out
    assert "every owner is asked again" in shown
    assert "owners are not asked again" not in shown
    assert "nothing else changes: what was spent stays" in shown
    assert "every owner is asked again" in "".join(differences(read_task(old), read_task(several)))
    assert main(["task", "lint", str(out)]) == 0
