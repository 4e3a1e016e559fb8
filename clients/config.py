"""agent.toml: read with the standard library, every mistake one line that names the key. Sample: deploy/agent.toml."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shoal.clients.policy import Consent, Policy
from shoal.errors import Kind, ShoalError
from shoal.limits import LIMITS
from shoal.toml import read_toml

if TYPE_CHECKING:
    from shoal.crypto.enrolment import DeviceIdentity

_MISSING = object()


@dataclass(frozen=True, slots=True)
class EnrolmentFiles:
    """Where a device's certificate (SignedCertificate bytes) and its signing key (PKCS #8 PEM, mode 0600) are."""

    certificate: Path
    key: Path

    def load(self) -> DeviceIdentity:
        """Raises KEY_FILE for the key, CONFIG for the certificate, or if the two don't belong together."""
        from shoal.crypto.enrolment import SIGNED_CERTIFICATE_SIZE, DeviceIdentity
        from shoal.crypto.keyfiles import load_signing_key

        key = load_signing_key(self.key)
        try:
            with self.certificate.open("rb") as file:
                certificate = file.read(SIGNED_CERTIFICATE_SIZE + 1)
        except OSError as error:
            raise ShoalError(
                Kind.CONFIG, f"enrolment.certificate: cannot read {self.certificate.name}: {error.strerror or 'unreadable'}"
            ) from None
        try:
            return DeviceIdentity(key, certificate)
        except ShoalError as error:
            raise ShoalError(Kind.CONFIG, f"enrolment: {error}") from None


@dataclass(frozen=True, slots=True)
class AgentConfig:
    """How one device behaves.

    ``tasks``: folder of NAME.task and NAME.keys. ``outbox``: the SQLite file of reports that wait. ``policy``: the owner's.
    ``deadline_s``: seconds per attempt. ``retry_first_s``, ``retry_most_s``: bounds of the pause after a failed attempt.
    ``outbox_rows``: reports that may wait. insecure: no TLS, loopback alone. ``enrolment``: who the device is, for tasks that
    admit enrolled devices alone. Raises CONFIG naming the key.
    """

    tasks: Path
    outbox: Path
    policy: Policy
    deadline_s: float = LIMITS.send_deadline_s
    retry_first_s: float = LIMITS.retry_first_s
    retry_most_s: float = LIMITS.retry_most_s
    outbox_rows: int = LIMITS.outbox_rows
    insecure: bool = False
    enrolment: EnrolmentFiles | None = None

    def __post_init__(self) -> None:
        _range("send.deadline_s", self.deadline_s, 1.0, 600.0, "seconds")
        _range("send.retry_first_s", self.retry_first_s, 0.01, 3_600.0, "seconds")
        _range("send.retry_most_s", self.retry_most_s, self.retry_first_s, 86_400.0, "seconds, not below retry_first_s")
        _range("outbox_rows", self.outbox_rows, 1, LIMITS.outbox_rows, "reports")

    @property
    def ledger(self) -> Path:
        """SQLite file of the windows that were answered in rounds of secure aggregation: beside the outbox, and kept like it."""
        return self.outbox.with_name(self.outbox.name + ".rounds")

    @classmethod
    def load(cls, path: Path) -> AgentConfig:
        """Read and check a file; relative paths in it are relative to it. Raises CONFIG."""
        values = read_toml(path)
        try:
            return cls._from(values, path.resolve().parent)
        except ShoalError as error:
            raise ShoalError(Kind.CONFIG, f"{path.name}: {error}") from None

    @classmethod
    def _from(cls, values: dict[str, Any], base: Path) -> AgentConfig:
        top = _Table("", values)
        policy, send = _Table("policy", top.take("policy", dict)), _Table("send", top.take("send", dict, {}))
        config = cls(
            tasks=base / top.take("tasks", str),
            outbox=base / top.take("outbox", str),
            policy=_policy(policy),
            deadline_s=send.number("deadline_s", LIMITS.send_deadline_s),
            retry_first_s=send.number("retry_first_s", LIMITS.retry_first_s),
            retry_most_s=send.number("retry_most_s", LIMITS.retry_most_s),
            outbox_rows=top.take("outbox_rows", int, LIMITS.outbox_rows),
            insecure=send.take("insecure", bool, False),
            enrolment=_enrolment(top, base),
        )
        for table in (top, policy, send):
            table.end()
        return config


def _enrolment(top: _Table, base: Path) -> EnrolmentFiles | None:
    values: dict[str, Any] = top.take("enrolment", dict, {})
    if not values:
        return None
    table = _Table("enrolment", values)
    files = EnrolmentFiles(base / table.take("certificate", str), base / table.take("key", str))
    table.end()
    return files


def _policy(table: _Table) -> Policy:
    authorities = table.take("authorities", list)
    keys = [_authority(key) for key in authorities]
    purposes: dict[str, Any] = table.take("purposes", dict, {})
    answers: dict[str, Consent] = {}
    for purpose, answer in purposes.items():
        if answer not in ("allowed", "denied"):
            raise ShoalError(
                Kind.CONFIG, f'policy.purposes: "{purpose[:40]}": "allowed" or "denied"; leave a purpose out that was not asked'
            )
        answers[purpose] = answer
    max_epsilon0, floor = table.number("max_epsilon0"), table.take("min_batch_floor", int)
    sums_if_apart = table.take("sums_if_apart", bool, False)
    try:
        return Policy(frozenset(keys), max_epsilon0, floor, answers, sums_if_apart)
    except ShoalError as error:
        raise ShoalError(Kind.CONFIG, f"policy.{error}") from None


def _authority(key: object) -> bytes:
    try:
        raw = bytes.fromhex(key) if isinstance(key, str) else b""
    except ValueError:
        raw = b""
    if len(raw) != 32:
        raise ShoalError(Kind.CONFIG, "policy.authorities: each is an Ed25519 public key, 64 hex digits")
    return raw


class _Table:
    """A TOML table whose keys are taken one by one; what is left at the end is unknown."""

    def __init__(self, name: str, values: Mapping[str, Any]) -> None:
        self._prefix, self._values = f"{name}." if name else "", dict(values)

    def take(self, key: str, wanted: type, default: Any = _MISSING) -> Any:
        value = self._values.pop(key, default)
        if value is _MISSING:
            raise ShoalError(Kind.CONFIG, f"{self._prefix}{key}: required, but missing")
        if type(value) is not wanted:
            raise ShoalError(Kind.CONFIG, f"{self._prefix}{key}: must be {_WORDS[wanted]}")
        return value

    def number(self, key: str, default: Any = _MISSING) -> float:
        if type(self._values.get(key)) is int:
            self._values[key] = float(self._values[key])
        return float(self.take(key, float, default))

    def end(self) -> None:
        for key in sorted(self._values):
            raise ShoalError(Kind.CONFIG, f"{self._prefix}{key}: no such key: remove it or mend its name")


_WORDS = {str: "a text in quotes", int: "a whole number", float: "a number", bool: "true or false", list: "a list", dict: "a table"}


def _range(key: str, value: float, low: float, high: float, unit: str) -> None:
    if not low <= value <= high:
        raise ShoalError(Kind.CONFIG, f"{key}: {low:g} to {high:g} {unit}")
