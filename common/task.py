"""A task: what a fleet is asked, and under which protection. Immutable; its id is the hash of its
bytes.

``Task`` validates on construction everything that can be checked without randomizer or accountant
(``shoal.codec`` turns bytes into it and back; ``shoal.crypto`` signs and verifies the bytes;
whether its target epsilon can be reached is checked by ``shoal.accounting``). Times are Unix
seconds.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from enum import IntEnum
from fractions import Fraction

from shoal.domain import AnswerRecord, Discovery, Domain, Vector
from shoal.errors import Kind, ShoalError
from shoal.limits import LIMITS
from shoal.secagg import Mode, PairwisePlan

PPM = 1_000_000
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,63}")
_HOST = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?|\[[0-9A-Fa-f:.]{2,45}\]")
# Control characters and those that turn the direction of text: on a terminal they could show an
# owner another question.
_UNSAFE_TEXT = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def one_line(text: str) -> bool:
    """Whether a text may stand in a task: one line, without control characters or marks that turn
    its direction.
    """
    return _UNSAFE_TEXT.search(text) is None


class Admission(IntEnum):
    """Who may submit. OPEN: anybody, so the honest fraction is unenforced and the release says
    so.
    """

    OPEN = 1
    ENROLLED = 2
    TOKEN = 3


class Aggregator(IntEnum):
    """How answers are added up: reports in a shuffled batch, or vectors by secure aggregation."""

    SHUFFLED = 1
    PAIRWISE = 2


def _in_segments(mode: Mode | None, otherwise: str) -> str:
    """How to mend a task that lacks segments. ``otherwise``: what does without them."""
    if mode is Mode.HELPER:
        return f", which helper mode has none of: take mode default or strict, or {otherwise}"
    return f": set segment_words of its rounds, or {otherwise}"


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise ShoalError(Kind.INVALID, message)


SHUFFLER_NOISE = "shuffler_noise"
"""The mechanism whose noise the shuffler adds, which reads no other mechanism's name but those of
``OF_VECTORS``, to refuse a task that none could answer.
"""
OF_VECTORS = ("privunit",)
"""The mechanisms of which a device sends one randomized report of a whole vector."""


@dataclass(frozen=True, slots=True)
class MechanismSpec:
    """A randomizer by its registered name, and the integers that its code compares against, sorted
    by name.
    """

    name: str
    parameters: tuple[tuple[str, int], ...]

    def __post_init__(self) -> None:
        _require(
            re.fullmatch(r"[a-z][a-z0-9_]{0,63}", self.name) is not None,
            "a mechanism name is lower case letters, digits and _",
        )
        names = [name for name, _ in self.parameters]
        _require(
            names == sorted(set(names)), "mechanism parameters are sorted by name, each name once"
        )
        _require(
            all(0 <= value < 1 << 64 for _, value in self.parameters),
            "a mechanism parameter is an integer in [0, 2^64)",
        )

    @classmethod
    def of(cls, name: str, **parameters: int) -> MechanismSpec:
        """The spec with these parameters, sorted by name. Raises INVALID as the class does."""
        return cls(name, tuple(sorted(parameters.items())))

    def get(self, name: str) -> int:
        """The parameter's value. Raises INVALID if it is missing."""
        for key, value in self.parameters:
            if key == name:
                return value
        raise ShoalError(Kind.INVALID, f'mechanism {self.name} lacks the parameter "{name}"')


