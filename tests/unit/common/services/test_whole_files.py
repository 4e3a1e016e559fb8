"""Small files that are there whole or not at all."""

from __future__ import annotations

from pathlib import Path

from shoal.services.whole_files import replace_whole


def test_what_lay_at_the_staged_name_is_not_written_through(tmp_path: Path) -> None:
    """Planted: opened without O_EXCL -> the file at the other end of a hard link is changed."""
    other = tmp_path / "other"
    other.write_text("another's")
    other.chmod(0o644)
    file, staged = tmp_path / "kept", tmp_path / ".kept.new"
    staged.hardlink_to(other)
    replace_whole(file, b"one")
    staged.symlink_to(other)
    replace_whole(file, b"two")
    assert other.read_text() == "another's"
    assert file.read_bytes() == b"two"
    assert file.stat().st_mode & 0o777 == 0o600
