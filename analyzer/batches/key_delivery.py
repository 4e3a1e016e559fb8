"""How a window's private key reaches the workers that open its rows, and how it goes again.

The key crosses as a *ticket*: bytes that accompany every chunk, with a function that turns them
into the raw private key where the chunk is opened. What a ticket is depends on where workers are.
In this machine's own processes it is the raw key itself, passed through a pipe in memory. For
workers elsewhere it would be the key sealed to each of them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import NoReturn, Protocol

from shoal.crypto.hpke import HpkePrivateKey
from shoal.errors import Kind, ShoalError

# A function of a module, so that a worker finds it by its name: ticket -> raw private key.
Redeem = Callable[[bytes], bytes]


class LentKey:
    """A window's key on loan to the workers. It prints and pickles nothing of its ticket."""

    __slots__ = ("_redeem", "_ticket")

    def __init__(self, redeem: Redeem, ticket: bytes) -> None:
        self._redeem, self._ticket = redeem, ticket

    def arguments(self) -> tuple[Redeem, bytes]:
        """What goes to a worker with each chunk. Raises INTERNAL once the key was taken back."""
        if not self._ticket:
            raise ShoalError(
                Kind.INTERNAL, "a window's key was used after it was taken back: this is a bug"
            )
        return self._redeem, self._ticket

    def take_back(self) -> None:
        """Forget the ticket. May be repeated."""
        self._ticket = b""

    def __repr__(self) -> str:
        return "<LentKey>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a lent key is never pickled: pass its arguments on purpose")


class KeyDelivery(Protocol):
    """A way for keys to workers. Members inherit tests/conformance/opening/suite.py.

    A raw key is in the memory of processes alone: it is never written to a disk, never logged, and
    once the loan ends no worker keeps it.
    """

    def lend(self, key: HpkePrivateKey) -> AbstractAsyncContextManager[LentKey]:
        """``async with delivery.lend(key) as lent``: workers can redeem the ticket inside.

        Raises UNAVAILABLE if the workers can't be reached.
        """
        ...


class InMemoryDelivery:
    """For workers that are processes of this machine: each gets the raw key with each chunk,
    through its pipe, and forgets it with the chunk.
    """

    @asynccontextmanager
    async def lend(self, key: HpkePrivateKey) -> AsyncIterator[LentKey]:
        """See ``KeyDelivery.lend``."""
        lent = LentKey(_the_key_itself, key.to_raw_secret())
        try:
            yield lent
        finally:
            lent.take_back()


def _the_key_itself(ticket: bytes) -> bytes:
    return ticket
