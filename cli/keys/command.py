"""``shoal keys``: signing keys, HPKE keys of a role, key schedules, device certificates, and
certificates for TLS.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from shoal import codec
from shoal.cli.keys.checks import check_apart
from shoal.cli.keys.revoking import HELP as REVOKE_HELP
from shoal.cli.keys.revoking import revoke
from shoal.cli.output import (
    emit_json,
    named,
    public_key,
    read_bytes,
    read_signed_task,
    say,
    write_new,
)
from shoal.crypto import hpke, keyfiles, tlscerts
from shoal.crypto.admission.enrolment import issue
from shoal.crypto.schedules import sign_keys
from shoal.crypto.signing import SigningContext, SigningKey
from shoal.crypto.suites import SuiteId
from shoal.crypto.trust import trust_schedule, trust_task
from shoal.errors import Kind, ShoalError
from shoal.limits import LIMITS
from shoal.protos import keys_pb2
from shoal.task import KeySchedule, WindowKeys

keys = typer.Typer(no_args_is_help=True, help="Make keys, key schedules and certificates.")
_BACKDATED_S = 3_600  # a device certificate holds from an hour ago: clocks differ


class KeyRole(StrEnum):
    """Whose HPKE keys are made; the values are what people type."""

    analyzer = "analyzer"
    shuffler = "shuffler"


def register(app: typer.Typer) -> None:
    """Add ``shoal keys``."""
    app.add_typer(keys, name="keys")


@keys.command()
def signing(out: Annotated[Path, typer.Option(help="Key file to make, mode 0600.")]) -> None:
    """Make an Ed25519 signing key (for an authority, a shuffler, an analyzer) and print its public
    key.

    Example: shoal keys signing --out authority.key
    """
    named(out)
    key = SigningKey.generate()
    _folder(out.parent)
    keyfiles.save_signing_key(out, key)
    say(key.public.hex())


@keys.command("hpke")
def hpke_keys(
    role: Annotated[
        KeyRole,
        typer.Option(
            help=(
                "analyzer: one key per window; shuffler: one hop key for all windows, or "
                "--per-window."
            )
        ),
    ],
    key: Annotated[
        Path,
        typer.Option(
            help=(
                "The role's signing key, which tasks name: devices take no keys that it has not "
                "signed."
            )
        ),
    ],
    out: Annotated[
        Path, typer.Option(help="Folder for the private keys, one file each, mode 0600.")
    ],
    public: Annotated[Path, typer.Option(help="File for the public keys, for the key authority.")],
    windows: Annotated[
        int, typer.Option(min=1, max=LIMITS.windows, help="Windows of the task.")
    ] = 1,
    suite: Annotated[
        int,
        typer.Option(
            min=1,
            max=3,
            help="1 X25519 + AES-128, 2 X25519 + ChaCha20, 3 MLKEM768-X25519 + AES-128.",
        ),
    ] = 1,
    per_window: Annotated[
        bool, typer.Option("--per-window", help="Shuffler: one hop key per window.")
    ] = False,
) -> None:
    """Make the HPKE keys of a role.

    A shuffler best uses one hop key for all tasks and windows of a period: then the key id on a
    frame tells neither.

    Example: shoal keys hpke --role analyzer --windows 30 --key analyzer/signing.key --out
    analyzer/keys --public analyzer.pub
    """
    count = windows if role is KeyRole.analyzer or per_window else 1
    named(public)
    signer = keyfiles.load_signing_key(key)
    public_keys = make_role_keys(SuiteId(suite), count, out, role, signer)
    write_new(public, encode_role_keys(role.value, public_keys))
    say(f"{count} {role.value} key(s) in {out}, public part in {public}")


@dataclass(frozen=True, slots=True)
class PublicKeys:
    """Public key configurations of a role, and its signature over them."""

    configs: tuple[bytes, ...]
    signature: bytes


def make_role_keys(
    suite: SuiteId, count: int, folder: Path, role: KeyRole, signer: SigningKey
) -> PublicKeys:
    """Make private keys ``<key id>.key`` in ``folder`` (0700); return their public configurations,
    signed by the role.
    """
    _folder(folder)
    configs = []
    for _ in range(count):
        key = hpke.generate(suite)
        keyfiles.save_hpke_key(folder / f"{key.config.key_id.hex}.key", key)
        configs.append(key.config.raw)
    context = SigningContext.ANALYZER_KEYS if role is KeyRole.analyzer else SigningContext.HOP_KEYS
    return PublicKeys(tuple(configs), sign_keys(signer, context, configs))


def _folder(path: Path) -> None:
    """A folder for private keys, for its owner alone. Raises CONFIG."""
    named(path)
    try:
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise ShoalError(
            Kind.CONFIG, f"cannot make the folder {path}: {error.strerror or 'unwritable'}"
        ) from None


def encode_role_keys(role: str, public_keys: PublicKeys) -> bytes:
    """The RoleKeys message of a role: public keys by window, and the role's signature over them."""
    return keys_pb2.RoleKeys(
        version=codec.VERSION, role=role, keys=public_keys.configs, signature=public_keys.signature
    ).SerializeToString()


