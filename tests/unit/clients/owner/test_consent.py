"""Three states, two places, and the words of the command."""

from __future__ import annotations

import pytest

from shoal.clients.owner.consent import NOT_ASKED, WORDS, answer_of, consent_to
from shoal.errors import Kind, ShoalError


def test_the_words_of_the_command() -> None:
    assert {word: answer_of(word) for word in WORDS} == {
        "allow": "allowed",
        "deny": "denied",
        "ask": None,
    }
    for wrong in ("allowed", "", "yes", "x" * 1_000):
        with pytest.raises(ShoalError) as caught:
            answer_of(wrong)
        assert caught.value.kind is Kind.CONFIG
        assert len(caught.value.message) < 200


def test_a_purpose_is_its_exact_words() -> None:
    """Planted: compared without case -> another purpose is taken for agreed."""
    written = {"Planning": "allowed"}
    assert consent_to("Planning", written) == "allowed"
    for other in ("planning", "Planning ", ""):
        assert consent_to(other, written, {"x": "allowed"}) == NOT_ASKED
