"""Less memory for the agent's service, in MB of an idle agent (``python -m benchmarks --quick
agent``), which had 61.4 without any of it:

- 4.6: asyncio without Python's ``ssl``, which loads a second OpenSSL beside that of
  ``cryptography``. gRPC brings a TLS of its own, and asyncio works without one, as on a Python that
  was built so. Whatever needs ``ssl`` (a broker, a source over HTTP) imports it later as ever; only
  asyncio's own TLS streams, which nothing here uses, are missing from the process.
- 1.0: protobuf's messages in pure Python, which generated code names and does not use.
- 0.7: what reads the command line, which is dropped once that is read.
"""

from __future__ import annotations

import gc
import importlib
import sys
from collections.abc import Set
from types import ModuleType
from typing import Any

# what reads the command line
_READ = (
    "argparse",
    "gettext",
    "shoal.cli.agent.parser",
    "shoal.cli.agent.help",
    "shoal.cli.agent.examples",
)
# used where protobuf's own library in C is missing
_LATER = "google.protobuf.internal.python_message"


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


def forget(before: Set[str]) -> None:
    """Drop the modules that read the command line, but for those of ``before``, which others use.
    What is loaded next takes their memory. For a program's entry, never for a library.
    """
    for name in _READ:
        if name in sys.modules and name not in before:
            del sys.modules[name]
            package, _, own = name.rpartition(".")
            if package in sys.modules:
                delattr(sys.modules[package], own)
    gc.collect()


class _Later(ModuleType):
    """Stands for a module until somebody wants something of it."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return getattr(importlib.import_module(self.__name__), name)


def import_later() -> None:
    """Let protobuf's messages in pure Python be loaded by whoever first uses them, if anybody
    does. For a program's entry, never for a library.
    """
    if _LATER not in sys.modules:
        sys.modules[_LATER] = _Later(_LATER)
