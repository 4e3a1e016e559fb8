"""Runs every test of a ``MechanismSuite`` class that takes a ``measured`` case once for each that
the registry makes for its name.
"""

from __future__ import annotations

import pytest

from shoal.domain import Domain
from shoal.mechanisms import design
from tests.conformance.mechanisms.checks.case import Case
from tests.conformance.mechanisms.checks.statistics import measured as cases_of


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if metafunc.cls is not None and "measured" in metafunc.fixturenames:
        cases = [
            pytest.param(case, id=case[0], marks=pytest.mark.campaign)
            for case in cases_of(metafunc.cls.NAME)
        ]
        metafunc.parametrize("measured", cases, indirect=True)


@pytest.fixture
def measured(request: pytest.FixtureRequest) -> Case:
    """Designed when a test runs, not in every process that collects the tests."""
    param: tuple[str, Domain, float, str] = request.param
    title, domain, epsilon0, setting = param
    return Case(title, design(request.cls.NAME, domain, epsilon0, setting), domain)
