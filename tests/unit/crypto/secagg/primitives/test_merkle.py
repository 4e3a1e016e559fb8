"""The hash tree: RFC known answers, every range of every small tree against a naive one, and every
forgery refused.
"""

from __future__ import annotations

import hashlib
from itertools import product

import pytest

from shoal.crypto.secagg.primitives.merkle import (
    Tree,
    leaf_hash,
    proof_size,
    range_proof,
    root,
    root_of_range,
)
from shoal.errors import Kind, ShoalError
from tests.cases import for_each
from tests.sizes import size

# The eight entries of the Certificate Transparency reference tests, and the tree hashes of the
# first 1, 2, 3 ... (RFC 6962, RFC 9162).
ENTRIES = [
    bytes.fromhex(one)
    for one in (
        "",
        "00",
        "10",
        "2021",
        "3031",
        "40414243",
        "5051525354555657",
        "606162636465666768696a6b6c6d6e6f",
    )
]
TREE_HASHES = {
    1: "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    2: "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    3: "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    4: "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    5: "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    6: "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    7: "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    8: "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
}


def naive(leaves: list[bytes]) -> bytes:
    """RFC 9162 section 2.1.1, word by word."""
    if len(leaves) == 1:
        return hashlib.sha256(b"\x00" + leaves[0]).digest()
    k = 1
    while 2 * k < len(leaves):
        k *= 2
    return hashlib.sha256(b"\x01" + naive(leaves[:k]) + naive(leaves[k:])).digest()


def leaves(n: int) -> list[bytes]:
    return [b"leaf %d" % i for i in range(n)]


def climb(n: int, start: int, data: list[bytes], proof: list[bytes]) -> bytes:
    return root_of_range(n, start, [leaf_hash(one) for one in data], proof)


def some(n: int, start: int, count: int) -> list[bytes]:
    every = leaves(n)
    return [every[(start + i) % n] for i in range(count)]


@for_each("n, tree_hash", TREE_HASHES.items())
def test_published_tree_hashes(n: int, tree_hash: str) -> None:
    tree = Tree(ENTRIES[:n])
    assert tree.tree_hash.hex() == tree_hash
    assert (
        tree.root
        == hashlib.sha256(b"\x02" + n.to_bytes(4, "big") + tree.tree_hash).digest()
        == root(ENTRIES[:n])
    )


@for_each("n", range(1, 41))
def test_every_range_of_every_tree(n: int) -> None:
    """Also those that go round. At most 2 ceil(log2 n) hashes. Planted: an end that is not taken
    modulo n -> fails.
    """
    tree = Tree(leaves(n))
    assert tree.tree_hash == naive(leaves(n))
    for start, count in product(range(n), range(1, n + 1)):
        proof = tree.range_proof(start, count)
        assert climb(n, start, some(n, start, count), proof) == tree.root
        assert len(proof) == proof_size(n, start, count) <= 2 * (n - 1).bit_length()
    assert range_proof(leaves(n), 0, n) == []


@for_each("n, start, count", [(9, 2, 3), (9, 7, 4), (13, 12, 3), (40, 30, 15), (8, 0, 1)])
def test_every_changed_byte_is_refused(n: int, start: int, count: int) -> None:
    """Of proof and leaves; and hashes swapped, dropped, doubled, added, or taken for leaves."""
    tree, data = Tree(leaves(n)), some(n, start, count)
    proof = tree.range_proof(start, count)
    for i, j in product(range(len(proof)), range(32)):
        wrong = bytearray(proof[i])
        wrong[j] ^= 1
        assert climb(n, start, data, [*proof[:i], bytes(wrong), *proof[i + 1 :]]) != tree.root
    for i, leaf in enumerate(data):
        for j in range(len(leaf)):
            wrong = bytearray(leaf)
            wrong[j] ^= 1
            assert climb(n, start, [*data[:i], bytes(wrong), *data[i + 1 :]], proof) != tree.root
    for i in range(len(proof) - 1):
        assert (
            climb(n, start, data, [*proof[:i], proof[i + 1], proof[i], *proof[i + 2 :]])
            != tree.root
        )
    for i in range(len(data) - 1):
        assert (
            climb(n, start, [*data[:i], data[i + 1], data[i], *data[i + 2 :]], proof) != tree.root
        )
    for bad in (
        proof[:-1],
        proof[1:],
        [*proof, proof[0]],
        [proof[0], *proof],
        [*proof[:-1], proof[-1][:31]],
        [*proof[:-1], proof[-1] + b"\0"],
    ):
        with pytest.raises(ShoalError) as caught:
            climb(n, start, data, bad)
        assert caught.value.kind is Kind.INVALID


def outcome(n: int, start: int, hashes: list[bytes], proof: list[bytes]) -> bytes | Kind:
    """The root, or the kind of refusal."""
    try:
        return root_of_range(n, start, hashes, proof)
    except ShoalError as error:
        return error.kind


@for_each("n", range(2, size(14, 24)))
def test_no_other_place_and_no_other_number(n: int) -> None:
    """The leaves of one range do not pass at another start, in another count, or in a tree of
    another size.

    Planted: the root without the number of leaves -> fails (leaf 0 of five passes among six).
    """
    tree = Tree(leaves(n))
    for start, count in product(range(n), range(1, n + 1)):
        proof, data = tree.range_proof(start, count), some(n, start, count)
        hashes = [leaf_hash(one) for one in data]
        for size_claimed, start_claimed in product(range(max(1, n - 2), n + 3), range(n + 2)):
            if (size_claimed, start_claimed) == (n, start):
                continue
            assert outcome(size_claimed, start_claimed, hashes, proof) != tree.root


def test_a_node_is_no_leaf() -> None:
    """Planted: one prefix for leaves and nodes -> fails."""
    a, b = leaf_hash(b"a"), leaf_hash(b"b")
    assert Tree([a + b]).tree_hash != Tree([b"a", b"b"]).tree_hash


@for_each(
    "n, start, count",
    [(0, 0, 0), (5, 5, 1), (5, -1, 1), (5, 0, 0), (5, 0, 6), (1 << 32, 0, 1)],
)
def test_ranges_that_are_none(n: int, start: int, count: int) -> None:
    with pytest.raises(ShoalError) as caught:
        root_of_range(n, start, [bytes(32)] * count, [])
    assert caught.value.kind is Kind.INVALID
    if n == 5:
        with pytest.raises(ShoalError):
            range_proof(leaves(5), start, count)


def test_no_leaves() -> None:
    with pytest.raises(ShoalError):
        root([])
