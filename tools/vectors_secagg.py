"""Make the test vectors of secure aggregation: ``python tools/vectors_secagg.py`` writes
tests/vectors/shoal_secagg_v1.json.

Everything here is deterministic: a second run writes the same bytes. Keys and seeds are SHA-256 of
a label: public test values, never to be used for anything else. HPKE draws its own randomness in
the program, so a frame with a fixed encapsulated key is made here from RFC 9180 directly.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from vectors_complaints import complaints
from vectors_exchanges import bad_exchanges, bad_replies, exchanges, flipped
from vectors_rings import (
    bad_arcs,
    bad_lists,
    bad_records,
    check_constants,
    parameters,
    record_vectors,
    rings,
)
from vectors_rounds import a_round, singles
from vectors_segments import segments
from vectors_tasks import Json, fixed, hpke_key

from shoal.crypto.secagg.exchange import (
    exchange_info,
    shares_info,
    single_info,
    vector_info,
)
from shoal.crypto.secagg.pads import (
    PUBLIC_SIZE,
    WORD,
    agree,
    apply,
    pair_stream_key,
    self_stream_key,
    sign_of,
    single_stream_key,
)
from shoal.crypto.secagg.primitives.shamir import PRIME, SHARE_SIZE, split
from shoal.crypto.secagg.shares import SharePair, commitment, encode_bundle, seal_shares, share_key
from shoal.crypto.suites import SuiteId
from shoal.entropy import SeededEntropy
from shoal.ids import Digest, TaskId

PATH = Path(__file__).resolve().parent.parent / "tests" / "vectors" / "shoal_secagg_v1.json"
ROUND, TASK, WINDOW = Digest(fixed("round id")), TaskId(fixed("task id")), 7
WORDS = 6  # of every pad that is written out
FIELD_PRIME = 2**255 - 19


def x25519(label: str) -> tuple[X25519PrivateKey, bytes]:
    """A private key of 32 fixed bytes, and its public key."""
    key = X25519PrivateKey.from_private_bytes(fixed(label))
    return key, key.public_key().public_bytes_raw()


# --- pads -----------------------------------------------------------------------------------------


def padded(stream_key: bytes) -> list[Json]:
    """The words 0, 1, 2, ... and 2^w - 1 in the last place, with this pad added and taken away;
    decimal text.
    """
    entries = []
    for bits, dtype in WORD.items():
        for sign in (1, -1):
            words = np.arange(WORDS, dtype=dtype)
            words[-1] = 2**bits - 1
            before = words.copy()
            apply(words, stream_key, sign)
            entries.append(
                {
                    "word_bits": bits,
                    "sign": sign,
                    "before": [str(w) for w in before],
                    "after": [str(w) for w in words],
                }
            )
    return entries


def pair_pads() -> list[Json]:
    """Both devices' view of one pad: the same stream key, opposite signs."""
    entries = []
    for one, other in (
        ("device 1", "device 2"),
        ("device 2", "device 1"),
        ("device 1", "device 3"),
    ):
        private, public = x25519(f"pad key of {one}")
        _, other_public = x25519(f"pad key of {other}")
        shared = agree(private, other_public)
        stream_key = pair_stream_key(shared, ROUND, public, other_public)
        entries.append(
            {
                "round_id": ROUND.hex,
                "private_key": private.private_bytes_raw().hex(),
                "public_key": public.hex(),
                "other_public_key": other_public.hex(),
                "shared": shared.hex(),
                "sign": sign_of(public, other_public),
                "stream_key": stream_key.hex(),
                "words": padded(stream_key),
            }
        )
    return entries


def self_pads() -> list[Json]:
    """A self pad, from its seed."""
    seed, (_, public) = fixed("self seed"), x25519("pad key of device 1")
    stream_key = self_stream_key(seed, ROUND, public)
    entry = {
        "round_id": ROUND.hex,
        "seed": seed.hex(),
        "pad_key": public.hex(),
        "stream_key": stream_key.hex(),
    }
    return [
        entry | {"commitment": commitment(ROUND, public, seed).hex(), "words": padded(stream_key)}
    ]


def single_pads() -> list[Json]:
    """Pads of helper mode, in three windows."""
    seed, entries = fixed("single seed"), []
    for window in (0, WINDOW, 2**32 - 1):
        stream_key = single_stream_key(seed, TASK, window)
        entry = {
            "task_id": TASK.hex,
            "window": window,
            "seed": seed.hex(),
            "stream_key": stream_key.hex(),
        }
        entries.append(entry | {"words": padded(stream_key)})
    return entries


