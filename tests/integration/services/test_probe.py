"""The probe of a container, against services that run: on loopback as they are by default, with a
token, and with TLS as in a cluster.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from shoal.crypto import keyfiles
from shoal.crypto.tlscerts import issue, make_authority
from shoal.services.conditions import Condition
from tests.worlds.operations import TOKEN, Site
from tests.worlds.services.shuffler import CA


async def probe(page: str, config: Path) -> tuple[int, str]:
    """Exit status and the line that it says."""
    command = [sys.executable, "-m", "shoal.services.probe", page, str(config)]
    done = await asyncio.to_thread(
        subprocess.run, command, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    assert TOKEN not in done.stderr
    return done.returncode, done.stderr.strip()


async def test_a_probe_asks_as_the_configuration_says(tmp_path: Path) -> None:
    """The shuffler's pages are plain, the analyzer's want a token. Planted: no Authorization header
    -> the analyzer is never ready; exit 0 for every answer -> the last line fails.
    """
    site = Site(tmp_path)
    async with site.running() as (shuffler, _):
        shuffler_toml, analyzer_toml = tmp_path / "shuffler" / "shuffler.toml", site.analyzer_toml()
        assert await probe("healthz", shuffler_toml) == (0, "ok")
        assert await probe("readyz", shuffler_toml) == (0, "ready")
        assert await probe("healthz", analyzer_toml) == (0, "ok")
        assert await probe("readyz", analyzer_toml) == (0, "ready")
        shuffler.conditions.set(Condition("disk_full", "", "the disk is full"))
        assert await probe("readyz", shuffler_toml) == (1, "the disk is full")
    assert await probe("healthz", shuffler_toml) == (1, "no answer from admin_listen")


async def test_a_probe_trusts_the_certificate_of_its_configuration_alone(tmp_path: Path) -> None:
    """Planted: verify_mode CERT_NONE -> the second certificate is trusted too."""
    site = Site(tmp_path)
    for name, authority in (("one", CA), ("two", make_authority("somebody else"))):
        made = issue(authority, "admin", ["shuffler.internal"], server=True, client=False, days=9)
        (tmp_path / "shuffler" / f"{name}.pem").write_bytes(made.cert_pem)
        keyfiles.save_private_pem(tmp_path / "shuffler" / f"{name}.key", made.key_pem)
    token = tmp_path / "shuffler" / "token"
    token.touch(mode=0o600)
    token.write_text(TOKEN)
    original = site.shuffler_toml
    admin = {"certificate": "one.pem", "key": "one.key", "token_file": "token"}
    site.shuffler_toml = lambda **changes: original(admin=admin, **changes)  # type: ignore[method-assign] # one more table
    async with site.running():
        path = tmp_path / "shuffler" / "shuffler.toml"
        assert await probe("readyz", path) == (0, "ready")
        path.write_text(
            path.read_text().replace("one.pem", "two.pem").replace("one.key", "two.key")
        )
        assert await probe("readyz", path) == (1, "no answer from admin_listen")


@pytest.mark.parametrize("text", ["", "admin_listen = 3", "admin_listen = 'nowhere'", "[", None])
async def test_a_probe_of_nothing_says_so(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "own.toml"
    if text is not None:
        path.write_text(text)
    assert await probe("readyz", path) == (2, f"{path}: admin_listen or [admin] can't be read")
    assert (await probe("reedyz", path))[0] == 2
