"""``shoal demo --open``: where a person looks around in what the demo made."""

from __future__ import annotations

import webbrowser
from pathlib import Path

from rich.console import Console


def look_around(screen: Console, page: Path) -> None:
    """Open the page in the browser of this machine; without one, say its address."""
    address = page.resolve().as_uri()
    try:
        opened = webbrowser.open(address)
    except webbrowser.Error:
        opened = False
    line = f"The browser shows {address}" if opened else f"No browser here. The page is {address}"
    screen.print(line, markup=False, soft_wrap=True)
