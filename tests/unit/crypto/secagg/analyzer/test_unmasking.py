"""From shares and a masked sum to the sum, without any device: masks are laid here by the formula
of the reference, pad by pad.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from numpy.typing import NDArray

from shoal.crypto.secagg import pads, words
from shoal.crypto.secagg.analyzer.unmasking import CollectedShares, Committed, Secrets, remove_masks
from shoal.crypto.secagg.parameters import GraphParameters
from shoal.crypto.secagg.primitives.decoding import at_zero, decode, interpolate, outliers
from shoal.crypto.secagg.primitives.shamir import PRIME, combine, split
from shoal.crypto.secagg.records import Reason, Status
from shoal.crypto.secagg.shares import Item, ShareBundle, ShareKind, commitment
from shoal.entropy import SeededEntropy
from shoal.errors import Kind, ShoalError
from shoal.ids import Digest
from tests.cases import for_each
from tests.sizes import size

ROUND = Digest.of(b"round")
D = 3
_OTHER = {Status.ALIVE: ShareKind.PAD_KEY, Status.DROPPED: ShareKind.SELF_SEED}


@dataclass
class Masked:
    """A round whose masked sum and bundles are made by brute force. ``statuses``: by position."""

    statuses: bytes
    graph: GraphParameters
    bits: int = 32
    seed: str = ""
    items: dict[int, dict[int, Item]] = field(default_factory=dict)  # holder -> of whom -> item

    def __post_init__(self) -> None:
        entropy, n = SeededEntropy(self.seed), len(self.statuses)
        self.keys = [X25519PrivateKey.from_private_bytes(entropy.bytes(32)) for _ in range(n)]
        self.seeds = [entropy.bytes(32) for _ in range(n)]
        public = tuple(key.public_key().public_bytes_raw() for key in self.keys)
        promised = tuple(
            bytes(32) if status == Status.NEVER_SHARED else commitment(ROUND, key, seed)
            for status, key, seed in zip(self.statuses, public, self.seeds, strict=True)
        )
        self.committed = Committed(ROUND, self.graph, public, promised, self.statuses)
        self.alive = self.committed.positions(Status.ALIVE)
        self.vectors = (entropy.words(n * D).astype(np.int64).reshape(n, D) & 0xFF) - 128
        self.constants = words.check_constants(ROUND.raw, self.bits)
        self.items = {position: {} for position in range(n)}
        for position, status in enumerate(self.statuses):
            if status != Status.NEVER_SHARED:
                self._share(position, entropy)

    def _share(self, position: int, entropy: SeededEntropy) -> None:
        kind = ShareKind.SELF_SEED if self.statuses[position] == Status.ALIVE else ShareKind.PAD_KEY
        secret = (
            self.seeds[position]
            if kind is ShareKind.SELF_SEED
            else self.keys[position].private_bytes_raw()
        )
        holders = self.committed.neighbours(position)
        for holder, share in zip(
            holders,
            split(secret, self.graph.threshold, [h + 1 for h in holders], entropy),
            strict=True,
        ):
            self.items[holder][position] = (kind, share)

    def masked(self) -> NDArray[np.unsignedinteger]:
        """The sum of what the alive devices sent: each its words, its self mask, a pad with every
        neighbour that shared.
        """
        total = np.zeros(D + len(self.constants), pads.WORD[self.bits])
        for position in self.alive:
            total += words.append_checks(self.vectors[position], self.constants, self.bits)
            for stream, sign in self.masks_of(position):
                pads.apply(total, stream, sign)
        return total

    def masks_of(self, position: int) -> list[tuple[bytes, int]]:
        public = self.committed.pad_keys
        masks = [(pads.self_stream_key(self.seeds[position], ROUND, public[position]), 1)]
        for other in self.committed.neighbours(position):
            if self.statuses[other] != Status.NEVER_SHARED:
                shared = pads.agree(self.keys[position], public[other])
                stream = pads.pair_stream_key(shared, ROUND, public[position], public[other])
                masks.append((stream, pads.sign_of(public[position], public[other])))
        return masks

    def bundle(self, position: int) -> ShareBundle:
        none: Item = (ShareKind.NONE, b"")
        return ShareBundle(
            position,
            tuple(
                self.items[position].get(one, none) for one in self.committed.neighbours(position)
            ),
        )

    def book(self, without: int = 0) -> CollectedShares:
        """All bundles but those of the last ``without`` alive devices."""
        book = CollectedShares(self.committed)
        for position in self.alive[: len(self.alive) - without]:
            book.add(position, self.bundle(position))
        return book

    def spoil(self, holder: int, of: int, by: int = 1) -> None:
        """The holder's share of ``of`` is wrong by ``by``."""
        kind, share = self.items[holder][of]
        self.items[holder][of] = (
            kind,
            ((int.from_bytes(share, "big") + by) % PRIME).to_bytes(33, "big"),
        )

    def true_secrets(self) -> Secrets:
        dropped = self.committed.positions(Status.DROPPED)
        return Secrets(
            {p: self.seeds[p] for p in self.alive},
            {p: self.keys[p].private_bytes_raw() for p in dropped},
        )

    def sums_up(self, total: NDArray[np.unsignedinteger]) -> bool:
        """Whether ``total`` is the unmasked sum, check words and all."""
        good = words.verify_checks(total, len(self.alive), self.constants)
        exact = np.array_equal(words.decode_signed(total[:D]), self.vectors[self.alive].sum(axis=0))
        assert exact or not good, "a wrong sum that checks"
        return good


