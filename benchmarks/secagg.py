"""Secure aggregation: pads against the bare cipher, a device's whole round, the analyzer's
unmasking, beside Flower's own primitives.

A round runs in this process through the machines of device, shuffler and analyzer, with real keys,
signatures, certificates and sealing; there is no network and no disk. Devices verify certificates
that this process has not seen, as a device does.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import time
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.bench import Bench
from benchmarks.figures import (
    MILLISECONDS,
    RATIO,
    SECONDS,
    Figure,
    Goal,
    Outcome,
    Sample,
    alternate,
    spread,
)
from benchmarks.secagg_round import Round, timed_round
from shoal.crypto.secagg import pads

TITLE = "pads / openssl's AES-256-CTR; CPU of a device's round and of the analyzer's unmasking"
FLOWER = Path(__file__).resolve().parent.parent / ".venv-flower" / "bin" / "python"
_BLOCK = 1 << 20  # bytes, as in `openssl speed -bytes`
_DEVICES, _NEIGHBOURS, _THRESHOLD, _DIMENSION = 100, 50, 26, 100_000
_KILOBYTES = "kB"


def run(bench: Bench) -> Outcome:
    """What a round of secure aggregation costs each party, beside Flower's."""
    figures: list[Figure] = []
    notes: list[str] = []
    figures += _pads(bench, notes)
    small = bench.pick(
        (12, 8, 5, 1_000),
        (_DEVICES, _NEIGHBOURS, _THRESHOLD, _DIMENSION),
        (_DEVICES, _NEIGHBOURS, _THRESHOLD, _DIMENSION),
    )
    rounds = {
        percent: [timed_round(*small, percent) for _ in range(bench.pick(1, 1, 3))]
        for percent in (0, 10, 30)
    }
    figures += _devices(rounds[0], small[3])
    for percent, goal in ((0, 0.1), (10, 0.2), (30, 0.4)):
        what = f"analyzer unmasks, {small[0]} devices, {percent} % lost: CPU"
        figures.append(
            Figure(
                what, tuple(one.unmask_s for one in rounds[percent]), SECONDS, Goal(at_most=goal)
            )
        )
    large = bench.pick((14, 8, 5, 1_000), (200, 0, 0, _DIMENSION), (1_000, 0, 0, _DIMENSION))
    one = timed_round(*large, 10)
    figures.append(
        Figure(
            f"analyzer unmasks, {large[0]} devices, 10 % lost: CPU",
            (one.unmask_s,),
            SECONDS,
            Goal(at_most=2.0),
        )
    )
    notes.append(f"{large[0]} devices: k = {one.neighbours}, t = {one.threshold}, computed")
    notes.append(
        f"{small[0]} devices: k = {small[1]}, t = {small[2]}, as in Flower's run; computed they "
        "would be fewer"
    )
    figures += _flower(bench, rounds, notes)
    return Outcome(tuple(figures), tuple(notes))


# --- pads -----------------------------------------------------------------------------------------


