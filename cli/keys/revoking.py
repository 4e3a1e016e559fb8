"""``shoal keys revoke``: the list of devices that an enrolment authority no longer vouches for."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from shoal.cli.output import emit_json, public_key, read_bytes, say, write_new
from shoal.crypto import keyfiles
from shoal.crypto.admission.revocation import (
    LARGEST,
    RevokedDevices,
    claimed_device,
    sign_list,
    verify_list,
)
from shoal.errors import Kind, ShoalError

HELP = """Take certificates of devices back, before they end: a signed list, which shufflers take up
within reload_s seconds from their tasks folder.

Name each device by its public key, as shoal keys enrol printed it, or by its device.cert. A list is
the whole of what is revoked: give --from the last one, or its devices are admitted again. Reports
that were taken before stay, because nobody can tell which they are.

Example: shoal keys revoke --root enrolment.key --from old.revoked --out fleet.revoked device.cert
"""


def revoke(
    root: Annotated[Path, typer.Option(help="Signing key of the enrolment authority.")],
    out: Annotated[Path, typer.Option(help="The list to write, NAME.revoked.")],
    devices: Annotated[
        list[str] | None, typer.Argument(help="Public keys (64 hex digits) or device.cert files.")
    ] = None,
    before: Annotated[
        Path | None, typer.Option("--from", help="The last list: its devices stay revoked.")
    ] = None,
    readmit: Annotated[
        list[str] | None,
        typer.Option(metavar="DEVICE", help="Of --from's: one that is admitted again; repeat."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    authority = keyfiles.load_signing_key(root)
    last = None if before is None else _read(before, authority.public)
    known = frozenset[bytes]() if last is None else last.devices
    back = {_device(one) for one in readmit or ()}
    if not back <= known:
        raise ShoalError(Kind.CONFIG, "--readmit names a device that --from's list does not revoke")
    if not devices and not back:
        raise ShoalError(Kind.CONFIG, "name the devices: public keys, or device.cert files")
    named = {_device(one) for one in devices or ()}
    # later lists have larger numbers, also where the last one is not at hand
    number = max(int(time.time()), 0 if last is None else last.number + 1)
    write_new(out, sign_list(authority, number, (known | named) - back))
    count = len((known | named) - back)
    if as_json:
        emit_json({"file": str(out), "number": number, "devices": count})
        return
    say(
        f"list {number} in {out}: {count} devices are revoked; put it into tasks_dir of every "
        "shuffler of this authority's tasks"
    )


def _read(path: Path, enrolment_key: bytes) -> RevokedDevices:
    try:
        found = verify_list(read_bytes(path, LARGEST))
    except ShoalError as error:
        raise ShoalError(Kind.CONFIG, f"{path}: {error}") from None
    if found.enrolment_key != enrolment_key:
        raise ShoalError(
            Kind.CONFIG, f"{path}: of another authority than --root: name its own list"
        )
    return found


def _device(text: str) -> bytes:
    if len(text) == 64 and not Path(text).exists():
        return public_key(text, f'"{text[:16]}..."')
    found = claimed_device(read_bytes(Path(text)))
    if not found:
        raise ShoalError(
            Kind.CONFIG, f"{text}: no device certificate: give 64 hex digits, or a device.cert"
        )
    return found
