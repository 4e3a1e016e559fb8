"""Devices whose certificates were taken back, at a running shuffler: who is refused, and which
lists change that.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from shoal.cli.main import main
from shoal.crypto import keyfiles
from shoal.crypto.admission.enrolment import DeviceIdentity
from shoal.crypto.admission.revocation import sign_list
from shoal.crypto.signing import SigningKey
from shoal.errors import Kind
from shoal.services.whole_files import replace_whole
from tests.integration.services.test_analyzer_unserved import get
from tests.integration.services.test_shuffler_enrolled import Enrolled

Capture = pytest.CaptureFixture[str]
REFUSED = Kind.UNAUTHENTICATED


@pytest.fixture
async def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Enrolled]:
    monkeypatch.setattr("shoal.shuffler.reports.lifecycle.TICK_S", 3_600.0)
    one = Enrolled(tmp_path)
    await one.start()
    yield one
    await one.stop()


async def put(bench: Enrolled, data: bytes, name: str = "fleet") -> None:
    (bench.world.tasks_dir / f"{name}.revoked").write_bytes(data)
    await bench.shuffler.reload()


def listed(bench: Enrolled, number: int, *devices: DeviceIdentity) -> bytes:
    return sign_list(bench.world.root, number, [one.key.public for one in devices])


async def admitted(bench: Enrolled, *devices: DeviceIdentity) -> list[Kind | None]:
    """Each alone, and all in a batch: both say the same."""
    frames = [bench.enrolled.proven_frame(device) for device in devices]
    receipts = await bench.send_all(frames)
    alone = [await bench.send(bench.enrolled.proven_frame(device)) for device in devices]
    refused = [receipt.status == REFUSED.value for receipt in receipts]
    assert refused == [kind is REFUSED for kind in alone]
    return [REFUSED if one else None for one in refused]


async def troubles(bench: Enrolled) -> list[str]:
    _, body = await asyncio.to_thread(get, bench.shuffler.admin_port, "/status")
    return [one["message"] for one in json.loads(body)["conditions"] if "revoked" in one["subject"]]


async def test_a_list_is_taken_up_without_a_restart_and_outlives_one(bench: Enrolled) -> None:
    """Planted: looked at in Submit alone -> a batch carries the device's report in, fails. Planted:
    the newest list not kept -> a restart without the file admits the device again, fails.
    """
    one, other = bench.one, bench.other
    await put(bench, listed(bench, 5, one))
    assert await admitted(bench, one, other) == [REFUSED, None]
    assert bench.held("inbox") == 1
    (bench.world.tasks_dir / "fleet.revoked").unlink()
    await bench.restart()
    assert await admitted(bench, one, bench.world.device()) == [REFUSED, None]
    await put(bench, listed(bench, 6))  # the authority's word: it is admitted again
    assert await admitted(bench, one) == [None]
    assert await troubles(bench) == []


async def test_an_older_list_gives_nobody_back(bench: Enrolled) -> None:
    """Replayed by whoever may write to the folder, before and after a restart. Planted: any list
    that verifies is taken -> fails.
    """
    older, newer = listed(bench, 5), listed(bench, 6, bench.one)
    await put(bench, newer)
    for data in (older, listed(bench, 6)):  # and another one of the same number
        await put(bench, data)
        assert await admitted(bench, bench.one) == [REFUSED]
        (told,) = await troubles(bench)
        assert "not newer than list 6" in told
    await bench.restart()
    assert await admitted(bench, bench.one) == [REFUSED]
    assert len(await troubles(bench)) == 1
    await put(bench, newer)
    assert await troubles(bench) == []


async def test_a_hostile_list_and_a_damaged_one_change_nothing(bench: Enrolled) -> None:
    """Of somebody who is no authority of the task's, and of a torn copy: nobody is shut out.
    Planted: the list's own key not compared with the task's -> a stranger shuts a device out,
    fails.
    """
    stranger = sign_list(SigningKey.generate(), 9, [bench.one.key.public])
    await put(bench, stranger, "hostile")
    assert await admitted(bench, bench.one) == [None]
    whole = listed(bench, 7, bench.other)
    await put(bench, whole[: len(whole) // 2], "torn")
    assert await admitted(bench, bench.other) == [None]
    (told,) = await troubles(bench)
    assert told.startswith("torn.revoked: this is no list of revoked devices")
    await put(bench, whole.replace(bench.other.key.public.hex().encode(), b"ab" * 32), "torn")
    assert len(await troubles(bench)) == 1
    assert await admitted(bench, bench.world.device()) == [None]


async def test_a_damaged_kept_list_is_no_way_back(bench: Enrolled) -> None:
    """Beside an older one. Nobody is served, and what was kept is not written over, until an
    operator removes it. Planted: the older list taken up -> the device is admitted again, fails.
    """
    older, newer = listed(bench, 5), listed(bench, 6, bench.one)
    await put(bench, newer)
    (kept,) = bench.world.data_dir.glob("*.revoked")
    damaged = newer[:150] + b"~" + newer[151:]
    kept.write_bytes(damaged)
    await put(bench, older)
    await bench.restart()
    for _ in range(2):
        frame = bench.enrolled.proven_frame(bench.one)
        assert [one.status for one in await bench.send_all([frame])] == [Kind.UNAVAILABLE.value]
        assert await bench.send(frame) is Kind.UNAVAILABLE
        (told,) = await troubles(bench)
        assert "remove this file" in told
        assert kept.read_bytes() == damaged
        await put(bench, newer)
    assert bench.shuffler.conditions.ready() is not None
    kept.unlink()
    await bench.shuffler.reload()
    assert await admitted(bench, bench.one, bench.world.device()) == [REFUSED, None]
    assert await troubles(bench) == []
    assert kept.read_bytes() == newer


async def test_calls_are_answered_while_a_list_is_verified(
    bench: Enrolled, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By what was known before, until the list is through. Planted: looked at on the event loop ->
    nothing is answered, and the reading waits in vain: fails. Planted: a list used before it is
    kept -> the device is refused meanwhile, fails.
    """
    begun, go_on = threading.Event(), threading.Event()
    waited = list[bool]()

    def slowly(*arguments: Any) -> None:
        begun.set()
        waited.append(go_on.wait(20))
        replace_whole(*arguments)

    monkeypatch.setattr("shoal.shuffler.revocations.replace_whole", slowly)
    looking = asyncio.create_task(put(bench, listed(bench, 5, bench.one)))
    assert await asyncio.to_thread(begun.wait, 20)
    assert await admitted(bench, bench.one) == [None]
    assert await troubles(bench) == []
    go_on.set()
    await looking
    assert waited == [True]
    assert await admitted(bench, bench.one) == [REFUSED]


