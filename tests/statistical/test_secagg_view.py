"""What the analyzer sees of one device over many rounds: uniform words, whatever the device's
vector and the sum are.

The view of device 0 in a round is its opened row y, and, since the analyzer learns the seed of
every self mask, also z = y - PRG(b_0): what the pads of its neighbours alone protect. Given the sum
both are uniform and independent of the device's vector x. Over the rounds:

- bytes: chi-square of each of the four bytes of all words of y and of z, 255 degrees of freedom, at
  most 385 (Wilson and Hilferty: 3e-7; at reduced size with 6 words a cell, where that is rough);
- correlation of y and of z with x and with the sum, and of what changes from one round to the next
  in z with what changes in x and in the sum: |r| sqrt(N) at most 5.2 (2e-7). The changes catch pads
  that are used again: then the change of z is the change of x.

Three times 14 numbers are compared, so over seeds a false alarm has probability below 2e-5; the
seeds are fixed.

Planted, and asserted below: rounds with the same keys and the same round id, so with the same pads,
fail both parts. The same keys under other nonces, or other keys under the same nonces, do not: each
alone gives another round id. Planted besides, each fails: ``mask`` without the pads of neighbours
(z); ``mask`` without the self mask and pads (both).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from shoal.crypto import hpke
from shoal.crypto.secagg import pads
from shoal.crypto.secagg.analyzer.unmasking import CollectedShares
from shoal.crypto.secagg.exchange import vector_info
from shoal.crypto.secagg.shuffler.effects import AskUnmask
from shoal.entropy import SeededEntropy
from tests.sizes import size
from tests.worlds.rounds.secagg import Play, World, remembered_agreements, remembered_signatures

pytestmark = pytest.mark.campaign
ROUNDS = size(50, 600, 6_000)
D = 32
CHI_SQUARE_MOST = 385.0
CORRELATION_MOST = 5.2


@dataclass(frozen=True)
class Repeating(World):
    """A world in which seeds begin anew in every round, for some of the roles."""

    repeated: tuple[str, ...] = ()

    def entropy(self, what: str) -> SeededEntropy:
        seed = "" if any(role in what for role in self.repeated) else self.seed
        return SeededEntropy(f"view {seed} {what}")


class Watched(Play):
    collected: CollectedShares

    def ask(self, effect: Any) -> Any:
        if isinstance(effect, AskUnmask):
            begun = self.collector._begun
            assert begun is not None
            assert begun.collected is not None
            self.collected = begun.collected
        return super().ask(effect)


@dataclass(frozen=True)
class Views:
    """Each int64[rounds, D]: words of device 0 as signed numbers, its vectors, the sums."""

    y: NDArray[np.int64]
    z: NDArray[np.int64]
    x: NDArray[np.int64]
    total: NDArray[np.int64]

    def chi_squares(self) -> list[float]:
        found = []
        for view in (self.y, self.z):
            for byte in np.ascontiguousarray(view.astype("<i4")).view(np.uint8).reshape(-1, 4).T:
                expected = byte.size / 256
                found.append(
                    float(((np.bincount(byte, minlength=256) - expected) ** 2 / expected).sum())
                )
        return found

    def correlations(self) -> list[float]:
        """sqrt(N) r, a standard normal number if there is no connection."""
        # modulo 2^32; every other one: no round twice
        change = np.diff(self.z.astype("<i4"), axis=0)[::2]
        dx, dt = np.diff(self.x, axis=0)[::2], np.diff(self.total, axis=0)[::2]
        pairs = [
            (self.y, self.x),
            (self.y, self.total),
            (self.z, self.x),
            (self.z, self.total),
            (change, dx),
            (change, dt),
        ]
        return [float(np.corrcoef(a.ravel(), b.ravel())[0, 1]) * a.size**0.5 for a, b in pairs]

    @property
    def uniform(self) -> bool:
        return max(self.chi_squares()) <= CHI_SQUARE_MOST

    @property
    def unrelated(self) -> bool:
        return max(map(abs, self.correlations())) <= CORRELATION_MOST


def views(repeated: tuple[str, ...] = ()) -> Views:
    """``repeated``: roles whose randomness is the same in every round."""
    rows: list[tuple[Any, Any, Any, Any]] = []
    world, vectors = Repeating(3, dimension=D, repeated=repeated), SeededEntropy("vectors of views")
    with remembered_signatures(), remembered_agreements():
        for number in range(ROUNDS):
            one = Watched(replace(world, seed=str(number)))
            one.vectors = (vectors.words(3 * D).astype(np.int64) & 0xFFFFF).reshape(3, D) - 0x80000
            assert one.run().check()
            rows.append(_view(one))
    return Views(*(np.array(column) for column in zip(*rows, strict=True)))


def _view(one: Watched) -> tuple[Any, Any, Any, Any]:
    """What the analyzer has: the opened row of device 0, and with the seed that it recovered the
    row without self mask.
    """
    assert one.collector.round_id is not None
    assert one.result is not None
    round_id, device = one.collector.round_id, one.devices[0].session
    info = vector_info(round_id, one.world.window_key.config.key_id)
    words = np.frombuffer(
        bytearray(hpke.open_sealed(one.world.window_key, one.uploads[device], info)), "<u4"
    ).copy()
    y = words.copy()
    position = one.coordinator._seating.members[device].position
    seed = one.collected.recover().seeds[position]
    pads.apply(
        words, pads.self_stream_key(seed, round_id, one.collected.committed.pad_keys[position]), -1
    )
    return (
        y.view("<i4")[:D].astype(np.int64),
        words.view("<i4")[:D].astype(np.int64),
        one.vectors[0],
        one.result.vector,
    )


@pytest.mark.parametrize("repeated", [(), ("device",), ("nonce",)])
def test_the_view_is_uniform(repeated: tuple[str, ...]) -> None:
    """Fresh rounds; the same one-time keys and seeds under other nonces; other keys under the same
    nonces.
    """
    seen = views(repeated)
    assert seen.uniform, seen.chi_squares()
    assert seen.unrelated, seen.correlations()


def test_pads_that_are_used_again_show() -> None:
    """The same keys and the same nonces, so the same round id and pads: the same test fails, both
    parts of it.
    """
    seen = views(("device", "nonce"))
    assert not seen.uniform
    assert not seen.unrelated
    # the change of z is the change of x
    assert seen.correlations()[4] > 0.99 * (seen.x.size / 2) ** 0.5