def graph(n: int, k: int, t: int) -> GraphParameters:
    return GraphParameters(k, t, complete=k == n - 1)


RING = bytes([2, 2, 1, 2, 0, 2, 2, 2, 1, 2, 2, 2])  # twelve devices: two dropped, one never shared
ROUNDS = [
    (RING, graph(12, 6, 3)),
    (RING, graph(12, 11, 6)),
    (b"\x02\x02\x02", graph(3, 2, 2)),
    (b"\x01\x02\x02\x02\x01", graph(5, 4, 2)),
]


@for_each("statuses, graph", ROUNDS)
@for_each("bits", [16, 32, 64])
def test_sum(statuses: bytes, graph: GraphParameters, bits: int) -> None:
    """Recovered secrets are the true ones, and what is left when masks are gone is the sum.

    Planted: the sign of dropped devices' pads turned; alive neighbours taken for all neighbours; a
    self pad added, not taken -> each fails.
    """
    one = Masked(statuses, graph, bits)
    secrets = one.book().recover()
    assert secrets == one.true_secrets()
    total = one.masked()
    assert not one.sums_up(total.copy())
    remove_masks(total, one.committed, secrets)
    assert one.sums_up(total)


@pytest.mark.parametrize("bits", [16, 32, 64])
def test_check_words_catch_each_missing_or_doubled_pad(bits: int) -> None:
    """Each mask of each device left out once, put in twice, or with the other sign: the check words
    see every one.

    A wrong pad passes with probability 2^-64. Planted: ``verify_checks`` that compares the first
    check word alone -> still caught at 32 bits; one that returns True -> fails.
    """
    one = Masked(RING, graph(12, 6, 3), bits)
    clean = one.masked()
    remove_masks(clean, one.committed, one.true_secrets())
    for position in one.alive:
        for stream, sign in one.masks_of(position):
            for times in (-1, 1, -2):  # left out, doubled, turned
                total = clean.copy()
                for _ in range(abs(times)):
                    pads.apply(total, stream, sign if times > 0 else -sign)
                assert not one.sums_up(total)
    for position in one.alive:  # a whole vector missing or doubled
        vector = words.append_checks(one.vectors[position], one.constants, bits)
        assert not one.sums_up(clean - vector)
        assert not one.sums_up(clean + vector)


def test_missing_secrets_leave_masks() -> None:
    """Any one secret left out of the removal is a mask left in the sum."""
    one = Masked(RING, graph(12, 6, 3))
    secrets = one.true_secrets()
    for gone in secrets.seeds:
        total = one.masked()
        remove_masks(
            total,
            one.committed,
            replace(secrets, seeds={p: s for p, s in secrets.seeds.items() if p != gone}),
        )
        assert not one.sums_up(total)
    for gone in secrets.pad_keys:
        total = one.masked()
        remove_masks(
            total,
            one.committed,
            replace(secrets, pad_keys={p: s for p, s in secrets.pad_keys.items() if p != gone}),
        )
        assert not one.sums_up(total)


