"""What the entry of ``shoal agent`` leaves out, in fresh processes: this one has loaded
everything.
"""

from __future__ import annotations

import subprocess
import sys

import pytest


def run(code: str) -> None:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_asyncio_comes_without_ssl_which_comes_later() -> None:
    """Whoever needs ssl has all of it. Planted: sys.modules["ssl"] left at None -> the import
    fails.
    """
    run("""
import sys
from shoal.cli.agent.light import import_asyncio
import_asyncio()
assert "asyncio" in sys.modules and not {"ssl", "_ssl", "_hashlib"} & set(sys.modules)

async def main():
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", "print(1)", stdout=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate()
    assert out == b"1\\n"
    assert await asyncio.to_thread(lambda: 5) == 5

import asyncio
asyncio.run(main())
import http.client, ssl
assert ssl.create_default_context().verify_mode is ssl.CERT_REQUIRED and http.client.HTTPSConnection
""")


@pytest.mark.parametrize("first", ["asyncio", "ssl"])
def test_a_process_that_has_one_of_them_is_left_as_it_is(first: str) -> None:
    """Planted: no such check -> ssl is taken out of a process that has it."""
    run(f"""
import sys, {first}
before = dict(sys.modules)
from shoal.cli.agent.light import import_asyncio
import_asyncio()
assert sys.modules["{first}"] is before["{first}"]
assert ("ssl" in sys.modules) == ("ssl" in before)
import ssl, asyncio
assert asyncio.sslproto.ssl is ssl
""")


def test_the_agents_commands_have_it() -> None:
    """Planted: ``import asyncio`` at the top of cli/main.py -> fails."""
    run("""
import sys
from shoal.cli.main import main
try:
    main(["agent", "--help"])
except SystemExit:
    pass
assert "asyncio" in sys.modules and not {"ssl", "_ssl", "hashlib", "_hashlib"} & set(sys.modules)
""")
