"""Whose turn it is: whether a seat may take a step in the round's present phase, and what it needs
for its next one.

A device that missed a phase is out of the round for good. That is a rule of safety, not of
tidiness: once the shares of a lost device's pad key may have been asked for, its self mask is all
that stands before its vector, so a vector that comes after all must not be taken.
"""

from __future__ import annotations

from shoal.crypto.secagg.shuffler.phases import Stage
from shoal.crypto.secagg.shuffler.seating import Member, Seating
from shoal.errors import Kind, ShoalError
from shoal.protos import pairwise_pb2

GUILTY = (
    "this device broke the round, by shares that do not open or by a false complaint: it has no "
    "seat in this window any more"
)


def check_stage(now: Stage, wanted: Stage, *, over: bool) -> None:
    """The round stands in ``wanted``, and that phase is not ``over``. Raises TOO_EARLY before it,
    WINDOW_CLOSED after.
    """
    if now.value < wanted.value:
        raise ShoalError(
            Kind.TOO_EARLY,
            "the round has not come to that step: poll, and do what the answer says",
        )
    if now is not wanted or over:
        raise ShoalError(
            Kind.WINDOW_CLOSED,
            "too late for that step of the round: the device counts as lost in it",
        )


def check_in_round(member: Member, stage: Stage, guilty: set[bytes]) -> None:
    """The seat still has a part. Raises FORBIDDEN for one of the ``guilty`` sessions, WINDOW_CLOSED
    for one that missed a phase.
    """
    if member.session in guilty:
        raise ShoalError(Kind.FORBIDDEN, GUILTY)
    lateness = why_lost(member, stage)
    if lateness:
        raise ShoalError(Kind.WINDOW_CLOSED, lateness)


def why_lost(member: Member, stage: Stage) -> str:
    """Why this seat has no part in the round's present stage, in one line, or ""."""
    for since, came, what in (
        (
            Stage.CHECK,
            member.shares is not None,
            "shares, or its check of the others' shares, did not come in time",
        ),
        (Stage.DELIVERING, member.upload is not None, "vector did not come in time"),
        (Stage.ENDORSE, member.alive, "vector could not be opened by the analyzer"),
    ):
        if stage.value >= since.value and not came:
            return f"this device's {what}: it counts as lost in the round"
    return ""


def check_repeated(held: object, new: object, what: str) -> None:
    """A step that was taken before is taken with the same content again. Raises CONFLICT: of two
    different lists of shares, vectors or bundles the shuffler would have to choose one, and each
    would fit another sum.
    """
    if held != new:
        raise ShoalError(
            Kind.CONFLICT,
            f"this seat sent another {what} before: send the same bytes again, never others",
        )


def add_next_step(
    answer: pairwise_pb2.Answer,
    stage: Stage,
    member: Member,
    seating: Seating,
    start: pairwise_pb2.SignedRecord,
    commit: pairwise_pb2.SignedRecord,
) -> None:
    """Put into ``answer`` what this seat needs for the step that the round waits for; nothing if
    the seat has taken it. ``start`` and ``commit`` are shown once both parties have signed them.
    """
    if stage is Stage.SHARE and member.shares is None:
        answer.started.CopyFrom(seating.started_for(member, start))
    elif stage is Stage.CHECK and (dealt := seating.dealt_by(member.suspect)) is not None:
        answer.dealt.CopyFrom(dealt)
    elif (stage is Stage.CHECK and not member.checked) or (
        stage is Stage.MASK and member.upload is None
    ):
        answer.roster.CopyFrom(seating.roster_for(member))
    elif stage is Stage.ENDORSE and member.endorsement is None:
        answer.commit.CopyFrom(commit)
    elif stage is Stage.UNMASK and member.bundle is None:
        answer.commit.CopyFrom(commit)
        answer.endorsements.extend(seating.endorsements_for(member))