@dataclass(frozen=True, slots=True)
class WindowPlan:
    """Numbered windows: window w covers [start + w * length, start + (w + 1) * length), with grace
    after and skew before.
    """

    start_s: int
    length_s: int
    count: int
    grace_s: int
    skew_s: int

    def __post_init__(self) -> None:
        _require(0 <= self.start_s < 1 << 40, "windows start at a Unix time in seconds")
        _require(1 <= self.length_s <= 10 * 366 * 86_400, "a window is 1 second to 10 years long")
        _require(1 <= self.count <= LIMITS.windows, f"a task has 1 to {LIMITS.windows} windows")
        _require(0 <= self.grace_s <= 366 * 86_400, "the grace of a window is 0 seconds to a year")
        _require(
            0 <= self.skew_s <= self.length_s, "the tolerated clock skew is at most one window long"
        )

    def start_of(self, window: int) -> int:
        """Unix seconds of the window's first moment."""
        return self.start_s + window * self.length_s

    def end_of(self, window: int) -> int:
        """Unix seconds at which the window is over; its grace follows."""
        return self.start_of(window + 1)

    def deadline_of(self, window: int) -> int:
        """The first second at which the window takes no more reports."""
        return self.end_of(window) + self.grace_s

    def may_have_begun(self, window: int, by_s: float) -> bool:
        """Whether a device that showed ``by_s`` (Unix seconds) may have answered the window before:
        by a clock that was ahead by as much as is tolerated, and is as much behind now.
        """
        return self.start_of(window) - 2 * self.skew_s <= by_s

    def current(self, now: float) -> int | None:
        """The window that a device's clock names; None before the first and after the last."""
        window = math.floor((now - self.start_s) / self.length_s)
        return window if 0 <= window < self.count else None


