"""Tasks from a shuffler: its whole catalogue in pages, so that nobody learns which task a device
takes part in.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from shoal import codec
from shoal.clients.core import pause
from shoal.clients.feeds.feed import (
    SHUFFLER,
    BundleListener,
    Pause,
    Told,
    jittered,
    unheard,
    untold,
    waited,
)
from shoal.clients.feeds.task_store import FINAL
from shoal.clients.transports.shuffler_channel import ShufflerChannel
from shoal.digests import sha256
from shoal.entropy import SYSTEM, Entropy
from shoal.errors import Kind, ShoalError
from shoal.ids import Digest, TaskId
from shoal.limits import KIB, LIMITS
from shoal.protos import directory_pb2

HURRY_S = 60.0  # mean seconds between two looks while a window's question is waited for
_PAGE = "/shoal.v1.Directory/Page"
# Pages of the largest catalogue, read twice over because it changed meanwhile: who needs more is
# not serving one.
_MOST_PAGES = 2 * (LIMITS.catalogue_bytes // (LIMITS.chunk_bytes - 4 * KIB) + 1)


class GrpcFeed:
    """One shuffler's directory. ``ca``: PEM that its certificate chains to; insecure: loopback
    alone. ``every_s``: mean seconds between two looks, jittered. Raises CONFIG, KEY_FILE.

    A connection is made for each look and closed after it. What was read completely is remembered
    by its digest: the next look is one call, unless something changed or a bundle is to be offered
    again.
    """

    origin = SHUFFLER

    def __init__(
        self,
        address: str,
        ca: bytes,
        offer: BundleListener,
        *,
        every_s: float,
        insecure: bool = False,
        entropy: Entropy = SYSTEM,
        pause: Pause = unheard,
        step: Told = untold,
        hurries: Callable[[], bool] = lambda: False,
    ) -> None:
        """``hurries``: whether somebody waits for what the next window of a discovery asks."""
        self._pause, self._step, self._hurries = pause, step, hurries
        self._address, self._ca, self._insecure = address, ca, insecure
        self._offer, self._every_s, self._entropy = offer, every_s, entropy
        self._digest, self._total = b"", 0  # of the catalogue that was offered last
        self.trouble: str | None = None

    async def once(self, deadline_s: float) -> None:
        """As ``Feed.once``."""
        try:
            async with asyncio.timeout(deadline_s):
                await self._look()
        except TimeoutError:
            raise ShoalError(
                Kind.DEADLINE, "the shuffler's catalogue took too long: it is asked again later"
            ) from None

    async def run(self, stop: asyncio.Event) -> None:
        """As ``Feed.run``."""
        failures = 0
        while not stop.is_set():
            try:
                await self.once(LIMITS.feed_pass_s)
                self.trouble, failures = None, 0
                seconds = jittered(self._every_s, self._entropy)
                if self._hurries():
                    seconds = min(seconds, jittered(HURRY_S, self._entropy))
            except Exception as error:  # noqa: BLE001 - whatever a shuffler sends, the feed goes on
                failures += 1
                self.trouble = (
                    error.message
                    if isinstance(error, ShoalError)
                    else "the shuffler's catalogue can't be read"
                )
                asked = error.retry_after_s if isinstance(error, ShoalError) else 0.0
                seconds = pause(
                    failures, self._entropy, LIMITS.feed_retry_first_s, self._every_s, asked
                )
            if await waited(stop, seconds):
                return

    async def _look(self) -> None:
        channel = ShufflerChannel(
            self._address, self._ca, insecure=self._insecure, private_pool=True
        )
        try:
            fetched = await self._read(channel)
        finally:
            await channel.close()
        if fetched is None:
            return
        digest, data = fetched
        catalogue = codec.parse(directory_pb2.Catalogue, data, "catalogue")
        total = len(data)
        del data, fetched
        self._pause(self._address, _paused(catalogue))
        again, failed = False, 0
        for bundle in catalogue.bundles:
            # whatever one task does to its reader, the others are read
            try:
                self._offer(
                    codec.encode_bundle(
                        codec.TaskBundle(bundle.signed_task, bundle.signed_schedule)
                    ),
                    SHUFFLER,
                )
            except ShoalError as error:
                again = again or error.kind not in FINAL
            except Exception:  # noqa: BLE001
                failed += 1
            await asyncio.sleep(0)
        for data in catalogue.steps[: LIMITS.known_tasks]:
            try:
                self._step(data)
            except ShoalError as error:
                again = again or error.kind not in FINAL
            await asyncio.sleep(0)
        self._digest, self._total = (b"", 0) if again or failed else (digest, total)
        if failed:
            raise ShoalError(
                Kind.UNAVAILABLE,
                f"{failed} of the shuffler's tasks can't be read, the others were: they are asked "
                "for again",
            )

    async def _read(self, channel: ShufflerChannel) -> tuple[bytes, bytes] | None:
        """(digest, catalogue), checked; None if it is the one that was offered before."""
        digest, have, data = self._digest, self._total, bytearray()
        for _ in range(_MOST_PAGES):
            request = directory_pb2.PageRequest(digest=digest, offset=have)
            answer = await channel.call(
                _PAGE,
                request.SerializeToString(),
                LIMITS.send_deadline_s,
                reply_bytes=LIMITS.reply_bytes,
            )
            reply = codec.parse(directory_pb2.PageReply, answer, "page")
            if len(reply.digest) != Digest.SIZE or reply.total > LIMITS.catalogue_bytes:
                raise _garbled("a catalogue of impossible size")
            if reply.digest != digest:  # another one than was asked for: from its beginning
                digest, have, data = reply.digest, 0, bytearray()
            if (
                reply.offset != have
                or have + len(reply.data) > reply.total
                or (not reply.data and have < reply.total)
            ):
                raise _garbled("a page that does not follow the one before")
            data += reply.data
            have += len(reply.data)
            if have == reply.total:
                break
        else:
            raise _garbled("a catalogue that does not end")
        if digest == self._digest and self._total == have:
            return None
        whole = bytes(data)
        if sha256(whole) != digest:
            raise _garbled("a catalogue of another digest")
        return digest, whole


def _paused(catalogue: directory_pb2.Catalogue) -> dict[TaskId, frozenset[int]]:
    """Windows by task, as far as they can be any: a shuffler must not fill a device's memory with
    them.
    """
    paused: dict[TaskId, frozenset[int]] = {}
    for task in catalogue.paused[: LIMITS.known_tasks]:
        windows = frozenset(window for window in task.windows if window < LIMITS.windows)
        if len(task.task_id) == TaskId.SIZE and (windows or not task.windows):
            paused[TaskId(task.task_id)] = windows
    return paused


def _garbled(what: str) -> ShoalError:
    return ShoalError(Kind.UNAVAILABLE, f"the shuffler sent {what}: it is asked again later")
