"""Print the figures of docs/TABLES.md: predicted errors beside those of many releases of the
demo's survey, and synthetic tables beside what is true.

    PYTHONPATH=. .venv/bin/python tools/table_errors.py [--runs 200]

An hour or more at 200 runs. In one marginal every message is drawn by itself. In all marginals
a release would have over a million messages: there the counts of a batch are drawn from their law,
true counts and one Poisson number of dummies in each cell, which is what the devices' shares add
up to (mechanisms/several/events.py); ``shoal tables simulate`` draws every message of one release.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import io
import math
import time

import numpy as np
from demo_data import ATTRIBUTES, RECORDS
from numpy.typing import NDArray

from shoal.analyzer.tables.consistent import consistent
from shoal.analyzer.tables.fit_errors import fit_errors
from shoal.analyzer.tables.fitting import fit
from shoal.analyzer.tables.marginals import ReleasedTables
from shoal.analyzer.tables.of_record import released_of
from shoal.analyzer.tables.plan import TablesRequest, TablesWay, plan_tables
from shoal.analyzer.tables.played import TablesPlayed, play, truth_of
from shoal.analyzer.tables.quality import held_out
from shoal.cli.plan.tables.show import agreed_error
from shoal.cli.plan.tables.truth import synthetic_errors
from shoal.domain import AnswerRecord, Categories
from shoal.entropy import Entropy, SeededEntropy
from shoal.mechanisms import Tally
from shoal.mechanisms.several.marginals import AllMarginals
from shoal.mechanisms.several.noise_of_batch import noise_pmf
from shoal.questions.record import Attribute, all_pairs

DELTA, EPSILONS = 1e-6, (1.0, 2.0)
FITS = 5  # releases of which a synthetic table is made
PLAYED = {"marginals": 1.0, "dummies": 1.0, "krr": 1.0, "cancelling": 0.1}  # of all runs


def survey() -> tuple[AnswerRecord, NDArray[np.int64]]:
    """The bundled records: int64[rows, attributes], cells."""
    rows = list(csv.reader(io.StringIO(gzip.decompress(RECORDS.read_bytes()).decode("ascii"))))
    attributes = tuple(
        Attribute(name, Categories(labels)) for name, (_, _, labels) in ATTRIBUTES.items()
    )
    columns = [
        [one.answers.encode(row[at]) for row in rows[1:]] for at, one in enumerate(attributes)
    ]
    return AnswerRecord(attributes, all_pairs(len(attributes))), np.array(columns, np.int64).T


def played(way: TablesWay, answers: NDArray[np.int64], entropy: Entropy) -> TablesPlayed:
    """One release."""
    made, n = way.made, len(answers)
    if not isinstance(made, AllMarginals):
        return play(way, answers, entropy)
    truth = truth_of(way.record, answers)
    pmf, first, _ = noise_pmf(made.noise, n)
    uniform = entropy.words(truth.size).astype(np.float64) / 2.0**64
    noise = first + np.searchsorted(np.cumsum(pmf), uniform * pmf.sum())
    counts = truth.astype(np.int64) + noise
    return TablesPlayed(way, truth, made.estimate(Tally(counts, int(counts.sum())), n))


def errors(way: TablesWay, answers: NDArray[np.int64], runs: int) -> str:
    """A row: predicted and measured."""
    entropy, stated, agreed, held = SeededEntropy(f"{way.name} tables"), 0.0, 0.0, 0.0
    started = time.monotonic()
    for _ in range(runs):
        done = played(way, answers, entropy)
        stated += done.error**2
        agreed += agreed_error(done) ** 2
        held += done.covered
    return (
        f"{way.name}: {runs} runs, error {math.sqrt(stated / runs):.1f} (predicted "
        f"{way.error:.1f}), consistent {math.sqrt(agreed / runs):.1f} ({way.agreed:.1f}), "
        f"{held / runs:.2%} covered; {way.messages:.1f} messages, {way.slots} slots; "
        f"{time.monotonic() - started:.0f} s"
    )


def fits(way: TablesWay, answers: NDArray[np.int64]) -> str:
    """Of some releases the mean errors of synthetic tables, and the same of a mixture."""
    entropy, rows, mixed, seconds = SeededEntropy("fits"), [], [], 0.0
    for _ in range(FITS):
        done = played(way, answers, entropy)
        started = time.monotonic()
        found = synthetic_errors(done.released, answers)
        seconds += time.monotonic() - started
        if found is None:
            raise SystemExit("install the extra [tables]")
        rows.append(
            (found.pairs, found.pairs_independent, found.triples, found.triples_independent)
        )
        mixed.append(_mixed(done, answers))
    mean = np.mean(rows, axis=0)
    return (
        f"{way.name}: pairs {mean[0]:.2%} (independent {mean[1]:.2%}), triples {mean[2]:.2%} "
        f"({mean[3]:.2%}); mixture of products: triples {np.mean(mixed):.2%}; "
        f"{seconds / FITS:.1f} s each"
    )


def counts_of_fits(way: TablesWay, answers: NDArray[np.int64], runs: int) -> str:
    """A row: the counts that a fitted law gives of the released tables, and those of the tables
    that agree, each with its own intervals.
    """
    entropy, far, held, predicted = SeededEntropy(f"{way.name} fits"), np.zeros(2), np.zeros(2), 0.0
    for _ in range(runs):
        done = played(way, answers, entropy)
        agreed = consistent(done.released)
        found = fit_errors(done.released, fit(done.released), entropy=entropy)
        predicted += found.error**2
        low, high, given = (
            np.concatenate([np.ravel(getattr(one, which)) for one in found.tables])
            for which in ("low", "high", "values")
        )
        plain = np.concatenate([np.ravel(table) for table in agreed.tables])
        reach = 1.96 * np.repeat(agreed.stderr, [table.size for table in agreed.tables])
        for at, (values, first, last) in enumerate(
            ((given, low, high), (plain, plain - reach, plain + reach))
        ):
            far[at] += np.mean((values - done.truth) ** 2)
            held[at] += np.mean((first <= done.truth) & (done.truth <= last))
    (fitted, plain_error), (inside, plain_inside) = np.sqrt(far / runs), held / runs
    return (
        f"{way.name}: {runs} runs, counts of the fit err by {fitted:.1f} (predicted "
        f"{math.sqrt(predicted / runs):.1f}), {inside:.2%} covered; of the tables that agree by "
        f"{plain_error:.1f} (predicted {way.agreed:.1f}), {plain_inside:.2%}"
    )


def _mixed(done: TablesPlayed, answers: NDArray[np.int64]) -> float:
    from itertools import combinations

    released = done.released
    law = fit(released, most_combinations=1).law
    far = []
    for names in combinations(released.names, 3):
        shape = tuple(released.sizes[name] for name in names)
        columns = tuple(answers[:, released.names.index(name)] for name in names)
        counts = np.bincount(np.ravel_multi_index(columns, shape), minlength=math.prod(shape))
        true = counts.reshape(shape) / len(answers)
        far.append(float(np.abs(law.marginal(names) - true).sum()) / 2.0)
    return float(np.mean(far))


def main() -> None:
    """Print the rows."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=200)
    runs: int = parser.parse_args().runs
    record, answers = survey()
    for epsilon in EPSILONS:
        plan = plan_tables(TablesRequest(record, len(answers), epsilon, DELTA))
        print(f"epsilon {epsilon:g}, delta {DELTA:g}, {len(answers):,} devices", flush=True)
        for name, why in plan.unsuited:
            print(f"{name}: {why}")
        for way in plan.ways:
            print(fits(way, answers), flush=True)
        for way in plan.ways:
            many = max(5, round(runs * PLAYED[way.name] / 10))  # each is 22 fits
            print(counts_of_fits(way, answers, many), flush=True)
        for way in plan.ways:
            print(errors(way, answers, max(2, round(runs * PLAYED[way.name]))), flush=True)
        done = played(plan.best, answers, SeededEntropy("held out"))
        _held(done.released, "held out")
        raised = consistent(done.released, nonnegative=True)
        print(f"consistent without negative cells: {_far(raised.tables, done):.1f}", flush=True)
    truth = truth_of(record, answers)
    _held(released_of(record, truth, np.full(truth.size, 3.0), len(answers)), "exact, held out")


def _held(released: ReleasedTables, what: str) -> None:
    for one in held_out(released):
        print(
            f"{what} {' x '.join(one.names)}: {one.difference:.2%} from the fit, noise "
            f"{one.noise:.2%}, independent {one.independent:.2%}"
        )


def _far(tables: tuple[NDArray[np.float64], ...], done: TablesPlayed) -> float:
    values = np.concatenate([table.reshape(-1) for table in tables])
    return float(np.sqrt(np.mean((values - done.truth) ** 2)))


if __name__ == "__main__":
    main()
