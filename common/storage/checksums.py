"""Nothing stored is trusted when it is read: checksums of rows.

They have no key: they find what a disk, a copy or a mistake changed. Whoever may write to a
service's folder on purpose is kept away by its rights (mode 0700), and finds releases, manifests
and tasks signed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

DIGEST_SIZE = 16  # bytes
Value = bytes | int | float | str | None


def row_digest(*values: Value) -> bytes:
    """The first 16 bytes of SHA-256 over the values of a row, each with its type and length. Any
    change of a value changes it.
    """
    digest = hashlib.sha256()
    for value in values:
        if isinstance(value, bytes):
            kind, data = b"b", value
        else:  # repr of a float is exact
            kind, data = type(value).__name__[:1].encode(), repr(value).encode()
        digest.update(kind + len(data).to_bytes(8, "big") + data)
    return digest.digest()[:DIGEST_SIZE]


def fits(row: Sequence[Value]) -> bool:
    """Whether the last value of a row is the digest of those before it."""
    return row[-1] == row_digest(*row[:-1])


# For ``storage.sqlite.connect``: what a file's migrations and statements compute digests with.
FUNCTIONS = {"row_digest": row_digest}
