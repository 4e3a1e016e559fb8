"""Made-up words, and a population that holds them as words are held: the i-th by 1 / i as many
devices as the first.
"""

from __future__ import annotations

from collections import Counter

from shoal.entropy import Entropy
from shoal.mechanisms.several.events import below

_HEADS = ("s", "t", "m", "gr", "l", "pr", "n", "w", "c", "b", "st", "d", "v", "tr", "r", "f")
_VOWELS = ("a", "e", "i", "o", "u", "ea", "ou", "y")


def made_up(count: int, entropy: Entropy) -> list[str]:
    """So many different words of two to four syllables, in an order that says nothing."""
    words: dict[str, None] = {}
    while len(words) < count:
        syllables = 2 + below(3, entropy)
        words["".join(_syllable(entropy) for _ in range(syllables))] = None
    return list(words)


def _syllable(entropy: Entropy) -> str:
    return _HEADS[below(len(_HEADS), entropy)] + _VOWELS[below(len(_VOWELS), entropy)]


def zipf_of(words: list[str], devices: int) -> Counter[str]:
    """The i-th word is held by 1 / i as many devices as the first; those of less than one have no
    word.
    """
    first = devices / sum(1.0 / rank for rank in range(1, len(words) + 1))
    held = Counter({word: int(first / rank) for rank, word in enumerate(words, start=1)})
    held[""] = devices - held.total()
    return held
