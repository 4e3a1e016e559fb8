"""Loss laws as bytes, so that a release can be composed with later ones without its task's file and
without computing anew.

Layout, little-endian: version (1 byte, 1), step, infinity, epsilon0 (float64 each), count (uint32),
then ``count`` indices (int64) and as many masses (float64). Exact: nothing is rounded. Equal laws
have equal bytes.

Stored bytes are not trusted: lengths, version and everything that ``LossLaw`` checks are looked at
again when they are read. That they are the bytes which were written is for the store to say.
"""

from __future__ import annotations

import struct

from shoal.accounting.composition.losses import LossLaw
from shoal.arrays import np
from shoal.errors import Kind, ShoalError

_HEAD = struct.Struct("<BdddI")
_VERSION = 1
# A law has a few hundred masses; more than this is no law of ours.
_MOST = 1 << 20


def to_bytes(law: LossLaw) -> bytes:
    """The law, exactly; 29 + 16 bytes per mass."""
    head = _HEAD.pack(_VERSION, law.step, law.infinity, law.epsilon0, len(law.indices))
    return head + law.indices.astype("<i8").tobytes() + law.masses.astype("<f8").tobytes()


def from_bytes(data: bytes) -> LossLaw:
    """The law that ``to_bytes`` wrote. Raises ShoalError INVALID for anything else."""
    if len(data) < _HEAD.size:
        raise ShoalError(Kind.INVALID, "these bytes are too short for a loss law")
    version, step, infinity, epsilon0, count = _HEAD.unpack_from(data)
    if version != _VERSION or not 0 < count <= _MOST or len(data) != _HEAD.size + 16 * count:
        raise ShoalError(Kind.INVALID, "these bytes are no loss law of version 1")
    indices = np.frombuffer(data, dtype="<i8", count=count, offset=_HEAD.size).astype(np.int64)
    masses = np.frombuffer(data, dtype="<f8", count=count, offset=_HEAD.size + 8 * count).astype(
        np.float64
    )
    return LossLaw(step, indices, masses, infinity, epsilon0)
