"""From a value to the messages of a report: the cell of what a window asks, and a device's draw."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from shoal.arrays import NDArray, np
from shoal.clients.core import Assignment, SealedReport, seal
from shoal.crypto.admission.open import OPEN
from shoal.domain import Value
from shoal.entropy import SYSTEM, Entropy
from shoal.errors import Kind, ShoalError

if TYPE_CHECKING:
    from shoal.crypto.admission.admission import Prover
    from shoal.mechanisms.base import Mechanism
    from shoal.mechanisms.several.protocol import Several


def prepare(
    assignment: Assignment,
    window: int,
    value: Value,
    entropy: Entropy = SYSTEM,
    prover: Prover = OPEN,
) -> SealedReport:
    """Encode, randomize once, seal for the analyzer, seal for the shuffler.

    Call it once per task and window, between ``Outbox.claim`` and ``Outbox.add``, in one
    transaction: a second call for the same window would be a second draw. ``prover`` from
    ``prover_for``. The value leaves no trace in the result but through the randomizer. Raises
    INVALID for a window the task hasn't.
    """
    return seal(assignment, window, report_of(assignment, value, entropy, window), entropy, prover)


def report_of(
    assignment: Assignment, value: Value, entropy: Entropy = SYSTEM, window: int = 0
) -> tuple[bytes, ...]:
    """The messages of one report of a value: encoded, and drawn. Raises as ``encode`` and ``draw``;
    INVALID for a text that is no vector of the task's (``vectors``).
    """
    if assignment.vectors is None:
        return draw(assignment, encode(assignment, value, entropy, window), entropy, window)
    # numpy: of vectors alone
    from shoal.clients.vectors import quantized

    return assignment.vectors.randomize_vector(
        quantized(assignment.vectors.domain, value, entropy), entropy
    )


def encode(assignment: Assignment, value: Value, entropy: Entropy = SYSTEM, window: int = 0) -> int:
    """The cell of a value in a window: of the task's domain, or of what the window of a discovery
    asks. Raises as ``Assignment.level``.
    """
    level = assignment.level(window)
    return (level or assignment.task.domain).encode(value, entropy)


def draw(
    assignment: Assignment, cell: int, entropy: Entropy = SYSTEM, window: int = 0
) -> tuple[bytes, ...]:
    """The messages of one report of a cell of what ``window`` asks: a device's draw. Raises INVALID
    for another cell, and for sums, and as ``Assignment.level``.
    """
    made = _several(assignment, window) or _mechanism(assignment)
    return made.randomize_one(cell, entropy)


def _several(assignment: Assignment, window: int) -> Several | None:
    level = assignment.level(window)
    if level is None:
        return assignment.several
    # numpy: of discoveries alone
    from shoal.mechanisms.several.levels import level_of

    return level_of(assignment.several, level)


def randomize(
    assignment: Assignment, values: Sequence[Value], entropy: Entropy = SYSTEM
) -> NDArray[np.uint8]:
    """uint8[n, messages, report_size]: one report per value, each an independent draw. For many
    devices at once; loads numpy. Not for tasks of several messages: see ``reports_of``.
    """
    mechanism = _mechanism(assignment)
    return mechanism.randomize(_cells(assignment, values, entropy), entropy)


def reports_of(
    assignment: Assignment, values: Sequence[Value], entropy: Entropy = SYSTEM, window: int = 0
) -> list[tuple[bytes, ...]]:
    """One report per value, each an independent draw, as ``seal`` takes it. For many devices at
    once; loads numpy. Raises as ``Assignment.level``.
    """
    several = _several(assignment, window)
    if assignment.vectors is not None:
        return [report_of(assignment, value, entropy, window) for value in values]
    if several is None:
        return [messages_of(report) for report in randomize(assignment, values, entropy)]
    bundles = several.randomize(_cells(assignment, values, entropy, window), entropy)
    rows, size, at = bundles.rows.tobytes(), assignment.task.report_size, 0
    reports = list[tuple[bytes, ...]]()
    for count in bundles.sizes.tolist():
        report = rows[at : at + count * size]
        reports.append(
            tuple([report[place : place + size] for place in range(0, len(report), size)])
        )
        at += count * size
    return reports


def messages_of(report: NDArray[np.uint8]) -> tuple[bytes, ...]:
    """One of the reports of ``randomize``, uint8[messages, report_size], as ``seal`` takes it."""
    return tuple([message.tobytes() for message in report])


def _cells(
    assignment: Assignment, values: Sequence[Value], entropy: Entropy, window: int = 0
) -> NDArray[np.int64]:
    asked = assignment.level(window) or assignment.task.domain
    return np.array([asked.encode(value, entropy) for value in values], dtype=np.int64)


def _mechanism(assignment: Assignment) -> Mechanism:
    if assignment.several is not None:
        raise ShoalError(
            Kind.INVALID,
            f"devices of task {assignment.task.name} send several messages, from one on: what is "
            "asked for is of one",
        )
    if assignment.vectors is not None:
        raise ShoalError(
            Kind.INVALID,
            f"devices of task {assignment.task.name} randomize a vector: it has no cells",
        )
    if assignment.mechanism is None:
        raise ShoalError(
            Kind.INVALID,
            f"task {assignment.task.name} is summed in rounds: it has no reports to randomize",
        )
    return assignment.mechanism
