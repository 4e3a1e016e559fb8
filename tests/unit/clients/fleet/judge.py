"""A shuffler in memory with the real rules (shoal.shuffler.core), for simulated fleets without
sockets or disk; its defects are planted.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from shoal.clients.transports.transport import Receipt
from shoal.crypto.admission.members import verifier_of
from shoal.crypto.envelope import HopContent, frame_header, open_frame, receipt_mac
from shoal.crypto.trust import serve_task
from shoal.errors import Kind, ShoalError
from shoal.limits import LIMITS
from shoal.shuffler import core
from tests.worlds.devices.clients import World

Verdict = ShoalError | bytes | None
# (number of the call, frame, the right answer) -> the answer that is given
Defect = Callable[[int, bytes, Verdict], Verdict]


def none(_number: int, _frame: bytes, right: Verdict) -> Verdict:
    return right


@dataclass
class Judge:
    """``stored``: content by its sealed messages. An answer: a MAC = acknowledged; an error; None =
    silence (over MQTT).
    """

    world: World
    defect: Defect = none
    mqtt: bool = False
    frames: Counter[bytes] = field(default_factory=Counter)
    stored: dict[tuple[bytes, ...], HopContent] = field(default_factory=dict)
    devices: dict[bytes, tuple[bytes, ...]] = field(default_factory=dict)
    refused: Counter[Kind] = field(default_factory=Counter)
    most: int = 1 << 30

    def right(self, frame: bytes) -> Verdict:
        world, now = self.world, time.time()
        try:
            if len(frame) > LIMITS.submit_bytes and not self.mqtt:
                raise ShoalError(Kind.OVERSIZE, "too large")
            if frame_header(frame).key_id != world.hop.config.key_id:
                raise ShoalError(Kind.UNKNOWN_KEY, "no such key")
            content = open_frame(world.hop, frame)
            if content.task_id != world.task_id:
                raise ShoalError(Kind.UNKNOWN_TASK, "no such task")
            served = serve_task(world.signed_task, world.signed_schedule, world.authorities)
            full = content.sealed not in self.stored and len(self.stored) >= self.most
            core.admit(
                served,
                core.WindowState.SEALED if full else None,
                content,
                world.hop.config.key_id,
                now,
            )
            device = verifier_of(world.task).verify(
                content.admission, content.task_id, content.window, content.sealed, now
            )
            if device and self.devices.setdefault(device, content.sealed) != content.sealed:
                raise ShoalError(Kind.CONFLICT, "a second report")
        except ShoalError as error:
            self.refused[error.kind] += 1
            if (
                self.mqtt
                and error.kind in {Kind.INVALID, Kind.UNKNOWN_KEY}
                and not self._opens(frame)
            ):
                return None
            return error
        self.stored[content.sealed] = content
        return receipt_mac(content.ack_key, 0, frame)

    def _opens(self, frame: bytes) -> bool:
        try:
            open_frame(self.world.hop, frame)
        except ShoalError:
            return False
        return True

    def answer(self, frame: bytes) -> Verdict:
        number = self.frames.total()
        self.frames[frame] += 1
        return self.defect(number, frame, self.right(frame))

    async def submit(self, frame: bytes, ack_key: bytes, deadline_s: float) -> bytes:
        verdict = self.answer(frame)
        if verdict is None:
            raise ShoalError(Kind.DEADLINE, "no reply that verifies")
        if isinstance(verdict, ShoalError):
            raise verdict
        return verdict

    async def submit_batch(
        self, frames: Sequence[bytes], ack_keys: Sequence[bytes], deadline_s: float
    ) -> list[Receipt]:
        receipts = []
        for frame in frames:
            verdict = self.answer(frame)
            if isinstance(verdict, bytes):
                receipts.append(Receipt(0, verdict))
                continue
            kind = verdict.kind if isinstance(verdict, ShoalError) else Kind.INTERNAL
            mac = (
                receipt_mac(open_frame(self.world.hop, frame).ack_key, kind.value, frame)
                if self._opens(frame)
                else b""
            )
            receipts.append(Receipt(kind.value, mac))
        return receipts

    async def close(self) -> None:
        """Nothing to close."""
