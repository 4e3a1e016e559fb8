"""Windows of rounds: who may come in, what hostile bytes get, how a window ends, and what is left
of it.
"""

from __future__ import annotations

import asyncio
import secrets
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from google.protobuf.message import Message

from shoal.analyzer.results.release import decode_release
from shoal.clients.rounds.participation import RoundState
from shoal.clients.rounds.single import send_single
from shoal.clocks.backoff import Backoff
from shoal.clocks.clock import FakeClock
from shoal.crypto.secagg.exchange import open_reply, seal_request
from shoal.crypto.signing import SigningContext, SigningKey, verify
from shoal.crypto.tlscerts import issue, make_authority
from shoal.entropy import SYSTEM
from shoal.errors import Kind, ShoalError
from shoal.protos import pairwise_pb2
from shoal.rpc.channel import build_channel, call, call_stream
from shoal.rpc.tls import TlsIdentity
from shoal.secagg import Mode
from shoal.shuffler.core import WindowState
from shoal.shuffler.rounds.window import lonely_pause
from shoal.shuffler.stores.sqlite.admissions import Admissions
from tests.sizes import size
from tests.worlds.rounds import TICK_S, Running, Wire, World, running, total
from tests.worlds.shuffler import CA, GRACE, LENGTH, submit

COLLECTION = "/shoal.v1.Collection"


@pytest.fixture
async def one(tmp_path: Path) -> AsyncIterator[Running]:
    async with running(World(tmp_path)) as both:
        yield both


async def ask(one: Running, step: bytes | pairwise_pb2.Step) -> pairwise_pb2.Answer:
    """One step, sealed as a device seals it."""
    data = step if isinstance(step, bytes) else step.SerializeToString()
    request = seal_request(one.world.published.hop.config, data, SYSTEM)
    reply = open_reply(request.reply_key, await one.transport().exchange(request.frame, 5.0))
    return pairwise_pb2.Answer.FromString(reply)


def step(
    one: Running, session: bytes = bytes(16), window: int = 0, **kind: object
) -> pairwise_pb2.Step:
    return pairwise_pb2.Step(
        task_id=one.world.published.task_id.raw,
        window=window,
        session=session,
        **kind,  # type: ignore[arg-type]
    )


async def offer(one: Running) -> pairwise_pb2.SignedOffer:
    await ask(one, step(one, ask=pairwise_pb2.Ask()))
    await one.until(lambda: one.phase() == "JOIN")
    return (await ask(one, step(one, ask=pairwise_pb2.Ask()))).offer


# --- who may come in ------------------------------------------------------------------------------


async def test_a_stranger_gets_no_seat(one: Running) -> None:
    """Certified by another root, or showing another's certificate: typed, and nobody sits."""
    from shoal.crypto.secagg.device.machine import DeviceRound

    opened = await offer(one)
    known = one.world.device()
    device = DeviceRound(one.world.terms, known.identity)
    join = device.join(opened, one.clock.now())
    stranger = one.world.device(root=SigningKey.generate())
    cases = {
        Kind.UNAUTHENTICATED: pairwise_pb2.Join(certificate=stranger.identity.certificate),
        Kind.BAD_SIGNATURE: pairwise_pb2.Join(certificate=one.world.device().identity.certificate),
    }
    for kind, change in cases.items():
        tampered = pairwise_pb2.Join()
        tampered.CopyFrom(join)
        tampered.MergeFrom(change)
        answer = await ask(one, step(one, join=tampered))
        assert Kind(answer.kind) is kind
        assert not answer.HasField("started")
    assert one.counts()["joined"] == 0
    # the device itself sends nothing to a task that doesn't know it
    outcome = await one.take_part(stranger)
    assert (outcome.state, outcome.kind, outcome.charged) == (
        RoundState.ABORTED,
        Kind.UNAUTHENTICATED,
        False,
    )


