"""Mechanisms of several messages in ``shoal epsilon``: designed for a target, or with the integers
of a task.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from shoal.accounting.certificate import count_honest
from shoal.accounting.composition.basic import compose_basic
from shoal.accounting.several_messages.messages import MessagesBound, certify_messages
from shoal.accounting.several_messages.of_domain import design_several
from shoal.accounting.several_messages.of_mechanism import protocol_of
from shoal.accounting.several_messages.of_windows import epsilon_of_each, epsilon_together
from shoal.cli.epsilon.mechanism_domain import domain_of_several
from shoal.domain import Domain
from shoal.errors import Kind, ShoalError
from shoal.mechanisms.several.names import DUMMIES, NAMES
from shoal.mechanisms.several.parameters import PARAMETERS
from shoal.mechanisms.several.protocol import Several
from shoal.mechanisms.several.registry import create
from shoal.task import MechanismSpec

OPTIONS = ("k", "parameters", "if_colluding")
"""What these mechanisms take, besides --n and --delta."""


@dataclass(frozen=True, slots=True)
class Mixture:
    """A mechanism of several messages. ``made``: None if its integers are to be designed.

    ``if_colluding``: the epsilon0 that is then kept by randomizing the true message.
    """

    name: str
    domain: Domain
    made: Several | None
    if_colluding: float | None

    @property
    def title(self) -> str:
        """The name with its cells, for people."""
        return f"{self.name}, {self.domain.size} cells"

    @property
    def known(self) -> Several:
        """With its integers. Raises INVALID before they are known."""
        if self.made is None:
            raise ShoalError(Kind.INVALID, "a mechanism is certified when its integers are known")
        return self.made

    def designed(
        self, n: int, delta: float, share: Fraction, target: float, rounds: int | None
    ) -> tuple[Mixture, dict[str, int]]:
        """The least noise for ``target`` in a batch of ``n`` devices, and its integers.
        ``rounds``: the target is of so many together; None: of one. Raises CONFIG where there is
        none.
        """
        n_honest, windows = max(1, count_honest(n, share)), rounds or 1

        def made(epsilon: float) -> Several:
            spec = design_several(
                self.name,
                self.domain,
                n_honest,
                epsilon,
                delta,
                windows=windows,
                most=n,
                epsilon0_if_colluding=self.if_colluding,
            )
            return create(spec, self.domain)

        epsilon = target
        if windows > 1:
            try:
                epsilon = epsilon_of_each(made, n_honest, target, delta, windows)
            except ShoalError as error:
                raise ShoalError(
                    Kind.CONFIG, f"{self.name}: {error.message}: give a larger --target"
                ) from None
        found = made(epsilon)
        return replace(self, made=found), dict(found.spec.parameters)

    def certify(self, _: float | None, n: int, delta: float, share: Fraction) -> MessagesBound:
        """The bound of a batch. Raises CONFIG where nothing is proven."""
        bound = certify_messages(protocol_of(self.known), n, delta, honest_fraction=share)
        if bound is not None:
            return bound
        honest, least = count_honest(n, share), self.known.least_devices
        raise ShoalError(
            Kind.CONFIG,
            f"its noise is split over {least} devices, and {honest} of {n} are sure to be honest: "
            "give a larger --n, or a --target to design it for"
            if honest < least
            else f"so little noise proves no epsilon up to 40 at delta {delta:g}: give a --target "
            "to design it for",
        )

    def composed(self, n: int, delta: float, share: Fraction, rounds: int) -> dict[str, float]:
        """Epsilon of all rounds at ``delta`` by the ways that apply. Direction: upper bounds.
        Raises CONFIG where no way proves anything.
        """
        found = {
            "pld": epsilon_together(self.known, count_honest(n, share), delta, rounds),
            "basic": self._basic(n, delta, share, rounds),
        }
        proven = {way: epsilon for way, epsilon in found.items() if math.isfinite(epsilon)}
        if not proven:
            raise ShoalError(
                Kind.CONFIG,
                f"no epsilon holds for {rounds} rounds together at delta {delta:g}: its noise is "
                "cut off for fewer; give --target to design it for all of them",
            )
        return proven

    def _basic(self, n: int, delta: float, share: Fraction, rounds: int) -> float:
        part = math.nextafter(delta / rounds, 0.0) if rounds > 1 else delta
        try:
            return compose_basic([self.certify(None, n, part, share)] * rounds).epsilon_upper
        except ShoalError:  # nothing is proven at so small a delta
            return math.inf


def is_mixture(name: str, options: Mapping[str, Any]) -> bool:
    """Whether a mechanism of several messages is meant. ``dummies`` with --buckets are those of
    the literature, so many of each device.
    """
    if name == DUMMIES:
        return options["k"] is not None or options["parameters"] is not None
    return name in NAMES


def mixture_of(name: str, options: Mapping[str, Any]) -> Mixture:
    """With its options (None: not given). Raises CONFIG naming the option that is wrong."""
    text, if_colluding = options["parameters"], options["if_colluding"]
    numbers = None if text is None else _integers(text)
    k = options["k"]
    if k is None and numbers is not None:
        k = numbers.get("k")
    domain = domain_of_several(name, k)
    if numbers is None:
        return Mixture(name, domain, None, if_colluding)
    if if_colluding is not None:
        raise ShoalError(
            Kind.CONFIG,
            "--epsilon0-if-colluding is for a design: leave it out where --parameters are given",
        )
    if any(parameter.name == "k" for parameter in PARAMETERS[name]):
        numbers.setdefault("k", domain.size)
    try:
        made = create(MechanismSpec.of(name, **numbers), domain)
    except ShoalError as error:
        raise ShoalError(Kind.CONFIG, f"--parameters: {error.message}") from None
    return Mixture(name, domain, made, None)


def _integers(text: str) -> dict[str, int]:
    pairs = [part.partition("=") for part in text.replace(",", " ").split()]
    try:
        found = {name: int(value) for name, _, value in pairs}
    except ValueError:
        found = {}
    if not found or len(found) < len(pairs):
        raise ShoalError(
            Kind.CONFIG,
            '--parameters are the integers of a task, each once, such as "shares=1000, slots=9": '
            f"got {text[:60]!r}",
        )
    return found


def typed(parameters: Mapping[str, int]) -> str:
    """As --parameters takes them."""
    return ",".join(f"{name}={value}" for name, value in parameters.items())
