"""``shoal demo --open``: a person looks around in what the demo made, in the console."""

from __future__ import annotations

import os
import sys
import webbrowser
from collections.abc import Callable
from pathlib import Path

from rich.console import Console

from shoal.errors import Kind, ShoalError

_USUAL = "localhost:7450"  # the console's own port; another one if it is taken
_ANY = "localhost:0"


def look_around(
    screen: Console, results: Path, tasks: Path, opened: Callable[[], None] | None = None
) -> None:
    """Serve the console's pages of ``results`` on this machine until Ctrl-C or SIGTERM.
    ``opened``: called once pages are answered, for tests.
    """
    # as far as the demo is that nobody looks at: it needs none of it
    from shoal.console import serving
    from shoal.console.operator.app import Sources, operator_app

    try:
        bound, address = serving.listen(_USUAL)
    except ShoalError as error:
        if error.kind is not Kind.PORT_IN_USE:
            raise
        bound, address = serving.listen(_ANY)
    app = operator_app(Sources(releases=results, tasks_dir=tasks), address)
    url = f"http://{address}/"

    def ready() -> None:
        _say(screen, f"Open {url} to look around (Ctrl-C ends it)")
        if _has_screen():
            webbrowser.open(url)
        if opened is not None:
            opened()

    serving.serve(app, bound, ready)
    _say(screen, f"Ended. Again: shoal console --releases {results} --tasks {tasks}")


def _has_screen() -> bool:
    """Whether a browser has a window to open. One that runs in the terminal would take this
    command's place there.
    """
    return sys.platform == "darwin" or any(
        os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")
    )


def _say(screen: Console, line: str) -> None:
    screen.print(line, markup=False, soft_wrap=True)
