"""How to come by the object store that shuffler.toml names: credentials from a file that nobody
else may read, and TLS but on this machine.
"""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from shoal.crypto.keyfiles import load_private_pem
from shoal.errors import Kind, ShoalError
from shoal.rpc.address import is_loopback
from shoal.rpc.tls import read_pem
from shoal.shuffler.config import Batches

if TYPE_CHECKING:
    from pathlib import Path

    from shoal.shuffler.stores.objects.bucket import Bucket

_ENDPOINTS = ("endpoint", "endpoint_url", "aws_endpoint", "aws_endpoint_url", "azure_endpoint")
# They would undo what is judged here: TLS, whose server it is, and that nothing is written over.
_ELSEWHERE = ("allow_http", "allow_invalid_certificates", "conditional_put", "copy_if_not_exists")


def open_bucket(section: Batches, identity: bytes, schema: str) -> Bucket:
    """Nothing is asked yet. ``identity``: the shuffler's public signing key; ``schema``: of its
    tables. Raises CONFIG, KEY_FILE.
    """
    try:
        from shoal.shuffler.stores.objects.bucket import Bucket
    except ModuleNotFoundError:
        raise ShoalError(
            Kind.CONFIG, "store.batches wants a library: pip install 'shoal[postgresql-objects]'"
        ) from None
    path = section.credentials_file
    options = {} if path is None else load_options(path)
    return Bucket.open(
        *(section.url, options, identity, schema),
        ca=None if section.ca is None else read_pem(section.ca),
        plain=_plain(options),
    )


def load_options(path: Path) -> dict[str, str]:
    """Names and texts. Raises CONFIG, KEY_FILE."""
    try:
        found = tomllib.loads(load_private_pem(path).decode())
    except (UnicodeDecodeError, tomllib.TOMLDecodeError):
        raise _wrong(f"{path} is no TOML") from None
    for name, value in found.items():
        if not isinstance(value, str):
            raise _wrong(f"{path}: {name} is no text in quotes")
        if name.lower().removeprefix("aws_").removeprefix("azure_") in _ELSEWHERE:
            raise _wrong(f"{path}: {name} can't be set")
    return found


def _plain(options: dict[str, str]) -> bool:
    """Whether the server is one of this machine, without TLS. Raises CONFIG for one beyond it."""
    for name in _ENDPOINTS:
        parts = urlsplit(options.get(name, ""))
        if parts.scheme == "http":
            if not is_loopback(parts.hostname or ""):
                raise _wrong(f"{name} is beyond this machine and without TLS: say https://")
            return True
    return False


def _wrong(what: str) -> ShoalError:
    return ShoalError(Kind.CONFIG, f"store.batches.credentials_file: {what}")
