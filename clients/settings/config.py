"""agent.toml: read with the standard library, every mistake one line that names the key. Sample:
deploy/agent.toml.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from shoal.clients.owner.fleet_policy import (
    FleetPolicy,
    authorities_from,
    loosening,
    purposes_from,
    tighten,
)
from shoal.clients.owner.policy import BY_NAME, Policy
from shoal.clients.owner.rules import Rule, rules_from
from shoal.clients.settings.mqtt import FeedsConfig, feeds_from, mqtt_from
from shoal.clients.settings.toml_tables import TomlTable
from shoal.clients.sources.spec import DEFAULT_TIMEOUT_S, SourceSpec
from shoal.domain import NO_ANSWER
from shoal.errors import Kind, ShoalError
from shoal.limits import LIMITS
from shoal.storage.toml import read_toml

if TYPE_CHECKING:
    from shoal.crypto.admission.enrolment import DeviceIdentity
    from shoal.mqtt.settings import BrokerSettings

SEND_GAP_S = 30.0
_NO_SOURCES: Mapping[str, SourceSpec] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class EnrolmentFiles:
    """Where a device's certificate (SignedCertificate bytes) and its signing key (PKCS #8 PEM, mode
    0600) are.
    """

    certificate: Path
    key: Path

    def load(self) -> DeviceIdentity:
        """Raises KEY_FILE for the key, CONFIG for the certificate, or if the two don't belong
        together.
        """
        # 0.8 MB: only for devices that are enrolled
        from shoal.crypto.admission.enrolment import SIGNED_CERTIFICATE_SIZE, DeviceIdentity
        from shoal.crypto.keyfiles import load_signing_key

        key = load_signing_key(self.key)
        try:
            with self.certificate.open("rb") as file:
                certificate = file.read(SIGNED_CERTIFICATE_SIZE + 1)
        except OSError as error:
            raise ShoalError(
                Kind.CONFIG,
                f"enrolment.certificate: cannot read {self.certificate.name}: "
                f"{error.strerror or 'unreadable'}",
            ) from None
        try:
            return DeviceIdentity(key, certificate)
        except ShoalError as error:
            raise ShoalError(Kind.CONFIG, f"enrolment: {error}") from None


@dataclass(frozen=True, slots=True)
class AgentConfig:
    """How one device behaves.

    ``tasks``: folder of NAME.task and NAME.keys. ``outbox``: the SQLite file of the device's
    memory, kept without links, because its locks and all else beside it must be the same under
    every name of it. ``policy``: the owner's, as it was written; what counts is
    ``effective_policy``. ``deadline_s``: seconds per attempt. ``retry_first_s``, ``retry_most_s``:
    bounds of the pause after a failed attempt. ``outbox_rows``: reports that may wait. insecure: no
    TLS, loopback alone. ``enrolment``: who the device is, for tasks that admit enrolled devices
    alone.

    ``send_gap_s``: mean seconds between two sends of a running agent, 0: none. ``measure_mean_s``:
    mean seconds from the beginning of a window to its measurement; None: a quarter of the window.
    ``fleet``: the fleet's file; ``fleet_policy``: what stood in it. ``rules``: the owner's, and
    then the fleet's, which are always the last ones. ``sources``: by task name. ``feeds``: where
    tasks are learnt from. ``mqtt``: the broker; ``uplink``: whether reports go through it.
    ``keep_values``: whether the ledger keeps true values. Raises CONFIG naming the key.
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
    send_gap_s: float = SEND_GAP_S
    measure_mean_s: float | None = None
    fleet: Path | None = None
    fleet_policy: FleetPolicy | None = None
    rules: tuple[Rule, ...] = ()
    sources: Mapping[str, SourceSpec] = field(default_factory=lambda: _NO_SOURCES)
    feeds: FeedsConfig = field(default_factory=FeedsConfig)
    mqtt: BrokerSettings | None = None
    uplink: bool = False
    keep_values: bool = False

    def __post_init__(self) -> None:
        _range("send.deadline_s", self.deadline_s, 1.0, 600.0, "seconds")
        _range("send.retry_first_s", self.retry_first_s, 0.01, 3_600.0, "seconds")
        _range(
            "send.retry_most_s",
            self.retry_most_s,
            self.retry_first_s,
            86_400.0,
            "seconds, not below retry_first_s",
        )
        _range("send.gap_s", self.send_gap_s, 0.0, 86_400.0, "seconds, 0 for no pause")
        _range("outbox_rows", self.outbox_rows, 1, LIMITS.outbox_rows, "reports")
        if self.measure_mean_s is not None:
            _range("measure.mean_s", self.measure_mean_s, 0.001, 366 * 86_400.0, "seconds")
        if self.uplink and self.mqtt is None:
            raise ShoalError(Kind.CONFIG, "mqtt.uplink: name the broker under [mqtt] too")
        if self.feeds.mqtt and self.mqtt is None:
            raise ShoalError(Kind.CONFIG, "feeds.mqtt: name the broker under [mqtt] too")
        # One truth each, whichever of the two places it was given in, and however this object was
        # made.
        keep = self.keep_values or self.policy.keep_values
        fleets = self.fleet_policy.rules if self.fleet_policy is not None else ()
        changed = {
            "keep_values": keep,
            "outbox": _without_links(self.outbox),
            "policy": self.policy
            if self.policy.keep_values == keep
            else replace(self.policy, keep_values=keep),
            "rules": (*(rule for rule in self.rules if not rule.fleet), *fleets),
            "sources": MappingProxyType(dict(self.sources)),
        }
        for name, value in changed.items():
            object.__setattr__(self, name, value)

    @property
    def effective_policy(self) -> Policy:
        """The owner's policy, tightened by the fleet's file: the one that decides."""
        return self.policy if self.fleet_policy is None else tighten(self.policy, self.fleet_policy)

    @property
    def notes(self) -> list[str]:
        """What an owner should know of the fleet's file: everything in it that has no effect,
        because it would loosen.
        """
        if self.fleet_policy is None:
            return []
        name = self.fleet.name if self.fleet is not None else "the fleet's file"
        return [f"{name}: no effect: {line}" for line in loosening(self.policy, self.fleet_policy)]

    @property
    def ledger(self) -> Path:
        """SQLite file of the windows that were answered in rounds of secure aggregation: beside the
        outbox, and kept like it.
        """
        return self.outbox.with_name(self.outbox.name + ".rounds")

    @property
    def certificates(self) -> Path:
        """File of what the certificates of tasks guarantee, a cache: beside the outbox."""
        return self.outbox.with_name(self.outbox.name + ".certificates")

    @property
    def learnt_folder(self) -> Path:
        """Folder of the tasks that were learnt from feeds: beside the outbox."""
        return self.outbox.with_name(self.outbox.name + ".tasks")

    @classmethod
    def load(cls, path: Path) -> AgentConfig:
        """Read and check a file, and the fleet's file that it names; relative paths are relative to
        the file. Raises CONFIG, KEY_FILE.
        """
        values = read_toml(path)
        try:
            return cls._from(values, path.resolve().parent)
        except ShoalError as error:
            raise ShoalError(error.kind, f"{path.name}: {error}") from None

    @classmethod
    def _from(cls, values: dict[str, Any], base: Path) -> AgentConfig:
        top = TomlTable("", values)
        policy, send = TomlTable("policy", top.take("policy", dict)), top.table("send")
        measure, ledger, mqtt = top.table("measure"), top.table("ledger"), top.table("mqtt")
        fleet = base / top.take("fleet", str) if "fleet" in top else None
        insecure = send.take("insecure", bool, False)
        uplink = mqtt.take("uplink", bool, False)
        config = cls(
            tasks=base / top.take("tasks", str),
            outbox=base / top.take("outbox", str),
            policy=_policy(policy),
            deadline_s=send.number("deadline_s", LIMITS.send_deadline_s),
            retry_first_s=send.number("retry_first_s", LIMITS.retry_first_s),
            retry_most_s=send.number("retry_most_s", LIMITS.retry_most_s),
            outbox_rows=top.take("outbox_rows", int, LIMITS.outbox_rows),
            insecure=insecure,
            enrolment=_enrolment(top, base),
            send_gap_s=send.number("gap_s", SEND_GAP_S),
            measure_mean_s=measure.number("mean_s", None),
            fleet=fleet,
            fleet_policy=FleetPolicy.load(fleet) if fleet is not None else None,
            rules=rules_from(top.take("rules", list, [])),
            sources=_sources(top, base),
            feeds=feeds_from(top.table("feeds"), base),
            mqtt=mqtt_from(mqtt, base, insecure),
            uplink=uplink,
            keep_values=ledger.take("keep_values", bool, False),
        )
        for table in (top, policy, send, measure, ledger, mqtt):
            table.end()
        return config


