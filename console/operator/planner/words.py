"""Words that nobody has listed, on the Planner's page: of how many devices a word is to be found,
and the least epsilon with which it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from shoal.accounting.meaning import bet
from shoal.accounting.several_messages.liars import liar_words
from shoal.analyzer.discovery.least import least_plans
from shoal.analyzer.discovery.plan import DiscoveryPlan, DiscoveryRequest
from shoal.console.words import odds, plural
from shoal.mechanisms.several.levels import FALSE_WORDS, histogram_of, threshold

AGAIN_MS = 500


@dataclass(frozen=True, slots=True)
class WordsQuestion:
    """``wanted``: devices that have a word which is to be found. The request's own epsilon is not
    looked at.
    """

    request: DiscoveryRequest
    wanted: int


@dataclass(frozen=True, slots=True)
class WordsAnswer:
    """``plan``: None until it is known; ``tried`` of ``of`` settings of the noise."""

    plan: DiscoveryPlan | None = None
    tried: int = 0
    of: int = 0

    @property
    def done(self) -> bool:
        """Whether there is a plan."""
        return self.plan is not None

    @property
    def options(self) -> tuple[DiscoveryPlan, ...]:
        """What there is to see."""
        return () if self.plan is None else (self.plan,)


def words_answers(question: WordsQuestion) -> Iterator[WordsAnswer]:
    """One more setting in each. Raises CONFIG where no epsilon finds such words."""
    for each in least_plans(question.request, question.wanted):
        yield WordsAnswer(each.plan, each.tried, each.of)


def words_view(
    question: WordsQuestion, answer: WordsAnswer | None, trouble: str | None
) -> dict[str, Any]:
    """Values for the template's part ``words``."""
    known = WordsAnswer() if answer is None else answer
    share = 100.0 * question.wanted / question.request.fleet
    return {
        "wanted": f"a word of {question.wanted:,} devices ({share:.3g} %) is found, 95 times in a "
        "hundred",
        "trouble": trouble,
        "again_ms": None if known.done or trouble else AGAIN_MS,
        "tried": known.tried,
        "of": known.of,
        "words": None if known.plan is None else _found(known.plan),
    }


def _found(plan: DiscoveryPlan) -> dict[str, Any]:
    request, discovery = plan.request, plan.discovery
    return {
        "bet": bet(plan.epsilon, request.delta, plan.together),
        "epsilon": plan.epsilon,
        "level": plan.epsilon_level,
        "odds": odds(plan.epsilon, request.delta),
        "delta": request.delta,
        "windows": plan.together,
        "spare": plural(request.spare, "spare window"),
        "levels": discovery.levels,
        "found_from": plan.found_in_all,
        "draws": None if request.same else request.asked_windows,
        "fleet": request.fleet,
        "most": discovery.most,
        "false": FALSE_WORDS,
        "stderr": plan.stderr_in_all,
        "honest": request.n_honest,
        "sends": f"{plan.messages(discovery.size):.1f}",
        "slots": plan.made.messages,
        "liar": liar_words(plan.made),
        "liars": plan.liars,
        "rows": [_row(plan, number) for number in range(discovery.levels)],
    }


def _row(plan: DiscoveryPlan, number: int) -> dict[str, Any]:
    """A level at its largest."""
    discovery, request = plan.discovery, plan.request
    made = plan.made if number else histogram_of(plan.made, discovery.level(0))
    letters = discovery.first + number
    return {
        "level": number,
        "asks": f"the first {letters} letters" if not number else f"letter {letters}",
        "cells": (made.noise.cells if number else discovery.level(0).size) - 1,
        "told_from": threshold(made, discovery.levels, request.crowd)
        * (1 if request.same else request.asked_windows),
    }
