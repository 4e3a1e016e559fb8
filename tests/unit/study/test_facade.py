"""``import shoal``: what an analyst finds there, and what a device does not load for it."""

from __future__ import annotations

import ast
import pkgutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import shoal
import shoal.study
from shoal.cli.task.sample import sample
from shoal.study.designed import TWO_COINS
from shoal.study.promise import DELTA, HONEST_FRACTION

ROOT = Path(__file__).resolve().parents[3]
STUB = ROOT / "common" / "__init__.pyi"


def test_every_name_is_in_the_package_in_the_stub_and_in_the_study() -> None:
    """Planted: a name of ``shoal.study`` missing from ``_ANALYST``; from __init__.pyi -> fails."""
    stub = {
        alias.asname
        for node in ast.parse(STUB.read_text()).body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    names = set(shoal.study.__all__)
    assert stub == names
    assert names <= set(dir(shoal))
    for name in names:
        assert getattr(shoal, name) is getattr(shoal.study, name)
    assert not any(name[0].isupper() for name in set(dir(shoal)) - names)


def test_no_name_hides_a_module_of_ours() -> None:
    """Planted: ``task`` among the names -> fails: it would be one thing or another by the order of
    imports.
    """
    modules = {module.name for module in pkgutil.iter_modules(shoal.__path__)}
    houses = {"clients", "mechanisms", "accounting", "analyzer", "crypto", "cli", "study"}
    assert not set(shoal.study.__all__) & (modules | houses)


def test_what_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="randomise"):
        shoal.randomise  # type: ignore[attr-defined] # noqa: B018


def test_importing_shoal_loads_nothing_more() -> None:
    """Planted: ``from shoal.study import design`` at the top of common/__init__.py -> fails."""
    program = (
        "import sys; before = set(sys.modules); import shoal; dir(shoal); "
        "print(sorted(set(sys.modules) - before))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "['shoal']"


def test_no_data_frame_library_is_loaded_before_it_is_used() -> None:
    """Planted: ``import pandas`` at the top of study/frames.py -> fails."""
    program = (
        "import sys, shoal; yes = shoal.design(); yes.estimate(yes.randomize([True, False])); "
        "shoal.plan, print({'pandas', 'polars', 'pyarrow', 'jinja2', 'torch'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "set()"


def test_the_defaults_are_those_of_the_sample_task() -> None:
    """Planted: HONEST_FRACTION = 1.0 -> fails."""
    task = tomllib.loads(sample([]))
    assert (task["honest_fraction"], task["delta"], task["mechanism"]["epsilon0"]) == (
        HONEST_FRACTION,
        DELTA,
        TWO_COINS,
    )
    assert shoal.design().spec.name == task["mechanism"]["name"]