@dataclass(frozen=True, slots=True)
class Task:
    """See protos/task.proto for every field. All bytes are public: a task holds no secret."""

    salt: bytes
    name: str
    purpose: str
    question: str
    domain: Domain
    mechanism: MechanismSpec
    windows: WindowPlan
    min_batch: int
    max_batch: int  # 0: no such limit
    honest_fraction_ppm: int
    delta: float
    target_epsilon: float
    key_authority: bytes
    shuffler_key: bytes
    analyzer_key: bytes
    shuffler_address: str
    shuffler_ca: bytes
    retention_s: int
    report_size: int  # bytes of one message of a report, as the mechanism says
    messages: int = 1  # of one report, at most
    reports_per_device: int = 1
    admission: Admission = Admission.OPEN
    suite: int = 1
    aggregator: Aggregator = Aggregator.SHUFFLED
    pairwise: PairwisePlan | None = None  # with aggregator PAIRWISE
    # Ed25519 public key that signs device certificates, with admission ENROLLED
    enrolment_key: bytes = b""
    # the same value gets the same randomized report in every window, sealed anew each time
    memoized: bool = False
    fewest_messages: int = 0  # of one report, at least; 0: always ``messages``

    @property
    def least_messages(self) -> int:
        """Messages of one report, at least: 1 to ``messages``."""
        return self.fewest_messages or self.messages

    @property
    def added_messages(self) -> int:
        """Messages that the shuffler adds to every batch, at most; 0 for all tasks but those of
        the mechanism ``SHUFFLER_NOISE``. Raises INVALID where that lacks a parameter.
        """
        if self.mechanism.name != SHUFFLER_NOISE:
            return 0
        return 2 * self.mechanism.get("k") * self.mechanism.get("reach")

    @property
    def windows_of_a_device(self) -> int:
        """Windows in which one device answers, at most."""
        return windows_of_a_device(self.domain, self.windows.count)

    @property
    def reports_are_rows(self) -> bool:
        """Whether every message of a batch is a report: not where a report may have several, nor
        where the shuffler adds messages.
        """
        return self.messages == 1 and self.mechanism.name != SHUFFLER_NOISE

    @property
    def hops(self) -> tuple[bytes, ...]:
        """Ed25519 public keys of the hops between devices and the analyzer, in the order in which
        reports pass them. Today's tasks name one, the shuffler.
        """
        return (self.shuffler_key,)

    def __post_init__(self) -> None:
        _require(len(self.salt) == 16, "a task's salt is 16 random bytes")
        _require(
            _NAME.fullmatch(self.name) is not None,
            "a task's name is 1 to 64 lower case letters, digits and -, not beginning with -",
        )
        self._check_texts()
        self._check_layout()
        self._check_release()
        self._check_parties()
        self._check_participation()
        self._check_aggregator()
        _require(
            1 <= self.messages <= LIMITS.messages, f"a report has 1 to {LIMITS.messages} messages"
        )
        _require(
            0 <= self.fewest_messages < self.messages,
            "fewest_messages is 0 (all reports have as many) or at least 1 and below messages",
        )
        needed = self.windows.length_s + self.windows.grace_s + LIMITS.delivery_s
        _require(
            self.retention_s >= needed,
            f"retention_s = {self.retention_s} is below {needed} (a window, its grace, and time to "
            "deliver): reports would be lost",
        )

    def _check_texts(self) -> None:
        for what, text in (("purpose", self.purpose), ("question", self.question)):
            _require(
                len(text.strip()) > 0 and len(text) <= LIMITS.text_chars,
                f"a task's {what} is 1 to {LIMITS.text_chars} characters long",
            )
        # A vector's coordinates may have no names: they are numbered then, up to a million of them,
        # and the numbers are no text of the task.
        labels = self.domain.names if isinstance(self.domain, Vector) else self.domain.labels
        shown = (self.purpose, self.question, *labels, getattr(self.domain, "unit", ""))
        _require(
            all(map(one_line, shown)),
            "the texts of a task are one line each, without control characters",
        )

    def _check_layout(self) -> None:
        """Arrays are read by name from the one array of long vectors, and from nothing else."""
        layout = self.domain.layout if isinstance(self.domain, Vector) else ()
        mode = None if self.pairwise is None else self.pairwise.mode
        _require(
            not layout or (self.pairwise is not None and self.pairwise.segmented),
            "layout names the arrays of a vector that is summed in segments"
            + _in_segments(mode, "leave layout out"),
        )

    def _check_release(self) -> None:
        _require(
            2 <= self.min_batch <= LIMITS.batch_rows,
            f"min_batch is 2 to {LIMITS.batch_rows} reports",
        )
        _require(
            self.max_batch == 0 or self.min_batch <= self.max_batch <= LIMITS.batch_rows,
            "max_batch is 0 (no limit) or at least min_batch",
        )
        _require(0 < self.honest_fraction_ppm <= PPM, "honest_fraction is above 0 and at most 1")
        _require(0 < self.delta < 1, "delta lies between 0 and 1")
        _require(
            self.target_epsilon > 0 and math.isfinite(self.target_epsilon),
            "target_epsilon is above 0",
        )

    def _check_parties(self) -> None:
        for what, key in (
            ("key_authority", self.key_authority),
            ("shuffler_key", self.shuffler_key),
            ("analyzer_key", self.analyzer_key),
        ):
            _require(len(key) == 32, f"a task's {what} is a 32-byte Ed25519 public key")
        _require(
            (split_address(self.shuffler_address) or ("", 0))[1] > 0,
            "shuffler_address is HOST:PORT, for example shuffler.example:7443",
        )
        _require(len(self.shuffler_ca) <= 64 * 1024, "shuffler_ca is at most 64 KiB of PEM")

    def _check_participation(self) -> None:
        _require(
            self.suite in {1, 2, 3},
            "suite is 1 (X25519, AES-128), 2 (X25519, ChaCha20) or 3 (MLKEM768-X25519, AES-128)",
        )
        _require(
            self.reports_per_device == 1,
            "reports_per_device must be 1: ask for a record of several answers, or in more windows",
        )
        _require(
            self.admission is not Admission.TOKEN,
            "admission is open or enrolled: tokens are not available in this version",
        )
        enrolled = self.admission is Admission.ENROLLED
        _require(
            len(self.enrolment_key) == (32 if enrolled else 0),
            "enrolment_key is the 32-byte Ed25519 public key that signs device certificates, with "
            "admission enrolled and no other",
        )

    def _check_aggregator(self) -> None:
        _require(
            not self.memoized or self.aggregator is Aggregator.SHUFFLED,
            "a sum can't be memoized: the noise of every round must be its own",
        )
        _require(
            not self.memoized or not isinstance(self.domain, Vector),
            "a vector can't be memoized: its report is drawn anew in every window",
        )
        _require(
            not self.memoized or not isinstance(self.domain, AnswerRecord),
            "a record can't be memoized: the marginal that a device answers in is drawn anew in "
            "every window",
        )
        if self.aggregator is Aggregator.SHUFFLED:
            self._check_shuffled()
        else:
            self._check_pairwise()

    def _check_shuffled(self) -> None:
        _require(
            self.pairwise is None,
            "the settings of rounds are for the aggregator pairwise alone",
        )
        _require(
            isinstance(self.domain, Vector) == (self.mechanism.name in OF_VECTORS),
            "a vector is summed by the aggregator pairwise, or randomized by one of "
            f"{', '.join(OF_VECTORS)}, which take nothing else",
        )
        _require(
            1 <= self.report_size <= LIMITS.report_bytes,
            f"report_size is 1 to {LIMITS.report_bytes} bytes",
        )

    def _check_pairwise(self) -> None:
        plan, domain = self.pairwise, self.domain
        if plan is None or not isinstance(domain, Vector):
            raise ShoalError(
                Kind.INVALID,
                "the aggregator pairwise wants a vector domain and the settings of its rounds",
            )
        _require(
            self.admission is Admission.ENROLLED,
            "the aggregator pairwise wants admission enrolled: strangers could be all of a "
            "device's neighbours",
        )
        _require(
            self.report_size == plan.vector_bytes(domain.dimension) and self.messages == 1,
            f"a masked vector of this task is {plan.vector_bytes(domain.dimension)} bytes long, "
            "and there is one per report",
        )
        _require(
            self.report_size <= LIMITS.vector_bytes,
            f"a masked vector is at most {LIMITS.vector_bytes} bytes long: use fewer coordinates",
        )
        _require(
            plan.segmented or domain.dimension <= LIMITS.whole_words,
            f"a vector of more than {LIMITS.whole_words} coordinates is sealed in segments"
            + _in_segments(plan.mode, "send fewer coordinates"),
        )
        _require(
            not (plan.segmented and domain.names),
            "the totals of a vector in segments are one array, without names: leave names out, or "
            "name its arrays in layout",
        )
        _require(
            self.max_batch == 0,
            "max_batch must be 0 with the aggregator pairwise: rounds are as large as cohort_max",
        )
        _require(
            self.min_batch >= plan.survivors_min,
            "min_batch is at least survivors_min: a release holds one round or more",
        )
        _require(
            plan.seconds <= self.windows.length_s + self.windows.grace_s,
            f"a round may take {plan.seconds} seconds, more than a window with its grace: no round "
            "could end in time",
        )

    @property
    def honest_fraction(self) -> Fraction:
        """Devices assumed to randomize as they should, in every closing batch: in (0, 1],
        exactly.
        """
        return Fraction(self.honest_fraction_ppm, PPM)

    @property
    def n_certified(self) -> int:
        """floor(honest_fraction * min_batch): the n of the guaranteed epsilon, fixed before
        collection.
        """
        return honest(self.min_batch, self.honest_fraction_ppm)


