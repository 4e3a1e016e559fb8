"""A link that does not come up says why in one line; what no patience mends is told apart."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from shoal.crypto.tlscerts import make_authority
from shoal.errors import Kind, ShoalError
from shoal.limits import LIMITS
from shoal.mqtt import link as link_module
from shoal.mqtt.link import Link
from shoal.mqtt.settings import BrokerSettings, LoginRefused, Untrusted
from tests.worlds.mqtt.broker import LACKING, Broker, kinds
from tests.worlds.mqtt.links import PATIENCE_S, silent
from tests.worlds.mqtt.wire import Puppet


async def why_not(
    settings: BrokerSettings, sort: type[ShoalError] = ShoalError, **more: object
) -> str:
    """The line that says why a link does not come up. ``sort``: what it must be raised as, and
    found as later.
    """
    async with Link(settings, **more) as link:  # type: ignore[arg-type]
        with pytest.raises(ShoalError) as caught:
            await link.connected(PATIENCE_S)
        assert caught.value.kind is Kind.UNAVAILABLE
        assert not link.up
        assert link.problem is not None
        assert type(caught.value) is type(link.problem) is sort
        assert link.problem.message == caught.value.message
    assert len(caught.value.message.splitlines()) == 1
    for private in (settings.host, str(settings.port), settings.password):
        assert not private or private not in caught.value.message
    return caught.value.message


async def test_every_failure_has_its_own_line() -> None:
    """What nobody's patience mends is told apart. Planted: one text for all of TLS, or of logging
    in -> the words are missing; callers that get a plain ShoalError for every failure -> the sort
    is another.
    """
    async with Broker(
        "mosquitto" if "mosquitto" in kinds() else "amqtt", username="device", password="pass-word"
    ) as broker:
        good = broker.settings
        assert "username and password" in await why_not(
            replace(good, password="wrong"), LoginRefused
        )
        assert "username and password" in await why_not(
            replace(good, username="", password=""), LoginRefused
        )
        assert "does not chain" in await why_not(
            replace(good, ca=make_authority("stranger").cert_pem), Untrusted
        )
        assert "does not answer in MQTT 3.1.1" in await why_not(
            replace(good, ca=None, insecure=True, protocol="3.1.1")
        )
        assert "another name" in await why_not(replace(good, host="127.1"), Untrusted)
        await broker.kill()
        assert "nobody listens" in await why_not(good)
    assert "name is not known" in await why_not(replace(good, host="broker.invalid"))


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (1, "does not answer in MQTT"),
        (3, "lets nobody in now"),
        (4, "username and password"),
        (5, "username and password"),
    ],
)
async def test_a_refused_connection_says_why(code: int, words: str) -> None:
    async with Puppet(code) as puppet:
        assert words in await why_not(
            puppet.settings, LoginRefused if code in {4, 5} else ShoalError
        )


async def test_a_broker_that_hangs_up_is_not_waited_for() -> None:
    """Planted: wait for the library's own time-out -> 10 s."""
    async with Puppet(hangs_up=True) as puppet:
        assert (
            "does not answer in MQTT 3.1.1: if its port speaks TLS, leave out insecure; or"
            in await why_not(puppet.settings)
        )
        assert "does not answer in MQTT 5" in await why_not(replace(puppet.settings, protocol="5"))
        assert "ended the connection during TLS" in await why_not(
            replace(puppet.settings, insecure=False)
        )


async def test_a_refused_subscription_says_so() -> None:
    """Planted: SUBACK's codes not looked at -> a link that is up and never hears anything."""
    async with Puppet(suback=0x80) as puppet:
        assert "does not let this user subscribe" in await why_not(
            puppet.settings, subscribe=[("a", 1)]
        )


async def test_a_broker_that_never_answers_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """With TLS and without, and if only its CONNACK stays out. Planted: connect without a limit ->
    this hangs.
    """
    monkeypatch.setattr(link_module, "LIMITS", replace(LIMITS, mqtt_connect_s=0.05))
    async with silent() as settings:
        assert (
            "did not answer within 0.05 s: try again later, or check that its port speaks no TLS"
            in await why_not(settings)
        )
        assert "or check that its port speaks TLS;" in await why_not(
            replace(settings, insecure=False)
        )
    async with Puppet(None) as puppet:
        assert "did not answer within 0.05 s" in await why_not(puppet.settings)


async def test_whoever_waits_waits_no_longer_than_he_said() -> None:
    async with silent() as settings, Link(replace(settings, insecure=False)) as link:
        for step in (link.connected(0.01), link.publish("a", b"", timeout_s=0.01)):
            with pytest.raises(ShoalError) as caught:
                await step
            assert caught.value.kind is Kind.UNAVAILABLE
            assert "in time" in caught.value.message


async def test_no_acknowledgement_is_a_deadline_and_a_lost_connection_is_not() -> None:
    """Planted: the library's own publish -> a lost connection is noticed at the deadline alone,
    this hangs.
    """
    async with Puppet(puback=False) as puppet, Link(puppet.settings) as link:
        await link.connected(PATIENCE_S)
        with pytest.raises(ShoalError) as caught:
            await link.publish("a", b"", timeout_s=0.01)
        assert caught.value.kind is Kind.DEADLINE
        puppet.published.clear()
        sending = asyncio.create_task(link.publish("a", b"", timeout_s=600.0))
        await puppet.published.wait()
        for writer in puppet._writers:
            writer.transport.abort()
        with pytest.raises(ShoalError) as caught:
            await sending
        assert caught.value.kind is Kind.UNAVAILABLE


@pytest.mark.skipif("mosquitto" not in kinds(), reason=f"wants mosquitto's access lists: {LACKING}")
async def test_an_access_list_is_named(tmp_path: Path) -> None:
    """MQTT 5 says that a publication was refused. Planted: its reason code not looked at -> a frame
    is lost without a word.
    """
    rules = tmp_path / "acl"
    rules.write_text("topic write up/+\ntopic read down/+\n")
    rules.chmod(0o600)
    async with (
        Broker("mosquitto", lines=[f"acl_file {rules}"]) as broker,
        Link(broker.settings) as link,
    ):
        await link.publish("up/x", b"", timeout_s=PATIENCE_S)
        with pytest.raises(ShoalError) as caught:
            await link.publish("elsewhere", b"", timeout_s=PATIENCE_S)
        assert caught.value.kind is Kind.UNAVAILABLE
        assert "access list" in caught.value.message


async def test_the_log_has_a_line_per_change_not_per_attempt(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Planted: log every attempt -> this fails."""
    async with silent() as settings:
        gone = settings
    async with Link(gone) as link:
        for _ in range(8):
            with pytest.raises(ShoalError):
                await link.connected(PATIENCE_S)
    assert caplog.text.count("broker not reached") == 1
