"""Requests of ``shoal epsilon`` that are refused, each in one line."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from tests.cases import for_each
from tests.unit.cli.epsilon.test_command import NUMBERS, RR, SMALL, Capture, run

WRONG = [
    ((*RR, "--n", "10", "--delta", "1e-3"), "--epsilon0 is missing"),
    ((*RR, "--epsilon0", "1", "--delta", "1e-3"), "--n is missing"),
    ((*RR, "--epsilon0", "1", "--n", "10"), "--delta is missing"),
    (
        (*RR, *NUMBERS, "--solve", "n", "--target", "0.1"),
        "--solve n finds --n: leave that option out",
    ),
    (
        (*RR, *NUMBERS, "--solve", "epsilon0", "--target", "0.1"),
        "--solve epsilon0 finds --epsilon0",
    ),
    ((*RR, *NUMBERS, "--solve", "delta", "--target", "0.1"), "--solve delta finds --delta"),
    (
        (*RR, "--n", "10", "--delta", "1e-3", "--solve", "epsilon0"),
        "--solve and --target go together",
    ),
    ((*RR, *NUMBERS, "--target", "1"), "--solve and --target go together"),
    (
        (*RR, "--n", "10", "--delta", "1e-3", "--solve", "epsilon0", "--target", "0"),
        "--target must be a number above 0",
    ),
    (
        (*RR, "--n", "10", "--delta", "1e-3", "--solve", "epsilon0", "--target", "nan"),
        "--target must be a number above 0",
    ),
    ((*RR, "--n", "10", "--delta", "1e-3", "--solve", "epsilon0", "--target", "41"), "at most 40"),
    (
        (*RR, *NUMBERS, "--solve", "per-device", "--target", "1"),
        "--solve per-device does not go with --mechanism rr",
    ),
    ((*RR, "--n", "1", "--epsilon0", "2", "--solve", "delta", "--target", "1"), "no delta below 1"),
    (
        (*shlex.split("--mechanism any --delta 1e-9 --epsilon0 30 --solve n --target 1e-6"),),
        "do not reach",
    ),
    ((*RR, *NUMBERS, "--rounds", "0"), "--rounds must be"),
    ((*RR, *NUMBERS, "--rounds", "1000001"), "--rounds must be"),
    ((*RR, *NUMBERS, "--rounds", "3", "--memoized"), "epsilon0 of the permanent report"),
    ((*RR, *NUMBERS, "--honest-fraction", "0"), "honest fraction must be above 0"),
    ((*RR, *NUMBERS, "--sigma", "1"), "takes no --sigma: leave it out, or use gaussian"),
    (("--mechanism", "none", *NUMBERS), "--mechanism must be one of any, rr"),
    (
        ("--mechanism", "gaussian", "--sigma", "1", "--n", "10", "--delta", "1e-3"),
        "wants --sensitivity",
    ),
    (
        (*shlex.split("--mechanism gaussian --sigma 0 --sensitivity 1 --n 10 --delta 1e-3"),),
        "sigma must be",
    ),
    (
        (*shlex.split("--mechanism gaussian --sigma inf --sensitivity 1 --n 10 --delta 1e-3"),),
        "sigma must be",
    ),
    (
        ("--mechanism", "gaussian", "--sigma", "1", "--sensitivity", "1", *NUMBERS),
        "takes no --epsilon0",
    ),
    (
        (
            *shlex.split(
                "--mechanism gaussian --sigma 1 --sensitivity 1 --n 10 --delta 1e-3 --compare"
            ),
        ),
        "--compare wants",
    ),
    (
        (*shlex.split("--mechanism dummies --buckets 1 --per-device 1 --n 10 --delta 1e-3"),),
        "buckets must be",
    ),
    (
        (*shlex.split("--mechanism dummies --buckets 9 --per-device -1 --n 10 --delta 1e-3"),),
        "per_device must be",
    ),
    (
        (
            *shlex.split("--mechanism bucket-dummies --buckets 9"),
            *shlex.split("--probability some --n 10 --delta 1e-3"),
        ),
        "--probability is",
    ),
    (
        (
            *shlex.split(
                "--mechanism bucket-dummies --buckets 9 --probability 1 --n 10 --delta 1e-3"
            ),
        ),
        "probability must lie",
    ),
    (
        ("--mechanism", "bucket-dummies", "--buckets", "9", "--n", "10", "--delta", "1e-3"),
        "wants --probability",
    ),
    (
        (
            *shlex.split("--mechanism dummies --buckets 9 --per-device 1"),
            *shlex.split("--n 9 --delta 1e-3 --solve per-device --target 1"),
        ),
        "leave that option out",
    ),
    (
        (
            *shlex.split("--mechanism gaussian --sigma 1 --sensitivity 1"),
            *shlex.split("--n 9 --solve delta --target 1"),
        ),
        "nothing can be solved",
    ),
    (
        (*shlex.split("--mechanism dummies --buckets 9 --per-device 0 --n 10 --delta 1e-3"),),
        "prove no epsilon",
    ),
    (
        ("--mechanism", "dummies", "--buckets", "9", "--n", "10", "--delta", "1e-3"),
        "wants --per-device",
    ),
    (
        (*RR, "--n", "10", "--delta", "1e-3", "--solve", "epsilon0", "--target", "1", "--compare"),
        "leave out --compare",
    ),
    (
        (
            *shlex.split("--mechanism dummies --buckets 9 --n 9"),
            *shlex.split("--delta 1e-3 --solve per-device --target 1 --rounds 3"),
        ),
        "leave out --rounds",
    ),
    (("--mechanism", "krr", "--k", "1", *NUMBERS), "--k"),
    (
        (*RR, "--epsilon0", "2", "--n", "1" + 20 * "0", "--delta", "1e-8", "--plot", "x.svg"),
        "--plot draws up to",
    ),
]


@for_each("arguments, words", WRONG)
def test_wrong_requests(
    arguments: tuple[str, ...],
    words: str,
    capsys: Capture,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Exit status 2, nothing on stdout, one line that names the argument. Planted: any one check
    left out -> its case fails.
    """
    monkeypatch.chdir(tmp_path)
    out, err = run(capsys, *arguments, "--json", status=2)
    assert out == ""
    assert words in err
    assert err.count("\n") == 1
    assert err.startswith("shoal: ")


@for_each(
    "arguments, word",
    [
        (("unary", "--k", "9", "--setting", "olh"), "oue, sue"),
        (("krr", "--k", "9", "--setting", "oue"), "takes no --setting"),
        (("local_hash",), "wants --k"),
        (("unary", "--k", "70000"), "65536"),
    ],
)
def test_wrong_settings_and_cells_are_one_line(
    arguments: tuple[str, ...], word: str, capsys: Capture
) -> None:
    out, err = run(capsys, "--mechanism", *arguments, *SMALL, status=2)
    assert (out, err.count("\n")) == ("", 1)
    assert word in err
