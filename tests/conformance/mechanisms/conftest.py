"""Runs every test of a ``MechanismSuite`` class once per case of that class."""

from __future__ import annotations

import pytest

from tests.conformance.mechanisms.suite import Case


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if metafunc.cls is not None and "case" in metafunc.fixturenames:
        cases: tuple[Case, ...] = metafunc.cls.CASES
        metafunc.parametrize("case", cases, ids=[case.name for case in cases])
