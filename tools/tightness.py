"""Write the table of docs/ACCOUNTING.md: both ends of the certificates of everything that is
registered, in its first setting, for 16 cells (a map of 3 x 5, and elsewhere) or 17 levels.

    PYTHONPATH=. .venv/bin/python tools/tightness.py

Some minutes. tests/unit/packaging/test_tightness.py says when the table is out of date.
"""

from __future__ import annotations

from shoal.accounting import certify
from shoal.cli.figures import figure
from shoal.domain import Categories, Numeric, Places, YesNo
from shoal.mechanisms import REGISTRY, create, design, serves
from tests.worlds.modules import ROOT

PAGE = ROOT / "docs" / "ACCOUNTING.md"
BEGIN, END = "<!-- tools/tightness.py writes from here -->", "<!-- to here -->"
DELTA, DEVICES, EPSILONS = 1e-6, (1_000, 100_000), (1.0, 4.0)
DOMAINS = (
    Categories(tuple(f"c{i}" for i in range(15))),
    Numeric(0.0, 1.0, 17),
    YesNo(),
    Places(48_100_000, 11_500_000, 48_127_000, 11_567_000, 3, 5),
)


def row(name: str) -> str:
    """One mechanism: both ends at the most devices, and the ratio of the two everywhere."""
    domain = next(domain for domain in DOMAINS if serves(name, domain))
    cells = []
    for epsilon0 in EPSILONS:
        law = create(design(name, domain, epsilon0), domain).privacy()
        for n in DEVICES:
            found = certify(law, n, DELTA)
            ratio = f"{found.epsilon_upper / found.epsilon_lower:.3f}"
            if found.epsilon_upper > 0.9 * found.epsilon0:
                ratio = f"({ratio})"
            if n == DEVICES[-1]:
                ratio += f": {figure(found.epsilon_lower)}, {figure(found.epsilon_upper)}"
            cells.append(ratio)
    return f"| `{name}` | {' | '.join(cells)} |"


def table() -> str:
    """What stands between the marks."""
    places = [f"{epsilon0:g}: {n:,}" for epsilon0 in EPSILONS for n in DEVICES]
    head = f"| epsilon0: n | {' | '.join(places)} |"
    return "\n".join([head, "|---" * (1 + len(places)) + "|", *map(row, sorted(REGISTRY))])


def main() -> None:
    """Write it."""
    written, text = table(), PAGE.read_text()
    head, tail = text.split(BEGIN)[0], text.split(END)[1]
    PAGE.write_text(f"{head}{BEGIN}\n\n{written}\n\n{END}{tail}")


if __name__ == "__main__":
    main()
