"""What every page of an owner's console works with: the device's own agent, opened for one request
and closed after it, as `shoal agent status` does, beside one that runs.
"""

from __future__ import annotations

import asyncio
import hmac
import urllib.parse
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from starlette.requests import Request
from starlette.responses import Response

from shoal.clients.agent import Agent
from shoal.clients.settings.config import AgentConfig
from shoal.clocks.clock import SystemClock
from shoal.console.owner.door import Door
from shoal.console.web import Frame
from shoal.entropy import SYSTEM
from shoal.errors import Kind, ShoalError

if TYPE_CHECKING:
    from shoal.clients.memory.device_memory import Memory
    from shoal.clients.memory.rounds_ledger import SqliteLedger

_MOST_FIELDS = 8
# of HTTP, where a switch is not moved; anything else is 503
STATUS = {Kind.CONFIG: 400, Kind.INVALID: 400, Kind.FORBIDDEN: 403, Kind.REFUSED: 409}
T = TypeVar("T")
_OF_ANOTHER = (
    "this was not sent by a page of this console that is still open: look again, and do it there"
)


class OwnDesk:
    """``file``: agent.toml, read anew for every request, so that pages show what holds now."""

    def __init__(self, file: Path, frame: Frame, door: Door) -> None:
        self._file, self._frame, self.door = file, frame, door
        self._turn = asyncio.Lock()

    def config(self) -> AgentConfig:
        """Raises CONFIG."""
        return AgentConfig.load(self._file)

    @property
    def file_name(self) -> str:
        """As sentences name the configuration."""
        return self._file.name

    @asynccontextmanager
    async def agent(self) -> AsyncIterator[Agent]:
        """One at a time. Raises what opening it does."""
        async with self._turn, Agent(self.config(), background=False) as agent:
            yield agent

    async def remembering(self, step: Callable[[AgentConfig, Memory, SqliteLedger | None], T]) -> T:
        """What ``step`` makes of the device's memory and its rounds, open without an agent."""
        async with self._turn:
            return await asyncio.to_thread(_remembering, self.config(), step)

    def page(
        self, request: Request, template: str, *, status: int = 200, **values: Any
    ) -> Response:
        """See ``Frame.page``. Forms get the seal that ``form`` asks for."""
        return self._frame.page(request, template, status=status, seal=self.door.seal, **values)

    async def form(self, request: Request) -> dict[str, str]:
        """The fields of a form of ours. Raises FORBIDDEN for another's, INVALID."""
        try:
            fields = urllib.parse.parse_qs(
                (await request.body()).decode("ascii"),
                keep_blank_values=True,
                strict_parsing=True,
                max_num_fields=_MOST_FIELDS,
            )
        except ValueError:
            raise ShoalError(Kind.INVALID, "this is no form of the console") from None
        given = {name: values[0] for name, values in fields.items() if len(values) == 1}
        seal = given.pop("seal", "").encode("utf-8", "replace")
        if not hmac.compare_digest(seal, self.door.seal.encode()):
            raise ShoalError(Kind.FORBIDDEN, _OF_ANOTHER)
        return given


def _remembering(
    config: AgentConfig, step: Callable[[AgentConfig, Memory, SqliteLedger | None], T]
) -> T:
    from shoal.clients.memory.device_memory import Memory
    from shoal.clients.memory.rounds_ledger import SqliteLedger

    held = Memory(config, SystemClock(), SYSTEM)
    rounds = SqliteLedger(config.ledger) if config.ledger.exists() else None
    try:
        return step(config, held, rounds)
    finally:
        if rounds is not None:
            rounds.close()
        held.close()