def bad_keys() -> list[Json]:
    """Public keys with which no device may agree on anything."""
    base = int.from_bytes(x25519("pad key of device 1")[1], "little")
    order_8 = (
        325606250916557431795983626356110631294008115727848805560023387167927233504,
        39382357235489614581723060781553021112529911719440698176882885853963445705823,
    )
    numbers = {
        "order 2": 0,
        "order 4": 1,
        "order 8": order_8[0],
        "order 8, the other": order_8[1],
        "order 4 on the twist": FIELD_PRIME - 1,
        "0 spelled as the field's prime": FIELD_PRIME,
        "1 spelled above the field's prime": FIELD_PRIME + 1,
        "the base point spelled above the field's prime": FIELD_PRIME + 9,
        "0 with the top bit": 1 << 255,
        "order 8 with the top bit": order_8[0] | 1 << 255,
        "a good key with the top bit": base | 1 << 255,
        "all ones": 2**256 - 1,
    }
    entries = [
        {"name": name, "public_key": number.to_bytes(PUBLIC_SIZE, "little").hex()}
        for name, number in numbers.items()
    ]
    good = base.to_bytes(PUBLIC_SIZE, "little")
    entries += [
        {"name": "empty", "public_key": ""},
        {"name": "one byte short", "public_key": good[:-1].hex()},
        {"name": "one byte long", "public_key": (good + b"\x00").hex()},
    ]
    return [entry | {"kind": "INVALID"} for entry in entries]


# --- secret sharing -------------------------------------------------------------------------------


class _Coefficients:
    """Randomness that gives fixed coefficients, the highest power first, 33 bytes big-endian
    each.
    """

    def __init__(self, numbers: Iterable[int]) -> None:
        self._data = b"".join(number.to_bytes(SHARE_SIZE, "big") for number in numbers)

    def bytes(self, count: int) -> bytes:
        taken, self._data = self._data[:count], self._data[count:]
        return taken

    def words(self, count: int) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
        return np.frombuffer(self.bytes(8 * count), dtype="<u8")


def shamirs() -> list[Json]:
    """Polynomials with their coefficients, lowest power (the secret) first, and shares of them."""
    large = [int.from_bytes(fixed(f"coefficient {i}"), "big") + i * 99 for i in range(25)]
    cases: list[tuple[bytes, list[int], list[int]]] = [
        (bytes(range(32)), [7, 11], [1, 2, 3]),
        (bytes(32), [], [1, 2**32 - 1]),
        (b"\xff" * 32, [PRIME - 1], [1, 2, 2**32 - 1]),
        (fixed("secret"), large[:4], [3, 1, 1024, 77, 12, 5]),
        (fixed("private key"), large, list(range(5, 45))),
    ]
    entries = []
    for secret, coefficients, points in cases:
        shares = split(secret, len(coefficients) + 1, points, _Coefficients(reversed(coefficients)))
        entries.append(
            {
                "secret": secret.hex(),
                "threshold": len(coefficients) + 1,
                "coefficients": [str(number) for number in coefficients],
                "shares": [
                    {"point": point, "share": share.hex()}
                    for point, share in zip(points, shares, strict=True)
                ],
            }
        )
    return entries


def bad_shares() -> list[Json]:
    """Nothing that can be put together."""
    good = split(fixed("secret"), 2, [1, 2], SeededEntropy("bad shares"))
    cases: dict[str, dict[int, bytes]] = {
        "none": {},
        "at point 0": {0: good[0], 2: good[1]},
        "at point 2^32": {1: good[0], 2**32: good[1]},
        "one byte short": {1: good[0], 2: good[1][:-1]},
        "one byte long": {1: good[0], 2: good[1] + b"\x00"},
        "as large as the prime": {1: good[0], 2: PRIME.to_bytes(SHARE_SIZE, "big")},
        "a secret of 2^256": {1: (2**256).to_bytes(SHARE_SIZE, "big")},
        "the largest field element as secret": {5: (PRIME - 1).to_bytes(SHARE_SIZE, "big")},
    }
    return [
        {
            "name": name,
            "shares": [{"point": point, "share": share.hex()} for point, share in shares.items()],
            "kind": "INVALID",
        }
        for name, shares in cases.items()
    ]


# --- sealed shares and bundles --------------------------------------------------------------------


def sealed_shares() -> list[Json]:
    """Shares that devices sealed to one another."""
    entries = []
    pair = SharePair(b"\x00" + fixed("share b"), b"\x00" + fixed("share s"))
    for one, other, sender, receiver in (
        ("device 1", "device 2", 0, 1),
        ("device 2", "device 1", 1, 0),
        ("device 1", "device 3", 258, 1023),
    ):
        private, public = x25519(f"share key of {one}")
        _, other_public = x25519(f"share key of {other}")
        key = share_key(agree(private, other_public), ROUND, public, other_public)
        entries.append(
            {
                "round_id": ROUND.hex,
                "sender_private_key": private.private_bytes_raw().hex(),
                "sender_share_key": public.hex(),
                "receiver_share_key": other_public.hex(),
                "key": key.hex(),
                "sender": sender,
                "receiver": receiver,
                "b": pair.b.hex(),
                "s": pair.s.hex(),
                "sealed": seal_shares(key, pair, ROUND, sender, receiver).hex(),
            }
        )
    return entries


