"""What a device knows between two steps of a round, one class per step that was taken.

Each class holds what the next steps need and nothing more: a key whose last use is past is not in
the next class. What the memory of the process may still show of it is said in ``machine``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from shoal.crypto.secagg.device.checks import CheckedOffer, Circle, OwnKeys, Peer
from shoal.crypto.secagg.records import Commit
from shoal.crypto.secagg.shares import SharePair


class RoundSecret:
    """What is known between two steps. It never shows itself and never leaves the process: a copy
    in a pickle or a log would outlive the round, and with it the promise that pads are used once.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a device's round holds one-time keys: it is not pickled or copied")


class BeforeJoin(RoundSecret):
    """Nothing yet."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class AfterJoin(RoundSecret):
    """The offer that was joined, and both one-time keys: ``pad_private`` of the pairwise masks,
    ``share_private`` under which neighbours' shares are sealed.
    """

    offered: CheckedOffer
    own: OwnKeys
    pad_private: X25519PrivateKey
    share_private: X25519PrivateKey


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class AfterShare(RoundSecret):
    """The private pad key is gone: of it remain ``pads``, one stream key (32 bytes) and sign (1 or
    -1) per neighbour. ``inbound``: the keys that open the neighbours' ciphertexts;
    ``self_pad``: the stream key of this device's own mask.

    ``suspect``: the neighbour whose ciphertext, beside it, does not open. ``accused``: positions
    that evidence was given against.
    """

    circle: Circle
    own: OwnKeys
    share_private: X25519PrivateKey
    pads: tuple[tuple[bytes, int], ...]
    inbound: tuple[bytes, ...]
    self_pad: bytes
    suspect: tuple[Peer, bytes] | None = None
    accused: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class AfterMask(RoundSecret):
    """No key that masked the vector is left. ``shared``: who did, as the roster said; ``held``: the
    neighbours' shares, None of those who did not share.
    """

    circle: Circle
    shared: tuple[bool, ...]
    held: tuple[SharePair | None, ...]
    commit: Commit | None = None  # endorsed already