def _enrolment(top: TomlTable, base: Path) -> EnrolmentFiles | None:
    values: dict[str, Any] = top.take("enrolment", dict, {})
    if not values:
        return None
    table = TomlTable("enrolment", values)
    files = EnrolmentFiles(base / table.take("certificate", str), base / table.take("key", str))
    table.end()
    return files


def _policy(table: TomlTable) -> Policy:
    authorities: list[Any] = table.take("authorities", list)
    try:
        return Policy(
            authorities_from(authorities),
            table.number("max_epsilon0"),
            table.take("min_batch_floor", int),
            purposes_from(table.take("purposes", dict, {})),
            table.take("sums_if_apart", bool, False),
            table.number("lifetime_epsilon", math.inf),
            infinite_epsilon0=table.take("infinite_epsilon0", str, BY_NAME),
            owner_devices=table.take("owner_devices", int, 1),
            max_delta=table.number("max_delta", LIMITS.device_delta),
        )
    except ShoalError as error:
        text = str(error)  # keys that the table itself complains about have their prefix
        raise ShoalError(
            Kind.CONFIG, text if text.startswith("policy.") else f"policy.{text}"
        ) from None


def _sources(top: TomlTable, base: Path) -> dict[str, SourceSpec]:
    """[sources.TASKNAME]; a relative path is relative to the configuration."""
    tables: dict[str, Any] = top.take("sources", dict, {})
    return {name: _source(name, values, base) for name, values in tables.items()}


