"""Who may call what: named peers by certificate, and nobody else, with real TLS on both sides."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime, timedelta
from pathlib import Path

import grpc
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from shoal.errors import Kind, ShoalError
from shoal.rpc.channel import build_channel, call, call_stream
from shoal.rpc.server import RpcServer, Service
from shoal.rpc.tls import TlsIdentity, read_pem
from tests.cases import for_each
from tests.unit.common.rpc.world import (
    METHODS,
    OURS,
    authority,
    connected,
    identity,
    messages,
    path,
    served,
    server_identity,
)

PEERS = frozenset({"shuffler.internal", "shuffler-b.internal"})


def made_by_hand(names: list[x509.GeneralName], ended_days: int = -1) -> tuple[bytes, bytes]:
    """A certificate of our authority with these names, that ended so many days ago, and its key."""
    issuer = x509.load_pem_x509_certificate(authority(OURS).cert_pem)
    issuer_key = load_pem_private_key(authority(OURS).key_pem, password=None)
    assert isinstance(issuer_key, ec.EllipticCurvePrivateKey)
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([]))
        .issuer_name(issuer.subject)
        .public_key(key.public_key())
    )
    builder = (
        builder.serial_number(7)
        .not_valid_before(now - timedelta(days=9))
        .not_valid_after(now - timedelta(days=ended_days))
    )
    builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    certificate = builder.sign(issuer_key, SHA256()).public_bytes(Encoding.PEM)
    return certificate, key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def expired(name: str) -> tuple[bytes, bytes]:
    return made_by_hand([x509.DNSName(name)], ended_days=1)


@pytest.mark.parametrize(
    "san",
    [
        ("shuffler.internal",),
        ("shuffler-b.internal",),
        ("other.internal", "shuffler.internal", "10.0.0.1"),
    ],
)
async def test_a_named_peer_is_served(san: tuple[str, ...]) -> None:
    async with (
        served(peers=PEERS) as address,
        connected(address, identity(san, client=True)) as channel,
    ):
        assert await call(channel, path(), b"x", 30.0) == b"x"
        assert await call_stream(channel, path("Total"), messages(b"x"), 30.0) == b"1"


@for_each(
    "san",
    [
        ("analyzer.internal",),
        ("SHUFFLER.internal.evil",),
        ("shuffler.interna",),
        ("internal",),
        ("*.internal",),
        ("10.0.0.1",),
        (),
    ],
    ids=lambda san: san[0] if san else "no name",
)
async def test_the_right_authority_with_the_wrong_name_is_forbidden(san: tuple[str, ...]) -> None:
    """Exact names, no wildcards, and the common name counts for nothing. Planted: ``if names -
    peers`` or no check -> this fails.
    """
    async with (
        served(peers=PEERS) as address,
        connected(address, identity(san, client=True)) as channel,
    ):
        for attempt in (
            call(channel, path(), b"x", 30.0),
            call_stream(channel, path("Total"), messages(b"x"), 30.0),
        ):
            with pytest.raises(ShoalError) as caught:
                await attempt
            assert caught.value.kind is Kind.FORBIDDEN
            assert caught.value.message == "this client certificate may not call this service"


@pytest.mark.parametrize(
    "kind",
    [x509.DNSName, x509.RFC822Name, x509.UniformResourceIdentifier],
    ids=["dns", "mail", "uri"],
)
async def test_only_a_dns_name_is_a_name(kind: type[x509.DNSName]) -> None:
    """Authorities check other kinds of names by other rules. Planted: gRPC's mix of all kinds ->
    this fails.
    """
    certificate, key = made_by_hand([kind("shuffler.internal")])
    async with (
        served(peers=PEERS) as address,
        connected(address, TlsIdentity(certificate, key)) as channel,
    ):
        if kind is x509.DNSName:
            assert await call(channel, path(), b"x", 30.0) == b"x"
            return
        with pytest.raises(ShoalError) as caught:
            await call(channel, path(), b"x", 30.0)
    assert caught.value.kind is Kind.FORBIDDEN


@pytest.mark.parametrize("who", ["nobody", "another authority", "a server's certificate"])
async def test_others_do_not_get_through_the_handshake(who: str) -> None:
    """Planted: require_client_auth=False -> FORBIDDEN from our code instead, and this fails."""
    client = {
        "nobody": None,
        "another authority": identity(("shuffler.internal",), client=True, by="another authority"),
        "a server's certificate": identity(("shuffler.internal",), server=True),
    }[who]
    async with served(peers=PEERS) as address, connected(address, client) as channel:
        with pytest.raises(ShoalError) as caught:
            await call(channel, path(), b"x", 30.0, peer="analyzer")
    assert caught.value.kind is Kind.UNAVAILABLE
    assert "certificate" in caught.value.message


async def test_an_ended_certificate_does_not_get_through() -> None:
    """Our own side would refuse to load it (below), so this client is built by hand."""
    certificate, key = expired("shuffler.internal")
    credentials = grpc.ssl_channel_credentials(
        authority(OURS).cert_pem, private_key=key, certificate_chain=certificate
    )
    async with (
        served(peers=PEERS) as address,
        grpc.aio.secure_channel(address, credentials) as channel,
    ):
        with pytest.raises(ShoalError) as caught:
            await call(channel, path(), b"x", 30.0)
    assert caught.value.kind is Kind.UNAVAILABLE


@pytest.mark.parametrize("wrong", ["authority", "name"])
async def test_a_server_that_is_not_the_one_dialled(wrong: str) -> None:
    """The client side of the same promise: a report goes to the certified server or nowhere."""
    identity_of_server = server_identity(
        san=("127.0.0.1",) if wrong == "authority" else ("elsewhere.internal",)
    )
    server = RpcServer("127.0.0.1:0", [Service("shoal.test.Echo", METHODS)], identity_of_server)
    port = await server.start()
    ca = authority("another authority" if wrong == "authority" else OURS).cert_pem
    try:
        async with connected(f"127.0.0.1:{port}", ca=ca) as channel:
            with pytest.raises(ShoalError) as caught:
                await call(channel, path(), b"x", 30.0, peer="shuffler")
    finally:
        await server.stop(0)
    assert caught.value.kind is Kind.UNAVAILABLE


async def test_a_plain_text_client_gets_nothing() -> None:
    async with served() as address:
        channel = build_channel(address, None, insecure=True)
        with pytest.raises(ShoalError) as caught:
            await call(channel, path(), b"x", 30.0)
        await channel.close()
    assert caught.value.kind is Kind.UNAVAILABLE


def save(folder: Path, certificate: bytes, key: bytes, mode: int = 0o600) -> tuple[Path, Path]:
    paths = folder / "service.pem", folder / "service.key"
    for path_, data in zip(paths, (certificate, key), strict=True):
        path_.write_bytes(data)
        path_.chmod(mode)
    return paths


def refusal(folder: Path, certificate: bytes, key: bytes, mode: int = 0o600) -> str:
    with pytest.raises(ShoalError) as caught:
        TlsIdentity.load(*save(folder, certificate, key, mode))
    assert caught.value.kind is Kind.KEY_FILE
    assert "\n" not in caught.value.message
    return caught.value.message


def test_files_are_loaded(tmp_path: Path) -> None:
    one = identity(("a.internal",), server=True)
    (tmp_path / "ca.pem").write_bytes(authority(OURS).cert_pem)
    assert TlsIdentity.load(*save(tmp_path, one.certificate, one.key), tmp_path / "ca.pem") == one


def test_wrong_files_are_named(tmp_path: Path) -> None:
    """At start-up, not as "can't reach" at the first call, or as "port in use". Planted: no pair
    check -> this fails.
    """
    one, other = identity(("a.internal",), server=True), identity(("b.internal",), server=True)
    assert "does not belong to the certificate" in refusal(tmp_path, one.certificate, other.key)
    assert "service.pem, service.key" in refusal(tmp_path, one.certificate, other.key)
    assert "is not a PEM file" in refusal(tmp_path, b"nonsense", one.key)
    assert "is not a PEM file" in refusal(tmp_path, one.certificate, b"")
    assert "not a PEM certificate" in refusal(tmp_path, one.key, one.key)
    assert "not an unencrypted PEM key" in refusal(tmp_path, one.certificate, one.certificate)
    assert "ended on" in refusal(tmp_path, *expired("a.internal"))
    key = load_pem_private_key(one.key, password=None)
    locked = key.private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret")
    )
    assert "not an unencrypted PEM key" in refusal(tmp_path, one.certificate, locked)


@for_each("mode", [0o640, 0o604, 0o660, 0o644, 0o601])
def test_a_key_that_others_can_read_is_refused(tmp_path: Path, mode: int) -> None:
    """The certificate may be public. Planted: no mode check in read_pem -> this fails."""
    one = identity(("a.internal",), server=True)
    message = refusal(tmp_path, one.certificate, one.key, mode)
    assert "chmod 600" in message
    assert "service.key" in message


def test_missing_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(ShoalError, match=r"cannot read .*gone\.pem: No such file") as caught:
        read_pem(tmp_path / "gone.pem")
    assert caught.value.kind is Kind.KEY_FILE


def test_a_bad_client_ca_is_seen() -> None:
    one = identity(("a.internal",), server=True)
    with pytest.raises(ShoalError, match="client_ca is not a PEM certificate"):
        TlsIdentity(
            one.certificate,
            one.key,
            b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
        )


def test_the_key_does_not_print_or_pickle() -> None:
    one = identity(("a.internal",), server=True)
    body = one.key.decode().splitlines()[1]
    assert body not in repr(one)
    assert body not in str(one)
    with pytest.raises(TypeError, match="never pickled"):
        pickle.dumps(one)
