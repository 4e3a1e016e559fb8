"""Noise that many devices add together: exact samplers of one device's share. Pure.

``create_noise(spec)`` builds one device's share from a task's integers. The package itself imports
nothing: numpy is loaded with the first name that is asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shoal.mechanisms.noise.registry import REGISTRY, NoiseFamily, VectorNoise, create_noise

__all__ = ["REGISTRY", "NoiseFamily", "VectorNoise", "create_noise"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.registry"), name)
