"""The parts of agent.toml about the network beside the shuffler: where tasks are learnt from, and
the MQTT broker.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shoal.clients.settings.toml_tables import TomlTable
from shoal.errors import Kind, ShoalError
from shoal.task import split_address

if TYPE_CHECKING:
    from shoal.mqtt.settings import BrokerSettings

_CA_BYTES = 64 * 1024
_PASSWORD_BYTES = 1024
_MOST_SHUFFLERS = 100


@dataclass(frozen=True, slots=True)
class ShufflerFeed:
    """A shuffler that is asked for its tasks. ``address``: HOST:PORT. ``ca``: PEM file of its
    certificate authority; None: the system's.
    """

    address: str
    ca: Path | None = None

    def __post_init__(self) -> None:
        if (split_address(self.address) or ("", 0))[1] == 0:
            raise ShoalError(Kind.CONFIG, "address: HOST:PORT, for example shuffler.example:7443")


@dataclass(frozen=True, slots=True)
class FeedsConfig:
    """Where tasks are learnt from, beside the folder. ``every_s``: mean seconds between two
    questions to a shuffler, 10 to a week.
    """

    every_s: float = 3_600.0
    mqtt: bool = False
    shufflers: tuple[ShufflerFeed, ...] = ()

    def __post_init__(self) -> None:
        if not 10.0 <= self.every_s <= 604_800.0:
            raise ShoalError(Kind.CONFIG, "feeds.every_s: 10 to 604800 seconds")
        if len(self.shufflers) > _MOST_SHUFFLERS:
            raise ShoalError(Kind.CONFIG, f"feeds.shuffler: at most {_MOST_SHUFFLERS}")


def feeds_from(table: TomlTable, base: Path) -> FeedsConfig:
    """[feeds] and its [[feeds.shuffler]]. Raises CONFIG."""
    entries: list[Any] = table.take("shuffler", list, [])
    feeds = FeedsConfig(
        every_s=table.number("every_s", 3_600.0),
        mqtt=table.take("mqtt", bool, False),
        shufflers=tuple(_shuffler(number, entry, base) for number, entry in enumerate(entries, 1)),
    )
    table.end()
    return feeds


def _shuffler(number: int, values: Any, base: Path) -> ShufflerFeed:
    if not isinstance(values, dict):
        raise ShoalError(
            Kind.CONFIG, "feeds.shuffler: must be tables: write [[feeds.shuffler]] above each"
        )
    table = TomlTable(f"feeds.shuffler[{number}]", values)
    address, ca = table.take("address", str), table.take("ca", str, "")
    table.end()
    try:
        return ShufflerFeed(address, base / ca if ca else None)
    except ShoalError as error:
        raise ShoalError(Kind.CONFIG, f"feeds.shuffler[{number}].{error}") from None


def mqtt_from(table: TomlTable, base: Path, insecure: bool) -> BrokerSettings | None:
    """[mqtt]: the broker, its certificate authority and the password read from their files; None
    without ``broker``.

    ``insecure``: no TLS, unless the table says otherwise; the settings refuse it for anything but a
    loopback address. Raises CONFIG; KEY_FILE if others could read the password file.
    """
    if not len(table):
        return None
    insecure = table.take("insecure", bool, insecure)
    host, port = _broker(table, insecure)
    ca, password_file = table.take("ca", str, ""), table.take("password_file", str, "")
    username, protocol = table.take("username", str, ""), table.take("protocol", str, "5")
    if protocol not in {"5", "3.1.1"}:
        raise table.bad("protocol", '"5" or "3.1.1"')
    if password_file and not username:
        raise table.bad("username", "required with password_file")
    # Python's ssl, a second OpenSSL: only for who uses a broker
    from shoal.mqtt.settings import BrokerSettings

    try:
        return BrokerSettings(
            host,
            port,
            _read(table, "ca", base / ca, _CA_BYTES) if ca else None,
            username=username,
            password=_password(table, base / password_file) if password_file else "",
            protocol="5" if protocol == "5" else "3.1.1",
            insecure=insecure,
        )
    except ShoalError as error:
        text = str(error)
        raise ShoalError(error.kind, text if text.startswith("mqtt") else f"mqtt: {text}") from None


def _broker(table: TomlTable, insecure: bool) -> tuple[str, int]:
    address = table.take("broker", str)
    parts = split_address(address)
    if parts is None or parts[1] == 0:
        raise table.bad(
            "broker", f"HOST:PORT, for example broker.example:{1883 if insecure else 8883}"
        )
    return parts[0].strip("[]"), parts[1]


def _read(table: TomlTable, key: str, path: Path, most: int) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(most + 1)
    except OSError as error:
        raise table.bad(key, f"cannot read {path.name}: {error.strerror or 'unreadable'}") from None
    if len(data) > most:
        raise table.bad(key, f"{path.name} is larger than {most} bytes")
    return data


def _password(table: TomlTable, path: Path) -> str:
    """The first line of a file that nobody else may read. Raises KEY_FILE, CONFIG."""
    # 0.7 MB: only for who has a password or a key of its own
    from shoal.crypto.keyfiles import load_private_pem

    try:
        text = load_private_pem(path)[: _PASSWORD_BYTES + 2].decode().rstrip("\r\n")
    except UnicodeDecodeError:
        text = ""
    except ShoalError as error:
        raise ShoalError(error.kind, f"mqtt.password_file: {error}") from None
    if not text or len(text.encode()) > _PASSWORD_BYTES or not text.isprintable():
        raise table.bad(
            "password_file",
            f"{path.name} holds no password: one line of 1 to {_PASSWORD_BYTES} bytes",
        )
    return text
