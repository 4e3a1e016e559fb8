"""docs/architecture.svg is what the imports say."""

from __future__ import annotations

from pathlib import Path
from runpy import run_path
from types import SimpleNamespace

ROOT = Path(__file__).resolve().parents[3]
picture = SimpleNamespace(**run_path(str(ROOT / "tools" / "picture.py")))


def test_the_picture_is_up_to_date() -> None:
    """Planted: a folder added to clients/ and not drawn -> fails. Mend: tools/picture.py."""
    assert picture.PICTURE.read_text() == picture.drawn(), "run tools/picture.py"


def test_no_arrow_goes_up_and_none_to_the_house_next_door() -> None:
    """But for common and protos, which share the ground floor. Planted: shuffler imports mechanisms
    is no arrow up, and is held by the import law; clients imports analyzer -> fails.
    """
    floor = {name: at for at, houses in enumerate(picture.FLOORS) for name, _ in houses}
    assert all(
        floor[source] < floor[target] or (source, target) == ("common", "protos")
        for source, target in picture.arrows()
    )


def test_only_implied_arrows_are_left_out() -> None:
    """Planted: every arrow that has a longer way by name alone, in the wrong direction -> fails."""
    links = {("a", "b"), ("b", "c"), ("a", "c"), ("a", "d")}
    assert picture.implied(links) == {("a", "c")}
