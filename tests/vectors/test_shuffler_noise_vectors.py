"""Noise that a shuffler adds as vectors: ours makes them, and so does a reader that was written
from docs/WIRE.md alone.
"""

from __future__ import annotations

import json
import subprocess
import sys

from tests.worlds.modules import ROOT

PATH = ROOT / "tests" / "vectors" / "shoal_shuffler_noise_v1.json"


def test_the_file_is_what_ours_makes() -> None:
    """Planted: a vector changed by hand; words read with the first the highest -> fails."""
    told = "import sys, vectors_shuffler_noise as made\nsys.stdout.write(made.text())"
    made = subprocess.run(
        [sys.executable, "-c", told],
        cwd=ROOT / "tools",
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert made.stdout == PATH.read_text()


def numbers(random: bytes, k: int, q: int, reach: int) -> list[int]:
    """Of the page alone: the first number whose partial sum is above u."""
    weights = [
        q ** abs(n - reach) * 2 ** (32 * (reach - abs(n - reach))) for n in range(2 * reach + 1)
    ]
    total = sum(weights)
    bits = (total - 1).bit_length()
    size, found = -(-bits // 64) * 8, list[int]()
    while len(found) < k:
        drawn, random = random[:size], random[size:]
        u = int.from_bytes(drawn, "little") % 2**bits
        if u >= total:
            continue
        n, passed = 0, weights[0]
        while passed <= u:
            n += 1
            passed += weights[n]
        found.append(n)
    assert random == b""
    return found


def test_a_reader_of_the_page_makes_the_same() -> None:
    """Planted: weights of another power of 2^32 in ours -> fails; no second draw -> fails."""
    cases = json.loads(PATH.read_text())["cases"]
    again = 0
    for case in cases:
        k, q, reach = (int(case["parameters"][name]) for name in ("k", "q", "reach"))
        lengths = set()
        for batch in case["batches"]:
            random = bytes.fromhex(batch["random"])
            assert numbers(random, k, q, reach) == batch["numbers"], case["name"]
            lengths.add(len(random))
        again += len(lengths) > 1
    assert again >= 1  # some u was drawn again
