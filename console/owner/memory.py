"""The page Memory: whether what this device remembers is whole; and the owner's word where it is
damaged or was set back: what `shoal agent memory --confirm-damage` and `--confirm-set-back` do.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from shoal.accounting.meaning import of_all_spent
from shoal.clients.memory import mending, setback
from shoal.clients.memory.commitments import NANO
from shoal.clients.owner.book import verified
from shoal.clocks.clock import SystemClock
from shoal.console.owner.desk import STATUS
from shoal.console.web import NavItem
from shoal.digests import sha256
from shoal.errors import Kind, ShoalError

if TYPE_CHECKING:
    from shoal.clients.memory.device_memory import Memory
    from shoal.clients.memory.mending import Examination
    from shoal.clients.memory.rounds_ledger import SqliteLedger
    from shoal.clients.memory.setback import SetBack
    from shoal.clients.settings.config import AgentConfig
    from shoal.console.owner.desk import OwnDesk

NAVIGATION = NavItem("Memory", "/memory")
_SEEN_BYTES = 16  # of the SHA-256 of what the owner read
_DONE = {
    "damage": "confirmed, and entered in the ledger: what was damaged is replaced by what is safe",
    "set-back": "confirmed, and entered in the ledger: the device answers again, from the next "
    "windows on",
}


@dataclass(frozen=True, slots=True)
class Found:
    """What is wrong with a device's memory. ``what``: "damage" or "set-back"; ``lines``: what is
    lost, and what going on would mean.
    """

    what: str
    lines: tuple[str, ...]
    examined: Examination | SetBack

    @property
    def seen(self) -> str:
        """Of these very lines: a form says with it what its reader saw."""
        return sha256("\n".join(self.lines).encode())[:_SEEN_BYTES].hex()


def routes(desk: OwnDesk) -> list[BaseRoute]:
    """The page, and its switch."""

    async def memory(request: Request) -> Response:
        return await _shown(desk, request, _DONE.get(request.query_params.get("done", ""), ""))

    async def confirm(request: Request) -> Response:
        try:
            seen = (await desk.form(request)).get("seen", "")
            what = await desk.remembering(
                lambda config, held, rounds: _confirmed(config, held, rounds, seen)
            )
        except ShoalError as wrong:
            status = STATUS.get(wrong.kind, 503)
            return await _shown(desk, request, "", str(wrong), status)
        return RedirectResponse(f"{NAVIGATION.path}?done={what}", 303)

    return [
        Route(NAVIGATION.path, memory, methods=["GET"]),
        Route("/memory/confirm", confirm, methods=["POST"]),
    ]


async def _shown(
    desk: OwnDesk, request: Request, done: str, wrong: str = "", status: int = 200
) -> Response:
    found, count, broken = await desk.remembering(_looked)
    return desk.page(
        request,
        "memory.html.j2",
        status=status,
        found=found,
        count=count,
        broken=broken,
        done=done,
        wrong=wrong,
    )


def _looked(
    config: AgentConfig, held: Memory, rounds: SqliteLedger | None
) -> tuple[Found | None, int, str]:
    """What is wrong; how many entries the ledger has, where nothing is; why it can't be said."""
    try:
        found = _found(config, held, rounds, SystemClock().now())
        return found, 0 if found is not None else verified(held.store).count, ""
    except ShoalError as error:
        if error.kind is not Kind.MISMATCH:
            raise
        return None, 0, error.message


def _found(
    config: AgentConfig, held: Memory, rounds: SqliteLedger | None, now: float
) -> Found | None:
    """What is damaged comes before what was set back, as with the command. Raises MISMATCH."""
    damaged = mending.examine(held, rounds)
    if damaged is not None:
        lines = _paragraphs(damaged.words())
        return Found("damage", (*lines, _odds(held, damaged.nano)), damaged)
    back = setback.examine(held, lambda: setback.tasks_known(config, held), now)
    if back is not None:
        return Found("set-back", (*back.words(held.head_name), _odds(held, back.nano)), back)
    return None


def _paragraphs(lines: list[str]) -> Iterator[str]:
    """Lines of a terminal, where a sentence may go on in the next one, each as a paragraph."""
    before = ""
    for line in lines:
        whole = f"{before} {line}".strip()
        before = whole if whole.endswith(",") else ""
        if not before:
            yield whole[:1].upper() + whole[1:]
    if before:
        yield before


def _odds(held: Memory, lost: int) -> str:
    return of_all_spent((held.commitments.spent() + lost) / NANO)


def _confirmed(config: AgentConfig, held: Memory, rounds: SqliteLedger | None, seen: str) -> str:
    """What was confirmed, by its name. Raises REFUSED where it is not what was ``seen``."""
    now = SystemClock().now()
    found = _found(config, held, rounds, now)
    if found is None:
        raise ShoalError(
            Kind.REFUSED, "nothing is wrong with this memory now, so there is nothing to confirm"
        )
    if found.seen != seen:
        raise ShoalError(
            Kind.REFUSED,
            "what is wrong with this memory is not what the page said when you answered: read it "
            "again; nothing was changed",
        )
    if isinstance(found.examined, setback.SetBack):
        setback.confirm(held, found.examined, now)
    else:
        mending.mend(held, rounds, now)
    return found.what
