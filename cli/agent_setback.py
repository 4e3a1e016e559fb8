"""``shoal agent memory``: whether a device's memory is whole, and the owner's word where it was set back."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from shoal.cli.agent_memory import verified
from shoal.cli.agent_output import print_json, print_lines
from shoal.clients.book import NANO

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from shoal.clients.config import AgentConfig
    from shoal.clients.core import Assignment
    from shoal.clients.memory import Memory
    from shoal.clients.setback import SetBack


def memory(arguments: argparse.Namespace, config: AgentConfig) -> int:
    """0: it is whole, or the owner confirmed that it was set back; 1: it was, and nobody confirmed. Raises MISMATCH for a ledger that does
    not hold, CONFIG, OVERLOADED."""
    from shoal.clients.memory import Memory
    from shoal.clients.setback import confirm, examine
    from shoal.clock import SystemClock
    from shoal.entropy import SYSTEM
    from shoal.errors import Kind, ShoalError

    clock = SystemClock()
    held = Memory(config, clock, SYSTEM)
    try:
        found = examine(held, lambda: _tasks(config, held), clock.now())
        if found is None:
            head = verified(held.store)
            if arguments.json:
                print_json({"set_back": False, "confirmed": False, "entries": head.count, "verified": True})
            else:
                print_lines(f"this memory is whole, as far as it can be seen: {head.count:,} entries, verified, and the tables fit them")
            return 0
        words = found.words(held.head_name)
        if not arguments.json:
            print_lines("\n".join(words))
        confirmed = arguments.confirm_set_back and (arguments.yes or _asked(arguments.json))
        if confirmed:
            confirm(held, found, clock.now())
        if arguments.json:
            print_json(_json(found, words, confirmed))
        elif confirmed:
            print_lines("confirmed, and entered in the ledger: the device answers again, from the next windows on")
        else:
            raise ShoalError(Kind.MISMATCH, "nothing was changed, and nothing is answered or sent until you run: " + _COMMAND)
        return 0 if confirmed else 1
    finally:
        held.close()


_COMMAND = "shoal agent memory --confirm-set-back"


def _tasks(config: AgentConfig, held: Memory) -> Sequence[Assignment]:
    from shoal.clients.taskbook import TaskBook

    book = TaskBook(config.tasks, config.effective_policy, held.outbox, config.shelf)
    book.refresh()
    return book.all()


def _asked(as_json: bool) -> bool:
    """The owner's word at a terminal. Nobody there: no."""
    if as_json or not sys.stdin.isatty():
        return False
    print_lines('Type "yes" to go on like that:')
    return sys.stdin.readline().strip().lower() == "yes"


def _json(found: SetBack, words: list[str], confirmed: bool) -> dict[str, Any]:
    head = found.noted.head if found.noted is not None else None
    return {
        "set_back": True,
        "confirmed": confirmed,
        "entries": found.entries,
        "entries_noted": None if head is None else head.count,
        "epsilon_lost": found.nano / NANO,
        "allowed": list(found.allowed),
        "explanation": words,
    }
