"""What ``shoal audit`` attacks: views of a randomizer, and what is claimed of them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import partial

from rich.progress import (
    BarColumn,
    Progress,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from shoal.accounting.accountant import certify
from shoal.accounting.audit.attack import furthest_answers, views_of
from shoal.accounting.audit.audit import AuditResult, Views, audit
from shoal.accounting.audit.several import attacked_answers, several_views
from shoal.accounting.audit.vectors import vector_views
from shoal.cli.epsilon.several import Mixture
from shoal.cli.output import stderr
from shoal.domain import Domain
from shoal.entropy import Entropy
from shoal.mechanisms import create
from shoal.mechanisms.vectors.registry import create as create_of_vectors
from shoal.privacy import epsilon0_upper
from shoal.task import MechanismSpec

_MESSAGES = 50_000  # of several per device, at once: they are drawn one by one
_VECTORS = 1_000  # reports of vectors at once: each looks at all directions of its seed


@dataclass(frozen=True, slots=True)
class Attack:
    """Views of ``n`` devices, against (claimed, delta). ``at_once``: views of a step."""

    views: Views
    n: int
    delta: float
    claimed: float
    at_once: int


def of_one(
    spec: MechanismSpec, domain: Domain, n: int, delta: float, entropy: Entropy
) -> dict[str, Attack]:
    """The same randomizer alone (n = 1, delta = 0, against epsilon0) and in a batch (against its
    certificate).
    """
    mechanism, cells = create(spec, domain), domain.size
    law = mechanism.privacy()
    answers = furthest_answers(law)
    claims = {
        "local": (1, 0.0, epsilon0_upper(law)),
        "shuffled": (n, delta, certify(law, n, delta).epsilon_upper),
    }
    return {
        kind: Attack(
            views_of(mechanism, cells, size, entropy, answers=answers),
            size,
            allowed,
            claimed,
            # Some 2e5 short reports at a time, fewer long ones: the bar moves a few times a second.
            max(1, 200_000 // (size * max(1, cells // 64))),
        )
        for kind, (size, allowed, claimed) in claims.items()
    }


def of_vectors(
    spec: MechanismSpec, domain: Domain, n: int, delta: float, entropy: Entropy
) -> dict[str, Attack]:
    """As ``of_one``, of a device's vector and its opposite."""
    made = create_of_vectors(spec, domain)
    law = made.privacy()
    claims = {
        "local": (1, 0.0, epsilon0_upper(law)),
        "shuffled": (n, delta, certify(law, n, delta).epsilon_upper),
    }
    return {
        kind: Attack(
            vector_views(made, size, entropy), size, allowed, claimed, max(1, _VECTORS // size)
        )
        for kind, (size, allowed, claimed) in claims.items()
    }


def of_several(mixture: Mixture, n: int, delta: float, entropy: Entropy) -> dict[str, Attack]:
    """The messages of a batch, mixed, against the bound of all ``n`` devices; and those of one
    device, seen together, where an epsilon0 is claimed of them.
    """
    made, cells = mixture.known, mixture.domain.size
    claimed = mixture.certify(None, n, delta, Fraction(1)).epsilon_upper
    claims = {"local": (1, 0.0, made.epsilon0)} if math.isfinite(made.epsilon0) else {}
    claims["shuffled"] = (n, delta, claimed)
    answers = attacked_answers(made, cells)
    return {
        kind: Attack(
            several_views(made, cells, size, entropy, answers=answers),
            size,
            allowed,
            claimed,
            max(1, _MESSAGES // (size * math.ceil(made.mean_messages))),
        )
        for kind, (size, allowed, claimed) in claims.items()
    }


def attack_all(attacks: Mapping[str, Attack], trials: int) -> dict[str, AuditResult]:
    """One after the other, with a bar for each on stderr."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    results = {}
    with Progress(*columns, console=stderr) as progress:
        bars = {
            kind: progress.add_task(f"{kind}, n = {attack.n:,}", total=2 * trials)
            for kind, attack in attacks.items()
        }
        for kind, attack in attacks.items():
            results[kind] = audit(
                attack.views,
                attack.claimed,
                attack.delta,
                trials,
                at_once=attack.at_once,
                progress=partial(progress.advance, bars[kind]),
            )
    return results