def test_a_pad_key_of_small_order_is_refused() -> None:
    one = Masked(RING, graph(12, 6, 3))
    keys = (*one.committed.pad_keys[:1], bytes(32), *one.committed.pad_keys[2:])
    with pytest.raises(ShoalError) as caught:
        remove_masks(one.masked(), replace(one.committed, pad_keys=keys), one.true_secrets())
    assert caught.value.kind is Kind.INVALID


# --- bundles --------------------------------------------------------------------------------------


def test_kinds_that_a_status_does_not_allow_are_blamed() -> None:
    """A bundle with a wrong kind for one neighbour is ignored as a whole: never both kinds of one
    device.

    Planted: ``add`` that does not look at kinds -> fails.
    """
    one = Masked(RING, graph(12, 6, 3))
    for position in one.alive:
        book, right = CollectedShares(one.committed), one.bundle(position)
        for index, neighbour in enumerate(one.committed.neighbours(position)):
            status = Status(one.statuses[neighbour])
            for wrong in {ShareKind.SELF_SEED, ShareKind.PAD_KEY} - {right.items[index][0]}:
                items = list(right.items)
                items[index] = (wrong, bytes(33))
                book = CollectedShares(one.committed)
                book.add(position, replace(right, items=tuple(items)))
                assert book.blamed == {position}, (position, neighbour, status)
                assert not any(book._held.values())
            items = list(right.items)
            items[index] = (ShareKind.NONE, b"")  # a share that it does not hold
            book = CollectedShares(one.committed)
            book.add(position, replace(right, items=tuple(items)))
            assert not book.blamed


def test_one_bundle_per_alive_position() -> None:
    """Only the first counts; of a dropped device, with another position inside, or of a wrong
    length: ignored and blamed.
    """
    one = Masked(RING, graph(12, 6, 3))
    book = one.book()
    before = {position: dict(held) for position, held in book._held.items()}
    one.spoil(0, 1)
    book.add(0, one.bundle(0))
    assert book._held == before
    assert not book.blamed
    book.add(99, one.bundle(0))
    book.refuse(99)
    assert not book.blamed
    book.add(2, ShareBundle(2, one.bundle(0).items))  # dropped
    assert book.blamed == {2}
    fresh = CollectedShares(one.committed)
    fresh.add(0, one.bundle(1))
    fresh.add(3, ShareBundle(3, one.bundle(3).items[:-1]))
    fresh.refuse(5)
    fresh.add(5, one.bundle(5))
    assert fresh.blamed == {0, 3, 5}
    assert not any(fresh._held.values())


def test_nothing_prints() -> None:
    one = Masked(RING, graph(12, 6, 3))
    book = one.book()
    shown = repr(book) + repr(book.recover())
    assert one.seeds[0].hex() not in shown
    assert repr(one.seeds[0]) not in shown


# --- secrets --------------------------------------------------------------------------------------


def test_exactly_as_many_bundles_as_the_threshold() -> None:
    """With every secret at t shares or more there is a sum; with one at t - 1 a typed abort."""
    one = Masked(b"\x02" * 7, graph(7, 6, 4))
    assert one.book(without=2).recover() == one.true_secrets()
    # With three bundles missing, the four that answered hold three shares of each other.
    with pytest.raises(ShoalError) as caught:
        one.book(without=3).recover()
    assert Reason.behind(caught.value) is Reason.TOO_FEW_SHARES


@for_each("liars", [(1,), (0, 6), (0, 1, 2), (2, 5, 9), (8, 9, 10)])
def test_wrong_shares_are_outvoted_and_blamed(liars: tuple[int, ...]) -> None:
    """Up to floor((m - t) / 2) wrong holders of every secret do no harm, also where every run of t
    neighbours has one, as with (2, 5, 9).

    Planted: ``_fits`` that is always true; ``decode`` that finds nothing -> each fails.
    """
    # each has 10 or 11 shares: 3 wrong ones are found
    one = Masked(bytes([2] * 11 + [1]), graph(12, 11, 4))
    for liar in liars:
        for of in range(12):
            if of != liar:
                one.spoil(liar, of, by=liar + of + 1)
    book = one.book()
    assert book.recover() == one.true_secrets()
    # Whoever is among the t that are looked at first is found out; who is not needed is not looked
    # at.
    assert book.blamed <= set(liars)
    assert (0 in liars) == (0 in book.blamed)
    if min(liars) < 4:
        assert book.blamed == set(liars)


