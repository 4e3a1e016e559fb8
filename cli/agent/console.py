"""``shoal agent console``: the device's own pages, in its owner's browser."""

from __future__ import annotations

import html
import os
import tempfile
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

from shoal.cli.agent.output import print_json, print_lines
from shoal.cli.extras import need
from shoal.errors import Kind, ShoalError
from shoal.rpc.address import is_loopback, parse_address

if TYPE_CHECKING:
    import argparse


def console(arguments: argparse.Namespace) -> int:
    """Serve until Ctrl-C or SIGTERM. Raises CONFIG, PORT_IN_USE."""
    need("console")
    host, _ = parse_address(arguments.listen, "--listen")
    if not is_loopback(host):
        raise ShoalError(
            Kind.CONFIG,
            "--listen: an owner's pages are for this machine alone: give a loopback address, for "
            "example 127.0.0.1:0",
        )
    from shoal.console import serving
    from shoal.console.owner.app import owner_app
    from shoal.console.owner.door import OPENING, Door
    from shoal.log import configure

    configure("warning", without=["mqtt"])
    door = Door()
    bound, address = serving.listen(arguments.listen)
    try:
        app = owner_app(arguments.config, address, door)
    except BaseException:
        bound.close()
        raise
    url = f"http://{address}{OPENING}?word={door.word}"
    with _page_to(url) if arguments.open else _nothing() as page:

        def ready() -> None:
            if arguments.json:
                print_json({"url": url})
            else:
                print_lines(f"open {url} (once; Ctrl-C ends it)")
            if page is not None:
                # a browser of the terminal returns when it is left, and wants answers before that
                Thread(target=webbrowser.open, args=(page,), daemon=True).start()

        serving.serve(app, bound, ready)
    return 0


@contextmanager
def _nothing() -> Iterator[str | None]:
    yield None


@contextmanager
def _page_to(url: str) -> Iterator[str | None]:
    """A file of this user that leads there: other users of the machine see what a browser is
    started with.
    """
    with tempfile.TemporaryDirectory(prefix="shoal-") as folder:
        file = Path(folder) / "open.html"
        handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(handle, "w", encoding="utf-8") as page:
            page.write(
                f'<!doctype html><meta http-equiv="refresh" content="0; url={html.escape(url)}">'
                f'<a href="{html.escape(url)}">Open the console</a>\n'
            )
        yield file.as_uri()