def _source(name: str, values: Any, base: Path) -> SourceSpec:
    if not isinstance(values, dict):
        raise ShoalError(
            Kind.CONFIG, f"sources.{name[:64]}: must be a table: write [sources.{name[:64]}]"
        )
    table = TomlTable(f"sources.{name[:64]}", values)
    file, releases = table.take("file", str, ""), table.take("releases", str, "")
    fields = {
        "kind": table.take("kind", str),
        "timeout_s": table.number("timeout_s", DEFAULT_TIMEOUT_S),
        "file": base / file if file else None,
        "pointer": table.take("pointer", str, ""),
        "query": table.take("query", str, ""),
        "argv": table.texts("argv"),
        "url": table.take("url", str, ""),
        "task_id": table.take("task_id", str, ""),
        "otherwise": table.take("otherwise", str, NO_ANSWER),
        "releases": base / releases if releases else None,
    }
    table.end()
    try:
        return SourceSpec(**fields)
    except ShoalError as error:
        raise ShoalError(Kind.CONFIG, f"sources.{name[:64]}.{error}") from None


def _range(key: str, value: float, low: float, high: float, unit: str) -> None:
    if not low <= value <= high:
        raise ShoalError(Kind.CONFIG, f"{key}: {low:g} to {high:g} {unit}")


def _without_links(outbox: Path) -> Path:
    """Raises CONFIG."""
    try:
        return outbox.resolve()
    except (OSError, RuntimeError):  # a RuntimeError until Python 3.13
        raise ShoalError(
            Kind.CONFIG,
            f"outbox {outbox}: its links lead nowhere: name a file in a folder of this user",
        ) from None
