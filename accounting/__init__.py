"""How much privacy shuffling really bought: certificates with a proven upper and a matching lower epsilon.

Pure (numpy, math, fractions): no sockets, no disk, no clock. Usable alone::

    from shoal.accounting import certify
    from shoal.privacy import KaryLaw

    certify(KaryLaw(k=16, same=55, other=1), n=100_000, delta=1e-8).epsilon_upper
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shoal.accounting.accountant import certify
    from shoal.accounting.certificate import Certificate
    from shoal.accounting.guarantee import Composed, compose_basic, guaranteed

__all__ = ["Certificate", "Composed", "certify", "compose_basic", "guaranteed"]

_HOME = {
    "Certificate": "certificate",
    "Composed": "guarantee",
    "certify": "accountant",
    "compose_basic": "guarantee",
    "guaranteed": "guarantee",
}


def __getattr__(name: str) -> Any:
    """Load on first use: importing ``shoal.accounting`` alone does not load numpy."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
