"""Both layers of the reports of one task and window, for whoever seals more than one: what is the
same for all of them is made once.

The bytes are those of ``shoal.crypto.envelope``: ``seal_report`` for each message, then
``seal_frame``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from shoal.crypto.envelope import (
    ACK_KEY_SIZE,
    NONCE_SIZE,
    check_messages,
    header_and_info,
    padded,
    report_info,
    room_for,
)
from shoal.crypto.hop_payload import HopWriter
from shoal.crypto.suites import PublicKeyConfig
from shoal.entropy import Entropy
from shoal.ids import TaskId

Prove = Callable[[TaskId, int, Sequence[bytes]], bytes]
"""``Prover.prove``: what the shuffler is shown, of a task, a window and the sealed messages."""


class WindowSealer:
    """Seals reports for the first hop. It holds public keys alone."""

    __slots__ = (
        "_header",
        "_hop",
        "_hop_info",
        "_info",
        "_messages",
        "_report",
        "_task",
        "_writer",
    )

    def __init__(
        self,
        analyzer: PublicKeyConfig,
        hop: PublicKeyConfig,
        task_id: TaskId,
        window: int,
        messages: int = 1,
        named: TaskId | None = None,
    ) -> None:
        """The two keys of the window. ``messages``: of a report, at most: all frames are as large
        as those of a report that has as many. ``named``: what the shuffler is told in place of the
        task's id (``SignedStep.name``). Raises INVALID for a window outside [0, 2^32).
        """
        named = named or task_id
        self._task, self._messages = (named, window), messages
        self._report, self._info = analyzer, report_info(task_id, window, analyzer.key_id)
        self._hop = hop
        self._header, self._hop_info = header_and_info(hop.suite, 0, hop.key_id.raw)
        self._writer = HopWriter(named.raw, window, analyzer.key_id.raw)

    def seal(self, report: Sequence[bytes], entropy: Entropy, prove: Prove) -> tuple[bytes, bytes]:
        """(frame, ack key) of one report: its messages, of one length.

        Call it once per report and keep the result for every retry: a second sealing would be a
        second report. Raises INVALID for no, too many or unequal messages, OVERSIZE for what fits
        no frame.
        """
        # one draw for all: the ack key, then a nonce for each message
        drawn = entropy.bytes(ACK_KEY_SIZE + NONCE_SIZE * len(report))
        ack_key, at, sealed = drawn[:ACK_KEY_SIZE], ACK_KEY_SIZE, []
        encrypt, handle, info = self._report.suite.hpke.encrypt, self._report.handle, self._info
        for message in report:
            sealed.append(encrypt(drawn[at : at + NONCE_SIZE] + message, handle, info=info))
            at += NONCE_SIZE
        check_messages(sealed)
        task_id, window = self._task
        payload = self._writer.write(ack_key, prove(task_id, window, sealed), sealed)
        suite = self._hop.suite
        plaintext = padded(suite, window, payload, room_for(sealed, self._messages))
        frame = self._header + suite.hpke.encrypt(plaintext, self._hop.handle, info=self._hop_info)
        return frame, ack_key
