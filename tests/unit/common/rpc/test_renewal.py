"""Certificates replaced under traffic: no call fails, and new connections see the new ones."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from shoal.crypto.tlscerts import issue, make_authority
from shoal.errors import Kind, ShoalError
from shoal.rpc.access import Access
from shoal.rpc.admin import Admin
from shoal.rpc.call import Call
from shoal.rpc.channel import build_channel, call
from shoal.rpc.renewal import RenewableChannel, TlsFiles
from shoal.rpc.server import Method, RpcServer, Service
from shoal.rpc.tls import TlsIdentity
from shoal.services.conditions import Conditions
from tests.unit.common.rpc.world import METHODS, SERVICE, echo, path

OLD, NEW = make_authority("old"), make_authority("new")
PEERS = frozenset({"peer.test"})


def side(authority: tuple[bytes, bytes], trusted: bytes) -> TlsIdentity:
    """A certificate for either end, and whom it trusts."""
    made = issue(
        authority, "peer.test", ["127.0.0.1", "peer.test"], server=True, client=True, days=2
    )
    return TlsIdentity(made.cert_pem, made.key_pem, trusted)


async def test_both_ends_move_to_a_new_authority_under_traffic_and_no_call_fails() -> None:
    """In the order of docs/OPERATIONS.md: first both trust both, then the certificates, then the
    old trust goes. Calls go on all the while, of which some began before and end after.
    Planted: ``_newer`` gives None always -> the new certificates are never shown: fails.
    Planted: the old channel closed at once -> calls under way fail.
    """
    held = asyncio.Event()

    async def slow(request: bytes, call: Call) -> bytes:
        await held.wait()
        return request

    methods = {"Echo": Method(1_000, echo), "Slow": Method(1_000, slow)}
    both = OLD.cert_pem + NEW.cert_pem
    server = RpcServer("127.0.0.1:0", [Service(SERVICE, methods, PEERS)], side(OLD, OLD.cert_pem))
    address = f"127.0.0.1:{await server.start()}"
    channel = RenewableChannel(address, side(OLD, OLD.cert_pem))
    steps = [(OLD, both), (NEW, both), (NEW, NEW.cert_pem)]
    answers = [asyncio.create_task(call(channel, path("Slow"), b"0", 30))]
    await call(channel, path(), b"before", 10)
    for number, (authority, trusted) in enumerate(steps, 1):
        server.renew(side(authority, trusted))
        channel.renew(side(authority, trusted))
        answers += [asyncio.create_task(call(channel, path("Slow"), b"%d" % number, 30))]
        answers += [asyncio.create_task(call(channel, path(), b"x", 10)) for _ in range(20)]
        assert await call(channel, path(), b"now", 10) == b"now"
    held.set()
    assert {await answer for answer in answers} == {b"0", b"1", b"2", b"3", b"x"}
    with_old = build_channel(address, both, client=side(OLD, both), private_pool=True)
    with pytest.raises(ShoalError) as refused:
        await call(with_old, path(), b"late", 10)
    assert refused.value.kind is Kind.UNAVAILABLE
    with_new = build_channel(address, NEW.cert_pem, client=side(NEW, both), private_pool=True)
    assert await call(with_new, path(), b"x", 10) == b"x"
    for one in (with_old, with_new, channel):
        await one.close()
    await server.stop(0)


async def test_whether_clients_show_certificates_does_not_change_with_them() -> None:
    """Planted: taken up all the same -> the server would ask nobody, and let everybody in:
    fails.
    """
    mutual = side(OLD, OLD.cert_pem)
    server = RpcServer("127.0.0.1:0", [Service(SERVICE, METHODS, PEERS)], mutual)
    with pytest.raises(ShoalError) as refused:
        server.renew(TlsIdentity(mutual.certificate, mutual.key))
    assert refused.value.kind is Kind.CONFIG


async def test_the_admin_pages_show_a_renewed_certificate(tmp_path: Path) -> None:
    """Planted: uvicorn's context left as it was -> the second look fails to verify."""
    certificate, key = tmp_path / "admin.pem", tmp_path / "admin.key"

    def put(authority: tuple[bytes, bytes]) -> None:
        one = side(authority, OLD.cert_pem)
        certificate.write_bytes(one.certificate)
        key.write_bytes(one.key)
        key.chmod(0o600)

    async def look(port: int, trusted: bytes) -> None:
        context = ssl.create_default_context(cadata=trusted.decode())
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        writer.close()

    put(OLD)
    access = Access.load(certificate=certificate, key=key)
    admin = Admin("127.0.0.1:0", Conditions(), dict, CollectorRegistry(), access)
    port = await admin.start()
    await look(port, OLD.cert_pem)
    put(NEW)
    admin.renew()
    await look(port, NEW.cert_pem)
    await admin.stop()


def test_who_cannot_take_a_certificate_up_is_told_and_asked_again(tmp_path: Path) -> None:
    """Planted: the failure raised, as before -> who looks once a minute never looks again. Planted:
    the files remembered as seen -> the second look takes nothing up.
    """
    certificate, key = tmp_path / "tls.pem", tmp_path / "tls.key"

    def put() -> None:
        one = side(OLD, OLD.cert_pem)
        certificate.write_bytes(one.certificate)
        key.write_bytes(one.key)
        key.chmod(0o600)

    put()
    files, fails, taken = TlsFiles("tls", certificate, key), [True], list[TlsIdentity]()

    def take(identity: TlsIdentity) -> None:
        if fails:
            fails.pop()
            raise ssl.SSLError("key values mismatch")
        taken.append(identity)

    files.on_renewal(take)
    put()
    assert not files.look()
    assert files.trouble
    assert files.look()
    assert (taken, files.trouble) == ([files.identity], "")
