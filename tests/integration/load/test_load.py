"""``shoal load`` against a real shuffler and a real analyzer: acknowledged = counted, and exit 1
when it is not.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections import Counter as Multiset
from pathlib import Path
from typing import Any

from shoal.cli.load.service_counts import Counted
from shoal.clients.fleet.misbehaviour import (
    HOSTILE,
    HOSTILE_TO_ENROLLED,
    MALFORMED,
    REPORTING,
    Carrier,
    Conduct,
    Shares,
    expected,
    mix,
)
from shoal.clients.fleet.plan import SimulationPlan, SimulationResult, merge
from shoal.clients.fleet.reporter import Reporter
from shoal.clients.fleet.simulated import FleetSimulation
from shoal.clients.transports.grpc_transport import GrpcTransport
from shoal.crypto import keyfiles
from shoal.crypto.signing import SigningKey
from shoal.crypto.tlscerts import make_authority
from shoal.crypto.trust import trust_task
from shoal.errors import Kind
from tests.sizes import size
from tests.worlds.mqtt.broker import Broker, authority
from tests.worlds.ports import free_port
from tests.worlds.services.load import WINDOW, LoadSite, counts_of

DEVICES = size(120, 10_000)
SHARES = Shares(duplicates=0.1, late=0.05, malformed=0.1, hostile=0.1)
STORED = (Conduct.HONEST, Conduct.DUPLICATE, Conduct.SECOND, Conduct.GARBAGE)


def stored(devices: int, enrolled: bool = False) -> int:
    """Reports that the shuffler stores of so many devices with SHARES."""
    counts = mix(SHARES, devices, enrolled)
    return sum(counts[one] for one in STORED)


async def shoal_load(
    task: Path,
    *arguments: str,
    urls: tuple[str, str] | None = None,
    interrupt: bool = False,
    drawn: bool = True,
) -> tuple[int, Any, str]:
    """Exit status, what --json wrote (None if nothing), and standard error; nobody that it started
    is left. ``interrupt``: Ctrl-C once reports are under way. ``drawn``: as on a terminal.
    """
    counting = () if urls is None else ("--analyzer-status", urls[0], "--shuffler-status", urls[1])
    process = await asyncio.create_subprocess_exec(
        *(
            sys.executable,
            "-m",
            "shoal.cli.main",
            "load",
            "--task",
            str(task),
            "--window",
            str(WINDOW),
            "--json",
            *arguments,
            *counting,
        ),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
        env={
            **os.environ,
            **({"FORCE_COLOR": "1"} if drawn else {}),
        },  # progress is drawn, so that it can be waited for
    )
    assert process.stderr is not None
    assert process.stdout is not None
    err = b""
    if interrupt:
        while b"/s" not in err:
            chunk = await process.stderr.read(1_000)
            assert chunk, err
            err += chunk
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to the whole group
    out, rest = await process.communicate()
    assert process.returncode is not None
    err += rest
    assert b"Traceback" not in err, err
    await gone(process.pid)
    return process.returncode, json.loads(out) if out else None, err.decode()


def alive_in(group: int) -> list[str]:
    """Processes of a process group, zombies left out."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, number = path.read_text().rpartition(")")[2].split()[:3]
        except OSError:
            continue
        if int(number) == group and state != "Z":
            found.append(path.parent.name)
    return found


async def gone(group: int) -> None:
    """Returns once nobody of the group is left: multiprocessing's tracker of resources follows its
    parent by itself.
    """
    while True:
        if not alive_in(group):
            return
        await asyncio.sleep(0.05)


async def run_here(plan: SimulationPlan) -> SimulationResult:
    """As ``simulate``, in this process."""
    reporter = Reporter(share := plan.share(plan.conduct(), 0, 1))
    if plan.prepare:
        reporter.prepare()
    task = trust_task(plan.tasks[0].signed_task, plan.authorities).task
    transport = GrpcTransport(task.shuffler_address, task.shuffler_ca, private_pool=True)
    try:
        result = await FleetSimulation(share, [transport], reporter=reporter).run()
    finally:
        await transport.close()
    return merge(plan, share.conduct, [result], 1.0, False)


