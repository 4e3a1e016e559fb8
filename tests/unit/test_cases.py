"""A test that loops over cases fails as its cases would have failed apart."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cases import for_each


def test_every_case_runs_and_the_ones_that_fail_are_named() -> None:
    """Planted: the first failure raised at once; the last alone; no note -> fails."""
    seen = []

    @for_each("low, high", [(1, 2), (4, 3), (5, 6), (7, 7)])
    def test(low: int, high: int) -> None:
        seen.append(low)
        assert low < high

    with pytest.raises(ExceptionGroup) as caught:
        test()
    assert seen == [1, 4, 5, 7]
    assert [error.__notes__ for error in caught.value.exceptions] == [
        ["case: low=4, high=3"],
        ["case: low=7, high=7"],
    ]


def test_a_single_failure_is_raised_as_it_is() -> None:
    @for_each("size", [1, 2, 3])
    @for_each("name", ["a", "b"], ids=str.upper)
    def test(name: str, size: int) -> None:
        if (name, size) == ("b", 2):
            raise KeyError(name)

    with pytest.raises(KeyError) as caught:
        test()
    assert caught.value.__notes__ == ["case: name=B", "case: size=2"]


def test_an_exception_that_was_expected_and_did_not_come_is_a_failure() -> None:
    """pytest's own failures are no ``Exception``. Planted: these alone caught -> the second case
    does not run.
    """
    seen = []

    @for_each("number", [1, 2])
    def test(number: int) -> None:
        seen.append(number)
        with pytest.raises(ValueError, match="never"):
            pass

    with pytest.raises(BaseExceptionGroup, match="2 of 2 cases"):
        test()
    assert seen == [1, 2]


def test_an_item_whose_time_is_over_ends() -> None:
    """Planted: the timeout kept like other failures -> the next case runs."""
    seen = []

    @for_each("number", [1, 2])
    def test(number: int) -> None:
        seen.append(number)
        pytest.fail("Timeout (>300.0s) from pytest-timeout.")

    with pytest.raises(pytest.fail.Exception, match="Timeout"):
        test()
    assert seen == [1]


@pytest.mark.parametrize("values", [[], lambda: []])
def test_a_loop_over_nothing_fails(values: list[int] | Callable[[], list[int]]) -> None:
    @for_each("number", values)
    def test(number: int) -> None:
        """Never called."""

    with pytest.raises(AssertionError, match="nothing"):
        test()


async def test_a_coroutine_is_awaited() -> None:
    @for_each("number", [1, 2])
    async def test(number: int) -> None:
        await asyncio.sleep(0)
        assert number == 1

    with pytest.raises(AssertionError):
        await test()


@for_each("number", [0, 1])
@given(drawn=st.integers(0, 3))
def test_drawn_arguments_come_beside_those_of_the_loop(number: int, drawn: int) -> None:
    assert number in {0, 1}
    assert 0 <= drawn <= 3


class TestMethods:
    CASES = (1, 2)

    @for_each("number", lambda self: self.CASES)
    def test_cases_are_those_of_the_instance(self, number: int) -> None:
        assert number in self.CASES


@for_each("number", [1, 2])
def test_a_case_finds_nothing_of_the_one_before(
    number: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Planted: any of the four handed over as it is -> the second case fails."""
    with pytest.raises(AttributeError):
        Path.planted_here  # type: ignore[attr-defined]  # noqa: B018
    assert capsys.readouterr().out == ""
    assert not caplog.records
    (tmp_path / "file").touch(exist_ok=False)
    monkeypatch.setattr(Path, "planted_here", number, raising=False)
    print(number)  # noqa: T201
    logging.getLogger("test_cases").warning("%d", number)
