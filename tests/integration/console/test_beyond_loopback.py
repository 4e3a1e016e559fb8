"""`shoal console` beyond loopback: a real process, real TLS, people with certificates."""

from __future__ import annotations

import http.client
import json
import signal
import ssl
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from shoal.cli.main import main
from shoal.console.signin.audit import check
from shoal.crypto.keyfiles import save_private_pem
from shoal.crypto.tlscerts import Identity, issue, make_authority
from tests.cases import for_each
from tests.worlds.console import visits, write_data

_CA, _OTHERS = make_authority("people"), make_authority("people")
_TOML = """\
listen = "{listen}"
data_dir = "kept"
names = ["console.example"]
tls = {{ certificate = "console.pem", key = "console.key" }}
[certificates]
client_ca = "people.pem"
operators = ["CN:ada"]
viewers = ["DNS:eve.people.example"]
"""


def person(folder: Path, name: str, authority: Identity = _CA) -> ssl.SSLContext:
    """A browser that shows the certificate of ``name``."""
    made = issue(authority, name, [f"{name}.people.example"], server=False, client=True, days=2)
    save_private_pem(folder / f"{name}.key", made.key_pem)
    (folder / f"{name}.pem").write_bytes(made.cert_pem)
    context = ssl.create_default_context(cafile=str(folder / "people.pem"))
    context.load_cert_chain(folder / f"{name}.pem", folder / f"{name}.key")
    return context


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("beyond")
    write_data(folder, 2)
    visits().write_config(folder)
    (folder / "people.pem").write_bytes(_CA.cert_pem)
    own = issue(_CA, "console", ["127.0.0.1"], server=True, client=False, days=2)
    (folder / "console.pem").write_bytes(own.cert_pem)
    save_private_pem(folder / "console.key", own.key_pem)
    return folder


@contextmanager
def console(folder: Path) -> Iterator[int]:
    """Its port. Ctrl-C ends it without a word."""
    (folder / "console.toml").write_text(_TOML.format(listen="0.0.0.0:0"))
    files = ["--analyzer", str(folder / "analyzer.toml"), "--config", str(folder / "console.toml")]
    with subprocess.Popen(
        [sys.executable, "-m", "shoal.cli.main", "console", *files, "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        url = json.loads("".join(process.stdout.readline() for _ in range(3)))["url"]
        assert url.startswith("https://")
        try:
            yield int(url.rstrip("/").rpartition(":")[2])
        finally:
            process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
        assert (out, err, process.returncode) == ("", "", 0)


def ask(
    port: int, browser: ssl.SSLContext, path: str, method: str = "GET", **headers: str
) -> tuple[int, str]:
    connection = http.client.HTTPSConnection("127.0.0.1", port, context=browser, timeout=30)
    try:
        named: Mapping[str, str] = {key.replace("_", "-"): value for key, value in headers.items()}
        connection.request(
            method, path, body="limit=2" if method == "POST" else None, headers=named
        )
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def test_people_with_certificates(folder: Path) -> None:
    """An operator, a viewer, a stranger of the same authority, somebody of another, and nobody.
    Planted: certificates asked for and not wanted -> nobody is let in. Planted: names compared by
    their beginning, headers believed -> each fails.
    """
    ada, eve, stranger = (person(folder, name) for name in ("ada", "eve", "adam"))
    with console(folder) as port:
        assert ask(port, ada, "/releases")[0] == 200
        origin = {"origin": f"https://127.0.0.1:{port}"}
        assert ask(port, ada, "/budget/limit", "POST", **origin)[0] == 303
        assert ask(port, eve, "/releases")[0] == 200
        assert ask(port, eve, "/budget/limit", "POST", **origin)[0] == 403
        assert ask(port, eve, "/audit")[0] == 403
        told = {"x_ssl_client_cert": "CN=ada", "x_forwarded_user": "ada"}
        status, page = ask(port, stranger, "/releases", **told)
        assert status == 401
        assert "no role here" in page
        assert ask(port, ada, "/releases", host="evil.example")[0] == 421
        assert "sets the limit" in ask(port, ada, "/audit")[1]
        for wrong in (person(folder, "ada-of-others", _OTHERS), _unknown(folder)):
            with pytest.raises(OSError):
                ask(port, wrong, "/releases")
    told_of = [
        (entry["what"], entry["who"]) for entry in check(folder / "kept/audit.jsonl").entries
    ]
    assert told_of == [
        ("does", "CN:ada"),
        ("sets the limit", "CN:ada"),
        ("refused", "DNS:eve.people.example"),
        ("refused", ""),
    ]


def _unknown(folder: Path) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(folder / "people.pem"))


@for_each(
    "change, said",
    [
        (("tls =", "# tls ="), "signing in wants [tls]"),
        (('["CN:ada"]', '["ada"]'), "does not say what it is"),
        (('operators = ["CN:ada"]\nviewers = ["DNS:eve.people.example"]', ""), "nobody could look"),
        (("console.key", "none.key"), "none.key"),
        (("[certificates]\n", "[certificate]\n"), "certificate: no such key"),
        (("data_dir", "data-dir"), "data"),
    ],
)
def test_a_wrong_configuration_is_one_line(
    folder: Path, capsys: pytest.CaptureFixture[str], change: tuple[str, str], said: str
) -> None:
    """And nothing listens. Planted: a role list that is empty taken -> fails."""
    (folder / "wrong.toml").write_text(_TOML.format(listen="0.0.0.0:0").replace(*change))
    arguments = [
        "--analyzer",
        str(folder / "analyzer.toml"),
        "--config",
        str(folder / "wrong.toml"),
    ]
    assert main(["console", *arguments]) in {1, 2}
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.count("\n") == 1
    assert said in shown.err


def test_without_sign_in_it_stays_here(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Planted: --listen taken over the file's without a look -> fails."""
    (folder / "open.toml").write_text('data_dir = "kept"\n')
    files = ["--analyzer", str(folder / "analyzer.toml"), "--config", str(folder / "open.toml")]
    assert main(["console", *files, "--listen", "0.0.0.0:0"]) == 2
    assert "people must sign in" in capsys.readouterr().err
    (folder / "open.toml").write_text('data_dir = "kept"\nlisten = "0.0.0.0:0"\n')
    assert main(["console", *files]) == 2
    assert "people must sign in" in capsys.readouterr().err