async def test_every_breach_gets_its_answer_and_what_is_acknowledged_is_counted(
    tmp_path: Path,
) -> None:
    """One call each and in batches, for anybody and for enrolled devices alone, with encapsulations
    made beforehand or not. The window takes a few reports more than these devices have, so nobody
    meets a full one; more honest devices fill it.

    Planted: a shuffler that takes a second report of a device (no CONFLICT), or forgets what it has
    (duplicates stored twice) -> fails.
    """
    site, root, fill = LoadSite.at(tmp_path / "site"), SigningKey.generate(), 7
    cases = [(way, enrolled) for way in (Carrier.GRPC, Carrier.RELAY) for enrolled in (False, True)]
    tasks = [
        site.add(
            f"{way.value}-{enrolled}".lower(),
            stored(DEVICES, enrolled) + fill,
            root if enrolled else None,
        )
        for way, enrolled in cases
    ]
    async with site.running():
        for (way, enrolled), task in zip(cases, tasks, strict=True):
            common: dict[str, Any] = {
                "authorities": site.authorities,
                "enrolment_roots": (root.to_pem(),) if enrolled else (),
            }
            plan = SimulationPlan(
                (task.simulated(DEVICES),),
                way=way,
                shares=SHARES,
                prepare=way is Carrier.RELAY,
                **common,
            )
            result = await run_here(plan)
            counts = mix(SHARES, DEVICES, enrolled)
            honest = sum(counts[one] for one in REPORTING)
            assert result.surprises == {}
            assert (result.sent, result.acked, result.unknown, result.refused) == (
                honest,
                honest,
                0,
                {},
            )
            assert result.copies == (2 * counts[Conduct.DUPLICATE],) * 2
            assert result.garbage_of(0) == (counts[Conduct.GARBAGE], 0)
            assert set(result.breaches) == {
                Conduct.LATE,
                *MALFORMED,
                *(HOSTILE_TO_ENROLLED if enrolled else HOSTILE),
            }
            for conduct, breaches in result.breaches.items():
                assert breaches.sent == counts[conduct]
                if conduct is not Conduct.GARBAGE:
                    assert sum(breaches.refused.values()) == counts[conduct], (conduct, breaches)
                    assert set(breaches.refused) <= expected(conduct, way) - {
                        Kind.WINDOW_FULL,
                        Kind.WINDOW_CLOSED,
                    } | ({Kind.WINDOW_CLOSED} if conduct is Conduct.LATE else set())
            last = await run_here(SimulationPlan((task.simulated(fill),), **common))
            assert last.acked == fill
            assert await counts_of(site, task) == Counted(honest + fill, counts[Conduct.GARBAGE])


def check_whole(result: dict[str, Any]) -> int:
    """What --json says of a load that went well, of DEVICES with SHARES. Returns how many reports
    counted.
    """
    counts = mix(SHARES, DEVICES, True)
    honest = sum(counts[one] for one in REPORTING)
    assert (result["sent"], result["acked"], result["unknown"], result["refused"]) == (
        honest,
        honest,
        0,
        {},
    )
    assert result["surprises"] == {}
    assert result["misbehaving"].keys() == {
        one.name.lower() for one in counts if one not in {Conduct.HONEST, Conduct.DUPLICATE}
    }
    (row,) = result["tasks"]
    assert (row["counted"], row["rejected"], row["garbage"], row["agrees"]) == (
        honest,
        counts[Conduct.GARBAGE],
        counts[Conduct.GARBAGE],
        True,
    )
    assert set(result["latency_ms"]) == {"p50", "p90", "p99", "p999", "max"}
    assert set(result["services"]) == {"analyzer", "shuffler"}
    assert all(one["memory_bytes"] > 1 << 20 for one in result["services"].values())
    generator = result["generator"]
    assert (generator["processes"], generator["prepare_cpu_s"], result["prepare_seconds"]) == (
        2,
        0,
        0,
    )
    assert generator["cpu_s"] > 0
    assert generator["memory_bytes"] > 1 << 20
    assert 0 <= result["decided_seconds"] < time.time() - result["began_at"] - result["seconds"]
    return honest