async def test_collection_is_for_the_allowed_shufflers_alone(one: Running) -> None:
    """Planted: the service registered without peers -> another service's certificate is let in."""
    made = issue(CA, "other.test", ["other.test"], server=False, client=True, days=1)
    foreign = issue(
        make_authority("elsewhere"),
        "shuffler.test",
        ["shuffler.test"],
        server=False,
        client=True,
        days=1,
    )
    for identity, kind in (
        (made, Kind.FORBIDDEN),
        (foreign, Kind.UNAVAILABLE),
        (None, Kind.UNAVAILABLE),
    ):
        tls = None if identity is None else TlsIdentity(identity.cert_pem, identity.key_pem)
        channel = build_channel(
            f"localhost:{one.analyzer_port}", CA.cert_pem, client=tls, private_pool=True
        )
        with pytest.raises(ShoalError) as refused:
            await call(channel, f"{COLLECTION}/OpenRound", b"", 5.0)
        assert refused.value.kind is kind
        await channel.close()


async def test_frames_of_shuffled_tasks_have_no_place_here(one: Running) -> None:
    channel = one.transport()._channel.grpc  # the same connection, for another service
    with pytest.raises(ShoalError) as refused:
        await call(channel, "/shoal.v1.Ingress/Submit", submit(one.world.published.frame()), 5.0)
    assert refused.value.kind is Kind.INVALID
    assert "summed in rounds" in refused.value.message


@pytest.mark.parametrize("mode", [Mode.DEFAULT, Mode.HELPER])
async def test_a_clock_without_a_witness_holds_rounds_and_ends_no_window(
    tmp_path: Path, mode: Mode
) -> None:
    """Services that moved to new machines in mid-task; then the analyzer has found a witness.
    Nobody is sent away for good.

    Planted: rounds opened, or vectors taken, by ``decide`` alone -> nobody is counted; refusals by
    ``letting`` -> WINDOW_CLOSED; the window ended by it -> a release.
    """
    helper = (
        {"dimension": 3, "devices": 8, "cohort_min": 4, "survivors_min": 4, "target_epsilon": 1e9}
        if mode is Mode.HELPER
        else {}
    )
    world = World(tmp_path, mode=mode, **helper)
    devices = world.devices(8 if helper else 12)
    async with running(world) as both:
        await both.stop("shuffler")
        lonely = both.clocks["shuffler"] = FakeClock(both.clock.time)
        lonely.alone = both.clock.alone = True
        await both.start_shuffler()
        await both.until(lambda: both.shuffler.rounds.window(both.window()) is not None)
        if mode is Mode.HELPER:
            sends = [
                send_single(world.terms, one.identity, one.vector, one.ledger, both.line())
                for one in devices
            ]
            outcomes = await asyncio.gather(*sends)
        else:
            outcomes = await asyncio.gather(*both.begin(devices))
        assert {outcome.state for outcome in outcomes} == {RoundState.COUNTED}
        both.clock.alone = False
        both.clock.advance(LENGTH + GRACE + 1)
        lonely.advance(LENGTH + GRACE + 1)
        first = (
            {"poll": pairwise_pb2.Poll()} if mode is Mode.HELPER else {"ask": pairwise_pb2.Ask()}
        )
        for _ in range(5):
            assert (await ask(both, step(both, **first))).kind == Kind.UNAVAILABLE.value
            await asyncio.sleep(2 * TICK_S)
        assert not both.store.released(world.published.task_id, 0)
        lonely.alone = False
        await both.until(lambda: both.store.released(world.published.task_id, 0))


# --- hostile bytes --------------------------------------------------------------------------------


async def test_frames_that_do_not_open_are_refused_by_kind(one: Running) -> None:
    config = one.world.published.hop.config
    good = seal_request(
        config, step(one, poll=pairwise_pb2.Poll()).SerializeToString(), SYSTEM
    ).frame
    cases = {
        b"": Kind.INVALID,
        b"\x02" + good[1:]: Kind.INVALID,
        good[:-1] + bytes((good[-1] ^ 1,)): Kind.INVALID,
        good[:2] + bytes(8) + good[10:]: Kind.UNKNOWN_KEY,
        bytes(300_000): Kind.OVERSIZE,
    }
    transport = one.transport()
    for frame, kind in cases.items():
        with pytest.raises(ShoalError) as refused:
            await transport.exchange(frame, 5.0)
        assert refused.value.kind is kind, frame[:12]
    for _ in range(size(50, 2_000)):
        noise = secrets.token_bytes(1 + secrets.randbelow(200))
        with pytest.raises(ShoalError) as refused:
            await transport.exchange(noise, 5.0)
        assert refused.value.kind in {Kind.INVALID, Kind.UNKNOWN_KEY}


