"""Who may change a window now: a claim holds for a time, and has a number that only grows.

Several shufflers may serve one task. A window is worked on by the one that claimed it; when that
one dies, its claim runs out and another takes the window over, with a larger number (the *fence*,
after Kleppmann, "How to do distributed locking", 2016). Every change of a window's state shows its
claim, and a store refuses a claim that is no longer the last one: a shuffler that was only slow
finds that out, and changes nothing.

Time alone decides nothing: a claim that has run out stands until somebody takes the window over.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from shoal.entropy import SYSTEM, Entropy
from shoal.errors import Kind, ShoalError
from shoal.log import get_log
from shoal.shuffler.core import WindowId

log = get_log("shuffler")
CLAIM_S = 15.0  # a window of a shuffler that died is taken over after so long
RENEW_S = 4.0  # between two renewals of what is claimed: several may fail before a claim runs out
_OWNER_SIZE = 16  # bytes


@dataclass(frozen=True, slots=True)
class OwnerId:
    """A shuffler process, from its start to its end: 16 random bytes. Public."""

    raw: bytes

    def __post_init__(self) -> None:
        if len(self.raw) != _OWNER_SIZE:
            raise ShoalError(Kind.INVALID, f"an owner's id is {_OWNER_SIZE} bytes long")

    @classmethod
    def draw(cls, entropy: Entropy = SYSTEM) -> OwnerId:
        """A fresh one, that no other process has."""
        return cls(entropy.bytes(_OWNER_SIZE))


@dataclass(frozen=True, slots=True)
class Claim:
    """``fence``: 1 or more; of two claims of a window the larger one came later."""

    window: WindowId
    owner: OwnerId
    fence: int

    def __post_init__(self) -> None:
        if self.fence < 1:
            raise ShoalError(Kind.INVALID, "a fence is 1 or more")


class StaleClaimError(ShoalError):
    """A claim that is not, or no longer, the window's last one: nothing was changed."""

    def __init__(self, kind: Kind = Kind.CONFLICT, message: str = "", **more: float) -> None:
        text = message or (
            "another shuffler has taken this window over: nothing was changed, leave it to that one"
        )
        super().__init__(kind, text, **more)


class WindowClaims(Protocol):
    """Who works on which window: one for all that a shuffler keeps, reports and rounds."""

    async def claim(self, window: WindowId, owner: OwnerId, seconds: float) -> Claim | None:
        """Take the window over, for so long. None: another owner has it. Waits for a step that the
        owner before has begun.
        """
        ...

    async def renew(self, claim: Claim, seconds: float) -> None:
        """Begin the claim's time anew; also one that has run out, if nobody took the window
        over. Raises StaleClaimError.
        """
        ...

    async def release(self, claim: Claim) -> None:
        """Another owner may take the window over at once. Nothing happens if the claim is stale."""
        ...


class HeldClaims:
    """The claims of one shuffler: made when a window is to be changed, renewed while it works on
    it. For one event loop.
    """

    def __init__(self, claims: WindowClaims, owner: OwnerId) -> None:
        self._claims, self._owner = claims, owner
        self._held: dict[WindowId, Claim] = {}
        self._renew_at = 0.0

    async def get(self, window: WindowId) -> Claim | None:
        """This shuffler's claim of the window, made if there is none; None: another one has it."""
        claim = self._held.get(window)
        if claim is None:
            claim = await self._claims.claim(window, self._owner, CLAIM_S)
            if claim is not None:
                self._held[window] = claim
        return claim

    async def renew(self, now: float, taken_over: Callable[[WindowId], None]) -> None:
        """Keep what is held, every RENEW_S; ``now``: steady seconds. Of a window that somebody else
        has by now ``taken_over`` is told, and its claim is forgotten.
        """
        if now < self._renew_at:
            return
        self._renew_at = now + RENEW_S
        for window, claim in list(self._held.items()):
            # work that ended while another claim was renewed has released its own
            if self._held.get(window) is not claim:
                continue
            try:
                await self._claims.renew(claim, CLAIM_S)
            except StaleClaimError:
                if self._held.get(window) is not claim:
                    continue
                log.warning("a window was taken over", task=window.task_id, window=window.window)
                self.forget(window)
                taken_over(window)
            except ShoalError as error:  # it holds until it is taken over: the next time may do
                log.error(
                    "a claim could not be renewed: will be tried again",
                    task=window.task_id,
                    window=window.window,
                    error=error,
                )

    def forget(self, window: WindowId) -> None:
        """The claim was found stale: the next ``get`` asks anew."""
        self._held.pop(window, None)

    async def release(self, window: WindowId) -> None:
        """The work on the window is done, or left to others."""
        claim = self._held.pop(window, None)
        if claim is not None:
            await self._claims.release(claim)

    async def leave(self, window: WindowId) -> None:
        """``release``, of a window that others may do better with: if it fails, the claim runs
        out.
        """
        try:
            await self.release(window)
        except ShoalError as error:
            log.warning("a claim could not be released", window=window.window, error=error)

    async def release_all(self) -> None:
        """Leave every window to others."""
        for window in list(self._held):
            await self.release(window)


class ClaimTable:
    """The claims of a store that one process holds: in memory, because they end with the process,
    and the lock of its folder keeps every other one out. For one event loop.

    ``steady``: seconds that never step back.
    """

    def __init__(self, steady: Callable[[], float] = time.monotonic) -> None:
        self._steady, self._last = steady, 0
        self._held: dict[WindowId, tuple[Claim, float]] = {}  # with the moment when it runs out

    def claim(self, window: WindowId, owner: OwnerId, seconds: float) -> Claim | None:
        """None: another owner has it, and its time is not over. An owner may claim again what it
        has: its claim before is stale then.
        """
        now = self._steady()
        held = self._held.get(window)
        if held is not None and held[0].owner != owner and now < held[1]:
            return None
        self._last += 1
        claim = Claim(window, owner, self._last)
        self._held[window] = claim, now + seconds
        return claim

    def renew(self, claim: Claim, seconds: float) -> None:
        """Begin the time anew. Raises StaleClaimError."""
        self.check(claim)
        self._held[claim.window] = claim, self._steady() + seconds

    def release(self, claim: Claim) -> None:
        """Whoever wants it may take the window over at once. Nothing happens if it is stale."""
        if self.is_last(claim):
            del self._held[claim.window]

    def check(self, claim: Claim) -> None:
        """Raises StaleClaimError unless this is the window's last claim."""
        if not self.is_last(claim):
            raise StaleClaimError

    def is_last(self, claim: Claim) -> bool:
        """Whether nobody claimed the window after this claim; it may have run out."""
        held = self._held.get(claim.window)
        return held is not None and held[0] == claim