async def test_acknowledged_is_counted(tmp_path: Path) -> None:
    """The command: everybody in a rush, windows that are full exactly when all went well, and the
    services' own figures. A window that is over is refused before anything is sent, and a report of
    somebody else in the window is exit status 1. With --values one device per row answers what the
    row says.

    Planted: compare with sent, or drop the exit status -> 0. Random values in place of the rows, or
    a device more than rows -> another truth, or count.
    """
    site, root = LoadSite.at(tmp_path / "site"), SigningKey.generate()
    keyfiles.save_signing_key(tmp_path / "root.key", root)
    exact, other = site.add("exact", stored(DEVICES, True), root), site.add("other", 20)
    told = site.add("told", 20)
    shares = ("--duplicates", "0.1", "--late", "0.05", "--malformed", "0.1", "--hostile", "0.1")
    async with site.running():
        arguments = (
            "--devices",
            str(DEVICES),
            "--enrolment",
            str(tmp_path / "root.key"),
            "--processes",
            "2",
        )
        code, result, err = await shoal_load(
            exact.file, *arguments, *shares, "--arrival", "rush", "--over", "1", urls=site.urls
        )
        assert code == 0, err
        honest = check_whole(result)
        code, again, err = await shoal_load(exact.file, *arguments, urls=site.urls)
        assert (code, again) == (2, None)
        assert f"is over, with {honest} reports counted" in err

        answers = tmp_path / "answers.csv"
        answers.write_text("sleeps well;age\n" + "yes;30\n" * 13 + "no;40\n" * 7)
        code, result, err = await shoal_load(
            told.file, "--values", f"{answers}:sleeps well", "--processes", "1", urls=site.urls
        )
        assert code == 0, err
        (row,) = result["tasks"]
        assert (row["sent"], row["counted"], row["truth"]) == (20, 20, {"no": 7.0, "yes": 13.0})

        code, result, _ = await shoal_load(
            other.file, "--devices", "5", "--relay", "--processes", "1"
        )
        assert (code, result["acked"], result["tasks"][0]["counted"]) == (0, 5, None)
        code, result, err = await shoal_load(
            other.file,
            "--devices",
            "15",
            "--relay",
            "--processes",
            "1",
            "--wait",
            "7200",
            urls=site.urls,
        )
        assert (code, result is None) == (1, False), err
        assert [(task["acked"], task["counted"], task["agrees"]) for task in result["tasks"]] == [
            (15, 20, False)
        ]
        assert "acknowledged and counted reports differ" in err


async def test_through_a_broker(tmp_path: Path) -> None:
    """Everybody over MQTT: frames that do not open meet silence, everything else has its answer,
    and what is acknowledged is counted.

    Planted: wait for malformed frames' answers as for any other -> unanswered in place of refused;
    a bridge that answers them -> surprise.
    """
    site, root = LoadSite.at(tmp_path / "site"), SigningKey.generate()
    keyfiles.save_signing_key(tmp_path / "root.key", root)
    devices = size(100, 1_000)
    task = site.add("brokered", stored(devices, True), root)
    async with Broker(tls=False) as broker:
        site.through(broker.settings)
        async with site.running():
            code, result, err = await shoal_load(
                task.file,
                *(
                    "--devices",
                    str(devices),
                    "--processes",
                    "1",
                    "--channels",
                    "1",
                    "--enrolment",
                    str(tmp_path / "root.key"),
                ),
                *(
                    "--duplicates",
                    "0.1",
                    "--late",
                    "0.05",
                    "--malformed",
                    "0.1",
                    "--hostile",
                    "0.1",
                ),
                *(
                    "--way",
                    "mqtt",
                    "--broker",
                    f"{broker.settings.host}:{broker.settings.port}",
                    "--broker-insecure",
                ),
                *("--broker-protocol", broker.settings.protocol, "--prepare"),
                urls=site.urls,
            )
    assert code == 0, err
    counts = mix(SHARES, devices, True)
    honest = sum(counts[one] for one in REPORTING)
    assert (result["acked"], result["unknown"], result["surprises"]) == (honest, 0, {})
    for conduct in (*MALFORMED, Conduct.OVERSIZED):
        assert result["misbehaving"][conduct.name.lower()]["refused"] == {
            "DEADLINE": counts[conduct]
        }, conduct
    assert set(result["misbehaving"]["stranger"]["refused"]) <= {
        "UNKNOWN_TASK",
        "WINDOW_FULL",
        "WINDOW_CLOSED",
    }
    (row,) = result["tasks"]
    assert (row["counted"], row["rejected"], row["agrees"]) == (
        honest,
        counts[Conduct.GARBAGE],
        True,
    )