async def test_steps_that_make_no_sense_are_answered_and_change_nothing(one: Running) -> None:
    """Every answer is sealed and typed, none is INTERNAL, and nobody has a seat after them."""
    opened = await offer(one)
    session = secrets.token_bytes(16)
    cases: list[tuple[Kind, bytes | pairwise_pb2.Step]] = [
        (Kind.INVALID, b"\xff\xff\xff"),
        (Kind.INVALID, step(one, session=b"short", poll=pairwise_pb2.Poll())),
        (Kind.INVALID, step(one)),
        (Kind.INVALID, step(one, single=pairwise_pb2.Single())),
        (Kind.INVALID, step(one, window=2, poll=pairwise_pb2.Poll())),
        (Kind.TOO_EARLY, step(one, window=1, ask=pairwise_pb2.Ask())),
        (
            Kind.UNKNOWN_TASK,
            pairwise_pb2.Step(task_id=bytes(32), session=session, ask=pairwise_pb2.Ask()),
        ),
        (Kind.INVALID, pairwise_pb2.Step(task_id=b"x", session=session, ask=pairwise_pb2.Ask())),
        (Kind.NOT_FOUND, step(one, session, join=pairwise_pb2.Join(offer_id=bytes(32)))),
        (Kind.INVALID, step(one, session, join=pairwise_pb2.Join(offer_id=one_offer_id(opened)))),
        (Kind.ABORTED, step(one, session, poll=pairwise_pb2.Poll())),
        (Kind.ABORTED, step(one, session, shares=pairwise_pb2.Shares())),
        (
            Kind.ABORTED,
            step(
                one, session, upload=pairwise_pb2.Upload(offset=1 << 60, total=1 << 60, chunk=b"x")
            ),
        ),
        (Kind.ABORTED, step(one, session, endorse=pairwise_pb2.Endorse())),
        (Kind.ABORTED, step(one, session, unmask=pairwise_pb2.Unmask())),
    ]
    for kind, hostile in cases:
        answer = await ask(one, hostile)
        assert Kind(answer.kind) is kind, hostile
        assert answer.reason
    assert one.counts()["joined"] == 0


def one_offer_id(opened: pairwise_pb2.SignedOffer) -> bytes:
    from shoal.crypto.secagg.records import offer_id

    return offer_id(opened.offer).raw


async def test_hostile_calls_of_a_shuffler_are_typed_at_the_analyzer(one: Running) -> None:
    # the shuffler's own
    channel = one.shuffler.rounds._parts.collection._channel  # type: ignore[attr-defined]
    task_id = one.world.published.task_id.raw
    unknown = bytes(32)
    cases: list[tuple[str, Message | bytes, Kind]] = [
        ("OpenRound", b"\xff", Kind.INVALID),
        (
            "OpenRound",
            pairwise_pb2.OpenRoundRequest(task_id=task_id, window=9, shuffler_commitment=unknown),
            Kind.INVALID,
        ),
        (
            "OpenRound",
            pairwise_pb2.OpenRoundRequest(task_id=task_id, window=1, shuffler_commitment=unknown),
            Kind.TOO_EARLY,
        ),
        (
            "OpenRound",
            pairwise_pb2.OpenRoundRequest(task_id=task_id, shuffler_commitment=b"x"),
            Kind.INVALID,
        ),
        (
            "OpenRound",
            pairwise_pb2.OpenRoundRequest(task_id=unknown, shuffler_commitment=unknown),
            Kind.UNKNOWN_TASK,
        ),
        ("StartRound", pairwise_pb2.StartRoundRequest(offer_id=unknown), Kind.NOT_FOUND),
        ("CommitRound", pairwise_pb2.CommitRoundRequest(commit=b""), Kind.NOT_FOUND),
        (
            "UnmaskRound",
            pairwise_pb2.UnmaskRoundRequest(round_id=unknown, last=True),
            Kind.NOT_FOUND,
        ),
        ("UnmaskRound", b"", Kind.INVALID),
        ("FinishWindow", pairwise_pb2.FinishWindowRequest(task_id=task_id), Kind.TOO_EARLY),
        ("FinishWindow", bytes(5_000), Kind.OVERSIZE),
    ]
    for method, request, kind in cases:
        data = request if isinstance(request, bytes) else request.SerializeToString()
        with pytest.raises(ShoalError) as refused:
            await call(channel, f"{COLLECTION}/{method}", data, 5.0)
        assert refused.value.kind is kind, (method, request)
    assert one.analyzer._rounds.open_rounds == 0


