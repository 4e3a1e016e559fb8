"""The public candidates of a seed: integer vectors near a Gaussian, the same in every language.

A candidate's coordinate is a 16-bit number c of an AES-128-CTR stream, looked up in a table of
65,536 integers. Entry c is the mean of a standard normal number over the c-th of 65,536 cells of
equal probability, times 4,096, rounded to the nearest integer:

    table[c] = round(4096 * 65536 * (phi(z_c) - phi(z_(c+1)))),  z_c = the c / 65536 quantile,

phi the normal density, 0 at both ends. So table[65535 - c] = -table[c]. No product comes nearer
than 10^-5 to a half, and doubles err by less than 10^-7 there: every language that can compute a
quantile makes the same table, and ``DIGEST`` (SHA-256 of the entries as big-endian int16) says so.

Means of cells, not their middles: a Gaussian coordinate is then its entry plus an error of mean 0
whatever all other cells are. The variance of the entries is below that of a Gaussian by 2.2 x 10^-6
of it, and their fourth cumulant is -1.7 x 10^-4. This matters to accuracy alone: no guarantee of
privacy stands on what candidates look like. A vector with 1, 2 or 4 equal coordinates, where it
matters most, leans less than Gaussian candidates would by 2 x 10^-4 of itself, with 4,096
candidates or fewer, and by 1.1 x 10^-3 with 16,384 and t = 1.

**The stream.** Key: the 16 bytes of the seed. Candidate j of a seed, of d coordinates, is the
stream's bytes from block j B on, B = ceil(d / 8) blocks of 16 bytes: the counter block of the first
is j B as a 128-bit big-endian number. Coordinates are little-endian 16-bit numbers in order.
"""

from __future__ import annotations

import math
from functools import cache
from statistics import NormalDist
from typing import Any

from shoal.arrays import NDArray, np
from shoal.digests import sha256
from shoal.errors import Kind, ShoalError

CELLS = 1 << 16
UNIT = 1 << 12  # one standard deviation
LARGEST = 17_971  # the largest entry
SEED_SIZE = 16
DIGEST = "f06a13579c32b167994f5ef1933d1f90b0baad58bf95c8c36510d196eb6b6f54"
_PER_BLOCK = 8  # coordinates in 16 bytes


@cache
def table() -> NDArray[np.int16]:
    """int16[65536], read-only. Raises INTERNAL if this machine's arithmetic makes another one."""
    quantile, half = NormalDist().inv_cdf, CELLS // 2
    density = [0.0]
    density += [
        math.exp(-(quantile(cell / CELLS) ** 2) / 2.0) / math.sqrt(2.0 * math.pi)
        for cell in range(1, half + 1)
    ]
    low = [round(UNIT * CELLS * (density[c] - density[c + 1])) for c in range(half)]
    made = np.array(low + [-entry for entry in reversed(low)], dtype=np.int16)
    if sha256(made.astype(">i2").tobytes()).hex() != DIGEST:
        raise ShoalError(
            Kind.INTERNAL, "the table of Gaussian coordinates came out wrong: report this machine"
        )
    made.setflags(write=False)
    return made


@cache
def variance() -> float:
    """Of an entry, in standard deviations of the Gaussian squared: 1 - 2.2e-6."""
    return float((table().astype(np.float64) ** 2).mean()) / UNIT**2


def blocks_of(dimension: int) -> int:
    """Blocks of 16 bytes that a candidate of so many coordinates takes of its stream."""
    return -(-dimension // _PER_BLOCK)


def candidates(seed: bytes, first: int, count: int, dimension: int) -> NDArray[np.int16]:
    """int16[count, dimension]: candidates ``first`` to ``first + count - 1`` of a 16-byte seed."""
    blocks = blocks_of(dimension)
    stream = _stream(seed, first * blocks, count * blocks)
    cells = np.frombuffer(stream, dtype="<u2").reshape(count, blocks * _PER_BLOCK)
    return np.asarray(table()[cells[:, :dimension]])


def reported(seeds: NDArray[np.uint8], index: NDArray[Any], dimension: int) -> NDArray[np.int16]:
    """int16[n, dimension]: of each seed, uint8[n, 16], the candidate that ``index``, int[n],
    names.
    """
    blocks = blocks_of(dimension)
    cells = np.empty((len(seeds), blocks * _PER_BLOCK), dtype="<u2")
    for row, (seed, j) in enumerate(zip(seeds, index.tolist(), strict=True)):
        cells[row] = np.frombuffer(_stream(seed.tobytes(), j * blocks, blocks), dtype="<u2")
    return np.asarray(table()[cells[:, :dimension]])


def _stream(seed: bytes, first: int, blocks: int) -> bytes:
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    cipher = Cipher(algorithms.AES(seed), modes.CTR(first.to_bytes(16, "big")))
    return cipher.encryptor().update(bytes(16 * blocks))
