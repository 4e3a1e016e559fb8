"""How fast one core makes complete frames when the key agreements lie ready; against the two AEAD
calls per report that are left.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from functools import lru_cache

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from benchmarks.bench import Bench
from benchmarks.figures import MICROSECONDS, RATE, Figure, Goal, Outcome, Pairs, alternate, spread
from benchmarks.raw import Layer, Processes, Work, seal_layers
from benchmarks.site import WINDOW
from shoal.clients.core import Assignment, assign, seal
from shoal.clients.drawing import messages_of, randomize
from shoal.clients.fleet.pool import BLOCK, make_frames, pool_of_raw, prepare_pool
from shoal.crypto.envelope import HEADER_SIZE, NONCE_SIZE, hop_info, report_info
from shoal.crypto.trust import trust_schedule, trust_task

TITLE = (
    "frames drawn and sealed from prepared key agreements / two bare AES-128-GCM calls per report "
    "under fresh keys"
)
PER_CORE = 80_000  # reports per second of one core


@dataclass(frozen=True, slots=True)
class Recipe:
    """A task as devices get it."""

    signed_task: bytes
    signed_schedule: bytes
    authorities: frozenset[bytes]


def run(bench: Bench) -> Outcome:
    """How fast prepared frames are sealed, beside sealing from the start."""
    held, rounds, repetitions = (
        bench.pick(64, 8_192, 8_192),
        bench.pick(1, 4, 12),
        bench.repetitions,
    )
    site = bench.fresh_site("prepared", held)
    recipe = Recipe(
        site.pair.signed_task, site.pair.signed_schedule, frozenset({site.workspace.authority})
    )
    analyzer, hop, task = (
        site.served.keys.analyzer_keys[WINDOW],
        site.served.keys.hop_keys[WINDOW],
        site.pair.task,
    )
    frame = len(site.frames(bench.pool, 1).frames[0])
    sizes = (NONCE_SIZE + task.report_size, frame - HEADER_SIZE - hop.suite.overhead)
    layers = (
        Layer(analyzer.raw, report_info(site.served.task_id, WINDOW, analyzer.key_id), sizes[0]),
        Layer(hop.raw, hop_info(0, hop.key_id), sizes[1]),
    )
    one = Processes(1)  # a rate per core: nothing shares its caches
    few = held // 4
    try:
        one.run(frames, recipe, held, 1)  # imports, and prepares
        pairs = alternate(
            repetitions,
            lambda: one.run(two_aeads, sizes, held, rounds),
            lambda: one.run(frames, recipe, held, rounds),
        )
        drawn = alternate(
            1,
            lambda: one.run(two_aeads, sizes, held, rounds),
            lambda: one.run(draw_only, recipe, held, rounds),
        )
        ahead = alternate(
            bench.pick(1, 1, 3),
            lambda: one.run(seal_layers, layers, few),
            lambda: one.run(prepare_only, recipe, few),
        )
        lone = alternate(
            1,
            lambda: one.run(two_aeads, sizes, held, rounds),
            lambda: one.run(seal_at_once, recipe, few),
        )
    finally:
        one.close()
    goal = Goal(at_least=PER_CORE) if bench.pick(0, 1, 1) else None
    return _outcome(pairs, drawn, ahead, lone, held, goal)


def _outcome(
    pairs: Pairs, drawn: Pairs, ahead: Pairs, lone: Pairs, held: int, goal: Goal | None
) -> Outcome:
    """``pairs``: frames from prepared keys; ``drawn``: draws alone; ``ahead``: preparing; ``lone``:
    reports without it. Each beside its limit. ``held``: encapsulations that were prepared.
    """
    return Outcome(
        (
            Figure("encode, randomize and frame: CPU", pairs.against(lambda sample: sample.cpu_us)),
            Figure(
                "preparing / two bare HPKE seals: CPU", ahead.against(lambda sample: sample.cpu_us)
            ),
            Figure(
                "frames per second of one core",
                tuple(1e6 / sample.cpu_us for sample in pairs.subjects),
                RATE,
                goal,
            ),
            spread(
                "encode, randomize and frame: CPU",
                pairs.subjects,
                lambda sample: sample.cpu_us,
                MICROSECONDS,
            ),
            spread(
                "of it encode and randomize: CPU",
                drawn.subjects,
                lambda sample: sample.cpu_us,
                MICROSECONDS,
            ),
            spread(
                "two AES-128-GCM calls, keys set up: CPU",
                pairs.limits,
                lambda sample: sample.cpu_us,
                MICROSECONDS,
            ),
            spread(
                "preparing, once per report and before the clock: CPU",
                ahead.subjects,
                lambda sample: sample.cpu_us,
                MICROSECONDS,
            ),
            spread(
                "the same report without preparation: CPU",
                lone.subjects,
                lambda sample: sample.cpu_us,
                MICROSECONDS,
            ),
        ),
        (
            f"one process, {BLOCK} reports per call; {held} encapsulations serve every round, as "
            "they may in a benchmark alone",
            "what is prepared is not saved: preparing and sealing together cost as much as sealing "
            "at once",
        ),
    )


# --- in a process ---------------------------------------------------------------------------------


@lru_cache(maxsize=4)
def _assignment(recipe: Recipe) -> Assignment:
    trusted = trust_task(recipe.signed_task, recipe.authorities)
    return assign(trusted, trust_schedule(recipe.signed_schedule, trusted))


@lru_cache(maxsize=4)
def _prepared(recipe: Recipe, count: int) -> tuple[bytes, bytes, bytes, bytes]:
    return prepare_pool(_assignment(recipe), WINDOW, count).move_raw()


def frames(recipe: Recipe, held: int, rounds: int) -> Work:
    """Frames of ``rounds`` times ``held`` reports. Throw-away keys: the same encapsulations serve
    every round, as they never may else.
    """
    assignment, raw = _assignment(recipe), _prepared(recipe, held)
    spent = 0.0
    for _ in range(rounds):
        pool = pool_of_raw(assignment.task_id, WINDOW, assignment.task.messages, raw)
        begin = time.process_time()
        for first in range(0, held, BLOCK):
            made = make_frames(assignment, WINDOW, range(first, min(first + BLOCK, held)), pool)
            [made.prepared(index) for index in range(len(made))]
        spent += time.process_time() - begin
    return held * rounds, spent


def draw_only(recipe: Recipe, held: int, rounds: int) -> Work:
    """Reports drawn, and the CPU seconds they took."""
    assignment = _assignment(recipe)
    begin = time.process_time()
    for _ in range(rounds):
        for first in range(0, held, BLOCK):
            randomize(assignment, range(first, min(first + BLOCK, held)))
    return held * rounds, time.process_time() - begin


def prepare_only(recipe: Recipe, count: int) -> Work:
    """Pairs of keys prepared, and the CPU seconds they took."""
    begin = time.process_time()
    prepare_pool(_assignment(recipe), WINDOW, count)
    return count, time.process_time() - begin


def seal_at_once(recipe: Recipe, count: int) -> Work:
    """As a device seals them, drawn together."""
    assignment = _assignment(recipe)
    begin = time.process_time()
    for report in randomize(assignment, range(count)):
        seal(assignment, WINDOW, messages_of(report))
    return count, time.process_time() - begin


def two_aeads(sizes: tuple[int, int], held: int, rounds: int) -> Work:
    """What no preparation can spare: two keys set up and two plaintexts encrypted per report, keys
    and plaintexts made beforehand.
    """
    keys, nonces, texts = (
        [os.urandom(16) for _ in range(2 * held)],
        os.urandom(12),
        [bytes(size) for size in sizes],
    )
    begin = time.process_time()
    for _ in range(rounds):
        for report in range(0, 2 * held, 2):
            AESGCM(keys[report]).encrypt(nonces, texts[0], None)
            AESGCM(keys[report + 1]).encrypt(nonces, texts[1], None)
    return held * rounds, time.process_time() - begin
