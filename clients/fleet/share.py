"""What one process of a simulation is given and what it hands back: plain data that crosses a
pipe.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from shoal.clients.core import SealedReport
from shoal.clients.fleet.arrivals import Arrivals
from shoal.clients.fleet.misbehaviour import Carrier, Conduct
from shoal.domain import Value

# Codes of the outcome history: 0, the number of the refusing kind, or one of these.
ACKED = 0
UNKNOWN = 255  # may count once or not at all
GARBAGE_ACKED = 254  # stored, and the analyzer must reject it
GARBAGE_UNKNOWN = 253  # perhaps
NO_ANSWER = 252  # a misbehaving client got none, or none that says anything
SURPRISE = 251  # a misbehaving client got another answer than it must
NOT_SENT = 250  # interrupted before

_CONDUCTS = tuple(Conduct)  # Conduct(n), at a tenth of its cost


@dataclass(frozen=True, slots=True)
class SimulatedTask:
    """What devices get (the signed bytes), and their values: ``values[i]`` is device i's.
    ``window``: None = by the clock. ``signed_step``: of a discovery, what that window asks; empty
    for window 0. ``made``: ``made[i]`` is the report of device i, of that window, which it made and
    sealed beforehand with a memory of its own; empty: reports are made here, by devices without.
    """

    signed_task: bytes
    signed_schedule: bytes
    values: Sequence[Value] = field(repr=False)
    window: int | None = None
    signed_step: bytes = b""
    made: Sequence[SealedReport] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True)
class Share:
    """The devices of one process. ``first`` and ``step`` place them among all: this one's device i
    is number first + i * step.

    ``arrivals``: of the reports of *all* shares; None = as fast as they go. ``conduct``: a
    ``Conduct`` per device; empty = all honest. ``prepare``: encapsulate for all reports before the
    start.
    """

    tasks: tuple[SimulatedTask, ...]
    authorities: frozenset[bytes]
    first: int
    step: int
    in_flight: int
    way: Carrier
    arrivals: Arrivals | None
    patience_s: float
    deadline_s: float
    # PEM; private keys, for simulations alone
    enrolment_roots: tuple[bytes, ...] = field(default=(), repr=False)
    conduct: bytes = b""
    prepare: bool = False
    alone: int = 0  # the first so many devices have no relay, where the others have one

    @property
    def devices(self) -> int:
        """How many devices this process simulates."""
        return len(self.tasks[0].values)

    def conduct_of(self, device: int) -> Conduct:
        """How the device at this place in the share behaves."""
        return _CONDUCTS[self.conduct[device]] if self.conduct else Conduct.HONEST


@dataclass(frozen=True, slots=True)
class SealingEffort:
    """What one process of the generator took: core-seconds to encapsulate beforehand, core-seconds
    from the first report to the last answer, and its largest resident set.
    """

    prepare_cpu_s: float = 0.0
    cpu_s: float = 0.0
    memory_bytes: int = 0


@dataclass(slots=True)
class ShareResult:
    """``codes[t][i]``: what became of device i's report for task t. ``latencies_ms``: per
    acknowledged honest report.

    ``acked``, ``refused``, ``unknown``: of honest reports, as they come. ``handled``: misbehaving
    frames that got an answer they may get, or none. ``copies``: (sent, acknowledged) of duplicates.
    ``surprises``: wrong answers, by what was wrong. ``retried``: frames that were sent again, as
    no answer came or one that asks for it.
    """

    codes: tuple[bytearray, ...]
    latencies_ms: array[float] = field(default_factory=lambda: array("f"))
    acked: int = 0
    refused: Counter[int] = field(default_factory=Counter)
    unknown: int = 0
    handled: int = 0
    copies: tuple[int, int] = (0, 0)
    surprises: Counter[str] = field(default_factory=Counter)
    retried: int = 0
    # (conduct, code) of misbehaving frames
    answers: Counter[tuple[int, int]] = field(default_factory=Counter)
    reasons: dict[int, str] = field(default_factory=dict)  # one message per kind, for people
    # why reports are tried again now, or why the last one that was given up was; empty once one
    # arrives
    trouble: str = ""
    effort: SealingEffort = SealingEffort()


def blank(share: Share) -> ShareResult:
    """Nothing was sent yet."""
    return ShareResult(tuple(bytearray([NOT_SENT]) * share.devices for _ in share.tasks))
