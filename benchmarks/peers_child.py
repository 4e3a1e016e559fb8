"""Randomizers of pure-ldp and multi-freq-ldpy: run by benchmarks/peers.py in an environment of
their own, a JSON line for each asked.

They want other versions of our dependencies: ``make peers`` makes an environment for them. What is
timed is what their documentation shows: neither has a call for whole arrays, so a report is one
call, and pure-ldp's server takes one report a call. Lists are made inside the clock, as anybody has
to.

In: {"library", "protocol", "cells", "epsilon", "values"}. Out: {"randomize_s", "aggregate_s",
"counts"} in CPU seconds, or {"error"}.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

Counts = Sequence[float]
WARM = 20  # reports before the clock runs: numba compiles at the first


@dataclass(frozen=True)
class Pair:
    """``draw`` makes a report of a cell; ``collect`` makes estimated counts of all cells from the
    reports.
    """

    draw: Callable[[int], Any]
    collect: Callable[[list[Any]], Counts]


def pure_ldp(protocol: str, cells: int, epsilon: float) -> Pair:
    """The mapping of items to cells is the identity: by default they count from 1."""
    from pure_ldp import frequency_oracles as fo

    def same(cell: int) -> int:
        return cell

    makers: dict[str, Callable[[], tuple[Any, Callable[[], Any]]]] = {
        "krr": lambda: (
            fo.DEClient(epsilon, cells, same),
            lambda: fo.DEServer(epsilon, cells, same),
        ),
        "unary": lambda: (
            fo.UEClient(epsilon, cells, True, same),
            lambda: fo.UEServer(epsilon, cells, True, same),
        ),
        "local_hash": lambda: (
            fo.LHClient(epsilon, cells, use_olh=True, index_mapper=same),
            lambda: fo.LHServer(epsilon, cells, use_olh=True, index_mapper=same),
        ),
        "hadamard": lambda: (
            fo.HadamardMechClient(epsilon, cells, 1, index_mapper=same),
            lambda: fo.HadamardMechServer(epsilon, cells, 1, index_mapper=same),
        ),
    }
    client, server_of = makers[protocol]()

    def collect(reports: list[Any]) -> Counts:
        server = server_of()
        for report in reports:
            server.aggregate(report)
        return [float(server.estimate(cell, suppress_warnings=True)) for cell in range(cells)]

    return Pair(client.privatise, collect)


def multi_freq_ldpy(protocol: str, cells: int, epsilon: float) -> Pair:
    """Its estimators return shares, with what is below 0 set to 0 and the rest brought to a sum of
    1: there are no others.
    """
    from multi_freq_ldpy.pure_frequency_oracles import GRR, LH, SS, UE

    makers: dict[str, tuple[Callable[[int], Any], Callable[[list[Any]], Any]]] = {
        "krr": (
            lambda cell: GRR.GRR_Client(cell, cells, epsilon),
            lambda rows: GRR.GRR_Aggregator_MI(rows, cells, epsilon),
        ),
        "unary": (
            lambda cell: UE.UE_Client(cell, cells, epsilon),
            lambda rows: UE.UE_Aggregator_MI(rows, epsilon),
        ),
        "local_hash": (
            lambda cell: LH.LH_Client(cell, cells, epsilon),
            lambda rows: LH.LH_Aggregator_MI(rows, cells, epsilon),
        ),
        "subset": (
            lambda cell: SS.SS_Client(cell, cells, epsilon),
            lambda rows: SS.SS_Aggregator_MI(rows, cells, epsilon),
        ),
    }
    draw, shares = makers[protocol]
    return Pair(draw, lambda rows: [float(share) * len(rows) for share in shares(rows)])


LIBRARIES = {"pure-ldp": pure_ldp, "multi-freq-ldpy": multi_freq_ldpy}


def measure(pair: Pair, values: list[int]) -> dict[str, Any]:
    """One run, after a short one that warms up."""
    pair.collect([pair.draw(cell) for cell in values[:WARM]])
    begin = time.process_time()
    reports = [pair.draw(cell) for cell in values]
    drawn = time.process_time()
    counts = pair.collect(reports)
    return {
        "randomize_s": drawn - begin,
        "aggregate_s": time.process_time() - drawn,
        "counts": list(counts),
    }


def answer(line: str) -> dict[str, Any]:
    """What one question of the parent measured, or its error, as JSON values."""
    asked = json.loads(line)
    try:
        return measure(
            LIBRARIES[asked["library"]](asked["protocol"], asked["cells"], asked["epsilon"]),
            asked["values"],
        )
    except Exception as error:  # noqa: BLE001 - the others are still worth measuring
        return {"error": f"{type(error).__name__}: {error}"}


def main() -> None:
    """Answer questions from stdin, a line each, until it ends."""
    for line in sys.stdin:
        sys.stdout.write(json.dumps(answer(line)) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
