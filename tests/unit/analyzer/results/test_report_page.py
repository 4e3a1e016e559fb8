"""The page: everything in it, nothing loaded from elsewhere, nothing unescaped, a table beside
every plot.
"""

from __future__ import annotations

import copy
import re
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest

from shoal.analyzer.batches.opening import Opened
from shoal.analyzer.results.plots import RowPlot, histogram, plot
from shoal.analyzer.results.processed import OUTSIDE, readable_note
from shoal.analyzer.results.release import conclude, prepare
from shoal.analyzer.results.release_json import decode_release, to_json
from shoal.analyzer.results.report_page import render_report
from shoal.domain import Categories, Numeric
from shoal.mechanisms import Tally
from shoal.mechanisms.numbers.quantiles import SHARES
from shoal.pictures.axes import number
from tests.cases import for_each
from tests.unit.analyzer.results.test_release import batch_of
from tests.worlds.services.analyzer import World, make_world

EVIL = '<script>alert("1")</script>&'
VOID = {"meta", "br", "link", "img", "input", "hr"}


def release(world: World, n: int = 2_000, window: int = 0) -> dict[str, Any]:
    cells = world.task.domain.size
    opened = Opened(Tally(np.bincount(np.arange(n) % cells, minlength=cells), n), {"unopenable": 4})
    made = conclude(prepare(world.served, batch_of(world, window), opened), [], world.analyzer)
    return to_json(decode_release(made.release))


WORLD = make_world(min_batch=1_000, domain=Categories(("none", "some", EVIL)))
ONE, WITHHELD = release(WORLD), release(WORLD, 10, 1)
MEAN = release(
    make_world(name="mean", min_batch=1_000, domain=Numeric(0, 20, 21), mechanism="kmean")
)
TRUTHS = {ONE["task_id"]: {"none": 500.0, "some": 500.0}}


class Page(HTMLParser):
    """Tags in order, text, and whether every element is closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text = ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data

    def count(self, tag: str) -> int:
        return sum(name == tag for name, _ in self.tags)


def test_nothing_is_loaded_from_anywhere() -> None:
    """Planted: a font or a script from a URL -> this fails."""
    text = render_report([ONE, MEAN, WITHHELD], TRUTHS)
    page = Page(text)
    for tag, attributes in page.tags:
        assert tag not in {"script", "link", "iframe", "img", "object", "embed", "use", "image"}
        for name, value in attributes.items():
            assert name not in {"src", "srcset", "style"} and not name.startswith("on")  # noqa: PT018 - both about one attribute
            assert name != "href" or (value or "").startswith("#")
    assert not re.search(r"https?:|//|url\(|@import", text)
    assert "default-src 'none'" in text


def test_labels_are_escaped() -> None:
    """Planted: autoescape off -> this fails."""
    text = render_report([ONE], {ONE["task_id"]: {EVIL: 1.0}})
    assert "<script" not in text
    assert EVIL in Page(text).text


def test_every_plot_has_a_title_a_description_and_a_table() -> None:
    text = render_report([ONE, MEAN, WITHHELD], TRUTHS)
    page = Page(text)
    drawn = [
        attributes
        for tag, attributes in page.tags
        if tag == "svg" and attributes.get("role") == "img"
    ]
    # Epsilons, categories, mean and "no answer" of the mean, and its distribution.
    assert len(drawn) == 5 == page.count("figure") == page.count("table")
    ids = [attributes["id"] for _, attributes in page.tags if attributes.get("id")]
    assert len(ids) == len(set(ids))
    for attributes in drawn:
        assert set((attributes["aria-labelledby"] or "").split()) <= set(ids)
    for svg in re.findall(r"<svg.*?</svg>", text, re.S):
        ET.fromstring(svg.replace("&times;", ""))  # noqa: S314 - our own page


def test_figures_are_in_the_tables() -> None:
    text = Page(render_report([ONE], TRUTHS)).text
    for row in ONE["estimates"]:
        assert number(row["value"]) in text
        assert number(row["ci_low"]) in text
    for line in ONE["privacy"]["assumptions"]:
        assert line in text
    assert ONE["task_id"] in text
    assert ONE["manifest_hash"] in text
    assert "not guaranteed" in text
    assert "unopenable: 4" in text


def test_the_truth_is_shown_where_it_is_known() -> None:
    assert 'class="truth"' not in render_report([ONE])
    wrong = copy.deepcopy(TRUTHS)
    wrong[ONE["task_id"]]["none"] = 1e9
    assert render_report([ONE], TRUTHS).count(">yes</td>") == 2
    assert render_report([ONE], wrong).count(">no</td>") == 1


def test_a_withheld_window_shows_why_and_no_estimate() -> None:
    text = render_report([WITHHELD])
    assert WITHHELD["withheld"] in Page(text).text
    assert "95 % interval from" not in text


def test_what_devices_did_is_said_of_each_kind() -> None:
    """Answers of several messages are not randomized by their devices. Planted: said of every
    release -> fails.
    """
    mixed = copy.deepcopy(ONE)
    mixed["privacy"] |= {"epsilon0": None, "method": "split-and-mix"}
    drawn, hidden = "randomized its answer before sending it", "all others' messages hide"
    for releases, said in (
        ([ONE], (True, False)),
        ([mixed], (False, True)),
        ([ONE, mixed], (True, True)),
    ):
        text = Page(render_report(releases)).text
        assert (drawn in text, hidden in text) == said
        assert ", and a shuffler removed who sent what" in text


def test_processed_counts_stand_beside_the_estimates_with_a_word_about_them() -> None:
    """The raw figure comes first. Planted: the count in the estimate's column -> this fails."""
    uneven = copy.deepcopy(ONE)
    for row, value in zip(uneven["estimates"], (-20.0, 1_000.4, 520.0, 499.6), strict=True):
        row["value"] = value
    uneven["processed"]["counts"] = [0, 993, 514, 493]
    text = render_report([uneven])
    rows = re.findall(
        r'<tr><th scope="row">[^<]*</th><td><b>([^<]*)</b></td>'
        r"<td>[^<]*</td><td>[^<]*</td><td>([^<]*)</td></tr>",
        text,
    )
    made = uneven["processed"]
    assert rows == [
        (number(row["value"]), f"{count:,}")
        for row, count in zip(uneven["estimates"], made["counts"], strict=True)
    ]
    assert made["method"] in text
    assert readable_note(made) in text
    assert "processed" not in render_report([MEAN]).split("Distribution, post-processed")[0]
    assert ">processed<" not in render_report([WITHHELD])


