"""Make the randomizers' test vectors: ``python tools/vectors_mechanisms.py`` writes
tests/vectors/mechanisms/NAME.json, one per member.

A vector is a task's integers, a cell, the random bytes that a device drew (all requests joined) and
the report that it must make of them. Another implementation replays them; docs/WIRE.md says how
words are read. Some streams begin with words of zeros, which uniform draws refuse for most bounds.
``refuse`` lists rows of the right length that are no reports. The same at every run.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shoal.domain import Categories, Domain, Numeric, Places, Words, YesNo
from shoal.errors import ShoalError
from shoal.mechanisms import REGISTRY, Mechanism, create, design, serves

FOLDER = Path(__file__).resolve().parent.parent / "tests" / "vectors" / "mechanisms"
DOMAINS: dict[str, Domain] = {
    "yes/no": YesNo(),
    "5 cells": Categories(("a", "b", "c", "d")),
    "22 cells": Categories(tuple(f"c{i}" for i in range(21))),
    "11 levels": Numeric(0.0, 1.0, 11),
    "301 cells": Categories(tuple(f"c{i}" for i in range(300))),
    "words": Words(tuple(f"word {i}" for i in range(10))),
}
# for families that serve none of these
MAPS: dict[str, Domain] = {
    "a road of 4 cells": Places(48_100_000, 11_500_000, 48_100_900, 11_505_000, 1, 4),
    "3 x 5 cells": Places(-33_900_000, 18_300_000, -33_870_000, 18_400_000, 3, 5),
    "12 x 12 cells": Places(35_600_000, 139_600_000, 35_800_000, 139_800_000, 12, 12),
}
_SETTINGS, _LARGE = 7, 100  # settings per domain; beyond so many cells one setting and one value


class Recorder:
    """Random bytes by SHA-256 in counter mode, written down. ``zeros``: the first requests of 4
    bytes, so many, are zeros.
    """

    def __init__(self, label: str, zeros: int) -> None:
        self._label, self._zeros, self._requests = label, zeros, 0
        self.drawn = b""

    def bytes(self, count: int) -> bytes:
        """As ``Entropy.bytes``, the same ones in every run; what is drawn is kept."""
        self._requests += 1
        if count == 4 and self._zeros:
            self._zeros -= 1
            drawn = bytes(4)
        else:
            blocks = range(-(-count // 32))
            drawn = b"".join(
                hashlib.sha256(f"{self._label} {self._requests} {block}".encode()).digest()
                for block in blocks
            )[:count]
        self.drawn += drawn
        return drawn

    def words(self, count: int) -> NDArray[np.uint64]:
        """As ``Entropy.words``, from ``bytes``."""
        return np.frombuffer(self.bytes(8 * count), dtype="<u8")


def vectors(name: str) -> dict[str, Any]:
    """Everything in one member's file."""
    cases = []
    served = any(serves(name, domain) for domain in DOMAINS.values())
    for title, domain in (DOMAINS if served else MAPS).items():
        try:
            settings = REGISTRY[name].settings(domain)
        except ShoalError:
            continue  # a domain that this family does not serve
        for setting in settings[: 1 if domain.size > _LARGE else _SETTINGS]:
            mechanism = create(design(name, domain, 2.0, setting.name), domain)
            cases.append(
                {
                    "name": f"{title}, {setting.name}",
                    "cells": _number(domain.size),
                    "parameters": {key: str(value) for key, value in mechanism.spec.parameters},
                    "report_size": mechanism.report_size,
                    "reports": _reports(mechanism, domain, title),
                    "refuse": [row.hex() for row in _no_reports(mechanism)],
                }
            )
    return {"mechanism": name, "cases": cases}


def _reports(mechanism: Mechanism, domain: Domain, title: str) -> list[dict[str, Any]]:
    last = domain.size - 1
    found = []
    for cell in sorted({0, last // 2, last}) if domain.size <= _LARGE else [last]:
        for zeros in (0, 2):
            entropy = Recorder(
                f"{mechanism.name} {title} {mechanism.spec.parameters} {cell}", zeros
            )
            report = mechanism.randomize_one(cell, entropy)
            found.append(
                {
                    "cell": _number(cell),
                    "entropy": entropy.drawn.hex(),
                    "report": [message.hex() for message in report],
                }
            )
    return [entry for at, entry in enumerate(found) if entry not in found[:at]]


def _number(cell: int) -> int | str:
    """A number, or its decimals where some readers of JSON would lose digits."""
    return cell if cell < 1 << 53 else str(cell)


def _no_reports(mechanism: Mechanism) -> list[bytes]:
    """Rows of the right length that ``valid`` refuses: all bits, none, the lowest alone, the
    highest alone.
    """
    size = mechanism.report_size
    rows = (bytes(size), b"\xff" * size, bytes(size - 1) + b"\x01", b"\x80" + bytes(size - 1))
    return [
        row
        for row in rows
        if not mechanism.valid(np.frombuffer(row, dtype=np.uint8).reshape(1, size))[0]
    ]


def text(name: str) -> str:
    """The file's text."""
    return json.dumps(vectors(name), indent=1) + "\n"


def main() -> None:
    """Write the vectors of the mechanisms that are named; of all of them if none is."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name in sys.argv[1:] or sorted(REGISTRY):
        (FOLDER / f"{name}.json").write_text(text(name))


if __name__ == "__main__":
    main()