def _pads(bench: Bench, notes: list[str]) -> list[Figure]:
    """Pads of a whole vector, as many as a device has, generated and added in place, in bytes per
    second, against the cipher alone over 1 MiB blocks.
    """
    if shutil.which("openssl") is None:
        notes.append("no openssl program: the cipher's own speed was not measured")
        return []
    found = []
    for dimension in bench.pick(
        (1_000,), (_DIMENSION, 10 * _DIMENSION), (_DIMENSION, 10 * _DIMENSION)
    ):
        words = pads.zeros(dimension, pads.WORD[32])
        work = partial(_pad, words, bench.pick(3, 300, 1_000) * _DIMENSION // dimension + 1)
        work()
        pairs = alternate(bench.repetitions, partial(_openssl, bench.pick(1, 1, 2)), work)
        found.append(
            Figure(
                f"pad and add, {dimension:,} words of 32 bits",
                pairs.rates(),
                RATIO,
                Goal(at_least=0.75),
            )
        )
        found.append(
            spread(
                f"pad and add, {dimension:,} words: GB/s",
                pairs.subjects,
                lambda sample: sample.rate / 1e9,
                "GB/s",
            )
        )
    found.append(
        spread(
            "openssl speed, AES-256-CTR: GB/s",
            pairs.limits,
            lambda sample: sample.rate / 1e9,
            "GB/s",
        )
    )
    return found


def _pad(words: np.ndarray[tuple[int], np.dtype[np.uint32]], times: int) -> Sample:
    keys = [(os.urandom(pads.STREAM_KEY_SIZE), +1) for _ in range(_NEIGHBOURS + 1)]
    times = -(-times // len(keys))
    begin, cpu = time.perf_counter(), time.process_time()
    for _ in range(times):
        pads.apply_all(words, keys)
    return Sample(
        times * len(keys) * words.nbytes, time.perf_counter() - begin, time.process_time() - cpu
    )


def _openssl(seconds: int) -> Sample:
    command = [
        "openssl",
        "speed",
        "-elapsed",
        "-seconds",
        str(seconds),
        "-bytes",
        str(_BLOCK),
        "-evp",
        "aes-256-ctr",
    ]
    shown = subprocess.run(command, capture_output=True, text=True, check=True)
    match = re.search(r"^AES-256-CTR\s+([0-9.]+)k", shown.stdout, re.MULTILINE | re.IGNORECASE)
    if match is None:
        raise RuntimeError("openssl speed printed something else than a rate")
    return Sample(int(float(match[1]) * 1000), 1.0)


# --- a round --------------------------------------------------------------------------------------


def _devices(rounds: list[Round], dimension: int) -> list[Figure]:
    every = [device for one in rounds for device in one.devices]
    steps = ("join", "share", "check", "mask", "unmask")
    shown = [
        Figure(f"device, {step}: CPU", tuple(device[step] * 1e3 for device in every), MILLISECONDS)
        for step in steps
    ]
    total = tuple(sum(device[step] for step in steps) * 1e3 for device in every)
    width = rounds[0].word_bytes
    up = tuple((one.bytes_up - width * dimension) / 1e3 for one in rounds)
    return [
        Figure("device, whole round: CPU", total, MILLISECONDS, Goal(at_most=20.0)),
        *shown,
        Figure("device sends, bytes per coordinate", (float(width),), "B", Goal(at_most=4.0)),
        Figure("device sends besides", up, _KILOBYTES, Goal(at_most=12.0)),
        Figure("device receives", tuple(one.bytes_down / 1e3 for one in rounds), _KILOBYTES),
    ]


# --- Flower ---------------------------------------------------------------------------------------


def _flower(bench: Bench, rounds: dict[int, list[Round]], notes: list[str]) -> list[Figure]:
    python = Path(os.environ.get("SHOAL_FLOWER_PYTHON", FLOWER))
    if bench.pick(True, False, False) or not python.exists():
        notes.append("Flower was not measured: `make flower` makes its environment")
        return []
    script = Path(__file__).with_name("flower_secagg.py")
    size = map(str, (_NEIGHBOURS, _THRESHOLD, _DIMENSION, _DEVICES))
    shown = subprocess.run(
        [str(python), str(script), *size], capture_output=True, text=True, check=True
    )
    found = json.loads(shown.stdout)
    client = (found["client_share_s"] + found["client_mask_s"]) * 1e3
    ours = (
        sum(sum(device.values()) for one in rounds[0] for device in one.devices)
        / sum(len(one.devices) for one in rounds[0])
        * 1e3
    )
    figures = [
        Figure("Flower's client: CPU", (client,), MILLISECONDS),
        Figure("Flower's client / ours", (client / ours,), RATIO),
    ]
    for percent, those in rounds.items():
        theirs = found[f"server_{percent}_s"]
        figures.append(
            Figure(f"Flower's server unmasks, {percent} % lost: CPU", (theirs,), SECONDS)
        )
        figures.append(
            Figure(
                f"Flower's server / our analyzer, {percent} % lost",
                (theirs / those[0].unmask_s,),
                RATIO,
            )
        )
    notes.append(
        "Flower: its SecAgg+ functions alone, without its messages; the server's from a few "
        "secrets and pads, multiplied"
    )
    return figures
