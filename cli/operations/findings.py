"""What an examination found: one line each, with what to do, and never a secret."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum, unique

from shoal.errors import ShoalError


@unique
class Level(Enum):
    """How bad it is. ``FAIL``: something does not work, or soon loses data."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class HealthFinding:
    """role: "shuffler", "analyzer", "agent" or "link"; check: "disk", "certificates", ...; message:
    one line, which says what to do where something is wrong.
    """

    level: Level
    role: str
    check: str
    message: str

    def __post_init__(self) -> None:
        if not self.message or "\n" in self.message:
            raise ValueError("a finding is told in one line")


class Findings:
    """A list of them, about one role after the other."""

    def __init__(self) -> None:
        self.all: list[HealthFinding] = []
        self._role = ""

    def about(self, role: str) -> None:
        """What follows is about this role."""
        self._role = role

    def ok(self, check: str, message: str) -> None:
        """As it should be."""
        self._add(Level.OK, check, message)

    def warn(self, check: str, message: str) -> None:
        """It works, and will not for ever."""
        self._add(Level.WARN, check, message)

    def fail(self, check: str, message: str) -> None:
        """It does not work."""
        self._add(Level.FAIL, check, message)

    def count(self, level: Level) -> int:
        """How many there are of it."""
        return sum(finding.level is level for finding in self.all)

    @contextmanager
    def checking(self, check: str) -> Iterator[None]:
        """What a check raises is its finding: an examination goes on. Of what nobody expected only
        its type is told: its text may quote a file.
        """
        try:
            yield
        except ShoalError as error:
            self.fail(check, str(error))
        except OSError as error:
            self.fail(check, f"{error.strerror or type(error).__name__}: run it as the service")
        except Exception as error:  # noqa: BLE001 - see above
            self.fail(check, f"could not be looked at ({type(error).__name__}): a bug, report it")

    def _add(self, level: Level, check: str, message: str) -> None:
        line = " ".join(message.split())
        finding = HealthFinding(level, self._role, check, line)
        if finding not in self.all:
            self.all.append(finding)
