"""``shoal console`` refuses in one line what it can't do; what it does, a browser shows."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from shoal.cli.main import main
from tests.cases import for_each
from tests.worlds.console import visits, write_data

Capture = pytest.CaptureFixture[str]


def refused(capsys: Capture, *arguments: str) -> str:
    assert main(["console", *arguments]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.count("\n") == 1
    return shown.err


@for_each(
    "arguments, said",
    [
        ((), "either --analyzer analyzer.toml or --releases PATH"),
        (("--releases", "/there/is/none.json"), "cannot read /there/is/none.json"),
        (("--analyzer", "/there/is/none.toml"), "none.toml"),
        (("--shuffler", "127.0.0.1:1"), "either --analyzer analyzer.toml or --releases PATH"),
        (("--releases", "x", "--listen", "0.0.0.0:7450"), "only a loopback address"),
        (("--releases", "x", "--listen", "example.org:7450"), "only a loopback address"),
        (("--releases", "x", "--listen", "7450"), "is not HOST:PORT"),
    ],
)
def test_what_it_cannot_do_is_one_line(
    capsys: Capture, arguments: tuple[str, ...], said: str
) -> None:
    """Planted: any address taken -> the pages are everybody's, and this fails."""
    assert said in refused(capsys, *arguments)


def test_a_port_in_use_is_one_line(capsys: Capture, tmp_path: Path) -> None:
    """Planted: the error of the system let through -> a bug is reported, and this fails."""
    write_data(tmp_path, 1)
    config = str(visits().write_config(tmp_path))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        where = f"127.0.0.1:{taken.getsockname()[1]}"
        said = refused(capsys, "--analyzer", config, "--listen", where)
    assert "another process has the port" in said