def windows_of_a_device(domain: Domain, count: int) -> int:
    """Of ``count`` windows those in which one device answers, at most."""
    return 1 if isinstance(domain, Discovery) and domain.fresh else count


def honest(n: int, honest_fraction_ppm: int) -> int:
    """floor(honest fraction * n), in integers."""
    return n * honest_fraction_ppm // PPM


def split_address(address: str) -> tuple[str, int] | None:
    """("host", port) of HOST:PORT or [IPV6]:PORT, or None. Nothing else: no scheme, no path, no
    socket file.
    """
    host, _, port = address.rpartition(":")
    if (
        _HOST.fullmatch(host) is None
        or re.fullmatch(r"[0-9]{1,5}", port) is None
        or int(port) > 65_535
    ):
        return None
    return host, int(port)


@dataclass(frozen=True, slots=True)
class WindowKeys:
    """Public key configurations (crypto.suites) of one window."""

    window: int
    analyzer_key: bytes
    hop_key: bytes


@dataclass(frozen=True, slots=True)
class KeySchedule:
    """One analyzer key and one hop key per window, for every window of the task, in order."""

    task_id: bytes
    windows: tuple[WindowKeys, ...]
    # of the role over its keys (crypto.schedules), without which nobody believes them
    analyzer_signature: bytes = b""
    hop_signature: bytes = b""

    def __post_init__(self) -> None:
        _require(len(self.task_id) == 32, "a key schedule names its task by a 32-byte id")
        _require(
            0 < len(self.windows) <= LIMITS.windows,
            f"a key schedule has 1 to {LIMITS.windows} windows",
        )
        _require(
            [w.window for w in self.windows] == list(range(len(self.windows))),
            "a key schedule lists every window once, in order",
        )
        shared = {w.analyzer_key for w in self.windows} & {w.hop_key for w in self.windows}
        _require(
            not shared,
            "a key schedule gives one key to shuffler and analyzer: the shuffler could open "
            "reports, make the keys apart",
        )
