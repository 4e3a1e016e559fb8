"""A device's bundle: its true messages, one or more, among messages of noise."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from shoal.arrays import NDArray, np
from shoal.entropy import streamed
from shoal.mechanisms.parts import cells
from shoal.mechanisms.several.events import below, empty_of, events_of
from shoal.mechanisms.several.protocol import Bundles

if TYPE_CHECKING:
    from shoal.entropy import Entropy
    from shoal.mechanisms.several.noise_law import NoiseLaw


def bundle(truths: Sequence[int], law: NoiseLaw, entropy: Entropy) -> list[int]:
    """The messages of one device as numbers: ``truths``, ``law.truths`` of them, at uniform places
    among those of its noise, or alone if all are more than ``law.slots``; with empty ones behind
    if submissions are full. Draws the same words whatever the truth is.
    """
    noise = events_of(law).draw(entropy)
    if not law.signed:
        noise = [message >> 1 for message in noise]
    if len(noise) > law.slots - law.truths:
        noise = []
    # Nobody who can tell a bundle's order can read it, unless both work together; then the place
    # says no more than the bundle does. It is drawn all the same: it costs a word.
    for truth in truths:
        noise.insert(below(len(noise) + 1, entropy), truth)
    if law.full:
        noise += [empty_of(law)] * (law.slots - len(noise))
    return noise


def one_bundle(
    truths: Sequence[int], law: NoiseLaw, size: int, entropy: Entropy
) -> tuple[bytes, ...]:
    """As ``bundle``, each message in ``size`` bytes, big-endian."""
    return tuple([message.to_bytes(size, "big") for message in bundle(truths, law, entropy)])


def many_bundles(
    values: NDArray[np.int64],
    k: int,
    truths: Callable[[int, Entropy], Sequence[int]],
    law: NoiseLaw,
    size: int,
    entropy: Entropy,
) -> Bundles:
    """A bundle for each of the cells int64[n] below k; ``truths``: the messages of a cell,
    which may be drawn. Raises INVALID.
    """
    drawn, entropy = list[list[int]](), streamed(entropy)
    for value in cells.check_values(cells.check_shape(values), k).tolist():
        drawn.append(bundle(truths(value, entropy), law, entropy))
    flat = [message for messages in drawn for message in messages]
    rows = np.array(flat, dtype=f">u{size}").view(np.uint8).reshape(-1, size)
    return Bundles(rows, np.array([len(messages) for messages in drawn], dtype=np.int64))