def test_a_distribution_is_drawn_with_its_quantiles() -> None:
    page = Page(render_report([MEAN]))
    made = MEAN["distribution"]
    # and one of the key
    assert sum(attributes.get("class") == "bar" for _, attributes in page.tags) == 21 + 1
    assert (
        sum(attributes.get("class") == "quantile" for _, attributes in page.tags) == len(SHARES) + 1
    )
    assert readable_note(made) in page.text
    for row in MEAN["quantiles"]:
        assert number(row["value"]) in page.text
        assert number(row["ci_low"]) in page.text
    assert OUTSIDE in page.text


def test_bars_have_the_shares_as_areas() -> None:
    """Neighbours are joined where there are too many. Planted: heights as shares -> the wide bin is
    too large, and this fails.
    """
    edges, shares = [0.0, 1.0, 3.0, 4.0], [0.25, 0.5, 0.25]
    drawn = histogram(edges, shares, {"50%": 2.0})
    areas = [bar.width * bar.height for bar in drawn.bars]
    assert [area / sum(areas) for area in areas] == pytest.approx(shares, abs=0.01)
    assert drawn.marks == {"50%": pytest.approx((drawn.left + drawn.right) / 2, abs=0.1)}
    assert {round(bar.y + bar.height, 1) for bar in drawn.bars} == {drawn.bottom}
    many = histogram([float(at) for at in range(1_001)], [0.001] * 1_000, {})
    assert len(many.bars) <= 60
    last = many.bars[-1]
    assert last.x + last.width == pytest.approx(many.right, abs=0.2)


def test_without_releases_it_says_so() -> None:
    assert "Nothing has been released yet" in Page(render_report([])).text


@for_each("logarithmic", [False, True])
@for_each(
    "values",
    [
        [0.0],
        [1.0],
        [-5.0, 3.0],
        [1e-9, 1e9],
        [0.0, 0.0],
        [-1e-3],
        [20_190.0, 20_191.0],
        [float("inf"), 1.0],
    ],
    ids=str,
)
def test_marks_and_ticks_lie_on_the_axis(values: list[float], logarithmic: bool) -> None:
    drawn: RowPlot = plot(
        [(str(i), {"value": value}) for i, value in enumerate(values)], logarithmic=logarithmic
    )
    places = [x for row in drawn.rows for x in row.marks.values()] + [
        tick.at for tick in drawn.ticks
    ]
    assert all(drawn.left <= x <= drawn.right for x in places)
    assert 1 <= len(drawn.ticks) <= 22
    assert len({tick.text for tick in drawn.ticks}) == len(drawn.ticks)


def test_larger_values_lie_further_right() -> None:
    drawn = plot([("a", {"value": 1.0}), ("b", {"value": 2.0}), ("c", {"value": -1.0})])
    a, b, c = (row.marks["value"] for row in drawn.rows)
    assert drawn.zero is not None
    assert c < drawn.zero < a < b
    assert b - a == pytest.approx(a - drawn.zero, abs=0.2)
