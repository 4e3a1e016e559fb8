"""Simulated batches at a worker elsewhere: what a request holds, and what is made of it there.

A request names a mechanism of the registry, a domain, made-up devices by a few numbers, and which
of them to simulate. There is no key, no row and no function in it. It is read as if anybody had
sent it: whatever is of another form, or more than a worker does at a time, is refused by name.
"""

from __future__ import annotations

import base64
import json
import struct
from functools import lru_cache
from typing import Any

from google.protobuf.message import DecodeError

from shoal.analyzer.machines import messages
from shoal.analyzer.machines.messages import join_parts, split_parts
from shoal.analyzer.planner.heaps import Heaped
from shoal.analyzer.planner.quantiles import cut_of
from shoal.analyzer.planner.question import MOST_DEVICES, Shape, Spread
from shoal.analyzer.planner.simulation.crowd import AtValue, ByCounts, Crowd, Shaped
from shoal.analyzer.planner.simulation.simulate import MOST_RUNS
from shoal.analyzer.planner.simulation.stretches import (
    MOST_CELLS,
    Rehearsal,
    Stretch,
    block_of,
    cells_of,
    most_of,
    tallies_of,
)
from shoal.arrays import np
from shoal.domain import Domain, Numeric
from shoal.entropy import SYSTEM, SeededEntropy, SystemEntropy
from shoal.errors import Kind, ShoalError
from shoal.mechanisms import Tally, create
from shoal.protos import task_pb2
from shoal.questions.domain_codec import decode_domain, encode_domain
from shoal.task import MechanismSpec

MOST_ORDER = 4 << 20  # bytes: 65,536 counts, and as many labels of 50 bytes
_STRETCH = struct.Struct("!QQQQ")  # batches from, to, devices from, to
_SEED = 32  # bytes
_TALLY = 64  # bytes of a tally, beside its cells, at most


def order_of(work: Rehearsal, domain: Domain) -> bytes:
    """What is simulated. Raises INVALID for what does not cross: too many labels, a shape or an
    entropy that is none of ours.
    """
    seed = work.entropy.key if isinstance(work.entropy, SeededEntropy) else b""
    if not seed and not isinstance(work.entropy, SystemEntropy):
        raise _refused("its entropy is neither the system's nor seeded")
    crowd, counts = _described(work.crowd)
    header = {
        "mechanism": [work.mechanism.spec.name, work.mechanism.spec.parameters],
        "domain": base64.b64encode(encode_domain(domain).SerializeToString()).decode(),
        "crowd": crowd,
        "seed": seed.hex(),
    }
    order = join_parts(json.dumps(header).encode(), counts)
    if len(order) > MOST_ORDER:
        raise _refused(f"it has more than {MOST_ORDER} bytes: shorter labels, or fewer")
    return order


def stretch_of(stretch: Stretch) -> bytes:
    """Which devices of which batches: 32 bytes."""
    runs, devices = stretch.runs, stretch.devices
    return _STRETCH.pack(runs.start, runs.stop, devices.start, devices.stop)


def rehearse(parts: list[bytes]) -> bytes:
    """In the worker: the answer to a request of an order and a stretch. Never raises."""
    try:
        if len(parts) != 2:
            raise _refused("an order and a stretch are wanted")
        work = read_order(parts[0])
        tallies = tallies_of(work, read_stretch(parts[1], work))
        return messages.answer(join_parts(*(tally.to_bytes() for tally in tallies)))
    except ShoalError as error:
        return messages.refused(error)
    except Exception as error:  # noqa: BLE001 - told to whoever asked
        name = type(error).__name__
        return messages.refused(
            ShoalError(Kind.INTERNAL, f"a worker failed to simulate ({name}): this is a bug")
        )


def tallies_from(answer: object, work: Rehearsal, stretch: Stretch) -> list[Tally]:
    """What a worker answered, whatever it may have sealed. Raises MISMATCH unless it has one tally
    per batch, of its cells, each for exactly the devices of the stretch.
    """
    cells, batches = cells_of(work.mechanism), len(stretch.runs)
    if not isinstance(answer, bytes) or len(answer) > batches * (8 * cells + _TALLY):
        raise _untrue("its answer to a simulation is none")
    try:
        tallies = [Tally.from_bytes(part) for part in split_parts(answer)]
    except (ShoalError, ValueError):
        raise _untrue("its answer to a simulation is none") from None
    reports = len(stretch.devices) * work.mechanism.messages
    if len(tallies) != batches:
        raise _untrue(f"it answered for {len(tallies)} simulated batches, asked for {batches}")
    for tally in tallies:
        if tally.counts.size != cells:
            raise _untrue("its simulated tally has other cells than the mechanism")
        if tally.rows != reports:
            raise _untrue(f"it answered for {tally.rows} simulated reports, asked for {reports}")
    return tallies


