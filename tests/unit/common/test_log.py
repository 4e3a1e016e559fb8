"""Logs can't tell on anybody: an allow-list of fields, and of what a value may be."""

from __future__ import annotations

import json
import logging
import math
import re
import subprocess
import sys
import time
from collections.abc import Iterator

import grpc
import pytest

from shoal import log as logs
from shoal.errors import Kind, ShoalError
from shoal.ids import Digest, KeyId, StorageKey, TaskId
from tests.cases import for_each

CANARY = "canary-7f3a91"


@pytest.fixture
def configured() -> Iterator[None]:
    root = logging.getLogger("shoal")
    before = root.handlers[:], root.level, root.propagate
    yield
    root.handlers[:], root.propagate = before[0], before[2]
    root.setLevel(before[1])


def lines(text: str) -> list[dict[str, object]]:
    """Without their times, which are checked to be there."""
    shown = [json.loads(line) for line in text.splitlines()]
    for line in shown:
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", line.pop("time"))
    return shown


HOST = """
import logging, sys
from shoal.log import get_log
{setup}
log = get_log("mqtt")
log.info("broker reached")
log.warning("broker not reached", reason="nobody listens: check\\nhost and port", attempt=2)
assert [type(one) for one in logging.getLogger().handlers] == {handlers}
"""


@for_each(
    "setup, handlers, expected",
    [
        ("", "[]", ""),
        (
            "logging.basicConfig()",
            "[logging.StreamHandler]",
            'WARNING:shoal.mqtt:broker not reached reason="nobody listens: check\\nhost and port" '
            "attempt=2\n",
        ),
        (
            "logging.basicConfig(level='INFO', format='%(message)s'); "
            "logging.getLogger('shoal').setLevel('ERROR')",
            "[logging.StreamHandler]",
            "",
        ),
        (
            "logging.basicConfig(level='INFO', format='%(name)s %(shoal)s')",
            "[logging.StreamHandler]",
            "shoal.mqtt {'level': 'info', 'service': 'mqtt', 'event': 'broker reached'}\n"
            "shoal.mqtt {'level': 'warning', 'service': 'mqtt', 'event': 'broker not reached', "
            "'reason': 'nobody listens: check\\nhost and port', 'attempt': 2}\n",
        ),
    ],
    ids=["no configuration", "basicConfig", "a level for shoal", "fields"],
)
def test_in_a_host_program_its_own_configuration_decides(
    setup: str, handlers: str, expected: str
) -> None:
    """Planted: no NullHandler (Python itself writes warnings of loggers without any), or JSON as
    the message -> this fails.
    """
    script = HOST.format(setup=setup, handlers=handlers)
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    assert (done.stdout, done.stderr) == ("", expected)


@pytest.mark.usefixtures("configured")
def test_a_service_can_be_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    """What a command tells by itself. Planted: no filter -> this fails."""
    logs.configure("info", without=["mqtt"])
    logs.get_log("mqtt").warning("a")
    logs.get_log("agent").warning("b")
    assert [line["event"] for line in lines(capsys.readouterr().err)] == ["b"]


