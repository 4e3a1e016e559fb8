"""What ``shoal epsilon`` can account for: mechanism names, the options that each takes, and the
laws behind them.

Laws are those of the registered mechanisms' own integers, so that what is accounted for is what the
code draws. Only where no mechanism has such parameters (a hash to a g that is no power of two) is
the law that of ``mechanisms.parts.laws``, at the ratio asked for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

from shoal.accounting.certificate import check_honest
from shoal.accounting.metric import MetricGuarantee, OnAMap, metric_guarantee
from shoal.accounting.several_messages.dummies import BernoulliDummies, UniformDummies
from shoal.approximate import GaussianLaw
from shoal.cli.epsilon import several
from shoal.cli.epsilon.mechanism_domain import domain_of
from shoal.cli.epsilon.subjects import Bound, Dummies, Gaussian, Pure, Subject
from shoal.domain import Norm, Vector
from shoal.errors import Kind, ShoalError
from shoal.mechanisms import REGISTRY, create, design
from shoal.mechanisms.categories import binary_rr, hadamard, krr, local_hash, subset, unary
from shoal.mechanisms.longitudinal.protocol import Longitudinal
from shoal.mechanisms.maps.planar import NAME as PLANAR
from shoal.mechanisms.numbers import gaussian
from shoal.mechanisms.parts import laws
from shoal.mechanisms.parts.thresholds import WORDS
from shoal.mechanisms.several.names import NAMES as SEVERAL_NAMES
from shoal.mechanisms.vectors.registry import NAMES as VECTOR_NAMES
from shoal.mechanisms.vectors.registry import create as create_of_vectors
from shoal.mechanisms.vectors.registry import design as design_of_vectors
from shoal.mechanisms.vectors.registry import settings as settings_of_vectors
from shoal.privacy import KaryLaw, LocalPrivacy, PureLaw, epsilon0_upper

# exp() of more does not fit a float; long before, a report is as good as the truth.
LARGEST_EPSILON0 = 700.0
_LARGEST_K = 1 << 32
# Subsets are counted in exact integers, which grow with k.
_LARGEST_SUBSET_K = 4096
_LARGEST_G = 1 << 16  # of the registered mechanism
Options = Mapping[str, Any]
Distances = MetricGuarantee | None


# Mechanism -> the options that it needs, besides --epsilon0 (or --sigma and the like), --n and
# --delta.
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
    "bucket-dummies": ("buckets", "probability"),
}
_MEANING = {
    "k": "the number of values: a whole number from 2 to 2^32",
    "g": "the number of hash values: a whole number from 2 to 2^32",
    "subset_size": "the values in a report: a whole number from 1 to k - 1",
    "setting": "a way to choose its integers",
    "sigma": "the standard deviation of the noise: a finite number above 0",
    "sensitivity": "how far two values can lie apart: a finite number above 0",
    "buckets": "the number of values: a whole number of at least 2 (of tasks: --k)",
    "probability": "that of a dummy, for each bucket and device: a number between 0 and 1",
    "per_device": "the dummies that each device adds: a whole number of at least 0",
}
_FLAGS = {"if_colluding": "--epsilon0-if-colluding"}  # where it is not the option's own name
# Any other registered mechanism goes by its own name, with its cells and one of its settings;
# gaussian is already noise of another kind.
_LOCAL_GAUSSIAN = "local_gaussian"
REGISTERED = {
    name: ("k", "setting")
    for name in (*REGISTRY, _LOCAL_GAUSSIAN)
    if name not in {*_NEEDS, "binary_rr"}
}
_SEVERAL = dict.fromkeys(SEVERAL_NAMES, several.OPTIONS)
# Of vectors: nothing depends on their length, but how many candidates a device can look at.
_OF_VECTORS = dict.fromkeys(VECTOR_NAMES, ("setting",))
_ALL = {**_SEVERAL, **_NEEDS, **REGISTERED, **_OF_VECTORS}
NAMES = tuple(dict.fromkeys((*_NEEDS, *REGISTERED, *VECTOR_NAMES, *SEVERAL_NAMES)))
WITHOUT_EPSILON0 = frozenset({"gaussian", "dummies", "bucket-dummies", *SEVERAL_NAMES})


def subject_of(name: str, options: Options, *, solved: str | None = None) -> Subject:
    """The mechanism with its options (None: not given). ``solved``: an option that need not be
    given.

    Raises ShoalError CONFIG naming the option that is missing, not taken, or out of range.
    """
    if name == "binary_rr":
        raise ShoalError(Kind.CONFIG, "--mechanism binary_rr goes by the name rr here: give that")
    if name == "gaussian" and (options["k"] is not None or options["setting"] is not None):
        raise ShoalError(
            Kind.CONFIG,
            "--mechanism gaussian is noise on a number, with --sigma and --sensitivity: for the "
            "mechanism of tasks give local_gaussian",
        )
    if name not in _ALL:
        raise ShoalError(
            Kind.CONFIG, f"--mechanism must be one of {', '.join(NAMES)}, got {name!r}"
        )
    mixture = several.is_mixture(name, options)
    takes = several.OPTIONS if mixture else _ALL[name]
    for option, value in options.items():
        flag = _FLAGS.get(option, "--" + option.replace("_", "-"))
        if option in takes:
            if value is None and not mixture and option not in (solved, "setting"):
                raise ShoalError(
                    Kind.CONFIG, f"--mechanism {name} wants {flag}, {_MEANING[option]}"
                )
        elif value is not None and not (option == "k" and value == 2 and name == "rr"):
            other = _taker(option) if option not in _NEEDS.get(name, ()) else f"{name} without --k"
            raise ShoalError(
                Kind.CONFIG, f"--mechanism {name} takes no {flag}: leave it out, or use {other}"
            )
    if mixture:
        return several.mixture_of(name, options)
    if name == "gaussian":
        return Gaussian(GaussianLaw(options["sigma"], options["sensitivity"]))
    if name == "dummies":
        return Dummies(
            UniformDummies(options["buckets"], options["per_device"] or 0),
            options["per_device"] is not None,
        )
    if name == "bucket-dummies":
        chance = options["probability"]
        return Dummies(
            BernoulliDummies(
                options["buckets"], Fraction(1, 2) if chance is None else _exact(chance)
            ),
            chance is not None,
        )
    return _pure(name, options)


def _taker(option: str) -> str:
    takers = [name for name, needs in _ALL.items() if option in needs]
    return " or ".join(takers if option not in several.OPTIONS[1:] else _SEVERAL)


def _pure(name: str, options: Options) -> Pure:
    if name == "any":
        # A ratio certainly not below e^epsilon0.
        return Pure(
            "any epsilon0-LDP randomizer",
            lambda epsilon0: PureLaw(Fraction(math.exp(epsilon0)) * (1 + Fraction(1, 1 << 50))),
            True,
        )
    if name == "rr":
        return Pure("binary randomized response", _binary)
    if name == "hash":
        g = _within(name, "g", options["g"], _LARGEST_K)
        return Pure(f"local hashing, g = {g}", lambda epsilon0: _hash(g, epsilon0))
    if name == "subset":
        k = _within(name, "k", options["k"], _LARGEST_SUBSET_K)
        d = options["subset_size"]
        if not 1 <= d < k:
            raise ShoalError(
                Kind.CONFIG,
                f"--mechanism subset wants --subset-size, {_MEANING['subset_size']}; got {d} with "
                f"k = {k}",
            )
        return Pure(
            f"subsets of {d} of {k} values",
            lambda epsilon0: laws.subset(
                k, d, subset.ratio(k, d, subset.most_include(k, d, epsilon0))
            ),
        )
    if name in _BITS:
        return Pure(*_BITS[name])
    if name in REGISTERED:
        return _registered(name, options["k"], options["setting"] or "")
    if name in _OF_VECTORS:
        return _of_vectors(name, options["setting"] or "")
    k = _within(name, "k", options["k"], _LARGEST_K)
    what = "k-ary randomized response" if name == "krr" else "randomized response over levels"
    return Pure(f"{what}, k = {k}", lambda epsilon0: krr.law(k, krr.least_uniform(k, epsilon0)))


def _registered(name: str, k: int, setting: str) -> Pure:
    """A mechanism of the registry: the law that ``privacy`` states of its own integers."""
    name = _registered_name(name)
    domain = domain_of(name, k)
    known = [known_setting.name for known_setting in REGISTRY[name].settings(domain)]
    if setting and setting not in known:
        raise ShoalError(
            Kind.CONFIG, f"--setting of {name} must be one of {', '.join(known)}, got {setting!r}"
        )

    def law(epsilon0: float) -> LocalPrivacy:
        return create(design(name, domain, epsilon0, setting), domain).privacy()

    return Pure(f"{name} {setting or known[0]}, k = {k}", law)


def _of_vectors(name: str, setting: str) -> Pure:
    domain = Vector(1, Norm.L2, 1.0, 1 << 20)
    known = [each.name for each in settings_of_vectors(name, domain)]
    if setting and setting not in known:
        raise ShoalError(
            Kind.CONFIG, f"--setting of {name} must be one of {', '.join(known)}, got {setting!r}"
        )

    def law(epsilon0: float) -> LocalPrivacy:
        spec = design_of_vectors(name, domain, epsilon0, setting)
        return create_of_vectors(spec, domain).privacy()

    return Pure(f"{name} {setting or known[0]}", law)


def _registered_name(name: str) -> str:
    return gaussian.NAME if name == _LOCAL_GAUSSIAN else name


def lifetime_of(name: str, options: Options, epsilon0: float | None) -> float | None:
    """Of a registered mechanism with a memory, designed for ``epsilon0``: the epsilon of what a
    device keeps of an unchanged value over all windows, in memoized tasks. None of all others.
    Direction: upper bound.
    """
    if name not in REGISTERED or epsilon0 is None:
        return None
    name = _registered_name(name)
    domain = domain_of(name, options["k"])
    mechanism = create(design(name, domain, epsilon0, options["setting"] or ""), domain)
    return epsilon0_upper(mechanism.permanent()) if isinstance(mechanism, Longitudinal) else None


def by_distance(name: str, options: Options, epsilon0: float | None, bound: Bound) -> Distances:
    """What a mechanism on a map, of cells of a kilometre, promises by distance beside ``bound``.
    None of all others.
    """
    if name != PLANAR or epsilon0 is None:
        return None
    domain = domain_of(name, options["k"])
    mechanism = create(design(name, domain, epsilon0, options["setting"] or ""), domain)
    if not isinstance(mechanism, OnAMap):
        return None
    return metric_guarantee(mechanism, bound.n_honest, bound.delta, bound.epsilon_upper)


def _sue(epsilon0: float) -> LocalPrivacy:
    zero = unary.least_symmetric(epsilon0)
    return unary.law(_K, WORDS - zero, zero)


def _oue(epsilon0: float) -> LocalPrivacy:
    return unary.law(_K, WORDS // 2, unary.least_one_if_zero(WORDS // 2, epsilon0))


def _hadamard(epsilon0: float) -> LocalPrivacy:
    return laws.hadamard_bit(hadamard.ratio(hadamard.least_flip(epsilon0)), _K)


def _hash(g: int, epsilon0: float) -> LocalPrivacy:
    if g <= _LARGEST_G and g & (g - 1) == 0:
        return local_hash.law(_K, g, krr.least_uniform(g, epsilon0))
    return laws.local_hash(g, laws.ratio_below(epsilon0))


# Unary and one-bit encodings: nothing depends on the number of values, if there are three or more.
_K = 3
_BITS: Mapping[str, tuple[str, Callable[[float], LocalPrivacy]]] = {
    "sue": ("symmetric unary encoding", _sue),
    "oue": ("optimized unary encoding", _oue),
    "hadamard": ("one bit of the Hadamard transform", _hadamard),
}


def _within(name: str, option: str, value: int, most: int) -> int:
    if not 2 <= value <= most:
        raise ShoalError(
            Kind.CONFIG,
            f"--mechanism {name} wants --{option}, a whole number from 2 to {most}, got {value}",
        )
    return value


def _binary(epsilon0: float) -> KaryLaw:
    spec = binary_rr.symmetric(epsilon0)
    return KaryLaw(2, same=spec.get("yes_if_yes"), other=spec.get("yes_if_no"))


def check_epsilon0(epsilon0: float) -> float:
    """The same number. Raises CONFIG unless it is above 0 and at most LARGEST_EPSILON0."""
    if not (math.isfinite(epsilon0) and 0.0 < epsilon0 <= LARGEST_EPSILON0):
        raise ShoalError(
            Kind.CONFIG,
            f"--epsilon0 must be a number above 0, and at most {LARGEST_EPSILON0:g}, got "
            f"{epsilon0:g}",
        )
    return epsilon0


def fraction(text: str) -> Fraction:
    """Exactly the decimal or fraction that was typed: 0.9 is nine tenths, not the nearest float."""
    try:
        value = Fraction(text)
    except (ValueError, ZeroDivisionError):
        raise ShoalError(
            Kind.CONFIG,
            "--honest-fraction must be a number above 0 and at most 1, such as 0.9 or 9/10",
        ) from None
    return check_honest(value)


def _exact(text: str) -> Fraction:
    try:
        return Fraction(text)
    except (ValueError, ZeroDivisionError):
        raise ShoalError(
            Kind.CONFIG, f"--probability is {_MEANING['probability']}, such as 0.01 or 1/100"
        ) from None
