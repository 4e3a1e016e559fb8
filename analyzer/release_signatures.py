"""Whether stored releases are what this analyzer signed."""

from __future__ import annotations

from collections.abc import Iterable

from shoal.analyzer.records import Spending
from shoal.codec import parse
from shoal.crypto.signing import SigningContext, is_signed
from shoal.ids import TaskId
from shoal.protos import release_pb2
from shoal.storage.checksums import Value, row_digest


class ReleaseSignatures:
    """``keys``: Ed25519 public keys that signed releases of this store. What verified once is
    remembered by its digest.
    """

    def __init__(self, keys: Iterable[bytes]) -> None:
        self._keys = set(keys)
        self._verified: set[bytes] = set()

    @property
    def known(self) -> bool:
        """Whether any key is known: without one nothing can be verified."""
        return bool(self._keys)

    def trust(self, key: bytes) -> None:
        """Take another key for one that signed releases."""
        self._keys.add(key)

    def hold(self, task_id: Value, window: Value, release: Value, signature: Value) -> bool:
        """Whether one of the keys signed the release, and it is of that task and window."""
        if not isinstance(release, bytes) or not isinstance(signature, bytes):
            return False
        digest = row_digest(release, signature)
        if digest not in self._verified:
            if not any(
                is_signed(key, SigningContext.RELEASE, release, signature) for key in self._keys
            ):
                return False
            self._verified.add(digest)
        parsed = parse(release_pb2.Release, release, "release")
        return bool(parsed.task_id == task_id and parsed.window == window)


def signed_spending(release: bytes) -> Spending:
    """What a release cost, by its signed bytes alone: never less than was charged for it."""
    published = parse(release_pb2.Release, release, "release")
    privacy = published.privacy
    worst = max(privacy.epsilon_upper, privacy.epsilon_at_received_n)
    memoized = privacy.memoized.lifetime_epsilon if privacy.HasField("memoized") else None
    return Spending(TaskId(published.task_id), worst, privacy.delta, lifetime=memoized)
