"""A secret leaves its object by one explicitly named method and by nothing else."""

from __future__ import annotations

import base64
import copy
import dataclasses
import json
import logging
import pickle
import traceback
from collections.abc import Callable
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from shoal.crypto.envelope import HopContent
from shoal.crypto.hpke import HpkePrivateKey, generate
from shoal.crypto.receiving import Recipient
from shoal.crypto.signing import SigningKey
from shoal.crypto.suites import SuiteId
from shoal.crypto.tlscerts import make_authority
from shoal.ids import KeyId, TaskId
from shoal.shuffler.core import WindowId
from shoal.shuffler.stores.store import AdmittedReport
from tests.cases import for_each


def _hpke(suite: SuiteId) -> Callable[[], tuple[Any, bytes]]:
    def make() -> tuple[Any, bytes]:
        key = generate(suite)
        return key, key.to_raw_secret()

    return make


def _recipient() -> tuple[Any, bytes]:
    key = generate(SuiteId.X25519_AES128)
    public, private = key.config.public_key, key._handle
    assert isinstance(private, X25519PrivateKey)
    return Recipient(SuiteId.X25519_AES128, private, public, b""), key.to_raw_secret()


def _signing() -> tuple[Any, bytes]:
    key = SigningKey.generate()
    return key, base64.b64decode(b"".join(key.to_pem().splitlines()[1:-1]))[-32:]


def _identity() -> tuple[Any, bytes]:
    identity = make_authority("test")
    return identity, identity.key_pem


def _content() -> tuple[Any, bytes]:
    ack_key = bytes(range(100, 132))
    return HopContent(TaskId(bytes(32)), 1, ack_key, KeyId(bytes(8)), b"", (b"x",)), ack_key


def _admission() -> tuple[Any, bytes]:
    """A proof is a device's certificate and signature: who sent the report."""
    proof = bytes(range(60, 220))
    return HopContent(TaskId(bytes(32)), 1, bytes(32), KeyId(bytes(8)), proof, (b"x",)), proof


def _sealed() -> tuple[Any, bytes]:
    sealed = bytes(range(50, 120))
    return HopContent(TaskId(bytes(32)), 1, bytes(32), KeyId(bytes(8)), b"", (sealed,)), sealed


SECRETS = [_hpke(suite) for suite in SuiteId] + [
    _recipient,
    _signing,
    _identity,
    _content,
    _admission,
    _sealed,
]


def _forms(secret: bytes) -> list[str]:
    """How bytes show in text: repr, hex of either case, base64, a list of numbers."""
    return [
        repr(secret)[2:-1],
        secret.hex(),
        secret.hex().upper(),
        base64.b64encode(secret).decode(),
        str(list(secret))[1:-1],
    ]


@for_each("make", SECRETS)
def test_no_text_shows_the_secret(
    make: Callable[[], tuple[Any, bytes]], caplog: pytest.LogCaptureFixture
) -> None:
    """Planted: HpkePrivateKey.__repr__ with the secret; repr=False of ack_key, admission or sealed
    removed; Identity.__repr__ removed -> each fails.
    """
    holder, secret = make()
    with caplog.at_level(logging.DEBUG):
        logging.getLogger("test").warning("%s %r", holder, {"key": holder})
    texts = [
        repr(holder),
        str(holder),
        f"{holder}",
        f"{holder!r:>5}",
        repr([holder]),
        repr({1: holder}),
        caplog.text,
    ]
    try:
        raise ValueError(holder)
    except ValueError:
        texts.append(traceback.format_exc())
    for text in texts:
        assert not any(form in text for form in _forms(secret))


@for_each("make", SECRETS)
def test_no_dictionary_of_attributes(make: Callable[[], tuple[Any, bytes]]) -> None:
    """vars() and a JSON encoder that falls back to __dict__ find nothing. Planted: ``__slots__``
    removed -> this fails.
    """
    holder, secret = make()
    assert not getattr(holder, "__dict__", {})
    text = json.dumps(
        holder if not isinstance(holder, tuple) else None,
        default=lambda o: getattr(o, "__dict__", repr(o)),
    )
    assert not any(form in text for form in _forms(secret))


@for_each("make", SECRETS[:-3])
def test_pickling_and_copying_raise(make: Callable[[], tuple[Any, bytes]]) -> None:
    """Planted: ``__reduce__`` removed from HpkePrivateKey, Recipient, Identity -> each fails."""
    holder, _ = make()
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        with pytest.raises(TypeError, match="on purpose"):
            pickle.dumps(holder, protocol)
    for copier in (copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="on purpose"):
            copier(holder)


@pytest.mark.parametrize("place", [0, 1])
def test_a_submission_shows_neither_its_reports_nor_its_device(place: int) -> None:
    """Planted: the representation of a tuple, which shows both -> fails."""
    sealed, device = bytes(range(70, 130)), bytes(range(130, 162))
    one = AdmittedReport(WindowId(TaskId(bytes(32)), 1), (sealed,), device)
    for text in (repr(one), str(one), f"{one}", f"{one!r}", repr([one])):
        assert not any(form in text for form in _forms((sealed, device)[place]))


def test_frame_content_pickles_whole() -> None:
    """The one exception: workers open frames, their parent makes the receipts."""
    holder, _ = _content()
    assert pickle.loads(pickle.dumps(holder)) == holder  # noqa: S301 - our own bytes
    assert dataclasses.asdict(holder)["ack_key"] == holder.ack_key


def test_equal_secrets_are_not_compared_by_value() -> None:
    """Keys have no value equality: comparing them is a bug, comparing ``config`` or ``public`` is
    what is meant.
    """
    key = generate(SuiteId.X25519_AES128)
    assert key != HpkePrivateKey.from_raw_secret(SuiteId.X25519_AES128, key.to_raw_secret())
