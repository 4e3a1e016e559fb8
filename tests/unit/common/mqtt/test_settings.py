"""A broker's settings are checked before anything is sent, and keep the password to themselves."""

from __future__ import annotations

import copy
import pickle
import ssl
from typing import Any

import pytest

from shoal.errors import Kind, ShoalError
from shoal.mqtt.settings import BrokerSettings
from tests.cases import for_each
from tests.worlds.mqtt.broker import authority

GOOD: dict[str, Any] = {
    "host": "broker.example.org",
    "port": 8883,
    "username": "device",
    "password": "s3cret",
}


def test_tls_is_the_rule() -> None:
    """Planted: a context without checks (verify_mode, check_hostname) -> this fails."""
    for ca in (None, authority().cert_pem):
        context = BrokerSettings(**GOOD, ca=ca).tls_context()
        assert context.verify_mode is ssl.CERT_REQUIRED
        assert context.check_hostname
        assert context.minimum_version >= ssl.TLSVersion.TLSv1_2


def test_a_given_ca_is_the_only_one() -> None:
    """Planted: the machine's certificates beside the given one -> any public authority could stand
    in for the broker's.
    """
    assert len(BrokerSettings(**GOOD, ca=authority().cert_pem).tls_context().get_ca_certs()) == 1


BAD: list[dict[str, Any]] = [
    {"host": ""},
    {"host": "mqtts://broker"},
    {"host": "user@broker"},
    {"host": "two words"},
    {"port": 0},
    {"port": 65_536},
    {"protocol": "4"},
    {"ca": b""},
    {"ca": b"not PEM"},
    {"ca": b"\xff\xfe"},
    {"ca": b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"},
    {"insecure": True},
    {"insecure": True, "host": "192.0.2.1"},
    {"username": ""},
    {"username": "x" * 65_536},
    {"username": "a\x00b"},
    {"password": "\ud800"},
]


@for_each(
    "change",
    BAD,
    ids=lambda change: " ".join(f"{name}={value!r:.20}" for name, value in change.items()),
)
def test_what_is_wrong_is_said_in_one_line(change: dict[str, Any]) -> None:
    """Planted: any check left out -> its line fails. An empty ca would be taken for the machine's
    certificates.
    """
    with pytest.raises(ShoalError) as caught:
        BrokerSettings(**{**GOOD, **change})
    assert caught.value.kind is Kind.CONFIG
    assert caught.value.message.startswith("mqtt: ")
    assert len(caught.value.message.splitlines()) == 1
    assert "s3cret" not in caught.value.message


@for_each("host", ["localhost", "127.0.0.1", "127.1.2.3", "::1", "[::1]"])
def test_without_tls_on_loopback_alone(host: str) -> None:
    assert BrokerSettings(host, 1883, insecure=True).insecure


def test_the_password_does_not_show() -> None:
    """Planted: repr or pickle as dataclasses have them -> this fails."""
    settings = BrokerSettings(**GOOD)
    assert "s3cret" not in f"{settings!r} {settings}"
    for leak in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError):
            leak(settings)
