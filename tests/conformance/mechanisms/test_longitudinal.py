"""Every registered mechanism with a memory, at every setting: a report is the chain of its parts,
and many windows give away no more than ``permanent`` says. ``LongitudinalSuite`` shows both exactly
for small cases of each member; this holds for what the registry designs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest
from numpy.typing import NDArray

from shoal.accounting.audit.audit import AuditResult, audit
from shoal.domain import Categories, Domain, Numeric, Words, YesNo
from shoal.entropy import Entropy, SeededEntropy
from shoal.mechanisms import REGISTRY, create, design, serves
from shoal.mechanisms.longitudinal.protocol import Longitudinal
from shoal.privacy import epsilon0_upper
from tests.cases import for_each
from tests.sizes import size
from tests.worlds.tapes import Poured

DOMAINS: tuple[Domain, ...] = (
    YesNo(),
    Categories(("a", "b", "c", "d", "e")),
    Numeric(0, 4, 5),
    Words(("flu", "cold")),
)
# the settings that are audited: such as tell much of one device
TOGETHER = {"l_unary": "", "dbitflip": "d=4", "loloha": "g=4", "rappor": ""}
WINDOWS, HONEST, DEFECT = size(48, 24), size(400, 20_000), size(400, 1_000)

Window = Callable[[Longitudinal, bytes, bytes, int, Entropy], tuple[bytes, ...]]
"""One window's report of a device that keeps a choice and a permanent answer, and holds a cell."""


def members() -> Iterator[tuple[str, Domain, str]]:
    """(name, domain, setting) of every mechanism with a memory that the registry designs."""
    for name in sorted(REGISTRY):
        for domain in DOMAINS:
            if serves(name, domain) and isinstance(
                create(design(name, domain, 1.0), domain), Longitudinal
            ):
                yield from (
                    (name, domain, setting.name) for setting in REGISTRY[name].settings(domain)
                )


def built(name: str, domain: Domain, setting: str, epsilon0: float) -> Longitudinal:
    mechanism = create(design(name, domain, epsilon0, setting), domain)
    assert isinstance(mechanism, Longitudinal)
    return mechanism


EVERY = for_each(
    "name, domain, setting",
    members,
    ids=lambda part: part if isinstance(part, str) else type(part).__name__,
)


def test_the_registry_has_mechanisms_with_a_memory() -> None:
    """Nothing below passes by looking at none. Planted: a member without one of the protocol's
    methods -> it is missing here.
    """
    assert {name for name, _, _ in members()} >= set(TOGETHER)


@EVERY
def test_a_report_is_choice_key_memory_and_noise(name: str, domain: Domain, setting: str) -> None:
    """Drawn in this order from the same stream: byte for byte ``randomize_one``; and the last words
    that either asks for are the same.

    Planted: the noise drawn before what is remembered, a report of the cell itself -> fails.
    """
    mechanism = built(name, domain, setting, 2.0)
    for cell in (domain.label_cells[0], domain.label_cells[-1]):
        for seed in range(size(6, 60)):
            ours, theirs = SeededEntropy(seed), SeededEntropy(seed)
            choice = mechanism.choose_one(ours)
            remembered = mechanism.remember_one(choice, mechanism.key_of(choice, cell), ours)
            report = mechanism.report_one(choice, remembered, ours)
            assert report == mechanism.randomize_one(cell, theirs)
            assert ours.bytes(8) == theirs.bytes(8)
            assert [len(message) for message in report] == [
                mechanism.report_size
            ] * mechanism.messages


@EVERY
def test_one_report_costs_no_more_than_an_unchanged_value_for_life(
    name: str, domain: Domain, setting: str
) -> None:
    """Planted: ``permanent`` and ``privacy`` exchanged -> fails."""
    for asked in (0.1, 1.0, 5.0):
        mechanism = built(name, domain, setting, asked)
        assert epsilon0_upper(mechanism.privacy()) <= min(
            asked, epsilon0_upper(mechanism.permanent())
        )


def as_kept(
    mechanism: Longitudinal, choice: bytes, remembered: bytes, _: int, entropy: Entropy
) -> tuple[bytes, ...]:
    return mechanism.report_one(choice, remembered, entropy)


def anew(
    mechanism: Longitudinal, choice: bytes, _: bytes, cell: int, entropy: Entropy
) -> tuple[bytes, ...]:
    """The defect: a permanent answer that is drawn in every window, so that windows average towards
    the truth.
    """
    return mechanism.report_one(
        choice, mechanism.remember_one(choice, mechanism.key_of(choice, cell), entropy), entropy
    )


def audited(mechanism: Longitudinal, domain: Domain, window: Window, trials: int) -> AuditResult:
    """The audit of all of ``WINDOWS`` windows of an unchanged cell against the permanent epsilon.
    What is looked at: by how much the windows speak for the first label rather than the second, by
    the mechanism's own estimates.
    """
    entropy = Poured(SeededEntropy(f"windows {mechanism.name}"))

    def one(cell: int) -> float:
        choice = mechanism.choose_one(entropy)
        remembered = mechanism.remember_one(choice, mechanism.key_of(choice, cell), entropy)
        reports = [
            b"".join(window(mechanism, choice, remembered, cell, entropy)) for _ in range(WINDOWS)
        ]
        rows = np.frombuffer(b"".join(reports), dtype=np.uint8).reshape(-1, mechanism.report_size)
        values = mechanism.estimate(mechanism.tally(rows)).values
        return float(np.round(values[0] - values[1], 6))

    def views(which: int, count: int) -> dict[str, NDArray[np.float64]]:
        return {"difference": np.array([one(domain.label_cells[which]) for _ in range(count)])}

    return audit(views, epsilon0_upper(mechanism.permanent()), 0.0, trials, false_alarm=1e-6)


@pytest.mark.parametrize("name", sorted(TOGETHER))
def test_many_windows_give_away_no_more_than_is_kept(name: str) -> None:
    """Refuted with probability 1e-6 if all is well. The same audit of the planted defect, an answer
    that is not kept, finds more than ``permanent``: that is what memory is for.

    Planted: ``anew`` for ``as_kept`` -> refuted, this fails.
    """
    domain = Categories(("a", "b", "c", "d", "e"))
    mechanism = built(name, domain, TOGETHER[name], 0.5)
    assert not audited(mechanism, domain, as_kept, HONEST).refuted
    assert audited(mechanism, domain, anew, DEFECT).refuted
