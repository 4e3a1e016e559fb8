"""Draw docs/architecture.svg from the imports: floors, houses, their rooms, and who imports whom.

    PYTHONPATH=. .venv/bin/python tools/picture.py

A house is a folder at the top; a room is a folder within, "top" what stands in none. An arrow means
"imports"; one that others imply (cli -> clients -> crypto) is left out. The picture is generated:
tests/unit/packaging/test_picture.py says when it is out of date.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from html import escape

from tests.worlds.modules import ROOT, imports_of, read

PICTURE = ROOT / "docs" / "architecture.svg"
# From the top down: nobody imports from a floor above, nor the house next door.
FLOORS = (
    (("cli", 1.0),),
    (("study", 0.3), ("console", 0.4), ("checker", 0.3)),
    (("shuffler", 0.28), ("clients", 0.44), ("analyzer", 0.28)),
    (("", 0.36), ("accounting", 0.64)),  # nothing stands in the way from above to crypto
    (("crypto", 0.36), ("mechanisms", 0.64)),
    (("common", 0.7), ("protos", 0.3)),
)  # each house with its share of the width
# It hands on what shoal.study has, when a name of it is asked for: no arrow.
FACADE = "common/__init__.py"
WORDS = {
    "cli": "the command shoal",
    "study": "for analysts, in Python",
    "console": "pages in the browser",
    "checker": "trusts nobody's code",
    "clients": "the device",
    "shuffler": "forgets who and when",
    "analyzer": "opens, releases",
    "accounting": "what it costs, proven",
    "crypto": "seals, signs, masks",
    "mechanisms": "randomizers",
    "common": "imported as shoal",
    "protos": "the wire",
}
WIDTH, SIDE, GAP, PAD = 960, 16, 64, 12
TITLE, CHIP, CHIP_GAP, LETTER = 40, 22, 6, 6.6
STYLE = """
  text { font: 12px system-ui, sans-serif; fill: #1b2733; }
  .title { font-size: 15px; font-weight: 600; }
  .house { fill: #eef4f8; stroke: #6f8ea3; }
  .room { fill: #ffffff; stroke: #b5c6d2; }
  .arrow { fill: none; stroke: #40718f; stroke-width: 1.6; stroke-linejoin: round; }
  .head { fill: #40718f; }
  @media (prefers-color-scheme: dark) {
    text { fill: #dfe8ee; }
    .house { fill: #1d2932; stroke: #6f8ea3; }
    .room { fill: #26343f; stroke: #4c6272; }
    .arrow { stroke: #8fc1df; }
    .head { fill: #8fc1df; }
  }
"""


@dataclass(frozen=True, slots=True)
class House:
    """A box with its rooms; lengths and places are SVG user units."""

    name: str
    x: float
    y: float
    width: float
    height: float
    chips: tuple[tuple[str, float, float, float], ...]  # (label, x, y, width)


def rooms(house: str) -> tuple[str, ...]:
    """Its rooms by name, the top first: "" where files stand in no room."""
    names = set()
    for module in read(house):
        _, *folders, _ = module.path.split("/")
        names.add(folders[0] if folders else "")
    return tuple(sorted(names))


def arrows() -> set[tuple[str, str]]:
    """(from, to) between houses."""
    houses = {house for floor in FLOORS for house, _ in floor if house}
    pairs: set[tuple[str, str]] = set()
    for house in houses:
        for module in read(house):
            for one in () if module.path == FACADE else imports_of(module):
                parts = one.name.split(".")
                if parts[0] == "shoal":
                    target = parts[1] if parts[1:] and parts[1] in houses else "common"
                    pairs |= {(house, target)} if target != house else set()
    return pairs


def laid_out(name: str, x: float, y: float, width: float) -> House:
    """A house of this width, as high as its rooms want."""
    chips: list[tuple[str, float, float, float]] = []
    across, down = x + PAD, y + TITLE
    for room in rooms(name):
        label = room or "top"
        wide = len(label) * LETTER + 18
        if across + wide > x + width - PAD:
            across, down = x + PAD, down + CHIP + CHIP_GAP
        chips.append((label, across, down, wide))
        across += wide + CHIP_GAP
    return House(name, x, y, width, down + CHIP + PAD - y, tuple(chips))


def implied(links: set[tuple[str, str]]) -> set[tuple[str, str]]:
    """Arrows between whose ends there is a longer way."""
    further: dict[str, set[str]] = {}
    for source, target in links:
        further.setdefault(source, set()).add(target)

    def reached(source: str) -> set[str]:
        below = further.get(source, set())
        return below.union(*(reached(target) for target in below))

    return {
        (source, target)
        for source, target in links
        if any(target in reached(between) for between in further[source] - {target})
    }


def houses() -> dict[str, House]:
    """All of them, floor by floor."""
    placed: dict[str, House] = {}
    y, between = float(SIDE), GAP / 2
    for floor in FLOORS:
        x, lowest = float(SIDE), y
        whole = WIDTH - 2 * SIDE - between * (len(floor) - 1)
        for name, share in floor:
            if name:
                placed[name] = laid_out(name, x, y, whole * share)
                lowest = max(lowest, y + placed[name].height)
            x += whole * share + between
        y = lowest + GAP
    return placed


def drawn() -> str:
    """The SVG, the same for the same sources."""
    placed, links = houses(), arrows()
    shown = sorted(links - implied(links))
    height = max(house.y + house.height for house in placed.values()) + SIDE
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" role="img">',
        "<title>The houses of Shoal, their rooms, and who imports whom</title>",
        f"<style>{STYLE}</style>",
    ]
    lanes: Counter[float] = Counter()  # used so far, by floor
    lowest = {
        floor: max(house.y + house.height for house in placed.values() if house.y == floor)
        for floor in {house.y for house in placed.values()}
    }
    for source, target in shown:
        above, below = placed[source], placed[target]
        sources = sorted((a for a, b in shown if b == target), key=lambda name: placed[name].x)
        targets = sorted((b for a, b in shown if a == source), key=lambda name: placed[name].x)
        into = _spread(below, sources.index(source), len(sources))
        out_of = _spread(above, targets.index(target), len(targets))
        label = f"{source} imports {target}"
        along = lowest[above.y] + 10 + lanes[above.y] * 9
        out.append(_arrow(above, below, out_of, into, along, label))
        lanes[above.y] += 1
    for house in placed.values():
        out += _house(house)
    return "\n".join([*out, "</svg>", ""])


def _spread(house: House, at: int, count: int) -> float:
    """Where the arrow number ``at`` of ``count`` meets the edge of a house."""
    return house.x + house.width * (at + 1) / (count + 1)


def _arrow(above: House, below: House, x0: float, x1: float, along: float, label: str) -> str:
    """Down from a house, to the side at height ``along`` below its floor, and down into the one
    that it imports.
    """
    if above.y == below.y:  # common -> protos: the same floor
        y = above.y + 20
        path = f"M {above.x + above.width:.0f} {y:.0f} H {below.x - 6:.0f}"
        tip = f"{below.x - 7:.0f},{y - 4:.0f} {below.x:.0f},{y:.0f} {below.x - 7:.0f},{y + 4:.0f}"
    else:
        y0, y1 = above.y + above.height, below.y
        path = f"M {x0:.0f} {y0:.0f} V {along:.0f} H {x1:.0f} V {y1 - 6:.0f}"
        tip = f"{x1 - 4:.0f},{y1 - 7:.0f} {x1:.0f},{y1:.0f} {x1 + 4:.0f},{y1 - 7:.0f}"
    return (
        f'<g><title>{escape(label)}</title><path class="arrow" d="{path}"/>'
        f'<polygon class="head" points="{tip}"/></g>'
    )


def _house(house: House) -> list[str]:
    out = [
        f'<rect class="house" x="{house.x:.0f}" y="{house.y:.0f}" width="{house.width:.0f}" '
        f'height="{house.height:.0f}" rx="8"/>',
        f'<text class="title" x="{house.x + PAD:.0f}" y="{house.y + 24:.0f}">{house.name}/</text>',
    ]
    after = house.x + PAD + len(house.name) * 9 + 26
    if after + len(WORDS[house.name]) * LETTER < house.x + house.width:
        out.append(f'<text x="{after:.0f}" y="{house.y + 24:.0f}">{WORDS[house.name]}</text>')
    for label, x, y, wide in house.chips:
        out.append(
            f'<rect class="room" x="{x:.0f}" y="{y:.0f}" width="{wide:.0f}" height="{CHIP}" '
            f'rx="5"/><text x="{x + 7:.0f}" y="{y + 15:.0f}">{escape(label)}</text>'
        )
    return out


if __name__ == "__main__":
    PICTURE.write_text(drawn())
