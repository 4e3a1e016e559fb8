"""Runs every test of a ``MechanismSuite`` class that takes a ``measured`` case once for each that
the registry makes for its name.
"""

from __future__ import annotations

import pytest

from shoal.mechanisms import design
from tests.conformance.mechanisms.case import Case
from tests.conformance.mechanisms.statistics import measured


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if metafunc.cls is not None and "measured" in metafunc.fixturenames:
        name: str = metafunc.cls.NAME
        cases = [
            pytest.param(
                Case(title, design(name, domain, epsilon0, setting), domain),
                id=title,
                marks=pytest.mark.campaign,
            )
            for title, domain, epsilon0, setting in measured(name)
        ]
        metafunc.parametrize("measured", cases)
