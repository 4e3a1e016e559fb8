"""One mechanism of several messages for a request: what it errs by, and what it costs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from shoal.domain import Domain, Numeric
from shoal.task import SHUFFLER_NOISE, MechanismSpec


@dataclass(frozen=True, slots=True)
class SeveralOption:
    """A mechanism of several messages for a request.

    ``epsilon``: of each release, at the request's delta; an upper bound. ``designed``: the epsilon
    that the noise is designed for, which is the same but where an error is the target: there the
    certificate proves ``epsilon``, at most that. ``epsilon0``: of what a device sends;
    math.inf where a message is the value. ``error``: standard error of every count with the
    request's n devices, whatever they answer; with an epsilon0 that at the question's answers (root
    mean square, or at the worst ones). Of a mean or a sum, in its unit, at the worst value; of
    quantiles that which a plan goes by. ``range_error``: of ranges, in devices, root mean square
    over all of them; None where a release has none.
    ``mean_messages``, ``messages``: of a report, on average (of a batch of min_batch's honest
    devices) and at most. ``message_bytes``: of one; ``frame_bytes``: what a device sends.
    ``radio_seconds``, ``analyzer_seconds``, ``moved_by_one``: see ``costs``.
    """

    spec: MechanismSpec
    domain: Domain
    epsilon: float
    epsilon0: float
    error: float
    mean_messages: float
    messages: int
    message_bytes: int
    frame_bytes: int
    radio_seconds: float
    analyzer_seconds: float
    moved_by_one: float
    designed: float
    range_error: float | None = None

    @property
    def trusts_shuffler(self) -> bool:
        """Whether the shuffler adds the noise: nobody can tell whether it does."""
        return self.spec.name == SHUFFLER_NOISE

    @property
    def title(self) -> str:
        """The mechanism for people, with what was chosen of it."""
        drawn = ", randomized" if math.isfinite(self.epsilon0) else ""
        levels = f", {self.domain.levels:,} levels" if isinstance(self.domain, Numeric) else ""
        return f"{self.spec.name}{drawn}{levels}"

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values; an infinite epsilon0 is None, as JSON has no number for it, and so is
        what one device can move where that is anything.
        """
        return {
            "mechanism": self.spec.name,
            "parameters": dict(self.spec.parameters),
            "epsilon0": self.epsilon0 if math.isfinite(self.epsilon0) else None,
            "epsilon_upper": self.epsilon,
            "error": self.error,
            "mean_messages": self.mean_messages,
            "messages": self.messages,
            "message_bytes": self.message_bytes,
            "frame_bytes": self.frame_bytes,
            "radio_seconds": self.radio_seconds,
            "analyzer_seconds": self.analyzer_seconds,
            "trusts_shuffler": self.trusts_shuffler,
            **({} if self.range_error is None else {"range_error": self.range_error}),
            "moved_by_one": self.moved_by_one if math.isfinite(self.moved_by_one) else None,
            **({"levels": self.domain.levels} if isinstance(self.domain, Numeric) else {}),
        }
