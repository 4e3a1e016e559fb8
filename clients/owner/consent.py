"""Consent per purpose: what the owner wrote in the configuration, and what was answered since with
``shoal agent consent``.

Three states: allowed, denied, not asked. Denied wins wherever it was said; without any answer
nothing is sent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Literal

from shoal.errors import Kind, ShoalError

Consent = Literal["allowed", "denied"]
ALLOWED: Consent = "allowed"
DENIED: Consent = "denied"
NOT_ASKED = "not asked"


class Answers(dict[str, str]):
    """The answers of a device's memory, by purpose. ``damaged``: some answer cannot be read, and
    nobody knows whose it was: a purpose that is not here was not asked then, whatever the
    configuration allows.
    """

    def __init__(self, answers: Iterable[tuple[str, str]] = (), damaged: bool = False) -> None:
        super().__init__(answers)
        self.damaged = damaged


NOTHING_STORED: Mapping[str, str] = MappingProxyType({})

# The words of the command, and what they put into the device's memory: None takes an answer back.
_WORDS: Mapping[str, Consent | None] = MappingProxyType(
    {"allow": ALLOWED, "deny": DENIED, "ask": None}
)
WORDS = tuple(_WORDS)
TAKES_BACK = ("deny", "ask")


def consent_to(
    purpose: str, written: Mapping[str, str], stored: Mapping[str, str] = NOTHING_STORED
) -> str:
    """allowed, denied or "not asked", by the task's exact words. ``written``: the configuration's;
    ``stored``: the device's memory.

    An answer that is neither of the two words counts as denied: nobody can know what it meant.
    """
    answers = [source[purpose] for source in (written, stored) if purpose in source]
    if any(answer != ALLOWED for answer in answers):
        return DENIED
    if purpose not in stored and unreadable(stored):
        return NOT_ASKED
    return ALLOWED if answers else NOT_ASKED


def unreadable(stored: Mapping[str, str]) -> bool:
    """Whether some answer of the device's memory is damaged."""
    return isinstance(stored, Answers) and stored.damaged


def not_agreed(consent: str, stored: Mapping[str, str]) -> bool:
    """Whether what waits, and what is kept, goes: not while nobody can read whether it was agreed
    to. Nothing is sent then, that is all.
    """
    return consent == DENIED or (consent == NOT_ASKED and not unreadable(stored))


def answer_of(word: str) -> Consent | None:
    """What "allow", "deny" and "ask" mean for the device's memory. Raises CONFIG for any other
    word.
    """
    if word not in _WORDS:
        raise ShoalError(
            Kind.CONFIG,
            f'consent is "allow", "deny" or "ask" (takes the answer back), not "{word[:40]}"',
        )
    return _WORDS[word]
