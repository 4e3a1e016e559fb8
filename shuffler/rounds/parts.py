"""What every round of this shuffler works with."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from shoal.clocks.clock import SureClock
from shoal.crypto.signing import SigningKey
from shoal.entropy import Entropy
from shoal.shuffler.rounds.collection import Collection


@dataclass(frozen=True, slots=True)
class RoundParts:
    """``collection``: the analyzer, as rounds know it. ``folder``: where uploads wait, in files
    without names. ``tick_s``: seconds between two looks at the clock.
    """

    collection: Collection
    signing_key: SigningKey
    folder: Path
    clock: SureClock
    entropy: Entropy
    tick_s: float
