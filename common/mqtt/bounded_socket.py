"""What the MQTT library reads from and writes to: a socket that bounds a packet and a turn.

The library reads a packet byte by byte, keeps all of it, and reads on for as long as anything
comes. Here a byte is a slice, not a system call; of a packet that is too large only the beginning
is handed over; and after a few packets others on the event loop get their turn.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct

_READ = 64 * 1024  # bytes asked of the system at once
# bytes handed to the library before others on the event loop get their turn: about 8 frames, 1 ms
_TURN = 4 * 1024
# A packet begins with a byte for its kind and at most four for the length of what follows, 7 bits
# in each, the lowest first; the highest bit says that another byte follows (MQTT 5, 1.5.5 and 2.1).
_CONTINUES = 0x80
_LONGEST_HEADER = 5


class BoundedSocket:
    """Speaks MQTT's framing and nothing else of MQTT. Takes the socket, which does not block.

    most_bytes: of a packet, behind its fixed header. A larger packet is handed over as one of
    ``most_bytes``; the rest is thrown away while it arrives. A peer may announce 256 MiB. What is
    not MQTT's framing is handed over nowhere: read as two framings it could pass the bound.

    There are turns: at the end of one there is nothing to read, until the next begins.
    """

    def __init__(self, raw: socket.socket, most_bytes: int) -> None:
        self._raw, self._most = raw, most_bytes
        self._data, self._at = b"", 0  # what the system gave, and how much of it is used
        self._partial = bytearray()  # a fixed header that has not arrived wholly
        self._header = b""  # a fixed header to hand over
        self._body = 0  # bytes of this packet to hand over, behind its header ...
        self._surplus = 0  # ... and behind those, bytes to throw away
        self._left = _TURN

    def turn(self) -> None:
        """Let about 4 KiB be read."""
        self._left = _TURN

    @property
    def turn_over(self) -> bool:
        """Whether nothing more is read until ``turn``."""
        return self._left <= 0

    def recv(self, count: int) -> bytes:
        """At most ``count`` bytes; b"" at the end. Raises what the socket raises, BlockingIOError
        at the end of a turn, and ConnectionAbortedError at a fixed header that MQTT does not have.
        """
        if self._left <= 0:
            raise BlockingIOError
        if not self._header and not self._body and not self._next_packet():
            return b""
        if self._header:
            piece, self._header = self._header[:count], self._header[count:]
        else:
            if not self._filled():
                return b""
            piece = self._data[self._at : self._at + min(count, self._body)]
            self._at += len(piece)
            self._body -= len(piece)
        self._left -= len(piece)
        return piece

    def pending(self) -> int:
        """Bytes that are here already, so that no readiness will announce them."""
        held = self._raw.pending() if isinstance(self._raw, ssl.SSLSocket) else 0
        return len(self._header) + len(self._data) - self._at + held

    def send(self, data: bytes | bytearray) -> int:
        """As ``socket.send``: how many of the bytes went."""
        return self._raw.send(data)

    def fileno(self) -> int:
        """As ``socket.fileno``: for the event loop."""
        return self._raw.fileno()

    def setblocking(self, flag: bool) -> None:
        """As ``socket.setblocking``."""
        self._raw.setblocking(flag)

    def close(self) -> None:
        """As ``socket.close``."""
        self._raw.close()

    def discard(self) -> None:
        """From now on closing throws away what the system holds for the peer (a reset: SO_LINGER of
        0 seconds).
        """
        with contextlib.suppress(OSError):
            self._raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    def _next_packet(self) -> bool:
        """Throw away what is left of the last packet and read the fixed header of the next. False
        at the end of the connection.
        """
        while self._surplus:
            if self._left <= 0:
                raise BlockingIOError
            if not self._filled():
                return False
            skipped = min(self._surplus, len(self._data) - self._at)
            self._at += skipped
            self._surplus -= skipped
            self._left -= skipped
        header = self._partial
        while len(header) < 2 or (header[-1] & _CONTINUES and len(header) < _LONGEST_HEADER):
            if not self._filled():
                return False
            header.append(self._data[self._at])
            self._at += 1
        if header[-1] & _CONTINUES or header[0] >> 4 == 0:
            # the library would take a first byte of 0 for none, and its length for another packet
            raise ConnectionAbortedError
        length = sum((byte & 0x7F) << 7 * place for place, byte in enumerate(header[1:]))
        self._body = min(length, self._most)
        self._surplus = length - self._body
        self._header = bytes(header) if not self._surplus else _header(header[0], self._body)
        header.clear()
        return True

    def _filled(self) -> bool:
        """There is a byte to use. False at the end; raises what the socket raises."""
        if self._at == len(self._data):
            self._data, self._at = self._raw.recv(_READ), 0
        return bool(self._data)


def _header(kind: int, length: int) -> bytes:
    """A fixed header (MQTT 5 section 2.1)."""
    header = bytearray([kind])
    while True:
        length, low = divmod(length, _CONTINUES)
        header.append(low | (_CONTINUES if length else 0))
        if not length:
            return bytes(header)
