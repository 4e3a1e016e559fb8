"""The picture of the demo's page in README.md: ``shoal demo`` is run as a whole, and Chromium looks
at the question with categories in the console.

    PYTHONPATH=. .venv/bin/python tools/demo_picture.py [--devices N]
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.worlds.browser import browser, page_of

ROOT = Path(__file__).resolve().parents[1]
PICTURE = ROOT / "docs" / "images" / "demo.png"
_SHOAL = (sys.executable, "-m", "shoal.cli.main")
_PATH = "/releases/visit-groups"
_WIDTH, _MOST = 1000, 150_000  # CSS pixels; bytes


def main(options: list[str]) -> int:
    """Run the demo with ``options``, and write the picture; the exit status."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "out")
        subprocess.run([*_SHOAL, "demo", *options, "--out", str(out)], check=True)
        given = ("--releases", str(out / "results.json"), "--tasks", str(out / "tasks"))
        with subprocess.Popen(
            [*_SHOAL, "console", *given, "--listen", "127.0.0.1:0", "--json"],
            stdout=subprocess.PIPE,
            text=True,
        ) as console:
            assert console.stdout is not None
            told = "".join(console.stdout.readline() for _ in range(3))
            try:
                _take(json.loads(told)["url"].rstrip("/"))
            finally:
                console.send_signal(signal.SIGINT)
    size = PICTURE.stat().st_size
    print(f"{PICTURE.relative_to(ROOT)}: {size:,} bytes")
    return 0 if size <= _MOST else 1


def _take(url: str) -> None:
    """From the top to the end of the table of answers, on a light ground."""
    with browser() as running, page_of(running, width=_WIDTH) as page:
        page.goto(f"{url}{_PATH}")
        below = page.get_by_text("95 % intervals: about").first.bounding_box()
        assert below is not None
        page.screenshot(
            path=PICTURE,
            full_page=True,
            clip={"x": 0, "y": 0, "width": _WIDTH, "height": below["y"] - 4},
        )


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
