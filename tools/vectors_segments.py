"""Test vectors of long vectors: one masked vector, sealed in segments."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from vectors_hpke import seal_fixed
from vectors_tasks import Json, fixed, hpke_key

from shoal.crypto.secagg.pads import apply_all
from shoal.crypto.secagg.segments import ROW_ID_SIZE, segment_info
from shoal.crypto.secagg.words import append_checks, check_constants
from shoal.crypto.suites import SuiteId
from shoal.ids import Digest
from shoal.secagg import Mode, PairwisePlan

_PLAN = PairwisePlan(Mode.DEFAULT, 5, 5, 3, 400_000, 32, segment_words=4)
_ROUND = Digest(fixed("round id"))


def segments() -> list[Json]:
    """Vectors whose last segment is full, and shorter, and the only one; all widths of a word."""
    return [_sealed(bits, dimension) for bits in (16, 32, 64) for dimension in (3, 8, 10)]


def _sealed(bits: int, dimension: int) -> Json:
    plan, key = replace(_PLAN, word_bits=bits), hpke_key(SuiteId.X25519_AES128, "analyzer")
    vector = np.arange(dimension, dtype=np.int64) * 77 - 123
    streams = [
        (fixed(f"stream {at}") + fixed(f"counter {at}", 16), sign)
        for at, sign in enumerate((1, -1))
    ]
    masked = append_checks(vector, check_constants(_ROUND.raw, bits), bits)
    apply_all(masked, streams)
    row, at, infos = fixed("row id", ROW_ID_SIZE), 0, list[str]()
    sealed = row
    sizes = plan.segments(dimension)
    for index, size in enumerate(sizes):
        info = segment_info(_ROUND, key.config.key_id, row, index, len(sizes))
        ephemeral = fixed(f"ephemeral of segment {index} of {dimension}, {bits}")
        sealed += seal_fixed(key.config, ephemeral, masked[at : at + size].tobytes(), info)
        infos.append(info.hex())
        at += size
    return {
        "analyzer_private_key": key.to_raw_secret().hex(),
        "round_id": _ROUND.hex,
        "key_id": key.config.key_id.hex,
        "word_bits": bits,
        "segment_words": plan.segment_words,
        "vector": vector.tolist(),
        "streams": [{"key": stream.hex(), "sign": sign} for stream, sign in streams],
        "row_id": row.hex(),
        "words": list(sizes),
        "infos": infos,
        "masked": masked.tobytes().hex(),
        "sealed": sealed.hex(),
    }