async def test_deliveries_that_do_not_fit_are_refused_and_the_round_goes_on(one: Running) -> None:
    """Nothing of a refused chunk is counted. Planted: the offset of a chunk unchecked
    (Rounds._deliver) -> a gap passes.
    """
    devices = one.world.devices(12)
    wire = Wire(one.transport(), one.world, "upload")
    held = asyncio.create_task(one.take_part(devices[0], wire))
    rest = one.begin(devices[1:])
    await one.until(lambda: one.counts().get("uploaded") == 11)
    live, *_ = one.rounds._under_way
    round_id, size = live.coordinator.round_id, one.world.terms.sealed_vector_bytes
    assert round_id is not None
    # the shuffler's own
    channel = one.shuffler.rounds._parts.collection._channel  # type: ignore[attr-defined]
    cases: list[tuple[list[dict[str, object]], Kind]] = [
        ([], Kind.INVALID),
        ([{"round_id": bytes(32), "data": bytes(size)}], Kind.NOT_FOUND),
        ([{"round_id": b"x", "data": bytes(size)}], Kind.NOT_FOUND),
        ([{"offset": 1, "data": bytes(size)}], Kind.INVALID),
        ([{"offset": size, "data": bytes(size)}], Kind.INVALID),
        ([{"data": b""}], Kind.INVALID),
        ([{"data": bytes(size - 1)}], Kind.INVALID),
        ([{"data": bytes(size - 1)}, {"offset": size, "data": b"x"}], Kind.INVALID),
        ([{"data": b"x"}, {"round_id": bytes(32), "offset": 1, "data": b"x"}], Kind.INVALID),
        ([{"data": bytes(260 * 1024)}], Kind.OVERSIZE),
    ]
    for chunks, kind in cases:
        with pytest.raises(ShoalError) as refused:
            await call_stream(
                channel, f"{COLLECTION}/DeliverVectors", _stream(round_id.raw, chunks), 5.0
            )
        assert refused.value.kind is kind, chunks
    held.cancel()
    await one.advance(121)
    outcomes = await asyncio.gather(*rest)
    assert {outcome.state for outcome in outcomes} == {RoundState.COUNTED}
    assert [stored.vector.tolist() for stored in one.sums()] == [total(devices[1:])]


async def _stream(round_id: bytes, chunks: list[dict[str, object]]) -> AsyncIterator[bytes]:
    for chunk in chunks:
        yield pairwise_pb2.VectorChunk(
            **{"round_id": round_id, "rows": 1, **chunk}  # type: ignore[arg-type]
        ).SerializeToString()


# --- the end of a window --------------------------------------------------------------------------


async def test_a_window_is_released_once_and_its_keys_go(one: Running) -> None:
    """Two rounds of a window, then its end: one release, signed, over both; hop key and analyzer
    key are destroyed.
    """
    world, published = one.world, one.world.published
    devices = world.devices(24)
    for batch in (devices[:12], devices[12:]):
        assert {outcome.state for outcome in await asyncio.gather(*one.begin(batch))} == {
            RoundState.COUNTED
        }
    hop_file = world.shuffler.keys_dir / f"{published.hop.config.key_id.hex}.key"
    key_files = [
        world.folder / "analyzer" / "keys" / f"{key.config.key_id.hex}.key"
        for key in published.analyzer_keys
    ]
    await one.advance(LENGTH + 400)  # within the grace: too late for a round to end in time
    late = await one.take_part(world.device())
    assert (late.state, late.kind) == (RoundState.NONE, Kind.WINDOW_CLOSED)
    assert one.store.releases() == []
    await one.advance(200)
    await one.until(lambda: one.shuffler.rounds.window(one.window()) is None)
    (stored,) = one.store.releases()
    verify(world.shuffler.analyzer.public, SigningContext.RELEASE, stored.release, stored.signature)
    release = decode_release(stored.release)
    assert (release.n, release.rounds.rounds, release.withheld) == (24, 2, "")
    assert [round(row.value * 16) for row in release.estimates] == total(devices)
    assert [path.exists() for path in key_files] == [False, True]
    assert hop_file.exists()  # the second window uses it
    record = one.shuffler.store.record(one.window())
    assert record is not None
    assert record.state is WindowState.SHREDDED
    assert (await ask(one, step(one, poll=pairwise_pb2.Poll()))).kind == Kind.WINDOW_CLOSED.value
    await one.advance(LENGTH)
    await one.until(lambda: not hop_file.exists())
    assert [decode_release(each.release).withheld != "" for each in one.store.releases()] == [
        False,
        True,
    ]
    gone = await one.take_part(world.device())
    assert (gone.state, gone.kind) == (RoundState.NONE, Kind.WINDOW_CLOSED)


