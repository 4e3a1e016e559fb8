"""Noise that many devices add together: exact samplers of one device's share. Pure.

``create_noise(spec)`` builds one device's share from a task's integers.
"""

from __future__ import annotations

from shoal.mechanisms.noise.registry import REGISTRY, NoiseFamily, VectorNoise, create_noise

__all__ = ["REGISTRY", "NoiseFamily", "VectorNoise", "create_noise"]
