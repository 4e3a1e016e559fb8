"""``shoal epsilon --group``: several devices of one person, beside the certificate of one."""

from __future__ import annotations

import shlex

import pytest

from shoal.accounting.groups.bound import group_of_law
from shoal.accounting.meaning import bound_text
from shoal.privacy import KaryLaw
from tests.cases import for_each
from tests.unit.cli.epsilon.test_command import KEYS, NUMBERS, RR, Capture, ask, run

GROUP = ["devices", "windows", "epsilon_upper", "epsilon_lower", "delta", "method"]


def test_the_certificate_stays_and_the_group_stands_beside_it(capsys: Capture) -> None:
    """Stable keys are as they were. Planted: the group's epsilon in place of the certificate's; the
    group counted without its batches -> this fails.
    """
    plain = ask(capsys, *RR, *NUMBERS)
    value = ask(capsys, *RR, *NUMBERS, "--group", "3")
    assert list(value) == [*KEYS, "group"]
    assert {key: value[key] for key in KEYS} == plain
    assert list(value["group"]) == GROUP
    assert (value["group"]["devices"], value["group"]["windows"]) == (3, 1)
    assert 2.9 < value["group"]["epsilon_upper"] / plain["epsilon_upper"] < 3.5
    several = ask(capsys, *RR, *NUMBERS, "--group", "3", "--rounds", "4")["group"]
    assert several["windows"] == 4
    assert 1.5 < several["epsilon_upper"] / value["group"]["epsilon_upper"] < 2.5


def test_only_honest_reports_count(capsys: Capture) -> None:
    """Half of them honest is half as many. Planted: n for the honest -> this fails."""
    half = ask(capsys, *RR, *NUMBERS, "--group", "2", "--honest-fraction", "1/2")
    few = ask(capsys, *RR, "--epsilon0", "2", "--n", "5000", "--delta", "1e-8", "--group", "2")
    assert half["group"] == few["group"]


@for_each(
    "options, least, most",
    [
        ("--mechanism dummies --k 16 --n 20000 --delta 1e-6 --target 1", 2.0, 2.3),
        ("--mechanism dummies --buckets 64 --per-device 3 --n 1000 --delta 1e-6", 2.0, 4.5),
        ("--mechanism gaussian --sigma 4 --sensitivity 1 --n 500 --delta 1e-4", 0.01, 2.0),
        ("--mechanism any --epsilon0 1 --n 10000 --delta 1e-6", 0.01, 1.0),
    ],
)
def test_every_kind_of_mechanism(options: str, least: float, most: float, capsys: Capture) -> None:
    """At least twice the lower end of one device, where that is known. Planted: one device for two
    -> fails for the first, whose epsilon is 1.
    """
    value = ask(capsys, *shlex.split(options), "--group", "2")
    one = value.get("certificate", value)
    assert least <= one["group"]["epsilon_upper"] <= most
    assert one["group"]["epsilon_upper"] > one["epsilon_upper"]


def test_a_line_for_people_rounded_up(capsys: Capture) -> None:
    """Planted: rounded to the nearest digit, or the method left out -> this fails."""
    out = " ".join(run(capsys, *RR, *NUMBERS, "--group", "3")[0].split())
    found = group_of_law(KaryLaw(k=2, same=1, other=1), 10_000, 1e-8, 3)
    assert found.epsilon_upper == 0.0  # of no telling report
    value = ask(capsys, *RR, *NUMBERS, "--group", "3")["group"]
    assert (
        f"3 devices of one person, all of them in this batch: epsilon <= "
        f"{bound_text(value['epsilon_upper'], digits=6)} at delta = 1e-08 for all of their answers "
        "together (method: chain)."
    ) in out


@for_each("group", ("1", "0", "1001"))
def test_a_group_out_of_range(group: str, capsys: Capture) -> None:
    """Refused in one line. Planted: no check -> this fails."""
    _, err = run(capsys, *RR, *NUMBERS, "--group", group, status=2)
    assert f"from 2 to 1000, got {group}: leave it out for one device" in err


def test_more_devices_than_are_honest(capsys: Capture) -> None:
    """Planted: no check -> this fails."""
    small = ("--epsilon0", "2", "--n", "10", "--delta", "1e-8")
    _, err = run(capsys, *RR, *small, "--group", "11", status=2)
    assert "more than the 10 that are sure to be honest: give a smaller group" in err


def test_a_target_is_of_one_device(capsys: Capture) -> None:
    """What is solved for does not change with a group. Planted: the target for the group -> this
    fails.
    """
    numbers = ("--n", "10000", "--delta", "1e-8", "--solve", "epsilon0", "--target", "0.1")
    value = ask(capsys, *RR, *numbers, "--group", "2")
    assert value["solved"] == ask(capsys, *RR, *numbers)["solved"]
    assert value["certificate"]["group"]["epsilon_upper"] == pytest.approx(0.205, rel=0.03)