@pytest.fixture
def far_east() -> Iterator[None]:
    """This process somewhere else than at UTC."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", "UTC-9:30")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.usefixtures("far_east")
def test_the_time_is_that_of_the_record() -> None:
    """In UTC, in whole seconds, wherever that is. Planted: the time of formatting, or local time ->
    this fails.
    """
    record = logging.LogRecord("shoal.shuffler", logging.INFO, "", 0, "sealed", (), None)
    record.created, record.shoal = 1_800_000_000.9, {"event": "sealed"}
    shown = json.loads(logs._Lines().format(record))
    assert shown == {"time": "2027-01-15T08:00:00Z", "event": "sealed"}


@pytest.mark.usefixtures("configured")
def test_one_json_object_per_line(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("info")
    log = logs.get_log("shuffler")
    task = TaskId(bytes(range(32)))
    log.info("window sealed", task=task, window=3, n=20_190)
    log.warning(
        "delivery failed",
        kind=Kind.UNAVAILABLE,
        attempt=2,
        cause=ShoalError(Kind.UNAVAILABLE, "the analyzer can't be reached"),
    )
    shown = lines(capsys.readouterr().err)
    assert shown[0] == {
        "level": "info",
        "service": "shuffler",
        "event": "window sealed",
        "task": task.short,
        "window": 3,
        "n": 20_190,
    }
    assert shown[1]["kind"] == "UNAVAILABLE"
    assert shown[1]["cause"] == "UNAVAILABLE: the analyzer can't be reached"


@for_each(
    "name",
    [
        "address",
        "peer",
        "ip",
        "value",
        "report",
        "key",
        "nonce",
        "user_agent",
        "token",
        "message",
        "sealed",
    ],
)
def test_other_fields_are_a_programming_error(name: str) -> None:
    """Whatever the level. Planted: a FIELDS check after the level check -> this fails."""
    with pytest.raises(ValueError, match=name):
        logs.get_log("x").debug("event", **{name: 1})


@pytest.mark.usefixtures("configured")
@pytest.mark.parametrize(
    "value", [b"bytes", [1], {"a": 1}, StorageKey(bytes(16)), object(), ("a",)]
)
def test_other_values_are_a_programming_error(value: object) -> None:
    """Bytes, containers and storage keys have no form in a log."""
    logs.configure("debug")
    with pytest.raises(ValueError, match="may not be logged"):
        logs.get_log("x").info("event", count=value)


@pytest.mark.usefixtures("configured")
def test_a_foreign_exception_is_only_named(capsys: pytest.CaptureFixture[str]) -> None:
    """Its text may quote what a peer sent. Planted: logging str(error) -> this fails."""
    logs.configure("info")
    logs.get_log("x").error(
        "unexpected failure", error=ValueError(f"could not parse {CANARY}"), incident="ab12"
    )
    shown = capsys.readouterr().err
    assert CANARY not in shown
    assert lines(shown)[0]["error"] == "ValueError"


@pytest.mark.usefixtures("configured")
def test_values_stay_json_and_short(capsys: pytest.CaptureFixture[str]) -> None:
    """Planted: passing an infinite epsilon on as it is -> the line is no JSON and this fails."""
    logs.configure("info")
    log = logs.get_log("x")
    log.info(
        "event",
        epsilon_upper=math.inf,
        reason="line one\nline two " + "x" * 1000,
        key_id=KeyId(bytes(8)),
        manifest=Digest(bytes(32)),
    )
    text = capsys.readouterr().err
    assert text.count("\n") == 1
    shown = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert shown["epsilon_upper"] == "inf"
    assert len(shown["reason"]) == 200
    assert shown["key_id"] == "00000000"


@pytest.mark.usefixtures("configured")
def test_levels_and_quiet_libraries(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("warning")
    log = logs.get_log("x")
    log.debug("a")
    log.info("b")
    log.warning("c")
    log.error("d")
    for library in ("grpc", "asyncio", "uvicorn"):
        logging.getLogger(library).error(CANARY)
    shown = capsys.readouterr().err
    assert [line["event"] for line in lines(shown)] == ["c", "d"]


@pytest.mark.usefixtures("configured")
def test_configuring_twice_prints_once(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("info")
    logs.configure("info")
    logs.get_log("x").info("event")
    assert len(lines(capsys.readouterr().err)) == 1


@pytest.mark.usefixtures("configured")
def test_no_record_keeps_an_error_object(caplog: pytest.LogCaptureFixture) -> None:
    """gRPC's errors belong to the event loop's thread: a record that outlives the call must not
    hold one.

    Planted: exc_info, or the line's fields as arguments of the record -> this fails.
    """
    logs.configure("debug")
    logging.getLogger("shoal").addHandler(caplog.handler)
    error = grpc.aio.AioRpcError(
        grpc.StatusCode.UNAVAILABLE, grpc.aio.Metadata(), grpc.aio.Metadata(), details=CANARY
    )
    try:
        raise ShoalError(Kind.UNAVAILABLE, "gone") from error
    except ShoalError as wrapped:
        for one in (error, wrapped):
            logs.get_log("x").error("event", error=one)
    assert len(caplog.records) == 2
    for record in caplog.records:
        assert record.exc_info is None
        assert isinstance(record.args, tuple)
        assert [type(argument) for argument in record.args] == [str]
        assert not any(isinstance(value, BaseException) for value in vars(record).values())
        assert CANARY not in record.getMessage()


@pytest.mark.usefixtures("configured")
@pytest.mark.parametrize(
    "library",
    [
        "grpc",
        "grpc._cython.cygrpc",
        "grpc.aio._server",
        "asyncio",
        "uvicorn.error",
        "anything.else",
    ],
)
def test_libraries_make_no_record_of_their_debugging(library: str) -> None:
    """Such records hold live objects of theirs, at any level of ours. Planted: their level left
    alone under a debugging root -> fails.
    """
    root, level = logging.getLogger(), logging.getLogger().level
    try:
        root.setLevel(logging.DEBUG)
        logs.configure("debug")
        assert not logging.getLogger(library).isEnabledFor(logging.INFO)
        assert logging.getLogger("shoal.x").isEnabledFor(logging.DEBUG)
    finally:
        root.setLevel(level)


@pytest.fixture(scope="module")
def _commands_of_the_module() -> None:
    logs.configure("error")


@pytest.mark.usefixtures("_commands_of_the_module")
def test_a_test_hears_what_fixtures_of_modules_would_hide(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Of the tests themselves (tests/conftest.py): those that wait for a line would wait for ever.
    Planted: the state before a test kept, not the unconfigured one -> fails.
    """
    caplog.set_level("INFO")
    logs.Log("agent").info("reports are delivered again")
    assert "delivered again" in caplog.text
