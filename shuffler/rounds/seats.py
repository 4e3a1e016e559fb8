"""Which device has a seat in which round of a window: in memory alone, and forgotten with it."""

from __future__ import annotations

from collections import Counter, deque

from shoal.crypto.secagg.shuffler.turns import GUILTY
from shoal.errors import Kind, ShoalError
from shoal.shuffler.rounds.live_round import LiveRound

# rounds of a window that a device may leave unfinished before it gets no more seats in it
MOST_LEFT = 3
_KEPT_ROUNDS = 1_000  # ended ones of a window whose devices still get told how they ended ...
_KEPT_SEATS = 50_000  # ... and as many devices of theirs at most: a seat is about 2 KiB


class Seats:
    """A session is one seat of one device in one round; a device is known by the key that its
    admission gave. No clock, no disk, no network.
    """

    def __init__(self) -> None:
        self._rounds: dict[bytes, LiveRound] = {}  # by session
        # by device key: its last round, and its session there
        self._last: dict[bytes, tuple[LiveRound, bytes]] = {}
        self._unfinished: Counter[bytes] = Counter()  # rounds that a device left, by device key
        self._guilty: set[bytes] = set()  # device keys
        self._ended: deque[LiveRound] = deque()  # oldest first
        self._ended_devices = 0

    def find(self, session: bytes) -> LiveRound | None:
        """The round in which this session has a seat, under way or ended."""
        return self._rounds.get(session)

    def check(self, device_key: bytes, live: LiveRound) -> None:
        """Returns if this device may have a seat in ``live``. Raises FORBIDDEN (it broke a round),
        TOO_EARLY (a seat in a round under way; too many rounds left).
        """
        if device_key in self._guilty:
            raise ShoalError(Kind.FORBIDDEN, GUILTY)
        if self._seated_elsewhere(device_key, live):
            raise ShoalError(
                Kind.TOO_EARLY,
                "this device has a seat in a round that goes on: try again when it has ended",
            )
        # a few that join and fall silent could end every round of the window
        if self._unfinished[device_key] >= MOST_LEFT:
            raise ShoalError(
                Kind.TOO_EARLY,
                f"this device left {MOST_LEFT} rounds of this window unfinished: wait for the next "
                "window",
            )

    def take(self, session: bytes, device_key: bytes, live: LiveRound) -> None:
        """This device sits in ``live`` now."""
        live.devices[session] = device_key
        self._rounds[session], self._last[device_key] = live, (live, session)

    def end(self, live: LiveRound) -> None:
        """Put an ended round aside: its devices may still ask how it ended. The oldest are
        forgotten.
        """
        self._unfinished.update(live.devices[session] for session in live.coordinator.left)
        self._ended.append(live)
        self._ended_devices += len(live.devices)
        while len(self._ended) > _KEPT_ROUNDS or self._ended_devices > _KEPT_SEATS:
            old = self._ended.popleft()
            self._ended_devices -= len(old.devices)
            for session, device_key in old.devices.items():
                self._rounds.pop(session, None)
                if self._last.get(device_key, (None, b""))[0] is old:
                    del self._last[device_key]

    def convict(self, device_key: bytes) -> None:
        """This device was proven to have broken a round: no seat in this window any more."""
        self._guilty.add(device_key)

    @property
    def guilty(self) -> int:
        """Devices that were proven to have broken a round of this window."""
        return len(self._guilty)

    def _seated_elsewhere(self, device_key: bytes, here: LiveRound) -> bool:
        """A device that lost its seat before its vector was complete is free again."""
        live, session = self._last.get(device_key, (None, b""))
        if live is None or live is here or live.coordinator.ended:
            return False
        return live.coordinator.answer(session, live.now()).kind != Kind.WINDOW_CLOSED.value
