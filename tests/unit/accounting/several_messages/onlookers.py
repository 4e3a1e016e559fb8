"""What a shuffler sees that reads the release, device by device: how many messages each one sent,
and of every cell the messages of + less those of -. Whole arrays, no formula of the accountant.

The noise of a device is float64[messages, difference of cell 0, difference of cell 1, ...]; that of
several devices has an axis of messages for each of them first. Differences lie from -``reach`` to
``reach`` in the middle of their axes; what lies beyond in one device is left out. True messages of
others move all differences, whatever the protected device answers: they are left out too.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import permutations, product

import numpy as np
from numpy.typing import NDArray

from shoal.mechanisms.several.noise_law import RATE_BITS, NoiseKind, NoiseLaw, Truth

Seen = NDArray[np.float64]
_MOVES = {NoiseKind.PLUS: 1, NoiseKind.MINUS: -1, NoiseKind.FLOOD: 0, NoiseKind.EMPTY: 0}


def noise_seen(law: NoiseLaw, reach: int) -> Seen:
    """Of one device, by the integers it draws from: Poisson numbers of all events; nothing where
    these have no room beside the true message.
    """
    room = law.slots - law.truths
    found = np.zeros((room + 1, *[2 * reach + 1] * law.cells))
    numbers = np.zeros((room + 1, *[1] * law.cells))  # of messages alone
    nothing = (0, *[reach] * law.cells)
    found[nothing] = numbers[0] = 1.0
    for cell in range(law.cells):
        for rate in law.rates():
            mean, move = rate.weight / (1 << RATE_BITS), _MOVES[rate.kind] * rate.size
            found = _more(found, cell + 1, mean, rate.messages, move)
            numbers = _more(numbers, cell + 1, mean, rate.messages, 0)
    found[nothing] += 1.0 - float(numbers.sum())
    return found.sum(axis=0, keepdims=True) if law.full else found


def _more(found: Seen, axis: int, mean: float, messages: int, move: int) -> Seen:
    """With a Poisson number of events, each so many ``messages`` and a ``move`` along ``axis``;
    numbers of them are left out whose probability is below 1e-18.
    """
    out = np.zeros_like(found)
    for number in range((len(found) - 1) // messages + 1):
        share = math.exp(number * math.log(mean) - mean - math.lgamma(number + 1.0))
        if share > 1e-18 and abs(number * move) < found.shape[axis]:
            out += share * _moved(_moved(found, 0, number * messages), axis, number * move)
    return out


def _moved(found: Seen, axis: int, by: int) -> Seen:
    """Along an axis; what leaves it is gone."""
    out = np.zeros_like(found)
    length = found.shape[axis]
    whole = [slice(None)] * found.ndim
    to, come = list(whole), list(whole)
    to[axis] = slice(max(by, 0), length + min(by, 0))
    come[axis] = slice(max(-by, 0), length - max(by, 0))
    out[tuple(to)] = found[tuple(come)]
    return out


def noise_of_all(law: NoiseLaw, devices: int, reach: int) -> Seen:
    """Of all devices, and room for a true message at either end of each axis of differences."""
    one = noise_seen(law, reach)
    found = one
    for _ in range(devices - 1):
        found = _together(found, one, law.cells)
    return np.pad(found, [(0, 0)] * devices + [(1, 1)] * law.cells)


def _together(first: Seen, one: Seen, cells: int) -> Seen:
    """Differences add up, numbers of messages stay apart."""
    devices = first.ndim - cells
    shape = [a + b - 1 for a, b in zip(first.shape[devices:], one.shape[1:], strict=True)]
    out = np.zeros((*first.shape[:devices], one.shape[0], *shape))
    spread = first.reshape(*first.shape[:devices], 1, *first.shape[devices:])
    for at in product(*map(range, one.shape[1:])):
        numbers = one.reshape(len(one), -1)[:, np.ravel_multi_index(at, one.shape[1:])]
        if not numbers.any():
            continue
        where: list[slice] = [slice(None)] * (devices + 1)
        where += [slice(a, a + b) for a, b in zip(at, first.shape[devices:], strict=True)]
        out[tuple(where)] += spread * numbers.reshape(-1, *[1] * cells)
    return out


def pairs_seen(law: NoiseLaw, devices: int, reach: int) -> Iterator[tuple[Seen, Seen]]:
    """Every ordered pair of answers of the first device."""
    noise = noise_of_all(law, devices, reach)
    if law.truth is Truth.SIGN:
        answers = [_moved(noise, devices, by) for by in (-1, 1)]
    else:
        answers = [_moved(noise, devices + cell, 1) for cell in range(law.cells)]
    yield from permutations(answers, 2)


def apart_at(p: Seen, q: Seen, epsilon: float) -> float:
    """The divergence, or less: all that was left out counts as ``q``'s, against it."""
    e = math.exp(epsilon)
    return float(np.maximum(p - e * q, 0.0).sum() - e * (1.0 - q.sum()))
