"""That what a chart draws is a sound picture whatever the numbers and texts
are.
"""

from __future__ import annotations

from xml.etree import ElementTree

from shoal.cli.pictures.chart import HEIGHT, WIDTH, Mark, Series, draw
from tests.cases import for_each

SVG = "{http://www.w3.org/2000/svg}"


def parse(text: str) -> ElementTree.Element:
    return ElementTree.fromstring(text)  # noqa: S314 - our own output


@for_each(
    "points",
    [
        ((10.0, 4.0), (1e7, 0.01)),
        ((10.0, 1.0), (100.0, 1.0)),
        ((5.0, 0.3),),
        ((1.0, 1e-300), (1e15, 1e300)),
        ((10.0, 1e-9), (20.0, 1.1e-9)),
    ],
)
def test_everything_lies_in_the_picture(points: tuple[tuple[float, float], ...]) -> None:
    """Also for one point, for equal heights and for absurd ones. Planted: no least width of an axis
    -> a division by zero.
    """
    root = parse(
        draw(
            "t",
            "s",
            "x",
            "y",
            [Series("a", "upper", points), Series("none", "lower", ())],
            Mark("here", *points[0]),
        )
    )
    lines = list(root.iter(f"{SVG}polyline"))
    assert len(lines) == 1  # an empty series is not drawn
    for vertex in lines[0].attrib["points"].split():
        x, y = map(float, vertex.split(","))
        assert 0.0 <= x <= WIDTH
        assert 0.0 <= y <= HEIGHT
    box = next(
        element for element in root.iter(f"{SVG}rect") if element.attrib.get("class") == "box"
    )
    assert float(box.attrib["x"]) + float(box.attrib["width"]) <= WIDTH
    assert float(box.attrib["y"]) + float(box.attrib["height"]) <= HEIGHT
    assert any(tick.text for tick in root.iter(f"{SVG}text"))


def test_text_is_escaped() -> None:
    """Planted: autoescape off -> not well-formed."""
    text = draw(
        "<a & b>", '"s"', "x < 1", "y", [Series("l > 0", "upper", ((1.0, 1.0), (2.0, 2.0)))]
    )
    assert next(parse(text).iter(f"{SVG}title")).text == "<a & b>"
    assert "<script" not in draw("<script>", "", "", "", [Series("a", "upper", ((1.0, 1.0),))])


def test_nothing_is_loaded_from_elsewhere() -> None:
    text = draw("t", "s", "x", "y", [Series("a", "upper", ((1.0, 1.0), (2.0, 2.0)))])
    assert text.count("http") == 1  # the namespace
    assert "url(" not in text


def test_the_legend_avoids_the_lines() -> None:
    """A falling line leaves the lower left corner free, a rising one the upper left. Planted:
    always the same corner -> this fails.
    """
    falling = Series("a", "upper", tuple((10.0**k, 10.0**-k) for k in range(7)))
    rising = Series("a", "upper", tuple((10.0**k, 10.0**k) for k in range(7)))

    def height(series: Series) -> float:
        boxes = parse(draw("t", "s", "x", "y", [series])).iter(f"{SVG}rect")
        return float(next(box for box in boxes if box.attrib.get("class") == "box").attrib["y"])

    assert height(falling) > HEIGHT / 2 > height(rising)


def test_the_legend_never_hides_the_mark_for_a_few_more_points_of_a_line() -> None:
    """The mark lies where the least of the lines does. Planted: the mark counted as one point of a
    line -> the legend lies on it, and this fails.
    """
    falling = Series("a", "upper", tuple((10.0**k, 10.0**-k) for k in range(7)))
    crowded = Series("b", "lower", ((1.0, 0.5), (3e5, 0.5), (3e5, 1e-6)))
    root = parse(draw("t", "s", "x", "y", [falling, crowded], Mark("here", 4.0, 1e-5)))
    box = next(each for each in root.iter(f"{SVG}rect") if each.attrib.get("class") == "box")
    x, y, width, height = (float(box.attrib[name]) for name in ("x", "y", "width", "height"))
    mark = next(each for each in root.iter(f"{SVG}circle") if each.attrib.get("class") == "mark")
    at = float(mark.attrib["cx"]), float(mark.attrib["cy"])
    assert not (x <= at[0] <= x + width and y <= at[1] <= y + height)
