"""How far one device that lies moves a count of several messages. Nothing finds it out: what bounds
it is that a report has so many messages at most, and what each of them weighs.

A message weighs 1; where the true message is drawn by randomized response, 1 / (p - q), as any
report of that is: with probability p an honest device names its own cell, with q another one. Of a
signed count a pair of messages weighs 2 of a device, so all of them move it by half of the bound,
or little more.
"""

from __future__ import annotations

import math

from shoal.accounting.meaning import bound_text
from shoal.domain import AnswerRecord, Domain
from shoal.mechanisms.several.protocol import Noisy, Several, Summed


def moved_by_liar(made: Several) -> float:
    """Of one count, in devices: all messages of a report in one cell, against a report without any.
    Infinite for a sum of shares, which one message moves anywhere. Direction: upper bound.
    """
    if isinstance(made, Summed):
        return math.inf
    law = made.truth_law if isinstance(made, Noisy) else None
    return made.messages * (1.0 if law is None else law.total / (law.same - law.other))


def report_weight(domain: Domain | None) -> int:
    """Devices that one report stands for in a count: of a record which each device answers in one
    of h marginals h, else 1.
    """
    if isinstance(domain, AnswerRecord) and not domain.together:
        return len(domain.marginals)
    return 1


def liar_words(made: Several, domain: Domain | None = None) -> str:
    """The same, beside what a device of one message can do, as a sentence without its full stop:
    for owners and for who reads a release. ``domain``: of the task, where there is one.
    """
    if isinstance(made, Summed):
        return (
            "nothing bounds a device that lies: it moves the result anywhere, with messages that "
            "look like all others"
        )
    weight = report_weight(domain)
    most = bound_text(moved_by_liar(made) * weight)
    if made.messages == 1:
        return f"a device that lies moves a count by {most} at most"
    return (
        f"a device that lies moves a count by {most} at most, with all of its {made.messages} "
        f"messages in one cell; a single one that is not randomized would move it by {weight}"
    )
