"""What ``shoal epsilon`` can account for: mechanism names, the options that each takes, and the laws behind them.

A ``Subject`` is a mechanism with all its options but the three numbers that may be solved for (epsilon0, n, delta).
Laws of rr, krr and kmean are those of the mechanisms' own integers; sue, oue, hash, subset and hadamard are those of
``accounting.families``, at exactly the ratio asked for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from shoal.accounting.accountant import certify
from shoal.accounting.approximate import approximate_bound, approximate_lower, local_epsilon
from shoal.accounting.certificate import Certificate, check_delta, check_honest, check_n
from shoal.accounting.dummies import UniformDummies
from shoal.accounting.families import hadamard_bit, local_hash, oue, ratio_below, subset, sue
from shoal.accounting.messages import MessagesBound, certify_messages
from shoal.approximate import GaussianLaw
from shoal.errors import Kind, ShoalError
from shoal.mechanisms import binary_rr, krr
from shoal.privacy import KaryLaw, LocalPrivacy, PureLaw

# exp() of more does not fit a float; long before, a report is as good as the truth.
LARGEST_EPSILON0 = 700.0
_LARGEST_K = 1 << 32
# Subsets are counted in exact integers, which grow with k.
_LARGEST_SUBSET_K = 4096
_GAUSSIAN = (
    "the shuffler and the analyzer do not collude: against both together one report's own epsilon0 is left, at this delta",
    "neighbouring datasets differ in one device's answer; the number of reports is public and does not depend on any answer",
    "one report per device in the batch, drawn with fresh randomness; every honest device runs the same randomizer",
    "the noise is Gaussian over the real numbers: a sampler on floats or integers has another law",
)

Bound = Certificate | MessagesBound
Options = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Pure:
    """A mechanism with a local epsilon. ``family``: its law at an epsilon0, never above it but for some units in the last place.

    ``assumed``: epsilon0 holds by assumption (nothing else is known of the randomizer), so it replaces the law's own, which lies those
    units above.
    """

    title: str
    family: Callable[[float], LocalPrivacy]
    assumed: bool = False

    def certify(self, epsilon0: float | None, n: int, delta: float, share: Fraction) -> Certificate:
        if epsilon0 is None:
            raise ShoalError(Kind.INVALID, "this mechanism is certified at an epsilon0")
        found = certify(self.family(epsilon0), n, delta, honest_fraction=share)
        if not self.assumed:
            return found
        upper, lower = min(found.epsilon_upper, epsilon0), min(found.epsilon_lower, epsilon0)
        return replace(found, epsilon0=epsilon0, epsilon_upper=upper, epsilon_lower=lower)


@dataclass(frozen=True, slots=True)
class Gaussian:
    """Each report is the value plus Gaussian noise: no finite epsilon0, but one at each delta."""

    law: GaussianLaw

    @property
    def title(self) -> str:
        return f"Gaussian noise, sigma = {self.law.sigma:g}, sensitivity = {self.law.sensitivity:g}"

    def certify(self, _: float | None, n: int, delta: float, share: Fraction) -> Certificate:
        check_n(n)
        check_delta(delta)
        n_honest = max(1, n * share.numerator // share.denominator)
        upper, method = approximate_bound(self.law, n_honest, delta)
        local = local_epsilon(self.law, delta)
        return Certificate(
            epsilon_upper=min(upper, local),
            epsilon_lower=min(approximate_lower(self.law, n_honest, delta), upper, local),
            epsilon0=local,
            delta=delta,
            n=n,
            honest_fraction=share,
            method=method,
            assumptions=(*_GAUSSIAN, f"at least {n_honest} of the {n} reports come from devices that follow the protocol"),
        )


@dataclass(frozen=True, slots=True)
class Dummies:
    """The true value in the clear, among uniform dummies: no local guarantee at all. ``per_device`` None: to be solved for."""

    buckets: int
    per_device: int | None

    @property
    def title(self) -> str:
        return f"true value and {self.per_device} uniform dummies per device, {self.buckets} buckets"

    def certify(self, _: float | None, n: int, delta: float, share: Fraction) -> MessagesBound:
        protocol = UniformDummies(self.buckets, self.per_device or 0)
        found = certify_messages(protocol, n, delta, honest_fraction=share)
        if found is None:
            reason = (
                f"--per-device {protocol.per_device} dummies prove no epsilon up to 40 here: give more (--solve per-device finds how many)"
            )
            raise ShoalError(Kind.CONFIG, reason)
        return found


Subject = Pure | Gaussian | Dummies

# Mechanism -> the options that it needs, besides --epsilon0 (or --sigma and the like), --n and --delta.
_NEEDS: Mapping[str, tuple[str, ...]] = {
    "any": (),
    "rr": (),
    "krr": ("k",),
    "kmean": ("k",),
    "sue": (),
    "oue": (),
    "hash": ("g",),
    "subset": ("k", "subset_size"),
    "hadamard": (),
    "gaussian": ("sigma", "sensitivity"),
    "dummies": ("buckets", "per_device"),
}
_MEANING = {
    "k": "the number of values: a whole number from 2 to 2^32",
    "g": "the number of hash values: a whole number from 2 to 2^32",
    "subset_size": "the values in a report: a whole number from 1 to k - 1",
    "sigma": "the standard deviation of the noise: a finite number above 0",
    "sensitivity": "how far two values can lie apart: a finite number above 0",
    "buckets": "the number of values: a whole number of at least 2",
    "per_device": "the dummies that each device adds: a whole number of at least 0",
}
NAMES = tuple(_NEEDS)
WITHOUT_EPSILON0 = frozenset({"gaussian", "dummies"})


def subject_of(name: str, options: Options, *, solved: str | None = None) -> Subject:
    """The mechanism with its options (None: not given). ``solved``: an option that need not be given.

    Raises ShoalError CONFIG naming the option that is missing, not taken, or out of range.
    """
    if name not in _NEEDS:
        raise ShoalError(Kind.CONFIG, f"--mechanism must be one of {', '.join(NAMES)}, got {name!r}")
    for option, value in options.items():
        flag = "--" + option.replace("_", "-")
        if option in _NEEDS[name]:
            if value is None and option != solved:
                raise ShoalError(Kind.CONFIG, f"--mechanism {name} wants {flag}, {_MEANING[option]}")
        elif value is not None and not (option == "k" and value == 2 and name == "rr"):
            raise ShoalError(Kind.CONFIG, f"--mechanism {name} takes no {flag}: leave it out, or use {_taker(option)}")
    if name == "gaussian":
        return Gaussian(GaussianLaw(options["sigma"], options["sensitivity"]))
    if name == "dummies":
        buckets, per_device = options["buckets"], options["per_device"]
        UniformDummies(buckets, per_device or 0)  # checks both
        return Dummies(buckets, per_device)
    return _pure(name, options)


def _taker(option: str) -> str:
    return " or ".join(name for name, needs in _NEEDS.items() if option in needs)


def _pure(name: str, options: Options) -> Pure:
    if name == "any":
        # A ratio certainly not below e^epsilon0.
        return Pure(
            "any epsilon0-LDP randomizer", lambda epsilon0: PureLaw(Fraction(math.exp(epsilon0)) * (1 + Fraction(1, 1 << 50))), True
        )
    if name == "rr":
        return Pure("binary randomized response", _binary)
    if name == "hash":
        g = _within(name, "g", options["g"], _LARGEST_K)
        return Pure(f"local hashing, g = {g}", lambda epsilon0: local_hash(g, ratio_below(epsilon0)))
    if name == "subset":
        k = _within(name, "k", options["k"], _LARGEST_SUBSET_K)
        d = options["subset_size"]
        if not 1 <= d < k:
            raise ShoalError(Kind.CONFIG, f"--mechanism subset wants --subset-size, {_MEANING['subset_size']}; got {d} with k = {k}")
        return Pure(f"subsets of {d} of {k} values", lambda epsilon0: subset(k, d, ratio_below(epsilon0)))
    if name in _BITS:
        title, law = _BITS[name]
        return Pure(title, lambda epsilon0: law(ratio_below(epsilon0)))
    k = _within(name, "k", options["k"], _LARGEST_K)
    what = "k-ary randomized response" if name == "krr" else "randomized response over levels"
    return Pure(f"{what}, k = {k}", lambda epsilon0: krr.law(k, krr.least_uniform(k, epsilon0)))


# Unary and one-bit encodings: nothing depends on the number of values, if there are three or more.
_BITS: Mapping[str, tuple[str, Callable[[Fraction], LocalPrivacy]]] = {
    "sue": ("symmetric unary encoding", sue),
    "oue": ("optimized unary encoding", oue),
    "hadamard": ("one bit of the Hadamard transform", hadamard_bit),
}


def _within(name: str, option: str, value: int, most: int) -> int:
    if not 2 <= value <= most:
        raise ShoalError(Kind.CONFIG, f"--mechanism {name} wants --{option}, a whole number from 2 to {most}, got {value}")
    return value


def _binary(epsilon0: float) -> KaryLaw:
    spec = binary_rr.symmetric(epsilon0)
    return KaryLaw(2, same=spec.get("yes_if_yes"), other=spec.get("yes_if_no"))


def check_epsilon0(epsilon0: float) -> float:
    if not (math.isfinite(epsilon0) and 0.0 < epsilon0 <= LARGEST_EPSILON0):
        raise ShoalError(Kind.CONFIG, f"--epsilon0 must be a number above 0, and at most {LARGEST_EPSILON0:g}, got {epsilon0:g}")
    return epsilon0


def fraction(text: str) -> Fraction:
    """Exactly the decimal or fraction that was typed: 0.9 is nine tenths, not the nearest float."""
    try:
        value = Fraction(text)
    except (ValueError, ZeroDivisionError):
        raise ShoalError(Kind.CONFIG, "--honest-fraction must be a number above 0 and at most 1, such as 0.9 or 9/10") from None
    return check_honest(value)


def to_json(bound: Bound) -> dict[str, Any]:
    """The certificate's stable keys; for dummies the same keys, epsilon0 being null (there is none), and the messages per device."""
    if isinstance(bound, Certificate):
        return dict(bound.to_json())
    return {
        "epsilon_upper": bound.epsilon_upper,
        "epsilon_lower": bound.epsilon_lower,
        "epsilon0": None,
        "delta": bound.delta,
        "n": bound.n,
        "honest_fraction": float(bound.honest_fraction),
        "relation": bound.relation,
        "method": bound.method,
        "assumptions": list(bound.assumptions),
        "messages_per_device": float(bound.messages_per_device),
    }