async def test_a_list_that_comes_with_its_question_holds_from_the_first_answer(
    bench: Enrolled, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both are put into the folder while others are looked at. Planted: no second look where a task
    is new -> the device is admitted until the next, fails.
    """
    look = bench.shuffler.revocations.look

    def too_early() -> None:
        look()
        monkeypatch.undo()
        (bench.world.tasks_dir / "fleet.revoked").write_bytes(listed(bench, 5, bench.one))
        bench.enrolled = bench.world.publish(bench.world.enrolled(name="new"), name="new")

    monkeypatch.setattr(bench.shuffler.revocations, "look", too_early)
    await bench.shuffler.reload()
    assert await admitted(bench, bench.one, bench.other) == [REFUSED, None]


async def test_where_no_list_is_loaded_a_batch_asks_nothing(
    bench: Enrolled, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: every report of a batch looked up all the same -> fails."""
    asked = list[bytes]()
    with monkeypatch.context() as patch:
        patch.setattr(bench.shuffler.revocations, "revoked", asked.append)
        frames = [bench.enrolled.proven_frame(device) for device in (bench.one, bench.other)]
        assert [receipt.status for receipt in await bench.send_all(frames)] == [0, 0]
    assert asked == []


async def test_more_lists_than_are_read_is_told(bench: Enrolled) -> None:
    """Planted: the rest passed over without a word -> fails."""
    for number in range(100):
        (bench.world.tasks_dir / f"a{number:03}.revoked").write_bytes(listed(bench, 1))
    await put(bench, listed(bench, 2, bench.one), "fleet")
    (told,) = await troubles(bench)
    assert told.startswith("fleet.revoked and all after it are not read")


async def test_the_command_makes_lists_that_grow(
    bench: Enrolled, tmp_path: Path, capsys: Capture
) -> None:
    """Planted: the last list's devices left out -> the first is admitted again, fails."""
    root, cert = tmp_path / "root.key", tmp_path / "one.cert"
    keyfiles.save_signing_key(root, bench.world.root)
    cert.write_bytes(bench.one.certificate)
    first, second, third = (tmp_path / f"{number}.revoked" for number in (1, 2, 3))
    revoke = ["keys", "revoke", "--root", str(root)]
    assert main([*revoke, "--out", str(first), str(cert)]) == 0
    other = bench.other.key.public.hex()
    assert main([*revoke, "--from", str(first), "--out", str(second), other]) == 0
    assert "2 devices are revoked" in capsys.readouterr().out
    await put(bench, second.read_bytes())
    assert await admitted(bench, bench.one, bench.other) == [REFUSED, REFUSED]
    back = ["--readmit", str(cert), "--json"]
    assert main([*revoke, "--from", str(second), "--out", str(third), *back]) == 0
    assert json.loads(capsys.readouterr().out)["devices"] == 1
    await put(bench, third.read_bytes())
    assert await admitted(bench, bench.one, bench.other) == [None, REFUSED]
    capsys.readouterr()
    wrong = tmp_path / "wrong.revoked"
    for arguments, said in (
        ([], "name the devices"),
        (["zz" * 32], "Ed25519 public key"),
        ([str(root)], "no device certificate"),
        (["--from", str(cert), other], "no list of revoked devices"),
        (["--from", str(first), "--readmit", other], "does not revoke"),
    ):
        assert main([*revoke, "--out", str(wrong), *arguments]) == 2
        shown = capsys.readouterr().err
        assert shown.count("\n") == 1
        assert said in shown
        assert not wrong.exists()
