"""The open vocabulary: any text has a cell, none of them is that of no answer, and words to look
for are told apart.
"""

from __future__ import annotations

import hashlib
import math
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.domain import NO_ANSWER, Categories, Numeric, Value, Words, YesNo
from shoal.errors import Kind, ShoalError
from shoal.limits import LIMITS
from shoal.protos import task_pb2
from shoal.questions import domain_codec
from tests.cases import for_each

FLU = Words(("flu", "caf\u00e9"))
MISSING = FLU.label_cells[-1]


def first_62(data: bytes) -> int:
    return int(hashlib.sha256(data).hexdigest(), 16) >> (256 - 62)


def test_the_cell_is_what_is_written() -> None:
    """Planted: the first 64 bits; the last 62 -> this fails."""
    assert FLU.label_cells == (
        first_62(b"shoal word 1flu"),
        first_62(b"shoal word 1caf\xc3\xa9"),
        first_62(b"shoal no word 1"),
    )
    assert FLU.labels == ("flu", "caf\u00e9", NO_ANSWER)
    assert FLU.size == 1 << 62
    for text in (
        "flu",
        "influenza",
        "a b",
        "a" * 1_000_000,
        "no answer",
        "\U0001f637",
        "0",
        "\x00",
    ):
        assert FLU.encode(text) == first_62(b"shoal word 1" + text.encode()) < FLU.size


@for_each(
    "value",
    [
        None,
        "",
        math.nan,
        math.inf,
        -math.inf,
        1 << 40_000,
        "\ud800",
        "flu\udfff",
    ],
)
def test_what_is_no_answer(value: Value) -> None:
    """Planted: the text "no answer" hashed for it -> the next test fails; a lone surrogate encoded
    -> it raises, and this fails.
    """
    assert FLU.encode(value) == MISSING


@given(st.text(min_size=1).filter(lambda text: text.strip("\t\n\v\f\r ")))
def test_no_text_is_no_answer(text: str) -> None:
    """Planted: a missing value hashed as the text "no answer" -> fails for that text below."""
    for each in (text, NO_ANSWER, "1"):
        assert FLU.encode(each) not in {MISSING, FLU.encode(None)}


def test_texts_are_normalized_and_nothing_else() -> None:
    """And ASCII's blanks around them taken off. Planted: NFKC for NFC (one letter for the
    ligature); blanks left; no normal form at all -> this fails.
    """
    assert FLU.encode("cafe\u0301") == FLU.encode("caf\u00e9") == FLU.label_cells[1]
    cells = [FLU.encode(text) for text in ("flu", "Flu", "\u00a0flu", "\ufb02u", "7", True)]
    assert len(set(cells)) == 6
    assert FLU.encode(" flu\n") == FLU.encode("flu")
    assert FLU.encode(7) == FLU.encode(7.0) == FLU.encode("7")


@for_each(
    "names, why",
    [
        ((), "1 to"),
        (tuple(map(str, range(LIMITS.cells))), "1 to"),
        (("a", "a"), "distinct, also in Unicode's normal form"),
        (("",), "1 to 64 characters"),
        (("a" * 65,), "1 to 64 characters"),
        ((NO_ANSWER,), "leave it out"),
        (("cafe\u0301",), "NFC"),
        (("a\ud800",), "NFC"),
    ],
)
def test_wrong_words_are_refused(names: tuple[str, ...], why: str) -> None:
    with pytest.raises(ShoalError, match=why) as caught:
        Words(names)
    assert caught.value.kind is Kind.INVALID


def test_words_of_one_cell_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody has two such texts: a hash of 1 bit stands for it. Planted: no comparison of the cells
    -> fails.
    """
    monkeypatch.setattr("shoal.domain.word_cell", len)
    assert Words(("a", "bb")).label_cells[:2] == (1, 2)
    with pytest.raises(ShoalError, match="same 62 bits") as caught:
        Words(("a", "b"))
    assert caught.value.kind is Kind.INVALID


def test_the_other_domains_count_their_cells() -> None:
    for domain in (YesNo(), Categories(("a", "b")), Numeric(0, 1, 5)):
        assert domain.label_cells == tuple(range(len(domain.labels)))


def test_it_crosses_the_wire() -> None:
    """As it is; names that are not in normal form are refused, not mended: another program would
    look for other cells.
    """
    assert domain_codec.decode_domain(domain_codec.encode_domain(FLU)) == FLU
    with pytest.raises(ShoalError, match="NFC"):
        domain_codec.decode_domain(task_pb2.Domain(words=task_pb2.Words(labels=["cafe\u0301"])))


def test_plain_words_load_no_tables_of_unicode() -> None:
    """Planted: unicodedata imported with the module -> this fails."""
    script = (
        "import sys; from shoal.domain import Words; Words(('flu',)).encode('cold'); "
        "sys.exit('unicodedata' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
