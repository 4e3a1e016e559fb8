"""One test that goes through many cases: all of them run, and a failure names those that failed.

``pytest.mark.parametrize`` makes an item of every case, which each worker collects, sets up and
reports. That is worth it for a few cases with telling names; a table of inputs is one loop.
"""

from __future__ import annotations

import inspect
import reprlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial, wraps
from types import FunctionType
from typing import Any, cast

import pytest

Test = Callable[..., Any]
Values = Iterable[Any] | Callable[..., Iterable[Any]]
Ids = Callable[[Any], object] | Iterable[str]


def for_each(
    names: str | tuple[str, ...], values: Values, *, ids: Ids | None = None
) -> Callable[[Test], Test]:
    """Call the test once for each of ``values``, as ``pytest.mark.parametrize`` with the same
    arguments would, but in one item. Put it above every other decorator that changes arguments.

    ``values``: one value per case, or a tuple of them where there are several ``names``; or a
    function that makes these when the test runs, of the test's instance if the test is a method.
    ``ids``: what cases are called in a failure, or a function that names a value; otherwise it is
    the value's ``repr``, cut.

    Fixtures are made once. Of those that hold state each case has its own: a folder within
    ``tmp_path``, changes by ``monkeypatch`` that end with the case, and empty ``capsys``, ``capfd``
    and ``caplog``.

    The test then raises the exception of the one case that failed, with a note that names it, or a
    group of them.
    """
    keys = names if isinstance(names, tuple) else tuple(name.strip() for name in names.split(","))
    listed = values if isinstance(values, FunctionType) else list(cast(Iterable[Any], values))
    titles = ids if ids is None or callable(ids) else list(ids)

    def cases(self: tuple[Any, ...]) -> Iterator[tuple[Callable[[], str], dict[str, Any]]]:
        for place, value in enumerate(listed if isinstance(listed, list) else listed(*self)):
            given = (value,) if len(keys) == 1 else tuple(value)
            arguments = dict(zip(keys, given, strict=True))
            if isinstance(titles, list):
                yield partial(titles.__getitem__, place), arguments
            else:
                yield partial(_title, arguments, titles), arguments

    def decorate(test: Test) -> Test:
        def looped(*self: Any, **fixtures: Any) -> None:
            failures = _Failures()
            for title, arguments in cases(self):
                with failures.case(title, fixtures) as own:
                    test(*self, **own, **arguments)
            failures.raise_them()

        async def looped_async(*self: Any, **fixtures: Any) -> None:
            failures = _Failures()
            for title, arguments in cases(self):
                with failures.case(title, fixtures) as own:
                    await test(*self, **own, **arguments)
            failures.raise_them()

        asynchronous = inspect.iscoroutinefunction(test)
        # No attributes are copied but pytest's marks: Hypothesis knows its own tests by theirs.
        item = wraps(test, updated=())(looped_async if asynchronous else looped)
        signature = inspect.signature(test)
        assert set(keys) <= set(signature.parameters), "the test takes no such argument"
        fixtures = [each for name, each in signature.parameters.items() if name not in keys]
        vars(item)["__signature__"] = signature.replace(parameters=fixtures)  # what pytest provides
        if hasattr(test, "pytestmark"):
            vars(item)["pytestmark"] = list(test.pytestmark)
        return item

    return decorate


class _Failures:
    """What went wrong so far, case by case."""

    def __init__(self) -> None:
        self._cases = 0
        self._failed: list[BaseException] = []
        self._titles: list[str] = []

    @contextmanager
    def case(self, title: Callable[[], str], fixtures: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """The fixtures for one case, whose failure is kept; interruptions go through, and so does
        the end of the item's time.
        """
        self._cases += 1
        own = dict(fixtures)
        for name in {"capsys", "capfd"} & own.keys():
            own[name].readouterr()
        if "caplog" in own:
            own["caplog"].clear()
        if "tmp_path" in own:
            own["tmp_path"] = fixtures["tmp_path"] / f"case-{self._cases}"
            own["tmp_path"].mkdir()
        try:
            if "monkeypatch" in own:
                with own["monkeypatch"].context() as own["monkeypatch"]:
                    yield own
            else:
                yield own
        except (Exception, pytest.fail.Exception) as error:
            error.add_note(f"case: {title()}")
            if isinstance(error, pytest.fail.Exception) and str(error).startswith("Timeout"):
                raise
            self._failed.append(error)
            self._titles.append(title())

    def raise_them(self) -> None:
        assert self._cases, "a loop over nothing proves nothing"
        if len(self._failed) == 1:
            raise self._failed[0]
        if self._failed:
            summary = f"{len(self._failed)} of {self._cases} cases: {'; '.join(self._titles)}"
            raise BaseExceptionGroup(summary, self._failed)


def _title(arguments: dict[str, Any], ids: Callable[[Any], object] | None) -> str:
    return ", ".join(f"{key}={_short(value, ids)}" for key, value in arguments.items())


def _short(value: object, ids: Callable[[Any], object] | None) -> str:
    name = ids(value) if ids else getattr(value, "__name__", None)
    if name is not None:
        return str(name)
    try:
        return reprlib.repr(value)
    except ValueError:  # an integer with more digits than Python prints
        return type(value).__name__
