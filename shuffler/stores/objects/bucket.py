"""The one place that talks to an object store: objects that are made once, read in ranges and
deleted, and what its failures mean. No text of a server is passed on: it may hold a credential's
name.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import secrets
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Self, cast

import obstore
from obstore import exceptions as failures
from obstore.store import from_url

from shoal.errors import Kind, ShoalError
from shoal.limits import LIMITS

if TYPE_CHECKING:
    from obstore.store import ClientConfig, ObjectStore, RetryConfig

_DELETED = 500  # objects that one call deletes
_RETRIES = 3
_STATUS = re.compile(r"status code: (\d{3})")


class Bucket:
    """What one shuffler keeps in an object store. ``place``: where, for a person; no secret."""

    def __init__(self, store: ObjectStore, place: str, identity: bytes, schema: str) -> None:
        """``identity``: the shuffler's public signing key, ``schema``: of its tables; so two
        shufflers that were given one place don't meet.
        """
        self._store, self.place = store, place
        named = b"shoal/v1/objects\0" + identity + schema.encode()
        self._cluster = hashlib.sha256(named).hexdigest()[:32] + "/"

    def __repr__(self) -> str:
        return f"<Bucket {self.place}>"

    @classmethod
    def open(
        cls,
        url: str,
        options: dict[str, str],
        identity: bytes,
        schema: str,
        *,
        ca: bytes | None = None,
        plain: bool = False,
    ) -> Self:
        """Nothing is asked yet. ``options``: of obstore, credentials among them; what is not there
        is the environment's. ``ca``: PEM. ``plain``: without TLS, for a server on this machine.
        Raises CONFIG.
        """
        client: dict[str, Any] = {
            "allow_http": plain,
            "connect_timeout": timedelta(seconds=LIMITS.connect_s),
        }
        if ca is not None:
            client["root_certificate"] = ca
        retry: RetryConfig = {
            "max_retries": _RETRIES,
            "retry_timeout": timedelta(seconds=LIMITS.database_s / 2),
        }
        try:
            store = from_url(
                url,
                config=cast("Any", options),
                client_options=cast("ClientConfig", client),
                retry_config=retry,
            )
        except (failures.BaseError, ValueError, TypeError):
            raise ShoalError(
                Kind.CONFIG,
                "store.batches: the object store can't be used so: see the url and the names in "
                "credentials_file",
            ) from None
        return cls(store, url.rstrip("/"), identity, schema)

    async def create(self, name: str, data: bytes) -> None:
        """Whole or not at all, and never over another one: what is there under this name must be
        the same, as after an answer that was lost. Raises UNAVAILABLE, CONFIG, CONFLICT.
        """
        path = self._cluster + name
        try:
            async with self._asking():
                await obstore.put_async(self._store, path, data, mode="create", use_multipart=False)
        except failures.AlreadyExistsError:
            if await self.read(name, 0, len(data)) != data:
                raise ShoalError(
                    Kind.CONFLICT,
                    f"the object store has another object {path}: let nobody else write there",
                ) from None
        except FileNotFoundError:
            raise self._no_bucket() from None

    async def read(self, name: str, start: int, length: int) -> bytes | None:
        """A range of an object, what there is of it; None: there is no such object. Raises
        UNAVAILABLE, CONFIG.
        """
        path = self._cluster + name
        try:
            async with self._asking(lambda: self._shorter(path, start + length)):
                found = await obstore.get_range_async(self._store, path, start=start, length=length)
                return bytes(found)
        except FileNotFoundError:
            await self._there()
            return None
        except _ShorterError:
            return b""

    async def _shorter(self, path: str, end: int) -> None:
        """Raises _ShorterError where an object ends before that."""
        meta = await obstore.head_async(self._store, path)
        if int(meta["size"]) < end:
            raise _ShorterError

    async def delete(self, names: Sequence[str]) -> None:
        """Those that are there. Raises UNAVAILABLE, CONFIG."""
        for at in range(0, len(names), _DELETED):
            some = [self._cluster + name for name in names[at : at + _DELETED]]
            try:
                async with self._asking():
                    await obstore.delete_async(self._store, some)
            except FileNotFoundError:
                await self._there()

    async def names(self, under: str = "") -> list[str]:
        """Of all objects that begin with ``under``, which ends with a slash. Raises UNAVAILABLE,
        CONFIG.
        """
        prefix = self._cluster + under
        found: list[str] = []
        async with self._asking():
            async for some in obstore.list(self._store, prefix=prefix.rstrip("/")):
                found += [str(one["path"]) for one in some]
        return [path.removeprefix(self._cluster) for path in found if path.startswith(prefix)]

    async def probe(self) -> None:
        """Makes an object, reads it, is refused to make it again, deletes it. Raises UNAVAILABLE,
        CONFIG.
        """
        name, data = f"probe/{secrets.token_hex(16)}", secrets.token_bytes(64)
        await self.create(name, data)
        try:
            if await self.read(name, 16, 32) != data[16:48]:
                raise ShoalError(
                    Kind.CONFIG, f"{self.place} does not give back what was put there: use another"
                )
            if not await self._refused(name):
                raise ShoalError(
                    Kind.CONFIG,
                    f"{self.place} writes over an object that is there, although told not to: use "
                    "a store that knows conditional writes",
                )
        finally:
            await self.delete([name])
        if await self.read(name, 0, 1) is not None:
            raise ShoalError(
                Kind.CONFIG, f"{self.place} does not delete what it is told to: see its policies"
            )

    async def _refused(self, name: str) -> bool:
        try:
            await self.create(name, secrets.token_bytes(64))
        except ShoalError as error:
            if error.kind is Kind.CONFLICT:
                return True
            raise
        return False

    async def _there(self) -> None:
        """Raises CONFIG where it is not an object but all of it that is missing."""
        await self.names("probe/")

    def _no_bucket(self) -> ShoalError:
        return ShoalError(
            Kind.CONFIG,
            f"store.batches: there is no {self.place}: make the bucket, or mend the url",
        )

    def _refuses(self) -> ShoalError:
        return ShoalError(
            Kind.CONFIG,
            f"store.batches: {self.place} refuses these credentials: see credentials_file, and "
            "that they may put, get, list and delete there",
        )

    @asynccontextmanager
    async def _asking(self, doubt: Callable[[], Any] | None = None) -> AsyncIterator[None]:
        """What a failure means. ``doubt``: asked where the reason may be the object itself."""
        try:
            async with asyncio.timeout(LIMITS.database_s):
                yield
        except (FileNotFoundError, failures.AlreadyExistsError):
            raise
        except (failures.PermissionDeniedError, failures.UnauthenticatedError):
            raise self._refuses() from None
        except (failures.BaseError, OSError, TimeoutError) as error:
            status = _STATUS.search(str(error))  # of a list: the library has no type for it
            if status is not None and status[1] == "404":
                raise self._no_bucket() from None
            if status is not None and status[1] in ("401", "403"):
                raise self._refuses() from None
            if doubt is not None and not isinstance(error, TimeoutError):
                async with self._asking():
                    await doubt()
            raise ShoalError(
                Kind.UNAVAILABLE,
                f"the object store {self.place} can't be reached, or fails: see that it runs",
                retry_after_s=LIMITS.retry_after_s,
            ) from None


class _ShorterError(Exception):
    """An object has fewer bytes than were written."""
