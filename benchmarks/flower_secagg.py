"""Flower's SecAgg+ primitives on this machine: run by benchmarks/secagg.py in an environment of
Flower's own, prints JSON.

Flower pins other versions of our dependencies, so it cannot live in our environment: ``make
flower`` makes one for it. What is timed are Flower's own functions in the order in which its client
and its server call them, without its network, messages or logging: kinder to Flower than a whole
round. The server's part is timed on a few secrets and multiplied; the parts are added.

Usage: python flower_secagg.py NEIGHBOURS THRESHOLD DIMENSION DEVICES
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable

import numpy as np
from flwr.common.secure_aggregation.crypto.shamir import combine_shares, create_shares
from flwr.common.secure_aggregation.crypto.symmetric_encryption import (
    decrypt,
    encrypt,
    generate_shared_key,
)
from flwr.common.secure_aggregation.ndarrays_arithmetic import (
    parameters_addition,
    parameters_mod,
    parameters_subtraction,
)
from flwr.common.secure_aggregation.quantization import quantize
from flwr.common.secure_aggregation.secaggplus_utils import pseudo_rand_gen
from flwr.supercore.primitives.asymmetric import (
    bytes_to_private_key,
    bytes_to_public_key,
    generate_key_pairs,
    private_key_to_bytes,
    public_key_to_bytes,
)

_MODULUS = 1 << 32
_SAMPLES = 3
_PADS = 20


def client(neighbours: int, threshold: int, dimension: int) -> dict[str, float]:
    """CPU seconds of one client: keys, shares, masking. Unmasking costs it next to nothing."""
    peers = [generate_key_pairs() for _ in range(neighbours)]
    peer_bytes = [public_key_to_bytes(public) for _, public in peers]
    values = [np.linspace(-1, 1, dimension)]
    begin = time.process_time()
    private, _ = generate_key_pairs()
    second, _ = generate_key_pairs()
    own, own2 = private_key_to_bytes(private), private_key_to_bytes(second)
    seed = os.urandom(32)
    seed_shares = create_shares(seed, threshold, neighbours + 1)
    key_shares = create_shares(own, threshold, neighbours + 1)
    sealed = []
    for index, public in enumerate(peer_bytes):
        shared = generate_shared_key(bytes_to_private_key(own2), bytes_to_public_key(public))
        sealed.append((shared, encrypt(shared, seed_shares[index] + key_shares[index])))
    shared_at = time.process_time()
    for shared, message in sealed:
        decrypt(shared, message)
    vector = quantize(values, 1.0, 1 << 22)
    shapes = [array.shape for array in vector]
    vector = parameters_addition(vector, pseudo_rand_gen(seed, _MODULUS, shapes))
    for public in peer_bytes:
        shared = generate_shared_key(bytes_to_private_key(own), bytes_to_public_key(public))
        vector = parameters_addition(vector, pseudo_rand_gen(shared, _MODULUS, shapes))
    parameters_mod(vector, _MODULUS)
    return {"client_share_s": shared_at - begin, "client_mask_s": time.process_time() - shared_at}


def server(neighbours: int, threshold: int, dimension: int, devices: int, percent: int) -> float:
    """CPU seconds of the server to take the masks away when ``percent`` of the devices sent no
    vector; it combines all shares that came.
    """
    private, public = generate_key_pairs()
    answered = (neighbours + 1) * (100 - percent) // 100
    seed_shares = create_shares(os.urandom(32), threshold, neighbours + 1)[:answered]
    key_shares = create_shares(private_key_to_bytes(private), threshold, neighbours + 1)[:answered]
    shapes = [(dimension,)]
    vector = [np.zeros(dimension, dtype=np.int64)]
    seed_s = _timed(_SAMPLES, lambda: combine_shares(seed_shares))
    key_s = _timed(1, lambda: combine_shares(key_shares))
    pad_s = _timed(
        _PADS, lambda: parameters_subtraction(vector, pseudo_rand_gen(b"\1" * 32, _MODULUS, shapes))
    )
    key, other = private_key_to_bytes(private), public_key_to_bytes(public)
    agreement_s = _timed(
        _PADS, lambda: generate_shared_key(bytes_to_private_key(key), bytes_to_public_key(other))
    )
    dropped = devices * percent // 100
    return (devices - dropped) * (seed_s + pad_s) + dropped * (
        key_s + neighbours * (agreement_s + pad_s)
    )


def _timed(times: int, work: Callable[[], object]) -> float:
    """CPU seconds of one."""
    begin = time.process_time()
    for _ in range(times):
        work()
    return (time.process_time() - begin) / times


def main() -> None:
    """Measure Flower's client, and its server with 0, 10 and 30 % lost; prints a line of JSON."""
    neighbours, threshold, dimension, devices = map(int, sys.argv[1:5])
    figures = client(neighbours, threshold, dimension)
    for percent in (0, 10, 30):
        figures[f"server_{percent}_s"] = server(neighbours, threshold, dimension, devices, percent)
    sys.stdout.write(json.dumps(figures) + "\n")


if __name__ == "__main__":
    main()