async def test_a_broker_that_is_not_the_right_one_ends_the_load_at_once(tmp_path: Path) -> None:
    """Another CA, and then another password: one line that names the option, exit status 2, no
    process left; nobody waits for patience.

    Planted: no look at the broker before -> an hour of trying, and this fails.
    """
    task = LoadSite.at(tmp_path / "site").add("elsewhere", 10)
    (tmp_path / "other.pem").write_bytes(make_authority("stranger").cert_pem)
    (tmp_path / "ca.pem").write_bytes(authority().cert_pem)
    (tmp_path / "password").write_text("wrong\n")
    async with Broker(username="load", password="right") as broker:
        to = (
            "--way",
            "mqtt",
            "--broker",
            f"127.0.0.1:{broker.port}",
            "--broker-protocol",
            broker.settings.protocol,
        )
        arguments = ("--devices", "20", "--processes", "2", "--patience", "3600", *to)
        for ca, words in (
            (
                "other.pem",
                (
                    "TLS verification of the broker failed: ",
                    "does not chain to the given CA",
                    "(--broker-ca names the CA)",
                ),
            ),
            (
                "ca.pem",
                ("refuses this username and password", "(--broker-user, --broker-password)"),
            ),
        ):
            login = (
                "--broker-ca",
                str(tmp_path / ca),
                "--broker-user",
                "load",
                "--broker-password",
                str(tmp_path / "password"),
            )
            async with asyncio.timeout(60):
                code, result, err = await shoal_load(task.file, *arguments, *login)
            assert (code, result, err.count("\n")) == (2, None, 1), err
            assert err.startswith("shoal: ")
            assert all(one in err for one in words), err


async def test_a_broker_that_is_away_is_told_once_and_waited_for(tmp_path: Path) -> None:
    """Where nobody sees a progress bar: a line that says why it tries again, and no other; the load
    ends when patience does.

    Planted: the generator's own JSON lines, or a line at every look -> more lines.
    """
    task = LoadSite.at(tmp_path / "site").add("away", 10)
    (tmp_path / "ca.pem").write_bytes(authority().cert_pem)
    to = (
        "--way",
        "mqtt",
        "--broker",
        f"127.0.0.1:{free_port()}",
        "--broker-ca",
        str(tmp_path / "ca.pem"),
    )
    code, result, err = await shoal_load(
        task.file, "--devices", "4", "--processes", "2", "--patience", "1", *to, drawn=False
    )
    assert (code, result["acked"]) == (1, 0)
    told = [line for line in err.splitlines() if line.startswith("trying again: ")]
    assert len(told) == 1, err
    assert "nobody listens at the MQTT broker's address" in told[0]
    assert "{" not in err


async def test_planted_defects_are_exit_status_1(tmp_path: Path) -> None:
    """A shuffler that acknowledges a report and loses it; an analyzer that counts one twice; a
    shuffler that acknowledges what does not open. The same loads without the defects are exit
    status 0 (above), but for the lost report's: there the window is smaller by one than the load,
    so that it closes at all.
    """
    site = LoadSite.at(tmp_path / "site")
    lost, doubled, broken = site.add("lost", 29), site.add("doubled", 30), site.add("broken", 30)
    defects = {
        "SHOAL_PLANT_LOSS": lost.task_id.hex,
        "SHOAL_PLANT_DOUBLE": doubled.task_id.hex,
        "SHOAL_PLANT_YES": "1",
    }
    async with site.running(defects):
        code, result, err = await shoal_load(
            lost.file, "--devices", "30", "--processes", "1", urls=site.urls
        )
        assert code == 1, err
        assert [(row["acked"], row["counted"], row["agrees"]) for row in result["tasks"]] == [
            (30, 29, False)
        ]
        code, result, err = await shoal_load(
            doubled.file, "--devices", "30", "--processes", "1", urls=site.urls
        )
        assert code == 1, err
        assert [(row["acked"], row["counted"], row["agrees"]) for row in result["tasks"]] == [
            (30, 31, False)
        ]
        code, result, err = await shoal_load(
            broken.file, "--devices", "10", "--processes", "1", "--malformed", "0.5"
        )
        assert code == 1, err
        assert result["surprises"] == {
            f"{name} frame acknowledged": 1 for name in ("damaged", "noise", "truncated", "version")
        }
        assert "4 wrong answers to misbehaving clients" in err


async def test_ctrl_c_ends_every_process_and_shows_what_was_measured(tmp_path: Path) -> None:
    """Exit status 130, JSON of the reports until then, no process left. Planted: let SIGINT pass ->
    no JSON.
    """
    site = LoadSite.at(tmp_path / "site")
    task = site.add("slow", 1_000)
    async with site.running():
        code, result, err = await shoal_load(
            task.file, "--devices", "1000", "--over", "3000", "--processes", "2", interrupt=True
        )
    assert code == 130, err
    assert "interrupted" in err
    assert result["interrupted"] is True
    assert result["acked"] + result["unknown"] == result["sent"] < 1_000
    assert Multiset(row["counted"] for row in result["tasks"]) == {None: 1}
