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


def test_an_agent_that_runs_has_read_its_command_line_and_keeps_nothing_of_it() -> None:
    """But the two things that it was told. Planted: nothing dropped -> argparse is loaded; dropped
    though others have it -> ``argparse`` is another one than before.
    """
    for first in ("", "import argparse, shoal.cli.agent.help"):
        run(f"""
import sys
{first}
before = dict(sys.modules)
from shoal.cli.agent.light import import_asyncio
import_asyncio()
from shoal.cli.agent import command
seen = []

async def runs(config, once):
    seen.extend([str(config), once])
    return 5

command._run = runs
assert command.main(["run", "--config", "x.toml", "--once"]) == 5
assert seen == ["x.toml", True]
for name in ("argparse", "gettext", "shoal.cli.agent.parser", "shoal.cli.agent.help"):
    assert sys.modules.get(name) is before.get(name), name
assert not hasattr(sys.modules["shoal.cli.agent"], "parser")
import argparse
from shoal.cli.agent.parser import build_parser
assert isinstance(build_parser(), argparse.ArgumentParser)
""")


def test_messages_in_pure_python_come_when_somebody_wants_them() -> None:
    """And are the module itself then, whichever name they were asked by. Planted: an empty module
    left in their place -> AttributeError; loaded for what only looks for ``__path__`` -> decoder
    is loaded at once.
    """
    run("""
import sys
from shoal.cli.agent.light import import_later
import_later()
import_later()
assert not hasattr(sys.modules["google.protobuf.internal.python_message"], "__path__")
from shoal.protos import submit_pb2
from google.protobuf.internal import api_implementation, builder
request = submit_pb2.SubmitRequest(frame=b"x")
assert submit_pb2.SubmitRequest.FromString(request.SerializeToString()) == request
loaded = "google.protobuf.internal.decoder" in sys.modules
assert loaded == (api_implementation.Type() == "python")
assert builder.python_message.GeneratedProtocolMessageType.__name__
from google.protobuf.internal import python_message
assert python_message.__file__ and python_message is not builder.python_message
assert builder.python_message.__dict__.get("GeneratedProtocolMessageType") is None
assert (
    builder.python_message.GeneratedProtocolMessageType
    is python_message.GeneratedProtocolMessageType
)
import_later()
assert sys.modules["google.protobuf.internal.python_message"] is python_message
from google.protobuf import text_format
assert text_format.MessageToString(request) == 'frame: "x"\\n'
""")


def test_who_verifies_alone_loads_no_other_kind_of_key() -> None:
    """Planted: the import of ``serialization`` at the top of signing.py -> SSH's keys are
    loaded.
    """
    run("""
import sys
from shoal.clients.agent import Agent
from shoal.crypto.signing import SigningKey, SigningContext, verify
key = SigningKey.generate()
verify(key.public, SigningContext.TASK, b"x", key.sign(SigningContext.TASK, b"x"))
assert "cryptography.hazmat.primitives.serialization" not in sys.modules
assert SigningKey.from_pem(key.to_pem()).public == key.public
""")
