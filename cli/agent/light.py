"""Less memory for the agent's service: asyncio without Python's ``ssl``, which loads a second
OpenSSL beside that of ``cryptography``.

That is 4.6 MB of an idle agent, of 61.4 (``python -m benchmarks --quick agent``).

gRPC brings a TLS of its own, and asyncio works without one, as on a Python that was built so.
Whatever needs ``ssl`` (a broker, a source over HTTP) imports it later as ever; only asyncio's own
TLS streams, which nothing here uses, are missing from the process.
"""

from __future__ import annotations

import sys


def import_asyncio() -> None:
    """Import asyncio now, and without ``ssl``, unless this process has one of them. For a program's
    entry, never for a library.
    """
    if "asyncio" in sys.modules or "ssl" in sys.modules:
        return
    # `import ssl` raises ImportError, which asyncio expects
    sys.modules["ssl"] = None  # type: ignore[assignment]
    try:
        import asyncio  # noqa: F401
    finally:
        del sys.modules["ssl"]
