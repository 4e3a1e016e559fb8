"""Helper mode at the device: one masked vector, sent until it is on the shuffler's disk. There is no second visit."""

from __future__ import annotations

import asyncio
import contextlib

import numpy as np
from numpy.typing import NDArray

from shoal.clients.exchange import Line, kind_of
from shoal.clients.rounds import Ledger, RoundOutcome, RoundState
from shoal.clients.rounds_ledger import Standing
from shoal.crypto.enrolment import DeviceIdentity
from shoal.crypto.secagg.single import Submission, submit, window_label
from shoal.crypto.secagg.terms import RoundTerms
from shoal.errors import Kind, ShoalError
from shoal.failpoints import hit
from shoal.ids import Digest
from shoal.limits import LIMITS
from shoal.protos import pairwise_pb2


async def send_single(terms: RoundTerms, identity: DeviceIdentity, vector: NDArray[np.int64], ledger: Ledger, line: Line) -> RoundOutcome:
    """Mask and send, before ``line.deadline``. COUNTED: the shuffler has it on its disk.

    ``vector``: int64[d], quantized and with this device's noise share. Never raises for what the shuffler or the network do: the
    outcome says it. Raises INVALID for a vector of the wrong shape, CONFLICT if the window was answered already; nothing is sent then.
    """
    submission = await asyncio.to_thread(submit, terms, identity, vector, ledger, line.entropy)
    hit("client.round.masked")
    label = window_label(terms.task_id, terms.window)
    outcome = RoundOutcome(RoundState.LOST, label, True, Kind.UNAVAILABLE, "sending was broken off")
    try:
        outcome = RoundOutcome(RoundState.COUNTED, label, True)
        await _deliver(terms, submission, line)
    except ShoalError as error:
        # After a lost reply the vector may be there all the same; a refusal of the shuffler's own says that it is not.
        state = RoundState.LOST if error.kind is Kind.DEADLINE else RoundState.ABORTED
        outcome = RoundOutcome(state, label, True, error.kind, error.message)
    except BaseException:
        outcome = RoundOutcome(RoundState.LOST, label, True)
        raise
    finally:
        with contextlib.suppress(ShoalError):  # the entry itself is there; what became of it is a comfort
            await asyncio.shield(asyncio.to_thread(ledger.settle, terms.task_id, terms.window, _STANDING[outcome.state], outcome.kind))
    return outcome


_PASSES = 3
_STANDING = {RoundState.COUNTED: Standing.COUNTED, RoundState.ABORTED: Standing.ABORTED, RoundState.LOST: Standing.LOST}


async def _deliver(terms: RoundTerms, submission: Submission, line: Line) -> None:
    """Upload from where the shuffler is, then the seed. Raises what the shuffler refuses."""

    async def send(**step: pairwise_pb2.Upload | pairwise_pb2.Single | pairwise_pb2.Poll) -> pairwise_pb2.Answer:
        message = pairwise_pb2.Step(task_id=terms.task_id.raw, window=terms.window, session=submission.session)
        for name, value in step.items():
            getattr(message, name).CopyFrom(value)
        answer = await line.send(message)
        kind = kind_of(answer)
        if kind is not None:
            raise ShoalError(kind, answer.reason)
        return answer

    told = False  # whether the shuffler may have had all of it
    for passes_left in reversed(range(_PASSES)):
        try:
            received, total = (await send(poll=pairwise_pb2.Poll())).received, len(submission.sealed)
            while received < total:
                chunk = submission.sealed[received : received + LIMITS.upload_bytes]
                upload = pairwise_pb2.Upload(offset=received, total=total, chunk=chunk)
                if not received:  # nothing is kept for who has not shown that it may take part
                    upload.proof, upload.digest = submission.single.proof, Digest.of(submission.sealed).raw
                received = (await send(upload=upload)).received
            told = True
            answer = await send(single=submission.single)
        except ShoalError as error:
            # The shuffler lets go of an upload once it is stored, when it restarts, and of slow ones when its memory is full: then the
            # next step does not fit what it holds. All of it again is told the same, and counts once.
            if error.kind is Kind.INVALID and passes_left:
                continue
            if error.kind is Kind.WINDOW_CLOSED and told:
                raise ShoalError(Kind.DEADLINE, "the window ended before the shuffler said whether it has the vector") from None
            raise
        if answer.phase != pairwise_pb2.PHASE_DONE:
            raise ShoalError(Kind.INTERNAL, "the shuffler did not say that the vector is stored: ask its operator")
        return
