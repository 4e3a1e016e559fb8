"""Estimates of records: from the devices that answered in a marginal to those of the whole batch,
and the tables that a release shows.

Each device answers in one of h marginals, drawn uniformly by itself. Of N devices that have a
combination of answers, Binomial(N, 1 / h) answer in that marginal: h times their estimated count is
unbiased, and its variance is h^2 times that of the estimate, and N (h - 1) for the coins. An
interval holds every N that is within 1.96 standard deviations of coins and the mechanism's own
reach together, so it covers whatever N is (a plug-in of the estimate alone covers less where N is
small).
"""

from __future__ import annotations

from typing import Any

from shoal.analyzer.tables.consistent import consistent
from shoal.analyzer.tables.of_record import released_of
from shoal.arrays import NDArray, np
from shoal.domain import AnswerRecord, Domain
from shoal.errors import ShoalError
from shoal.mechanisms import Estimate
from shoal.protos import release_pb2, task_pb2
from shoal.questions.domain_codec import decode_record, encode_record

_REACH = 1.959964  # 95 % of a normal law lie within so many standard deviations
NEAREST = "least squares over all marginals: they agree, and add up to n"


def of_batch(estimate: Estimate, domain: Domain, n: int) -> Estimate:
    """The estimate in devices of the whole batch of ``n``; as it is where the domain is no record,
    or a device answers in all marginals.
    """
    if not isinstance(domain, AnswerRecord) or domain.together:
        return estimate
    h = len(domain.marginals)
    values = h * estimate.values
    coins = np.clip(values, 0.0, float(n)) * (h - 1)
    stderr = np.sqrt((h * estimate.stderr) ** 2 + coins)
    below, above = h * (estimate.values - estimate.ci_low), h * (estimate.ci_high - estimate.values)
    return Estimate(
        estimate.labels,
        values,
        stderr,
        _end(values, h, below, -1.0),
        _end(values, h, above, 1.0),
    )


def _end(
    values: NDArray[np.float64], h: int, reach: NDArray[np.float64], side: float
) -> NDArray[np.float64]:
    """The N on one side of V for which (V - N)^2 = reach^2 + 1.96^2 N (h - 1); where that would be
    a count below 0, without coins.
    """
    half = _REACH**2 * (h - 1) / 2.0
    under = half**2 + 2.0 * half * values + reach**2
    end = values + half + side * np.sqrt(np.maximum(under, 0.0))
    return np.where(end < 0.0, values + side * reach, end)


def sentences(domain: Domain) -> list[str]:
    """What a release of records stands on besides, for its readers."""
    if not isinstance(domain, AnswerRecord) or domain.together or len(domain.marginals) == 1:
        return []
    h = len(domain.marginals)
    return [
        f"each device answers in one of {h} tables, drawn by itself whatever its answer is: a "
        f"count is {h} times that of the devices that drew its table, and a report weighs as {h} "
        "devices"
    ]


def record_message(domain: Domain) -> task_pb2.Record | None:
    """Of what a release's estimates are, as it carries it; None where the domain is no record."""
    return encode_record(domain) if isinstance(domain, AnswerRecord) else None


def shown_record(release: release_pb2.Release) -> dict[str, Any] | None:
    """The record of a release, in its JSON shape; None where there is none, or it can't be of its
    estimates.
    """
    record = _record_of(release)
    if record is None:
        return None
    names = [one.name for one in record.attributes]
    return {
        "attributes": [
            {"name": one.name, "labels": list(one.answers.labels)} for one in record.attributes
        ],
        "marginals": [[names[at] for at in marginal] for marginal in record.marginals],
    }


def shown_tables(release: release_pb2.Release) -> dict[str, Any] | None:
    """Consistent tables made of a release's estimates; None as ``shown_record``. Their errors are
    those of ``consistent``.
    """
    record = _record_of(release)
    if record is None:
        return None
    values = np.array([row.value for row in release.estimates], dtype=np.float64)
    errors = np.array([row.stderr for row in release.estimates], dtype=np.float64)
    try:
        found = consistent(released_of(record, values, errors, release.n))
    except ShoalError:  # figures that no mechanism of ours gives: shown as they are
        return None
    return {
        "method": NEAREST,
        "tables": [
            {"names": list(one.names), "values": table.tolist(), "stderr": error}
            for one, table, error in zip(
                found.released.marginals, found.tables, found.stderr, strict=True
            )
        ],
    }


def _record_of(release: release_pb2.Release) -> AnswerRecord | None:
    if release.withheld or not release.HasField("record"):
        return None
    try:
        record = decode_record(release.record)
    except ShoalError:
        return None
    return record if len(release.estimates) == record.cells else None