async def test_a_window_that_ended_while_the_shuffler_was_down_is_finished_after_its_start(
    tmp_path: Path,
) -> None:
    """Planted: windows past their deadline not begun after a start -> no release, ever."""
    world = World(tmp_path)
    devices = world.devices(12)
    async with running(world) as one:
        await asyncio.gather(*one.begin(devices))
        await one.stop("shuffler")
        await one.advance(LENGTH + 601)
        await one.start_shuffler()
        await one.until(lambda: one.shuffler.rounds.window(one.window()) is None)
        (stored,) = one.store.releases()
        assert decode_release(stored.release).n == 12
        await one.stop("shuffler")
        await one.start_shuffler()
        await asyncio.sleep(0)
        assert len(one.store.releases()) == 1


async def test_an_analyzer_that_is_down_at_the_end_gets_the_window_later(tmp_path: Path) -> None:
    """Also over a restart of the shuffler: a window is decided when the analyzer has released it,
    and not before.

    Planted: windows of rounds closed like shuffled ones (Lifecycle._close_due) -> recorded as over,
    and no release, ever.
    """
    world = World(tmp_path)
    async with running(world) as one:
        await asyncio.gather(*one.begin(world.devices(12)))
        await one.stop("analyzer")
        await one.advance(LENGTH + 601)
        await one.shuffler.lifecycle.tick()
        assert one.shuffler.store.record(one.window()) is None
        await one.stop("shuffler")
        await one.start_analyzer()
        await one.start_shuffler()
        await one.until(lambda: one.store.released(one.window().task_id, 0))
        assert decode_release(one.store.releases()[0].release).n == 12


async def test_nobody_asks_and_no_round_is_opened(one: Running) -> None:
    """A window without devices: nothing is opened, nothing aborted, and its release is withheld
    with no round in it.

    Planted: an offer opened without an Ask (WindowRounds.run) -> "too few devices joined" every
    half minute.
    """
    for _ in range(3):
        await one.advance(31)
        for _ in range(5):
            await asyncio.sleep(TICK_S)
    assert one.analyzer._rounds.counts() == {"open": 0}
    await one.advance(LENGTH + 601)
    await one.until(lambda: one.store.released(one.window().task_id, 0))
    release = decode_release(one.store.releases()[0].release)
    assert (release.n, len(release.rounds.aborted), release.withheld != "") == (0, 0, True)


