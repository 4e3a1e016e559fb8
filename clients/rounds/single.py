"""Helper mode at the device: one masked vector, sent until it is on the shuffler's disk. There is
no second visit.

The shuffler is asked first whether it takes the window now. It says so of a window that is paused,
over, or not yet begun, and of a task that it does not serve: then no vector is made, and nothing is
charged. A session of its own asks, so that nothing joins it to the vector.
"""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial

from shoal.arrays import NDArray, np
from shoal.clients.memory.rounds_ledger import RoundStanding
from shoal.clients.rounds.exchange import RoundLine, kind_of
from shoal.clients.rounds.participation import Ledger, RoundOutcome, RoundState
from shoal.crypto.admission.enrolment import DeviceIdentity
from shoal.crypto.secagg.single import Submission, submit, window_label
from shoal.crypto.secagg.terms import SESSION_SIZE, RoundTerms
from shoal.errors import Kind, ShoalError
from shoal.failpoints import hit
from shoal.ids import Digest
from shoal.limits import LIMITS
from shoal.protos import pairwise_pb2


async def send_single(
    terms: RoundTerms,
    identity: DeviceIdentity,
    vector: NDArray[np.int64],
    ledger: Ledger,
    line: RoundLine,
) -> RoundOutcome:
    """Ask, mask and send, before ``line.deadline``. COUNTED: the shuffler has it on its disk. NONE:
    it does not take the window now, or could not be asked; nothing was charged.

    ``vector``: int64[d], quantized and with this device's noise share. Never raises for what the
    shuffler or the network do: the outcome says it. Raises INVALID for a vector of the wrong shape,
    CONFLICT if the window was answered already; nothing is sent then.
    """
    if vector.dtype != np.int64 or vector.shape != (terms.dimension,):
        raise ShoalError(Kind.INVALID, f"a vector of this task is int64[{terms.dimension}]")
    if await asyncio.to_thread(ledger.find, terms.task_id, terms.window) is not None:
        raise ShoalError(
            Kind.CONFLICT, "this device has answered the window before: a window is answered once"
        )
    try:
        await _send(terms, line, line.entropy.bytes(SESSION_SIZE), poll=pairwise_pb2.Poll())
    except ShoalError as error:
        return RoundOutcome(RoundState.NONE, None, False, error.kind, error.message)
    submission = await asyncio.to_thread(submit, terms, identity, vector, ledger, line.entropy)
    hit("client.round.masked")
    label = window_label(terms.task_id, terms.window)
    outcome = RoundOutcome(RoundState.LOST, label, True, Kind.UNAVAILABLE, "sending was broken off")
    try:
        outcome = RoundOutcome(RoundState.COUNTED, label, True)
        await _deliver(terms, submission, line)
    except ShoalError as error:
        # After a lost reply the vector may be there all the same; a refusal of the shuffler's own
        # says that it is not.
        state = RoundState.LOST if error.kind is Kind.DEADLINE else RoundState.ABORTED
        outcome = RoundOutcome(state, label, True, error.kind, error.message)
    except BaseException:
        outcome = RoundOutcome(RoundState.LOST, label, True)
        raise
    finally:
        with contextlib.suppress(
            ShoalError
        ):  # the entry itself is there; what became of it is a comfort
            await asyncio.shield(
                asyncio.to_thread(
                    ledger.settle,
                    terms.task_id,
                    terms.window,
                    _STANDING[outcome.state],
                    outcome.kind,
                )
            )
    return outcome


_PASSES = 3
_STANDING = {
    RoundState.COUNTED: RoundStanding.COUNTED,
    RoundState.ABORTED: RoundStanding.ABORTED,
    RoundState.LOST: RoundStanding.LOST,
}


async def _send(
    terms: RoundTerms,
    line: RoundLine,
    session: bytes,
    **step: pairwise_pb2.Upload | pairwise_pb2.Single | pairwise_pb2.Poll,
) -> pairwise_pb2.Answer:
    """Raises what the shuffler refuses, and what ``RoundLine.send`` does."""
    message = pairwise_pb2.Step(task_id=terms.task_id.raw, window=terms.window, session=session)
    for name, value in step.items():
        getattr(message, name).CopyFrom(value)
    answer = await line.send(message)
    kind = kind_of(answer)
    if kind is not None:
        raise ShoalError(kind, answer.reason)
    return answer


async def _deliver(terms: RoundTerms, submission: Submission, line: RoundLine) -> None:
    """Upload from where the shuffler is, then the seed. Raises what the shuffler refuses."""
    send = partial(_send, terms, line, submission.session)
    told = False  # whether the shuffler may have had all of it
    for passes_left in reversed(range(_PASSES)):
        try:
            fresh = passes_left == _PASSES - 1  # nothing is held of a session that nobody has seen
            received = 0 if fresh else (await send(poll=pairwise_pb2.Poll())).received
            total = len(submission.sealed)
            while received < total:
                chunk = submission.sealed[received : received + LIMITS.upload_bytes]
                upload = pairwise_pb2.Upload(offset=received, total=total, chunk=chunk)
                if not received:  # nothing is kept for who has not shown that it may take part
                    upload.proof, upload.digest = (
                        submission.single.proof,
                        Digest.of(submission.sealed).raw,
                    )
                received = (await send(upload=upload)).received
            told = True
            answer = await send(single=submission.single)
        except ShoalError as error:
            # The shuffler lets go of an upload once it is stored, when it restarts, and of slow
            # ones when its memory is full: then the next step does not fit what it holds. All of it
            # again is told the same, and counts once.
            if error.kind is Kind.INVALID and passes_left:
                continue
            if error.kind is Kind.WINDOW_CLOSED and told:
                raise ShoalError(
                    Kind.DEADLINE,
                    "the window ended before the shuffler said whether it has the vector",
                ) from None
            raise
        if answer.phase != pairwise_pb2.PHASE_DONE:
            raise ShoalError(
                Kind.INTERNAL,
                "the shuffler did not say that the vector is stored: ask its operator",
            )
        return
