"""Reports of randomized vectors as vectors: ours makes them, and so does a reader that was written
from docs/WIRE.md alone.
"""

from __future__ import annotations

import hashlib
import json
import math
import subprocess
import sys
from functools import cache
from typing import Any

import mpmath
import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from shoal.domain import Norm, Vector
from shoal.mechanisms.vectors.registry import create
from shoal.task import MechanismSpec
from tests.worlds.modules import ROOT
from tests.worlds.tapes import Tape

PATH = ROOT / "tests" / "vectors" / "shoal_unit_vectors_v1.json"
FILE: dict[str, Any] = json.loads(PATH.read_text())
CASES: list[dict[str, Any]] = FILE["cases"]


@cache
def own_table() -> list[int]:
    """From the page's formula: quantiles by bisection of erfc, in floats."""
    root = math.sqrt(2.0)

    def quantile(share: float) -> float:
        low, high = -10.0, 0.0
        for _ in range(64):
            middle = (low + high) / 2.0
            below = 0.5 * math.erfc(-middle / root) < share
            low, high = (middle, high) if below else (low, middle)
        return low

    density = [0.0] + [
        math.exp(-(quantile(c / 65_536) ** 2) / 2.0) / math.sqrt(2.0 * math.pi)
        for c in range(1, 32_769)
    ]
    half = [round(4_096 * 65_536 * (density[c] - density[c + 1])) for c in range(32_768)]
    return half + [-entry for entry in reversed(half)]


def candidate(seed: bytes, j: int, width: int) -> list[int]:
    per = -(-width // 8)
    block = Cipher(algorithms.AES(seed), modes.ECB()).encryptor()  # noqa: S305 - a reader's own CTR
    stream = b"".join(block.update((j * per + b).to_bytes(16, "big")) for b in range(per))
    table = own_table()
    return [table[stream[2 * i] | stream[2 * i + 1] << 8] for i in range(width)]


def test_the_table_can_be_made_from_the_page() -> None:
    """Bit for bit, by another way to quantiles; its ends in arithmetic of 40 digits."""
    data = b"".join(entry.to_bytes(2, "big", signed=True) for entry in own_table())
    assert hashlib.sha256(data).hexdigest() == FILE["table_sha256"]
    for known in FILE["table"]:
        assert own_table()[known["cell"]] == known["entry"]
    with mpmath.workdps(40):
        z = -mpmath.sqrt(2) * mpmath.erfinv(1 - mpmath.mpf(2) / 65_536)
        assert own_table()[0] == int(mpmath.nint(-4_096 * 65_536 * mpmath.npdf(z)))


def read(case: dict[str, Any], draw: dict[str, Any]) -> tuple[str, list[int]]:
    """A device in plain Python: (report, the vector that it names)."""
    numbers = {name: int(value) for name, value in case["parameters"].items()}
    count, inside = numbers["candidates"], numbers["inside"]
    random = bytes.fromhex(draw["random"])
    assert len(random) == 16 + 8 + 2 + 2
    seed, coin = random[:16], int.from_bytes(random[16:24], "little")
    near = int.from_bytes(random[24:26], "little") * inside >> 16
    anywhere = int.from_bytes(random[26:28], "little") * count >> 16
    own = [*draw["vector"]]
    own.append(math.isqrt(max(0, case["grid"] ** 2 - sum(x * x for x in own))))
    assert own == draw["lengthened"]
    width = len(own)
    made = [candidate(seed, j, width) for j in range(count)]
    rising = next((x for x in own if x), 1) > 0
    order = sorted(
        range(count),
        key=lambda j: (-sum(a * b for a, b in zip(made[j], own, strict=True)), j if rising else -j),
    )
    index = anywhere if coin < numbers["uniform"] else order[near]
    return (seed + index.to_bytes(2, "big")).hex(), made[index]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_both_make_them(case: dict[str, Any]) -> None:
    """Planted: the seed's bytes reversed in ours; ties the other way -> fails."""
    numbers = {name: int(value) for name, value in case["parameters"].items()}
    domain = Vector(numbers["dimension"], Norm.L2, 1.0, case["grid"])
    made = create(MechanismSpec.of("privunit", **numbers), domain)
    assert made.report_size == case["report_size"]
    for number, draw in enumerate(case["draws"]):
        data = bytes.fromhex(draw["random"])
        tape = Tape(data[:16], data[16:24], data[24:26], data[26:])
        (report,) = made.randomize_vector(np.array(draw["vector"], dtype=np.int64), tape)
        assert report.hex() == draw["report"]
        if numbers["candidates"] <= 4_096 or number < 2:  # the reader takes a second for many
            assert read(case, draw) == (draw["report"], draw["named"])


def test_the_file_is_what_the_tool_writes() -> None:
    """Planted: a vector changed by hand -> fails."""
    told = "import sys, vectors_unit_vectors as made\nsys.stdout.write(made.text())"
    made = subprocess.run(
        [sys.executable, "-c", told],
        cwd=ROOT / "tools",
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert made.stdout == PATH.read_text()