@keys.command()
def schedule(
    task: Annotated[Path, typer.Option(help="Signed task (NAME.task).")],
    analyzer: Annotated[Path, typer.Option(help="The analyzer's public keys, one per window.")],
    shuffler: Annotated[
        Path,
        typer.Option(help="The shuffler's public keys, one for all windows or one per window."),
    ],
    key: Annotated[Path, typer.Option(help="Signing key of the task's key authority.")],
    out: Annotated[Path, typer.Option(help="Signed key schedule to make (NAME.keys).")],
) -> None:
    """Sign which key opens what, in which window.

    Example: shoal keys schedule --task visits.task --analyzer analyzer.pub --shuffler shuffler.pub
    --key authority.key --out visits.keys
    """
    signer = keyfiles.load_signing_key(key)
    signed_task = read_signed_task(task)
    signed = sign_schedule(
        signed_task, _role_keys(analyzer, "analyzer"), _role_keys(shuffler, "shuffler"), signer
    )
    check_apart(codec.decode_schedule(codec.decode_signed_schedule(signed).data), out.parent)
    write_new(out, signed)
    say(f"key schedule in {out}")


def sign_schedule(
    signed_task: bytes, of_analyzer: PublicKeys, of_shuffler: PublicKeys, signer: SigningKey
) -> bytes:
    """The SignedKeySchedule of a task. Raises CONFIG if the numbers of keys don't fit its windows,
    or an analyzer key stands twice.

    BAD_SIGNATURE: keys that the task's analyzer or shuffler did not sign.
    """
    analyzer, shuffler = of_analyzer.configs, of_shuffler.configs
    authority = codec.decode_signed_task(signed_task).authority
    trusted = trust_task(signed_task, {authority})
    count = trusted.task.windows.count
    if len(analyzer) != count:
        raise ShoalError(
            Kind.CONFIG,
            f"the task has {count} windows, the analyzer gave {len(analyzer)} keys: make {count}",
        )
    if len(set(analyzer)) != count:
        # A window's key is deleted when its release is out: one that still serves another window
        # would have to stay.
        raise ShoalError(
            Kind.CONFIG,
            "an analyzer key stands twice in its file: every window has a key of its own, make "
            "them anew",
        )
    if len(shuffler) not in {1, count}:
        raise ShoalError(
            Kind.CONFIG,
            f"the task has {count} windows, the shuffler gave {len(shuffler)} keys: make 1 or "
            f"{count}",
        )
    hops = shuffler * count if len(shuffler) == 1 else shuffler
    data = codec.encode_schedule(
        KeySchedule(
            trusted.task_id.raw,
            tuple(WindowKeys(w, analyzer[w], hops[w]) for w in range(count)),
            of_analyzer.signature,
            of_shuffler.signature,
        ),
    )
    signed = codec.encode_signed_schedule(
        codec.Signed(data, signer.public, signer.sign(SigningContext.KEY_SCHEDULE, data))
    )
    trust_schedule(signed, trusted)
    return signed


def _role_keys(path: Path, role: str) -> PublicKeys:
    message = codec.parse(keys_pb2.RoleKeys, read_bytes(path), path.name)
    if message.version != codec.VERSION or message.role != role or not message.keys:
        raise ShoalError(
            Kind.CONFIG,
            f"{path} holds no public keys of the {role}: make them with shoal keys hpke --role "
            f"{role}",
        )
    return PublicKeys(tuple(message.keys), message.signature)