def bad_sealed_shares() -> list[Json]:
    """All to be opened under this key as from position 1 to position 2 of this round."""
    key, pair = (
        fixed("a share key"),
        SharePair(b"\x00" + fixed("share b"), b"\x00" + fixed("share s")),
    )
    good = seal_shares(key, pair, ROUND, 1, 2)
    bound = ROUND.raw + (1).to_bytes(4, "big") + (2).to_bytes(4, "big")
    beyond = PRIME.to_bytes(SHARE_SIZE, "big")
    cases = {
        "other round": seal_shares(key, pair, Digest(fixed("another round id")), 1, 2),
        "other sender": seal_shares(key, pair, ROUND, 3, 2),
        "other receiver": seal_shares(key, pair, ROUND, 1, 3),
        "sent back": seal_shares(key, pair, ROUND, 2, 1),
        "under another key": seal_shares(fixed("another share key"), pair, ROUND, 1, 2),
        "bit flipped": flipped(good, 0),
        "bit flipped in the tag": flipped(good, -1),
        "one byte short": good[:-1],
        "one byte long": good + b"\x00",
        "empty": b"",
        "b outside the field": AESGCM(key).encrypt(bytes(12), beyond + pair.s, bound),
        "s outside the field": AESGCM(key).encrypt(bytes(12), pair.b + beyond, bound),
        "one share alone": AESGCM(key).encrypt(bytes(12), pair.b, bound),
    }
    entry = {"round_id": ROUND.hex, "key": key.hex(), "sender": 1, "receiver": 2}
    return [
        entry | {"name": name, "sealed": sealed.hex(), "kind": "INVALID"}
        for name, sealed in cases.items()
    ]


def bundles() -> list[Json]:
    """Bundles of shares, as a device shows them."""
    b, s = b"\x00" + fixed("share b"), b"\x01" + bytes(32)
    entries = []
    for position, items in ((0, []), (258, [(1, b), (0, b""), (2, s)]), (1023, [(0, b"")] * 2)):
        data = encode_bundle(position, items)
        written = [{"kind": kind, "share": share.hex()} for kind, share in items]
        entries.append({"position": position, "items": written, "bundle": data.hex()})
    return entries


def bad_bundles() -> list[Json]:
    """All to be read as bundles of two neighbours."""
    good = encode_bundle(3, [(1, b"\x00" + fixed("share b")), (0, b"")])
    cases = {
        "empty": b"",
        "one byte short": good[:-1],
        "one byte long": good + b"\x00",
        "of one neighbour": good[:-34],
        "kind 3": good[:4] + b"\x03" + good[5:],
        "a share of kind none": good[:4] + b"\x00" + good[5:],
        "none whose last byte is 1": flipped(good, -1),
        "a share outside the field": good[:5] + PRIME.to_bytes(SHARE_SIZE, "big") + good[38:],
    }
    return [
        {"name": name, "neighbours": 2, "bundle": data.hex(), "kind": "INVALID"}
        for name, data in cases.items()
    ]


# --- infos ----------------------------------------------------------------------------------------


def infos() -> Json:
    """The info strings of every layer."""
    key_id = hpke_key(SuiteId.X25519_AES128, "analyzer").config.key_id
    return {
        "round_id": ROUND.hex,
        "task_id": TASK.hex,
        "window": WINDOW,
        "key_id": key_id.hex,
        "vector": vector_info(ROUND, key_id).hex(),
        "shares": shares_info(ROUND, key_id).hex(),
        "single": single_info(TASK, WINDOW, key_id).hex(),
        "exchange": exchange_info(key_id).hex(),
    }


def make() -> Json:
    """All vectors. Bytes are hexadecimal; integers that may pass 2^53 are decimal text."""
    return {
        "provenance": (
            "Made by tools/vectors_secagg.py, the same at every run. Test keys: SHA-256 of a label."
        ),
        "pair_pads": pair_pads(),
        "self_pads": self_pads(),
        "single_pads": single_pads(),
        "prime": str(PRIME),
        "shamir": shamirs(),
        "sealed_shares": sealed_shares(),
        "complaints": complaints(),
        "bundles": bundles(),
        "infos": infos(),
        "exchanges": exchanges(),
        "records": record_vectors(),
        "rings": rings(),
        "parameters": parameters(),
        "check_constants": check_constants(),
        "round": a_round(),
        "singles": singles(),
        "segments": segments(),
        "refuse": {
            "keys": bad_keys(),
            "shamir": bad_shares(),
            "sealed_shares": bad_sealed_shares(),
            "bundles": bad_bundles(),
            "exchanges": bad_exchanges(),
            "replies": bad_replies(),
            "records": bad_records(),
            "arcs": bad_arcs(),
            "lists": bad_lists(),
        },
    }


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else PATH
    target.write_text(json.dumps(make(), indent=1) + "\n")
    print(target)
