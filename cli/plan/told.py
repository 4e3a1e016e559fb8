"""What a plan can't know of the task that it writes: as it was typed, checked, and put into the
file.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from shoal.analyzer.planner.task_file import Settings, name_of
from shoal.cli.output import read_bytes
from shoal.errors import Kind, ShoalError
from shoal.limits import LIMITS
from shoal.rpc.address import parse_address
from shoal.task import one_line

__all__ = ["Settings", "Told", "name_of"]

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,63}")
_MOST_PEM = 64 << 10


def _wrong(message: str) -> ShoalError:
    return ShoalError(Kind.CONFIG, message)


@dataclass(frozen=True, slots=True)
class Told:
    """Options of the task, None where one was left out: its place in the file then says what it
    wants.
    """

    question: str | None = None
    name: str | None = None
    purpose: str | None = None
    start: str | None = None
    length: str | None = None
    max_batch: int | None = None
    shuffler: str | None = None
    ca: Path | None = None
    authority: str | None = None
    shuffler_key: str | None = None
    analyzer_key: str | None = None
    enrolment_key: str | None = None

    @classmethod
    def of(cls, parameters: Mapping[str, Any]) -> Told:
        """From the parameters of the command, where ``question`` is what kind is asked and ``text``
        its words.
        """
        return cls(
            **{
                field.name: parameters["text" if field.name == "question" else field.name]
                for field in fields(cls)
            }
        )

    def given(self) -> list[str]:
        """The options that were typed."""
        return [
            f"--{field.name.replace('_', '-')}"
            for field in fields(self)
            if getattr(self, field.name) is not None
        ]

    def settings(self, emit: Path | None, min_batch: int | None) -> Settings:
        """Checked: before anything is computed. Raises CONFIG naming the option."""
        given = self.given()
        if emit is None:
            if given:
                raise _wrong(f"{given[0]} is of the task that --emit writes: give --emit TASK.toml")
            return Settings()
        return Settings(
            self._texts(min_batch), self._windows(), self._keys(), self._shuffler(emit.parent)
        )

    def _texts(self, min_batch: int | None) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for option, text in (("--question", self.question), ("--purpose", self.purpose)):
            if text is None:
                continue
            if not text.strip() or not one_line(text) or len(text) > LIMITS.text_chars:
                raise _wrong(
                    f"{option}: one line of plain words is wanted, at most {LIMITS.text_chars:,} "
                    "characters"
                )
            found[option[2:]] = text
        if self.question is not None and self.purpose is None:
            found["purpose"] = f"statistics on: {self.question.strip()}"
            if len(found["purpose"]) > LIMITS.text_chars:
                raise _wrong("--question is so long that it makes no purpose: give --purpose too")
        name = self.name if self.name is not None else name_of(self.question or "")
        if self.name is not None and _NAME.fullmatch(self.name) is None:
            raise _wrong(
                "--name: 1 to 64 lower case letters, digits and - are wanted, not - first: "
                f"{name_of(self.name) or 'sound-sleep'}"
            )
        if name:
            found["name"] = name
        if self.enrolment_key is not None:
            found["admission"] = "enrolled"
        if self.max_batch is not None:
            if self.max_batch < max(2, min_batch or 0):
                raise _wrong(
                    f"--max-batch: a window that closes at {self.max_batch:,} reports never holds "
                    f"the smallest batch: at least {max(2, min_batch or 0):,} is wanted"
                )
            found["max_batch"] = self.max_batch
        return found

    def _windows(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        if self.start is not None:
            found["start"] = _moment(self.start)
        if self.length is not None:
            found["length_s"] = seconds_of(self.length)
        return found

    def _keys(self) -> dict[str, str]:
        typed = {
            "key_authority": ("--authority", self.authority),
            "shuffler": ("--shuffler-key", self.shuffler_key),
            "analyzer": ("--analyzer-key", self.analyzer_key),
            "enrolment": ("--enrolment-key", self.enrolment_key),
        }
        return {
            key: _public(option, text) for key, (option, text) in typed.items() if text is not None
        }

    def _shuffler(self, folder: Path) -> dict[str, str]:
        found: dict[str, str] = {}
        if self.shuffler is not None:
            parse_address(self.shuffler, "--shuffler")
            found["address"] = self.shuffler
        if self.ca is not None:
            if b"BEGIN CERTIFICATE" not in read_bytes(self.ca, _MOST_PEM):
                raise _wrong(f"--ca {self.ca}: no certificate in PEM: shoal keys ca makes one")
            # as seen from the task file, which names it so
            found["ca"] = (
                str(self.ca) if self.ca.is_absolute() else os.path.relpath(self.ca, folder)
            )
        return found


def _moment(text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise _wrong(
            f'--start: "{text}" is no date and time: 2027-01-31 or 2027-01-31T08:00, UTC unless a '
            "zone is given"
        ) from None
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def seconds_of(text: str) -> int:
    found = re.fullmatch(r"([0-9]{1,9})\s*([smhd]?)", text.strip())
    seconds = int(found[1]) * _UNITS[found[2] or "s"] if found else 0
    if not 1 <= seconds <= 10 * 366 * 86_400:
        raise _wrong(f'--length: "{text}" is no length of a window: 7d, 12h, 30m or 90s is')
    return seconds


def window_of(length: str | None, emit: Path | None) -> int:
    """Seconds of a window of the task that is emitted, a week where nothing is said. Raises CONFIG
    for a ``length`` of no task, and for one that is none.
    """
    if length is not None and emit is None:
        raise _wrong("--length is of the task that --emit writes: give --emit TASK.toml")
    return seconds_of("7d" if length is None else length)


def _public(option: str, text: str) -> str:
    """The key in hex, from itself or a file."""
    if re.fullmatch(r"[0-9a-fA-F]{64}", text):
        return text.lower()
    path = Path(text)
    held = read_bytes(path, _MOST_PEM).strip() if path.is_file() else b""
    if re.fullmatch(rb"[0-9a-fA-F]{64}", held):
        return held.decode().lower()
    if b"PRIVATE KEY" in held:
        from shoal.crypto.keyfiles import load_signing_key

        return load_signing_key(path).public.hex()
    raise _wrong(
        f"{option}: 64 hex digits are wanted, or the file of a key: shoal keys signing makes one "
        "and prints them"
    )