@keys.command()
def enrol(
    root: Annotated[
        Path,
        typer.Option(
            help=(
                "Signing key of the enrolment authority; its public key stands in tasks as "
                "keys.enrolment."
            )
        ),
    ],
    out: Annotated[
        Path,
        typer.Option(
            help=(
                "Folder for device.key (mode 0600) and device.cert, or device-1.key, "
                "device-1.cert, ..."
            )
        ),
    ],
    count: Annotated[int, typer.Option(min=1, max=100_000, help="Devices to enrol.")] = 1,
    days: Annotated[
        int, typer.Option(min=1, max=3650, help="Days from now for which the certificates hold.")
    ] = 365,
    device_key: Annotated[
        str,
        typer.Option(
            metavar="HEX",
            help="Public key that a device made itself: certify that one, and see no private key.",
        ),
    ] = "",
) -> None:
    """Enrol devices, for tasks with admission = "enrolled" that name this authority. Prints the
    public key of each.

    A device best makes its key itself, and hands out the public half: shoal keys signing --out
    device.key

    Example: shoal keys enrol --root enrolment.key --out devices --count 100 --days 365
    """
    if device_key and count != 1:
        raise ShoalError(Kind.CONFIG, "--device-key certifies one device: leave --count out")
    authority = keyfiles.load_signing_key(root)
    now = int(time.time())
    _folder(out)
    for number in range(1, count + 1):
        name = f"device-{number}" if count > 1 else "device"
        public = (
            public_key(device_key, "--device-key")
            if device_key
            else _device_key(out / f"{name}.key")
        )
        write_new(
            out / f"{name}.cert", issue(authority, public, now - _BACKDATED_S, now + days * 86_400)
        )
        say(public.hex())


keys.command(help=REVOKE_HELP)(revoke)


def _device_key(path: Path) -> bytes:
    """Make a device's private key file; its public key."""
    key = SigningKey.generate()
    keyfiles.save_signing_key(path, key)
    return key.public


@keys.command()
def ca(
    out: Annotated[Path, typer.Option(help="Folder for ca.pem and ca.key.")],
    name: Annotated[str, typer.Option(help="Name of the authority.")] = "Shoal CA",
) -> None:
    """Make a small certificate authority for the services' TLS (or use your own).

    Example: shoal keys ca --out tls
    """
    identity = tlscerts.make_authority(name)
    _folder(out)
    keyfiles.save_private_pem(out / "ca.key", identity.key_pem)
    write_new(out / "ca.pem", identity.cert_pem)
    say(f"{out / 'ca.pem'} and {out / 'ca.key'}: keep the key off the services' machines")


@keys.command()
def cert(
    authority: Annotated[Path, typer.Option("--ca", help="Folder with ca.pem and ca.key.")],
    name: Annotated[
        str, typer.Option(help="File name, and the certificate's common name: shuffler, analyzer.")
    ],
    san: Annotated[list[str], typer.Option(help="DNS name or IP address; repeat for several.")],
    out: Annotated[Path, typer.Option(help="Folder for NAME.pem and NAME.key.")],
    days: Annotated[int, typer.Option(min=1, max=3650)] = 365,
) -> None:
    """Issue a certificate for a service, as server and as client.

    Example: shoal keys cert --ca tls --name shuffler --san shuffler.example.org --out tls
    """
    issuer = (read_bytes(authority / "ca.pem"), keyfiles.load_private_pem(authority / "ca.key"))
    _folder(out)
    identity = tlscerts.issue(issuer, name, san, server=True, client=True, days=days)
    keyfiles.save_private_pem(out / f"{name}.key", identity.key_pem)
    write_new(out / f"{name}.pem", identity.cert_pem)
    say(f"{out / f'{name}.pem'} and {out / f'{name}.key'}")


@keys.command()
def show(
    schedule_file: Annotated[Path, typer.Argument(metavar="NAME.keys")],
    task: Annotated[Path, typer.Option(help="The task it belongs to (NAME.task).")],
    trust: Annotated[
        str, typer.Option(help="Public key of the task's authority; empty: the one in the file.")
    ] = "",
) -> None:
    """Verify a key schedule against its task and print its key ids as JSON.

    Example: shoal keys show tasks/visits.keys --task tasks/visits.task
    """
    signed_task = read_signed_task(task)
    authority = (
        public_key(trust, "--trust") if trust else codec.decode_signed_task(signed_task).authority
    )
    keys_of = trust_schedule(read_bytes(schedule_file), trust_task(signed_task, {authority}))
    emit_json(
        {
            "schedule": keys_of.digest.hex,
            "windows": [
                {"window": w, "analyzer_key_id": a.key_id.hex, "hop_key_id": h.key_id.hex}
                for w, (a, h) in enumerate(
                    zip(keys_of.analyzer_keys, keys_of.hop_keys, strict=True)
                )
            ],
        }
    )
