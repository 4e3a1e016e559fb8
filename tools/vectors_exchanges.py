"""Steps of a round as they travel, sealed to the hop key, and their replies; and some that must be
refused: a part of the vectors that tools/vectors_secagg.py writes.
"""

from __future__ import annotations

from itertools import count

from vectors_hpke import seal_fixed
from vectors_tasks import Json, fixed, hpke_key

from shoal.crypto.secagg.exchange import exchange_info, seal_reply
from shoal.crypto.suites import SuiteId
from shoal.entropy import SeededEntropy


def flipped(data: bytes, place: int) -> bytes:
    """The same bytes with one bit changed; ``place`` may count from the end."""
    changed = bytearray(data)
    changed[place] ^= 1
    return bytes(changed)


def exchanges() -> list[Json]:
    """Requests with a fixed encapsulated key for the hop key of suite 1, and replies with fixed
    nonces.
    """
    hop, entries = hpke_key(SuiteId.X25519_AES128, "hop"), []
    for number, (step, answer) in enumerate(
        ((b"", b""), (b"a step", b"an answer"), (bytes(range(256)) * 2, bytes(1000)))
    ):
        reply_key = fixed(f"reply key {number}")
        sealed = seal_fixed(
            hop.config,
            fixed(f"ephemeral {number}"),
            reply_key + step,
            exchange_info(hop.config.key_id),
        )
        replies = [
            seal_reply(reply_key, answer, SeededEntropy(f"reply {number} {again}"))
            for again in range(2)
        ]
        entries.append(
            {
                "suite": hop.config.suite.value,
                "private_key": hop.to_raw_secret().hex(),
                "key_id": hop.config.key_id.hex,
                "info": exchange_info(hop.config.key_id).hex(),
                "step": step.hex(),
                "reply_key": reply_key.hex(),
                "frame": (bytes((1, 1)) + hop.config.key_id.raw + sealed).hex(),
                "answer": answer.hex(),
                "replies": [reply.hex() for reply in replies],
            }
        )
    return entries


def bad_exchanges() -> list[Json]:
    """All to be opened with the hop key of suite 1."""
    config = hpke_key(SuiteId.X25519_AES128, "hop").config
    ephemerals = (fixed(f"bad ephemeral {number}") for number in count())

    def frame(plaintext: bytes, info: bytes) -> bytes:
        return (
            bytes((1, 1))
            + config.key_id.raw
            + seal_fixed(config, next(ephemerals), plaintext, info)
        )

    info = exchange_info(config.key_id)
    good = frame(fixed("reply key") + b"a step", info)
    cases = {
        "empty": (b"", "INVALID"),
        "header alone": (good[:10], "INVALID"),
        "version 2": (b"\x02" + good[1:], "INVALID"),
        "unknown suite": (good[:1] + b"\x00" + good[2:], "INVALID"),
        "another suite": (good[:1] + b"\x02" + good[2:], "INVALID"),
        "another key id": (flipped(good, 2), "UNKNOWN_KEY"),
        "bit flipped in the encapsulated key": (flipped(good, 10), "INVALID"),
        "bit flipped in the ciphertext": (flipped(good, 42), "INVALID"),
        "bit flipped in the tag": (flipped(good, -1), "INVALID"),
        "one byte short": (good[:-1], "INVALID"),
        "one byte long": (good + b"\x00", "INVALID"),
        "info of a report's frame": (
            frame(fixed("reply key") + b"a step", b"shoal/v1/hop\x00\x00" + config.key_id.raw),
            "INVALID",
        ),
        "no room for a reply key": (frame(bytes(31), info), "INVALID"),
        "longer than 288 KiB": (good.ljust(288 * 1024 + 1, b"\x00"), "OVERSIZE"),
    }
    return [
        {"name": name, "suite": 1, "kind": kind, **_compact(data)}
        for name, (data, kind) in cases.items()
    ]


def _compact(data: bytes) -> Json:
    """Trailing zeros as their number, so that a long frame takes one line."""
    bare = data.rstrip(b"\x00") if len(data) > 1000 else data
    return {"frame": bare.hex(), "zeros": len(data) - len(bare)}


def bad_replies() -> list[Json]:
    """Sealed replies that must be refused."""
    key = fixed("reply key")
    good = seal_reply(key, b"an answer", SeededEntropy("bad replies"))
    cases = {
        "under another key": seal_reply(
            fixed("another reply key"), b"an answer", SeededEntropy("bad replies")
        ),
        "bit flipped in the nonce": flipped(good, 0),
        "bit flipped in the ciphertext": flipped(good, 12),
        "bit flipped in the tag": flipped(good, -1),
        "one byte short": good[:-1],
        "nonce alone": good[:12],
        "empty": b"",
    }
    return [
        {"name": name, "reply_key": key.hex(), "reply": data.hex(), "kind": "BAD_SIGNATURE"}
        for name, data in cases.items()
    ]
