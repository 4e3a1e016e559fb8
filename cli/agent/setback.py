"""``shoal agent memory``: whether a device's memory is whole, and the owner's word where it is
damaged or was set back.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from shoal.cli.agent.output import print_json, print_lines
from shoal.clients.memory.commitments import NANO
from shoal.clients.owner.book import verified
from shoal.errors import Kind, ShoalError

if TYPE_CHECKING:
    import argparse

    from shoal.clients.memory.device_memory import Memory
    from shoal.clients.memory.rounds_ledger import SqliteLedger
    from shoal.clients.memory.setback import SetBack
    from shoal.clients.settings.config import AgentConfig


def memory(arguments: argparse.Namespace, config: AgentConfig) -> int:
    """0: it is whole, or the owner confirmed what is wrong with it; 1: nobody confirmed. Raises
    MISMATCH for a ledger that does not hold, CONFIG, OVERLOADED. What is damaged comes before what
    was set back.
    """
    from shoal.clients.memory.device_memory import Memory
    from shoal.clients.memory.rounds_ledger import SqliteLedger
    from shoal.clocks.clock import SystemClock
    from shoal.entropy import SYSTEM

    clock = SystemClock()
    held = Memory(config, clock, SYSTEM)
    rounds = SqliteLedger(config.ledger) if config.ledger.exists() else None
    try:
        mended = _damage(arguments, held, rounds, clock.now())
        return _set_back(arguments, config, held, clock.now(), mended)
    finally:
        if rounds is not None:
            rounds.close()
        held.close()


def _damage(
    arguments: argparse.Namespace, held: Memory, rounds: SqliteLedger | None, now: float
) -> list[str]:
    """What was damaged and is mended. Raises MISMATCH if anything is damaged and its owner did not
    confirm.
    """
    from shoal.clients.memory.mending import examine, mend

    setback = examine(held, rounds)
    if setback is None:
        return []
    if not arguments.json:
        print_lines("\n".join(setback.words()))
    if (
        arguments.confirm_damage
        and (arguments.yes or _asked(arguments.json))
        and mend(held, rounds, now) is not None
    ):
        if not arguments.json:
            print_lines(
                "confirmed, and entered in the ledger: what was damaged is replaced by what is safe"
            )
        return [str(damage) for damage in setback.damages]
    if arguments.json:
        damages = [str(damage) for damage in setback.damages]
        print_json(
            {
                "set_back": False,
                "confirmed": False,
                "damaged": damages,
                "explanation": setback.words(),
            }
        )
    raise ShoalError(
        Kind.MISMATCH,
        "nothing was changed: tasks that are concerned get no answer until you run: " + _DAMAGED,
    )


def _set_back(
    arguments: argparse.Namespace, config: AgentConfig, held: Memory, now: float, mended: list[str]
) -> int:
    from shoal.clients.memory.setback import confirm, examine, tasks_known

    setback = examine(held, lambda: tasks_known(config, held), now)
    if setback is None:
        head = verified(held.store)
        if arguments.json:
            print_json(
                {
                    "set_back": False,
                    "confirmed": bool(mended),
                    "damaged": mended,
                    "entries": head.count,
                    "verified": True,
                }
            )
        else:
            print_lines(
                f"this memory is whole, as far as it can be seen: {head.count:,} entries, "
                "verified, and the tables fit them"
            )
        return 0
    words = setback.words(held.head_name)
    if not arguments.json:
        print_lines("\n".join(words))
    confirmed = arguments.confirm_set_back and (arguments.yes or _asked(arguments.json))
    if confirmed:
        confirm(held, setback, now)
    if arguments.json:
        print_json(_json(setback, words, confirmed, mended))
    elif confirmed:
        print_lines(
            "confirmed, and entered in the ledger: the device answers again, from the next windows "
            "on"
        )
    else:
        raise ShoalError(
            Kind.MISMATCH,
            "nothing was changed, and nothing is answered or sent until you run: " + _COMMAND,
        )
    return 0 if confirmed else 1


_COMMAND = "shoal agent memory --confirm-set-back"
_DAMAGED = "shoal agent memory --confirm-damage"


def _asked(as_json: bool) -> bool:
    """The owner's word at a terminal. Nobody there: no."""
    if as_json or not sys.stdin.isatty():
        return False
    print_lines('Type "yes" to go on like that:')
    return sys.stdin.readline().strip().lower() == "yes"


def _json(setback: SetBack, words: list[str], confirmed: bool, mended: list[str]) -> dict[str, Any]:
    head = setback.noted.head if setback.noted is not None else None
    return {
        "set_back": True,
        "confirmed": confirmed,
        "damaged": mended,
        "entries": setback.entries,
        "entries_noted": None if head is None else head.count,
        "epsilon_lost": setback.nano / NANO,
        "allowed": list(setback.allowed),
        "explanation": words,
    }
