"""The records of a round: of another version, or with more in them, they are none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from shoal.crypto.secagg.records import Commit, Offer, Start
from shoal.errors import Kind, ShoalError
from shoal.ids import Digest, KeyId, TaskId
from shoal.protos import pairwise_pb2

H, N = Digest(bytes(range(32))), bytes(range(32))
OFFER = Offer(TaskId(N), 3, KeyId(bytes(8)), H, N, N[::-1])
START = pairwise_pb2.Start(
    version=1,
    offer_id=N,
    shuffler_nonce=N,
    analyzer_nonce=N[::-1],
    devices=5,
    ring_root=N,
    list_hash=N,
)
COMMIT = pairwise_pb2.Commit(version=1, round_id=N, statuses=b"\x02" * 5)
RECORDS: dict[str, tuple[Callable[[bytes], object], Any]] = {
    "offer": (Offer.decode, pairwise_pb2.Offer.FromString(OFFER.encode())),
    "start": (Start.decode, START),
    "commit": (Commit.decode, COMMIT),
}


@pytest.mark.parametrize("name", RECORDS)
def test_another_version_is_refused(name: str) -> None:
    """Planted: ``_strict`` left out of one of them, or without the version -> its case fails."""
    decode, made = RECORDS[name]
    for version in (1, 0, 2, 2**32 - 1):
        record = type(made)()
        record.CopyFrom(made)
        record.version = version
        if version == 1:
            decode(record.SerializeToString())
            with pytest.raises(ShoalError, match="has fields that") as caught:
                decode(record.SerializeToString() + b"\xf8\x07\x01")
        else:
            with pytest.raises(ShoalError, match=f"{name}: version {version} ") as caught:
                decode(record.SerializeToString())
        assert caught.value.kind is Kind.INVALID
