"""The book's arithmetic and names: exact nano-epsilon, and tags of memoized reports."""

from __future__ import annotations

import hashlib
import hmac
import math
import re
from decimal import Decimal, localcontext
from pathlib import Path

import pytest

from shoal.clients.memory.commitments import (
    NANO,
    check_charge,
    nano_down,
    nano_up,
    rounding_of,
    tag,
)
from shoal.domain import Categories
from shoal.entropy import SeededEntropy
from shoal.errors import Kind, ShoalError
from shoal.mechanisms import create, design
from shoal.privacy import epsilon0_upper


def test_charges_are_rounded_up_and_limits_down() -> None:
    """Against decimal fractions. Planted: floor for the charge, or ceil for the limit."""
    assert (nano_up(3.0), nano_down(3.0), nano_up(0.0), nano_down(0.0)) == (
        3 * NANO,
        3 * NANO,
        0,
        0,
    )
    assert nano_up(math.nextafter(3.0, 4.0)) == 3 * NANO + 1
    assert nano_up(1e-300) == 1
    assert nano_down(math.inf) is None
    for word in SeededEntropy("nano").words(2_000).tolist():
        epsilon = word / 2**60
        up, down = nano_up(epsilon), nano_down(epsilon)
        assert down is not None
        assert 0 <= up - down <= 1
        assert Decimal(down).scaleb(-9) <= Decimal(repr(epsilon)) <= Decimal(up).scaleb(-9)


def test_what_a_nano_epsilon_is_stands_in_one_place() -> None:
    """Planted: a copy of the constant in a command or in an explanation -> this fails."""
    root = Path(__file__).resolve().parents[4]
    sources = [*(root / "clients").rglob("*.py"), *(root / "cli" / "agent").glob("*.py")]
    assert len(sources) > 30
    assert [
        path.name
        for path in sources
        if re.search(r"10\*\*9|1_000_000_000\b|\b1e9\b", path.read_text())
    ] == ["commitments.py"]


def test_a_budget_pays_for_what_an_owner_expects() -> None:
    """Ten reports of a task designed for 0.1 cost 1.0, and a charge is never below the real
    epsilon, ln of an exact ratio.

    Planted: the float's own value charged (0.1 lies above a tenth) -> 100000001 nano-epsilon, and a
    budget of 1.0 pays nine times.
    """
    domain = Categories(("a", "b", "c"))
    for tenths in range(1, 81):
        privacy = create(design("krr", domain, tenths / 10), domain).privacy()
        nano = nano_up(epsilon0_upper(privacy))
        assert nano == tenths * NANO // 10 == nano_down(tenths / 10)
        with localcontext() as context:
            context.prec = 50
            real = (
                Decimal(privacy.max_ratio.numerator) / Decimal(privacy.max_ratio.denominator)
            ).ln()
            assert real <= Decimal(nano).scaleb(-9)


@pytest.mark.parametrize("bad", [math.nan, -1.0, -math.inf])
def test_what_can_not_be_charged(bad: float) -> None:
    for step in (nano_up, nano_down):
        with pytest.raises(ShoalError) as caught:
            step(bad)
        assert caught.value.kind is Kind.INVALID
    with pytest.raises(ShoalError):
        nano_up(math.inf)


def test_a_limit_below_what_is_spent_refuses_and_says_so() -> None:
    """An owner may lower it. Planted: limit - spent shown as it is -> a negative rest."""
    with pytest.raises(ShoalError) as caught:
        check_charge(8 * NANO, NANO, 5 * NANO)
    assert caught.value.kind is Kind.REFUSED
    assert "epsilon 1, and 0 of 5 are left" in caught.value.message


def test_tags_are_the_stated_ones() -> None:
    secret = bytes(range(32))
    assert tag(secret, 258) == hmac.new(secret, b"\x00\x00\x01\x02", hashlib.sha256).digest()
    assert len({tag(secret, cell) for cell in range(1_000)}) == 1_000
    assert (
        tag(secret, 1 << 32)
        == hmac.new(secret, bytes(11) + b"\x01" + bytes(4), hashlib.sha256).digest()
    )
    assert rounding_of(secret) != tag(secret, 0)[:8]
    assert rounding_of(secret) != tag(secret, int.from_bytes(b"rounding", "big"))[:8]
