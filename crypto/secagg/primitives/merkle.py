"""A hash tree over the seats of a ring, and one short proof for an arc of neighbouring leaves.

The tree is that of RFC 9162 section 2.1.1: a leaf is SHA-256(0x00 data), a node is SHA-256(0x01
left right), and n leaves are parted at the largest power of two below n. The first bytes keep
leaves and nodes apart: no node can be passed off as a leaf. The root of this module is SHA-256(0x02
u32be(n) tree hash): it binds the number of leaves too, which the tree hash alone does not (a path
of leaf 0 looks the same among five leaves and among six).

A range proof is for ``count`` leaves from position ``start`` on, going round from n - 1 to 0 if the
range is longer than the ring's end allows. It lists, from left to right, the hashes of the largest
subtrees without a leaf of the range. (n, start, count) fix how many hashes there are and where each
belongs, so whoever verifies reads nothing but hashes from a proof: a proof has no structure that a
forger could choose. Two proofs that lead to one root from different leaves at one position, or from
another number of hashes, are a collision of SHA-256.

At most 2 ceil(log2 n) hashes prove any range, also one that goes round (then the hidden part is one
stretch in the middle).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence

from shoal.errors import Kind, ShoalError

HASH_SIZE = 32  # bytes
_MOST = 1 << 32  # leaves: their number is bound as 32 bits


def leaf_hash(data: bytes) -> bytes:
    """SHA-256(0x00 data)."""
    return hashlib.sha256(b"\x00" + data).digest()


def _node(left: bytes, right: bytes) -> bytes:
    return hashlib.sha256(b"\x01" + left + right).digest()


def _bound(n: int, tree_hash: bytes) -> bytes:
    return hashlib.sha256(b"\x02" + n.to_bytes(4, "big") + tree_hash).digest()


def _split(low: int, high: int) -> int:
    """Where the leaves low .. high - 1 (two or more) are parted: low plus the largest power of two
    below their number.
    """
    return low + (1 << (high - low - 1).bit_length() - 1)


class Tree:
    """All nodes of a tree, so that every member's proof costs no more hashing. Public data,
    immutable.
    """

    __slots__ = ("_nodes", "n", "root", "tree_hash")

    n: int
    root: bytes  # binds n
    tree_hash: bytes  # RFC 9162 section 2.1.1

    def __init__(self, leaves: Sequence[bytes]) -> None:
        """Over the data of 1 or more leaves, of any length each. Raises INVALID for none."""
        self.n = len(leaves)
        if not 1 <= self.n < _MOST:
            raise ShoalError(Kind.INVALID, "a hash tree wants at least one leaf")
        self._nodes: dict[tuple[int, int], bytes] = {
            (i, i + 1): leaf_hash(data) for i, data in enumerate(leaves)
        }
        self.tree_hash = self._build(0, self.n)
        self.root = _bound(self.n, self.tree_hash)

    def _build(self, low: int, high: int) -> bytes:
        if high - low > 1:
            middle = _split(low, high)
            self._nodes[low, high] = _node(self._build(low, middle), self._build(middle, high))
        return self._nodes[low, high]

    def range_proof(self, start: int, count: int) -> list[bytes]:
        """32-byte hashes that lead from the ``count`` leaves at start, start + 1, ... (modulo n) to
        the root. Raises INVALID.
        """
        _check_range(self.n, start, count)
        return [self._nodes[part] for part in _hidden(0, self.n, self.n, start, count)]


def root(leaves: Sequence[bytes]) -> bytes:
    """The 32-byte root over the data of the leaves, which binds their number. Raises INVALID for no
    leaves.
    """
    return Tree(leaves).root


def range_proof(leaves: Sequence[bytes], start: int, count: int) -> list[bytes]:
    """As ``Tree.range_proof``, for one proof. Raises INVALID."""
    return Tree(leaves).range_proof(start, count)


def proof_size(n: int, start: int, count: int) -> int:
    """How many hashes the proof of that range holds. Raises INVALID for a range that is none."""
    _check_range(n, start, count)
    return sum(1 for _ in _hidden(0, n, n, start, count))


def root_of_range(
    n: int, start: int, leaf_hashes: Sequence[bytes], proof: Sequence[bytes]
) -> bytes:
    """The root that a tree of n leaves has if these are the hashes of its leaves start, start + 1,
    ... (modulo n).

    The caller compares it with the root that it trusts. Raises INVALID for a range that is none, a
    hash that is not 32 bytes long, and any number of proof hashes but the right one.
    """
    count = len(leaf_hashes)
    if len(proof) != proof_size(n, start, count):
        raise ShoalError(Kind.INVALID, "a range proof has too few or too many hashes for its range")
    if any(len(digest) != HASH_SIZE for digest in (*leaf_hashes, *proof)):
        raise ShoalError(Kind.INVALID, f"the hashes of a range proof are {HASH_SIZE} bytes long")
    rest = iter(proof)

    def climb(low: int, high: int) -> bytes:
        if not _touches(low, high, n, start, count):
            return next(rest)
        if high - low == 1:
            return leaf_hashes[(low - start) % n]
        middle = _split(low, high)
        left = climb(low, middle)
        return _node(left, climb(middle, high))

    return _bound(n, climb(0, n))


def _check_range(n: int, start: int, count: int) -> None:
    if not (1 <= n < _MOST and 0 <= start < n and 1 <= count <= n):
        raise ShoalError(
            Kind.INVALID, "a range proof is for 1 to n leaves from a position within the tree"
        )


def _touches(low: int, high: int, n: int, start: int, count: int) -> bool:
    """Whether one of the leaves low .. high - 1 is among start .. start + count - 1 modulo n."""
    end = start + count
    return (low < end and start < high) or low < end - n


def _hidden(low: int, high: int, n: int, start: int, count: int) -> Iterator[tuple[int, int]]:
    """The largest subtrees without a leaf of the range, from left to right."""
    if not _touches(low, high, n, start, count):
        yield low, high
    elif high - low > 1:
        middle = _split(low, high)
        yield from _hidden(low, middle, n, start, count)
        yield from _hidden(middle, high, n, start, count)
