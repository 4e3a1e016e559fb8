"""What a batch promises each of its people: the certificate, its sentences, and how it shows
itself.
"""

from __future__ import annotations

import html
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from shoal.accounting.accountant import certify
from shoal.accounting.guarantee import Guarantee
from shoal.accounting.meaning import bound_text, sentences
from shoal.limits import LIMITS
from shoal.privacy import LocalPrivacy
from shoal.study.arguments import delta_of, share, whole

HONEST_FRACTION = 0.9
"""The share of devices that is assumed to follow the protocol where nobody says another one: that
of the sample of ``shoal task new``.
"""
DELTA = 1e-8
"""That of the sample too."""


@dataclass(frozen=True, slots=True, repr=False)
class Promise:
    """A certificate in words. ``certificate`` has all of its figures, each on the safe side."""

    certificate: Guarantee

    @property
    def epsilon(self) -> float:
        """The central epsilon that is proven to hold, rounded up: what shuffling bought."""
        return self.certificate.epsilon_upper

    @property
    def epsilon_lower(self) -> float:
        """No better proof can bring epsilon below this."""
        return self.certificate.epsilon_lower

    @property
    def epsilon0(self) -> float:
        """The local epsilon of one report: what remains if shuffler and analyzer work together."""
        return self.certificate.epsilon0

    @property
    def delta(self) -> float:
        """The probability that is allowed to fail epsilon."""
        return self.certificate.delta

    @property
    def sentences(self) -> list[str]:
        """What it means for a person, in plain words and odds."""
        return sentences(self.certificate)

    def to_json(self) -> dict[str, Any]:
        """As ``shoal epsilon --json`` prints it."""
        return self.certificate.to_json()

    @property
    def headline(self) -> str:
        """Both ends in a line."""
        c = self.certificate
        return (
            f"epsilon <= {bound_text(c.epsilon_upper)} at delta = {c.delta:g}, for {c.n:,} reports "
            f"of which {c.n_honest:,} are honest (at least {bound_text(c.epsilon_lower, up=False)};"
            f" one report alone: {bound_text(c.epsilon0)})"
        )

    def __repr__(self) -> str:
        return "\n".join([self.headline, *(f"- {line}" for line in self.sentences)])

    def _repr_html_(self) -> str:
        items = "".join(f"<li>{html.escape(line)}</li>" for line in self.sentences)
        return f"<p><b>{html.escape(self.headline)}</b></p><ul>{items}</ul>"


def promise_of(law: LocalPrivacy, n: object, delta: object, honest_fraction: object) -> Promise:
    """The promise of one batch of ``n`` reports. Errors name the argument."""
    return Promise(
        certify(
            law,
            whole("n", n, 1, LIMITS.batch_rows),
            delta_of(delta),
            honest_fraction=honest(honest_fraction),
        )
    )


def honest(honest_fraction: object) -> Fraction:
    """The share exactly as it was written: nine tenths for 0.9, as ``shoal epsilon`` reads it."""
    return share("honest_fraction", honest_fraction)
