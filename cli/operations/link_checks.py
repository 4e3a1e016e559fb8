"""Both ends of every link, as configured: ports, admin pages, analyzer, devices' way, broker."""

from __future__ import annotations

import errno
import json
import socket
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterable
from typing import Any

from grpc_health.v1 import health_pb2

from shoal import __version__
from shoal.cli.operations.findings import Findings
from shoal.crypto.trust import ServedTask
from shoal.errors import Kind, ShoalError
from shoal.limits import LIMITS
from shoal.mqtt.link import Link
from shoal.mqtt.settings import BrokerSettings
from shoal.protos import delivery_pb2
from shoal.rpc.access import read_token
from shoal.rpc.channel import build_channel, call
from shoal.rpc.health import HEALTH
from shoal.rpc.tls import TlsIdentity, read_pem
from shoal.services.settings import AdminSection, RoleSettings
from shoal.task import split_address

_LINK_S = 20.0  # for one end of a link to answer
_ANY = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}  # noqa: S104 - what a service listens on


def service(findings: Findings, name: str, settings: RoleSettings) -> bool:
    """Whether the service runs; of a running one what it says is wrong, of another its ports."""
    try:
        status = ask_status(settings)
    except ShoalError as error:
        findings.warn("service", str(error))
        return False
    if status is None:
        for key, address in (("listen", settings.listen), ("admin_listen", settings.admin_listen)):
            _free(findings, key, address)
        return False
    if status.get("service") != name:
        findings.fail(
            "ports", f"what answers at admin_listen is no {name}: choose another port, or stop it"
        )
        return False
    findings.ok("ports", f"listen and admin_listen are the running {name}'s own")
    running = status.get("version")
    if running != __version__:
        findings.warn(
            "versions",
            f"the {name} that runs is of version {str(running)[:20]}, {__version__} is installed: "
            "restart it",
        )
    conditions = status.get("conditions") or []
    for condition in conditions:
        tell = findings.fail if condition["stops"] else findings.warn
        tell("service", f"{condition['code']}: {condition['message']}")
    if not conditions:
        findings.ok("service", f"the {name} runs, and says that nothing is wrong")
    return True


def ask_status(settings: RoleSettings) -> dict[str, Any] | None:
    """What /status says, asked with the token and over TLS where the configuration wants them; None
    where nobody answers. Raises CONFIG, KEY_FILE, UNAVAILABLE.
    """
    admin, parts = settings.admin, split_address(settings.admin_listen)
    if admin.client_ca is not None:
        raise ShoalError(
            Kind.UNAVAILABLE,
            "not asked: admin_listen wants a client certificate; look at its /status yourself",
        )
    host, port = parts or ("", 0)
    headers = {"Host": "localhost"}
    if admin.token_file is not None:
        headers["Authorization"] = f"Bearer {read_token(admin.token_file).decode()}"
    scheme = "https" if admin.certificate is not None else "http"
    url = f"{scheme}://{_ANY.get(host, host)}:{port}/status"
    request = urllib.request.Request(url, headers=headers)  # noqa: S310 - of the configuration
    # no proxy of the environment: it would be shown the token
    ways = [
        urllib.request.ProxyHandler({}),
        urllib.request.HTTPSHandler(context=_trusting(admin)),
    ]
    try:
        with urllib.request.build_opener(*ways).open(request, timeout=_LINK_S) as reply:
            said = json.loads(reply.read(LIMITS.status_bytes))
    except urllib.error.HTTPError as error:
        raise ShoalError(
            Kind.UNAVAILABLE, f"admin_listen answers with HTTP {error.code}: check [admin]"
        ) from None
    except (OSError, ValueError):
        return None
    return said if isinstance(said, dict) else {}


def _trusting(admin: AdminSection) -> ssl.SSLContext | None:
    """For the one certificate that the configuration names, whatever its name and issuer."""
    if admin.certificate is None:
        return None
    context = ssl.create_default_context(cadata=read_pem(admin.certificate).decode())
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return context


def _free(findings: Findings, key: str, address: str) -> None:
    host, port = split_address(address) or ("", 0)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        socket.create_server((host.strip("[]"), port), family=family).close()
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            findings.fail(
                "ports", f"{key}: another process has {address}: stop it, or choose another port"
            )
        else:
            findings.fail("ports", f"{key}: {address} can't be listened on ({error.strerror})")
    else:
        findings.ok("ports", f"{key}: {address} is free; the service does not run")


async def analyzer(findings: Findings, address: str, identity: TlsIdentity) -> None:
    """The shuffler's way to its analyzer: a question that changes nothing."""
    channel = build_channel(address, identity.client_ca, client=identity, private_pool=True)
    question = delivery_pb2.ServesRequest().SerializeToString()
    try:
        answer = await call(
            channel, "/shoal.v1.Delivery/Serves", question, _LINK_S, peer="analyzer"
        )
        trouble = delivery_pb2.ServesReply.FromString(answer).trouble
    except ShoalError as error:
        mend = (
            ": add a DNS name of [analyzer] certificate to its allowed_shufflers"
            if error.kind is Kind.FORBIDDEN
            else ""
        )
        findings.fail("link", f"to the analyzer at {address}: {error.message}{mend}")
    else:
        findings.ok("link", f"the analyzer at {address} knows this shuffler and answers")
        if trouble:
            findings.fail("link", "the analyzer takes no batches now: run this beside it")
    finally:
        await channel.close()


async def shufflers(findings: Findings, served: Iterable[ServedTask], *, insecure: bool) -> None:
    """The way that devices take, from this machine: every address and authority that tasks name."""
    for address, ca in sorted(
        {(one.task.shuffler_address, one.task.shuffler_ca) for one in served}
    ):
        with findings.checking("link"):
            await _shuffler(findings, address, ca, insecure)


async def _shuffler(findings: Findings, address: str, ca: bytes, insecure: bool) -> None:
    channel = build_channel(address, None if insecure else ca, insecure=insecure, private_pool=True)
    question = health_pb2.HealthCheckRequest().SerializeToString()
    try:
        answer = await call(channel, f"/{HEALTH}/Check", question, _LINK_S, peer="shuffler")
    except ShoalError as error:
        findings.fail("link", f"to the shuffler at {address}: {error.message}")
    else:
        serving = health_pb2.HealthCheckResponse.FromString(answer).status
        if serving == health_pb2.HealthCheckResponse.SERVING:
            findings.ok("link", f"the shuffler at {address} answers, and serves")
        else:
            findings.warn("link", f"the shuffler at {address} answers, and is not ready: see there")
    finally:
        await channel.close()


async def broker(findings: Findings, settings: BrokerSettings) -> None:
    """TCP, TLS, and what the broker says to this name and password."""
    link = Link(settings)
    try:
        async with link:
            await link.connected(_LINK_S)
    except ShoalError as error:
        findings.fail("broker", f"{settings.host}:{settings.port}: {error.message}")
    else:
        findings.ok("broker", f"{settings.host}:{settings.port} takes our connection")