async def test_an_analyzer_that_will_not_finish_a_window_makes_the_shuffler_unready(
    one: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It answers, and refuses: somebody has to look. Planted: failures not counted -> ready."""
    monkeypatch.setattr("shoal.shuffler.rounds.driver._FINISH", Backoff(0.001, 0.001))

    async def refuse(*_: object) -> bool:
        raise ShoalError(Kind.INTERNAL, "internal error, incident 1")

    monkeypatch.setattr(one.shuffler.rounds._parts.collection, "finish", refuse)
    await one.advance(LENGTH + 601)
    await one.until(lambda: one.shuffler.rounds.failing[one.window()] >= 5)
    assert "can't be finished" in await ready(one)
    monkeypatch.undo()
    await one.until(lambda: one.store.released(one.window().task_id, 0))
    await one.until(lambda: not one.shuffler.rounds.failing)
    assert "can't be finished" not in await ready(one)


async def ready(one: Running) -> str:
    def read() -> str:
        try:
            with urllib.request.urlopen(
                f"http://127.0.0.1:{one.shuffler.admin_port}/readyz"
            ) as page:
                return str(page.read().decode())
        except urllib.error.HTTPError as error:
            return str(error.read().decode())

    return await asyncio.to_thread(read)


async def test_a_round_that_is_under_way_at_the_deadline_ends_first(tmp_path: Path) -> None:
    """It began in time; the window waits for it."""
    world = World(tmp_path, devices=6, survivors_min=4)
    devices = world.devices(6)
    async with running(world) as one:
        await one.advance(LENGTH + 600 - 350)
        tasks = one.begin(devices[1:])
        held = asyncio.create_task(one.take_part(devices[0]))
        outcomes = await asyncio.gather(*tasks, held)
        assert {outcome.state for outcome in outcomes} == {RoundState.COUNTED}
        await one.advance(350)
        await one.until(lambda: one.shuffler.rounds.window(one.window()) is None)
        assert decode_release(one.store.releases()[0].release).n == 6


async def test_nothing_is_left_behind(tmp_path: Path) -> None:
    """Stopped in the middle of a round: no task, no file of a vector, no seat; the data folders
    hold databases and counts alone.
    """
    world = World(tmp_path, devices=8, survivors_min=6, dimension=1_000)
    devices = world.devices(8)
    async with running(world) as one:
        tasks = one.begin(devices[1:])
        await one.until(lambda: one.counts().get("joined") == 7)
        tasks += one.begin(devices[:1])
        await one.until(
            lambda: one.counts().get("uploaded", 0) > 0 or all(task.done() for task in tasks)
        )
        await one.stop("shuffler")
        await one.stop("analyzer")
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    left = {
        path.name
        for folder in (world.shuffler.data_dir, tmp_path / "analyzer" / "data")
        for path in folder.iterdir()
    }
    databases = {
        f"{name}.db"
        for name in ("state", "rounds", "analyzer", "singles", "counts-rounds", "counts-singles")
    }
    assert {name for name in left if not name.endswith(("-wal", "-shm"))} <= {
        ".lock",
        "spool",
        "acknowledged",
        *databases,
    }
    admissions = Admissions(world.shuffler.data_dir)
    assert admissions.windows() <= {one.window()}
    admissions.close()
    names = {task.get_coro().__qualname__ for task in asyncio.all_tasks()}  # type: ignore[union-attr]
    assert not {name for name in names if "Round" in name or "Window" in name}


async def test_status_and_metrics_count_rounds_and_nobody_in_them(one: Running) -> None:
    await asyncio.gather(*one.begin(one.world.devices(12)))
    await one.until(lambda: not one.rounds.phases())
    wanted = {
        one.shuffler.admin_port: "shoal_shuffler_rounds_total",
        one.analyzer_admin_port: "shoal_analyzer_rounds_total",
    }
    for port, words in wanted.items():
        with await asyncio.to_thread(
            urllib.request.urlopen, f"http://127.0.0.1:{port}/metrics"
        ) as page:
            assert words in page.read().decode()


async def test_left_over_devices_do_not_open_rounds_without_end(one: Running) -> None:
    """After two rounds in a row that too few joined, the third waits join_s. Planted: no pause ->
    it may open at once.
    """
    lonely = one.world.devices(2)
    for ended in (1, 2):
        asked = one.begin(lonely)
        await one.until(lambda: one.counts().get("joined", 0) == 2)
        await one.advance(31)
        await one.until(lambda ended=ended: one.rounds.ended["too few devices joined"] == ended)  # type: ignore[misc]
        assert {(await each).state for each in asked} == {RoundState.ABORTED}
    asked = one.begin(lonely)
    await one.until(lambda: one.rounds._wanted)
    now, opens = one.clock.now(), list[bool]()
    for wait in (0, 29, 31):
        one.clock.time = now + wait
        opens.append(one.rounds.opens_now(one.clock.now()))
    one.clock.time = now
    assert opens == [False, False, True]
    await one.advance(31)
    await one.until(lambda: one.counts().get("joined", 0) == 2)
    for each in asked:
        each.cancel()
    await asyncio.gather(*asked, return_exceptions=True)


def test_the_pause_grows_to_ten_minutes() -> None:
    assert [lonely_pause(n, 30) for n in range(7)] == [0, 0, 30, 90, 210, 450, 600]
    assert lonely_pause(10**6, 86_400) == 600
