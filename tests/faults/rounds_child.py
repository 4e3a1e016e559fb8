"""Processes that take part in sums: shuffler, analyzer and device, several at a time, forked from
one warm process.

One JSON object per line. {"role", "folder", "failpoints"} starts a child and is answered by
{"pid"}; {"wait": pid} by {"status"}, once it has ended. Services live on the clock that the test
moves (``SharedClock``) and take orders while they run: see ``obey``.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import mmap
import os
import signal
import struct
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

from shoal import failpoints, log
from shoal.analyzer.config import AnalyzerConfig
from shoal.analyzer.service import AnalyzerService
from shoal.analyzer.store import FILE_NAME, AnalyzerStore
from shoal.clients.memory.rounds_ledger import SqliteLedger
from shoal.clients.rounds.exchange import RoundLine
from shoal.clients.rounds.participation import take_part
from shoal.clients.rounds.single import send_single
from shoal.clients.transports.rounds_transport import GrpcRoundTransport, RoundTransport
from shoal.clocks.backoff import Backoff
from shoal.crypto import keyfiles
from shoal.crypto.admission.enrolment import DeviceIdentity
from shoal.crypto.secagg.terms import RoundTerms
from shoal.crypto.task_folder import load_task_folder
from shoal.errors import ShoalError
from shoal.secagg import Mode
from shoal.services.parent import die_with_parent
from shoal.services.process import DataFolder, run_service
from shoal.services.settings import load_settings
from shoal.shuffler.config import ShufflerConfig
from shoal.shuffler.rounds import driver as round_driver
from shoal.shuffler.rounds import live_round
from shoal.shuffler.service import Shuffler
from tests.faults.analyzer_child import HerePool

TICK_S = 0.02  # between two looks of a round at its clock
PAUSE_S = 0.02  # between attempts at anything
SEND_S = 5.0


class SharedClock:
    """Unix seconds in a file of eight bytes that every process maps: whoever sets it sets it for
    all.
    """

    def __init__(self, path: Path) -> None:
        with path.open("r+b") as file:
            self._time = mmap.mmap(file.fileno(), 8)

    @classmethod
    def make(cls, path: Path, now: float) -> SharedClock:
        path.write_bytes(struct.pack("<d", now))
        return cls(path)

    def now(self) -> float:
        return float(struct.unpack("<d", self._time[:])[0])

    def decide(self) -> float:
        return self.now()

    def letting(self) -> float:
        return self.now()

    def earliest(self) -> float:
        return self.now()

    def steady(self) -> float:
        return self.now()

    def set(self, now: float) -> None:
        self._time[:] = struct.pack("<d", now)


class QuietPool(HerePool):
    """No workers: nothing is opened here but by rounds."""

    def warm(self) -> None: ...

    def close(self) -> None: ...


async def brief(seconds: float) -> None:
    """A device's pause, cut short."""
    await asyncio.sleep(min(seconds, PAUSE_S))


def obey(folder: Path, role: str) -> None:
    """On SIGUSR1: arm the points that ``<role>.order`` names, from now on; ``<role>.passed`` gets
    what was passed before.
    """
    failpoints.record(True)

    def read() -> None:
        (folder / f"{role}.passed").write_text(json.dumps(failpoints.record(True)))
        order = folder / f"{role}.order"
        failpoints.arm(order.read_text())
        order.unlink()

    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, read)


def shuffler(folder: Path) -> None:
    live_round._ASK = round_driver._FINISH = Backoff(PAUSE_S, PAUSE_S)
    settings = load_settings(ShufflerConfig, folder / "shuffler" / "shuffler.toml")

    async def main(stop: asyncio.Event) -> None:
        obey(folder, "shuffler")
        async with Shuffler(settings, clock=SharedClock(folder / "clock"), tick_s=TICK_S):
            (folder / "shuffler.up").touch()
            await stop.wait()

    run_service(main)


def analyzer(folder: Path) -> None:
    settings = load_settings(AnalyzerConfig, folder / "analyzer" / "analyzer.toml")

    async def main(stop: asyncio.Event) -> None:
        obey(folder, "analyzer")
        service = AnalyzerService(
            settings, data, store, clock=SharedClock(folder / "clock"), pool=QuietPool()
        )
        await service.start()
        (folder / "analyzer.up").touch()
        await stop.wait()
        await service.stop()

    with (
        DataFolder(settings.data_dir) as data,
        contextlib.closing(AnalyzerStore(data / FILE_NAME)) as store,
    ):
        run_service(main)


def device(folder: Path) -> None:
    """Takes part once, as ``plan.json`` says, with the ledger in this folder; ``outcome.json`` says
    what became of it.
    """
    plan = json.loads((folder / "plan.json").read_text())
    (served,) = load_task_folder(
        Path(plan["tasks"]), frozenset({bytes.fromhex(plan["authority"])})
    ).served.values()
    terms = RoundTerms.served(served, plan["window"])
    identity = DeviceIdentity(
        keyfiles.load_signing_key(folder / "device.key"), (folder / "device.cert").read_bytes()
    )
    vector, clock = np.array(plan["vector"], dtype=np.int64), SharedClock(Path(plan["clock"]))

    ca = Path(plan["ca"]).read_bytes()

    async def main() -> None:
        transport = Counted(GrpcRoundTransport(plan["address"], ca), folder / "sent")
        line = RoundLine(
            served.keys.hop_keys[plan["window"]],
            transport,
            clock,
            plan["deadline"],
            sleep=brief,
            send_deadline_s=SEND_S,
        )
        with contextlib.closing(SqliteLedger(folder / "ledger.db")) as ledger:
            part = send_single if terms.plan.mode is Mode.HELPER else take_part
            outcome = await part(terms, identity, vector, ledger, line)
        (folder / "outcome.json").write_text(json.dumps([outcome.state.value, outcome.charged]))

    asyncio.run(main())


class Counted:
    """Notes in a file that a frame is about to leave: one byte for each."""

    def __init__(self, inner: RoundTransport, path: Path) -> None:
        self._inner, self._path = inner, path

    async def exchange(self, frame: bytes, deadline_s: float) -> bytes:
        with self._path.open("ab") as file:
            file.write(b".")
        return await self._inner.exchange(frame, deadline_s)

    async def close(self) -> None:
        await self._inner.close()


ROLES: dict[str, Callable[[Path], None]] = {
    "shuffler": shuffler,
    "analyzer": analyzer,
    "device": device,
}


def _child(forge: int, order: dict[str, str]) -> None:
    """Never returns. Exit status 3: ended with a typed error."""
    code = 1
    try:
        sys.stdin.close()
        die_with_parent(forge)
        log.configure(order.get("log", "error"))
        failpoints.arm(order["failpoints"])
        ROLES[order["role"]](Path(order["folder"]))
        code = 0
    except ShoalError as error:
        sys.stderr.write(f"{order['role']}: {error.kind.name}: {error}\n")
        code = 3
    except BaseException:  # noqa: BLE001 - the child ends here, whatever it was
        import traceback

        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def main() -> None:
    for line in sys.stdin:
        order = json.loads(line)
        if "wait" in order:
            _, status = os.waitpid(order["wait"], 0)
            answer = {"status": os.waitstatus_to_exitcode(status)}
        else:
            forge = os.getpid()
            child = os.fork()
            if child == 0:
                _child(forge, order)
            answer = {"pid": child}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
