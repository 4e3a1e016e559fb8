"""How a task's rounds of secure aggregation run: sizes, shares of lost and corrupt devices,
deadlines. Public, signed with the task.

What follows from these (neighbours, threshold, word width, noise) is computed, in
``shoal.crypto.secagg`` and ``shoal.accounting``, and never typed by hand.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import IntEnum, unique
from fractions import Fraction

from shoal.errors import Kind, ShoalError
from shoal.limits import LIMITS

PPM = 1_000_000
WORD_BITS = (16, 32, 64)
# Words behind the vector in which every device adds known constants: 64 bits or more, so that a
# wrong sum passes with 2^-64.
CHECK_WORDS = {16: 4, 32: 2, 64: 2}


@unique
class Mode(IntEnum):
    """What a round stands against. The numbers cross the wire. docs/SECAGG.md says what each
    protects.
    """

    # private against the analyzer alone, and against the shuffler alone, each with the corrupt
    # share of devices
    DEFAULT = 1
    # private even if shuffler and analyzer work together, with the corrupt share of devices
    STRICT = 2
    HELPER = 3  # one message, no neighbours: private unless shuffler and analyzer work together


@dataclass(frozen=True, slots=True)
class PairwisePlan:
    """Of every round of a task. Raises INVALID for anything that cannot hold.

    ``cohort_min``..``cohort_max``: devices that begin a round. ``survivors_min`` (U_min): masked
    vectors that must arrive, else the round aborts; the noise is made for the honest among them.
    ``dropout_ppm``: share of a round that may be lost at any stage, in millionths (the corrupt
    share is 1 - the task's honest fraction). ``word_bits``: of one masked coordinate. ``join_s``,
    ``share_s``, ``mask_s``, ``unmask_s``: seconds that each phase waits for devices; ``share_s``
    twice, for sharing and for the check of what was shared. ``segment_words``: coordinates of a
    segment, in which long vectors are sealed and opened; their sum is released as one array. 0:
    sealed in one piece, and released as one estimate per coordinate.
    """

    mode: Mode
    cohort_min: int
    cohort_max: int
    survivors_min: int
    dropout_ppm: int
    word_bits: int
    join_s: int = 60
    share_s: int = 60
    mask_s: int = 120
    unmask_s: int = 60
    segment_words: int = 0

    def __post_init__(self) -> None:
        most = LIMITS.helper_cohort if self.mode is Mode.HELPER else LIMITS.cohort
        _require(
            self.cohort_max <= most,
            f"cohort_max is at most {most} devices, got {self.cohort_max}: a window has as many "
            "rounds as its devices need"
            if self.mode is not Mode.HELPER
            else f"cohort_max is at most {most} devices in helper mode, got {self.cohort_max}",
        )
        _require(
            self.survivors_min >= 2,
            f"a sum of fewer than 2 devices hides nobody: survivors_min is {self.survivors_min}, "
            "and at least 2; raise cohort_min, or lower dropout",
        )
        _require(
            self.survivors_min <= self.cohort_min,
            f"no more devices can survive a round (survivors_min, {self.survivors_min}) than begin "
            f"the smallest one (cohort_min, {self.cohort_min}): raise cohort_min",
        )
        _require(
            self.cohort_min <= self.cohort_max,
            f"the smallest round (cohort_min, {self.cohort_min} devices) is larger than the "
            f"largest (cohort_max, {self.cohort_max}): lower cohort_min, or raise cohort_max",
        )
        _require(0 <= self.dropout_ppm < PPM, "dropout is at least 0 and below 1")
        _require(self.word_bits in WORD_BITS, "word_bits is 16, 32 or 64")
        for name in ("join_s", "share_s", "mask_s", "unmask_s"):
            _require(
                1 <= getattr(self, name) <= LIMITS.phase_s,
                f"{name} is 1 to {LIMITS.phase_s} seconds",
            )
        _require(
            0 <= self.segment_words <= LIMITS.segment_words,
            f"segment_words is 1 to {LIMITS.segment_words}, or 0 for one piece",
        )
        _require(
            not self.segment_words or self.mode is not Mode.HELPER,
            "in helper mode a vector is sent in one piece: leave segment_words out, or take mode "
            "default or strict",
        )

    @property
    def dropout(self) -> Fraction:
        """The share of devices that may be lost in a round, in [0, 1), exactly."""
        return Fraction(self.dropout_ppm, PPM)

    def honest_share(self, honest_fraction_ppm: int) -> Fraction:
        """Share of the survivors of every round that is honest, whoever is lost: 1 - gamma / (1 -
        dropout); may be 0 or less.

        gamma = 1 - honest fraction is of those who begin. Corrupt devices stay while honest ones
        are lost, and the analyzer chooses when it calls rows unusable. Of n at least (1 - dropout)
        n survive, so gamma n <= gamma survivors / (1 - dropout).
        """
        return 1 - Fraction(PPM - honest_fraction_ppm, PPM) / (1 - self.dropout)

    def honest_survivors(self, honest_fraction_ppm: int) -> int:
        """Honest survivors that every round has, whoever is lost: floor(honest share *
        survivors_min), 0 if that is below.
        """
        return max(0, math.floor(self.survivors_min * self.honest_share(honest_fraction_ppm)))

    @property
    def segmented(self) -> bool:
        """Whether vectors are sealed in segments, and their sum is released as one array."""
        return self.segment_words > 0

    def segments(self, dimension: int) -> tuple[int, ...]:
        """Words of each segment of a masked vector, in order: check words are in the last one."""
        if not self.segmented:
            return (dimension + self.check_words,)
        whole, rest = divmod(dimension, self.segment_words)
        sizes = [self.segment_words] * whole + ([rest] if rest else [])
        sizes[-1] += self.check_words
        return tuple(sizes)

    @property
    def seconds(self) -> int:
        """The longest that a round takes."""
        return self.join_s + 2 * self.share_s + self.mask_s + self.unmask_s

    @property
    def check_words(self) -> int:
        """How many words after the vector show that the sum is right."""
        return CHECK_WORDS[self.word_bits]

    def vector_bytes(self, dimension: int) -> int:
        """Bytes of a masked vector with its check words."""
        return (dimension + self.check_words) * self.word_bits // 8


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise ShoalError(Kind.INVALID, f"pairwise: {message}")