@lru_cache(maxsize=2)  # every request of a simulation has the same order
def read_order(order: bytes) -> Rehearsal:
    """The inverse of ``order_of``. Raises INVALID for anything that it did not write."""
    if len(order) > MOST_ORDER:
        raise _refused(f"it has more than {MOST_ORDER} bytes")
    try:
        header, counts = split_parts(order)
        told = json.loads(header)
        name, parameters = told["mechanism"]
        spec = MechanismSpec(str(name), tuple((str(key), int(value)) for key, value in parameters))
        message = task_pb2.Domain.FromString(base64.b64decode(told["domain"], validate=True))
        domain, seed = decode_domain(message), bytes.fromhex(told["seed"])
        crowd = _meant(told["crowd"], counts, domain)
    except (ValueError, LookupError, TypeError, ArithmeticError, DecodeError, RecursionError):
        raise _refused("it has another form than this version's") from None
    if seed and len(seed) != _SEED:
        raise _refused("its seed is not 32 bytes long")
    if not 1 <= crowd.n <= MOST_DEVICES:
        raise _refused(f"a batch has 1 to {MOST_DEVICES} devices")
    entropy = SeededEntropy.keyed(seed) if seed else SYSTEM
    return Rehearsal(create(spec, domain), crowd, entropy)


def read_stretch(data: bytes, work: Rehearsal) -> Stretch:
    """The inverse of ``stretch_of``. Raises INVALID for devices that are not there, or more of them
    than a worker simulates at a time.
    """
    if len(data) != _STRETCH.size:
        raise _refused("a stretch of another form than this version's")
    first, last, start, stop = _STRETCH.unpack(data)
    stretch, block = Stretch(range(first, last), range(start, stop)), block_of(work.mechanism)
    whole = stretch.devices == range(work.crowd.n)
    if not (first < last <= MOST_RUNS and start < stop <= work.crowd.n and start % block == 0):
        raise _refused("a stretch of devices or batches that are not there")
    if len(stretch.runs) > 1 and not whole:
        raise _refused("a stretch of several batches has all of their devices")
    cells = cells_of(work.mechanism)
    if stretch.size > most_of(work.mechanism) or (
        len(stretch.runs) > 1 and len(stretch.runs) * cells > MOST_CELLS
    ):
        raise _refused("a stretch of more than a worker does at a time")
    return stretch


def _described(crowd: Crowd) -> tuple[list[Any], bytes]:
    if isinstance(crowd, ByCounts):
        return ["counted"], crowd.counts.astype(">i8").tobytes()
    if isinstance(crowd, AtValue):
        return ["at", crowd.n, crowd.below, crowd.threshold], b""
    if isinstance(crowd, Shaped):
        return ["shaped", crowd.n, _named(crowd.shape)], b""
    raise _refused("its devices are of no known kind")


def _meant(told: list[Any], counts: bytes, domain: Domain) -> Crowd:
    kind, *numbers = told
    if kind == "counted" and not numbers:
        held = np.frombuffer(counts, dtype=">i8").astype(np.int64)
        if held.size != domain.size or held.min() < 0 or held.max() > MOST_DEVICES:
            raise ValueError("counts")
        return ByCounts(held)
    if counts:
        raise ValueError("counts")
    n, first, *more = numbers
    if kind == "at" and isinstance(domain, Numeric):
        (threshold,) = more
        if not (0 <= int(first) < domain.levels and 0 <= int(threshold) < 1 << 64):
            raise ValueError("at")
        return AtValue(int(n), int(first), int(threshold), domain.levels)
    if kind == "shaped" and not more:
        return Shaped(int(n), _shape(first), cut_of(domain))
    raise ValueError("kind")


def _named(shape: Spread) -> list[Any]:
    if isinstance(shape, Shape):
        return [shape.value]
    if isinstance(shape, Heaped):
        return [shape.rest.value, shape.at, shape.shares]
    raise _refused("numbers in this shape do not cross")


def _shape(told: list[Any]) -> Spread:
    if len(told) == 1:
        return Shape(told[0])
    rest, at, shares = told
    return Heaped(tuple(map(float, at)), tuple(map(float, shares)), Shape(rest))


def _refused(why: str) -> ShoalError:
    return ShoalError(Kind.INVALID, f"a simulation that can't be done by a worker: {why}")


def _untrue(why: str) -> ShoalError:
    return ShoalError(Kind.MISMATCH, why)