def test_more_wrong_shares_than_can_be_outvoted() -> None:
    """Five of ten wrong with t = 4: some subset of neighbours fits the promise; nine of eleven:
    none does, and nothing is guessed.
    """
    one = Masked(bytes([2] * 11), graph(11, 10, 4))
    for liar in range(1, 6):
        one.spoil(liar, 0, by=liar)
    book = one.book()
    assert book.recover().seeds[0] == one.seeds[0]
    assert book.blamed == {1, 2, 3, 4, 5}
    for liar in range(6, 9):
        one.spoil(liar, 0, by=liar)
    with pytest.raises(ShoalError) as caught:
        one.book().recover()
    assert Reason.behind(caught.value) is Reason.WRONG_SHARES


def test_no_share_to_spare() -> None:
    """m = t and one wrong: aborted, not guessed."""
    one = Masked(b"\x02" * 5, graph(5, 4, 4))
    one.spoil(0, 1)
    with pytest.raises(ShoalError) as caught:
        one.book().recover()
    assert caught.value.kind is Kind.ABORTED
    assert Reason.behind(caught.value) is Reason.WRONG_SHARES


def test_a_dealer_that_promises_another_secret() -> None:
    """All shares lie on one polynomial, but not of the promised secret: the round is aborted, and
    no holder is blamed.
    """
    one = Masked(b"\x02" * 5, graph(5, 4, 2))
    commitments = (bytes(31) + b"\x01", *one.committed.commitments[1:])
    one.committed = replace(one.committed, commitments=commitments)
    book = one.book()
    with pytest.raises(ShoalError) as caught:
        book.recover()
    assert Reason.behind(caught.value) is Reason.WRONG_SHARES
    assert not book.blamed


def test_liars_are_believed_last() -> None:
    """Found out over one secret, a holder is passed over for the next ones: one decoding, not one
    per secret.
    """
    one = Masked(b"\x02" * 9, graph(9, 8, 3))
    for of in range(1, 9):
        one.spoil(0, of)
    book = one.book()
    searched = []
    search = book._search
    book._search = lambda position: searched.append(position) or search(position)  # type: ignore[func-returns-value, method-assign]
    assert book.recover() == one.true_secrets()
    assert searched == [1]


# --- decoding -------------------------------------------------------------------------------------


def test_decoding_against_brute_force() -> None:
    """Every number of errors up to the bound, at any place: the polynomial; beyond it: never one
    that more than half the rest denies.

    Brute force: the polynomial through any t shares on which at least m - floor((m - t) / 2) of all
    lie is unique.
    """
    entropy = SeededEntropy("decoding")
    for trial in range(size(60, 3_000)):
        m = 2 + trial % 8
        t = 1 + trial // 8 % m
        secret = entropy.bytes(32)
        points = list(range(3, 3 + m))
        shares = {
            p: int.from_bytes(s, "big")
            for p, s in zip(points, split(secret, t, points, entropy), strict=True)
        }
        errors = trial % ((m - t) // 2 + 3)
        wrong = points[:errors] if trial % 2 else points[len(points) - errors :]
        for point in wrong:
            shares[point] = (shares[point] + 1 + entropy.bytes(1)[0]) % PRIME
        close = {
            tuple(polynomial)
            for subset in itertools.combinations(points, t)
            for polynomial in [interpolate(subset, [shares[p] for p in subset])]
            if len(outliers(polynomial, shares)) <= (m - t) // 2
        }
        assert len(close) <= 1
        found = decode(shares, t)
        assert (found is None) == (not close)
        if found is not None:
            assert tuple(found) in close
        if errors <= (m - t) // 2:
            assert found is not None
            assert at_zero(found).to_bytes(32, "big") == secret
            assert outliers(found, shares) == set(wrong)


def test_interpolation_is_combine_and_extends_it() -> None:
    entropy = SeededEntropy("interpolate")
    secret, points = entropy.bytes(32), [7, 1, 900, 33]
    shares = dict(zip(points, split(secret, 3, points, entropy), strict=True))
    polynomial = interpolate(points, [int.from_bytes(shares[p], "big") for p in points])
    assert len(polynomial) == 3
    assert (
        at_zero(polynomial).to_bytes(32, "big")
        == secret
        == combine({p: shares[p] for p in points[:3]})
    )
    assert interpolate([1, 2], [0, 0]) == []
    assert at_zero([]) == 0
    assert decode({1: 0, 2: 0, 3: 0}, 2) == []
