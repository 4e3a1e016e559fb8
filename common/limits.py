"""Every limit of Shoal, with its unit and why. One place; a service's configuration may tighten some of them, never loosen."""

from __future__ import annotations

from dataclasses import dataclass

KIB = 1024
MIB = 1024 * KIB


@dataclass(frozen=True, slots=True)
class Limits:
    # --- wire -------------------------------------------------------------------------------------------------------
    frame_sizes: tuple[int, ...] = (512, 4 * KIB, 32 * KIB)  # bytes; few, so that a size names neither task nor window
    submit_bytes: int = 64 * KIB  # one request: the largest frame and its protobuf, with room
    batch_bytes: int = 1 * MIB  # one SubmitBatch request: 2,000 frames of 512 bytes
    batch_frames: int = 2_000  # frames in one SubmitBatch
    chunk_bytes: int = 256 * KIB  # rows in one delivery chunk
    reply_bytes: int = 256 * KIB  # any reply: 2,000 receipts of about 40 bytes fit
    metadata_bytes: int = 4 * KIB  # request headers; soft and hard limit equal, so refusal isn't random
    task_bytes: int = 256 * KIB  # a serialized Task
    schedule_bytes: int = 4 * MIB  # a serialized KeySchedule: 3 years of daily windows with post-quantum keys
    bundle_bytes: int = 4 * MIB + 260 * KIB  # a task and its schedule, signed
    catalogue_bytes: int = 64 * MIB  # all tasks of one shuffler
    # --- calls ------------------------------------------------------------------------------------------------------
    concurrent_streams: int = 512  # per connection: a relay or a simulator multiplexes many devices on one
    concurrent_calls: int = 1_024  # per server; beyond it RESOURCE_EXHAUSTED, nothing queues without bound
    connect_s: float = 40.0  # a channel may take over TCP, TLS and HTTP/2: 3 round trips, and several losses of each
    reconnect_first_s: float = 0.2  # pause after a connection that was refused ...
    reconnect_most_s: float = 5.0  # ... growing up to this
    keepalive_s: float = 60.0  # silence in a connection with open calls, until the peer is asked whether it is there ...
    keepalive_timeout_s: float = 60.0  # ... and how long its answer, or TCP's of anything sent, may take
    call_slack_s: float = 20.0  # beyond connect_s, one call with its answer: a round trip, and three losses of it
    slowest_bytes_s: int = 4 * KIB  # bytes per second: a call with many gets a second for so many of them
    default_deadline_s: float = 60.0  # a call that states none gets this
    smallest_deadline_s: float = 0.1  # with less left than this the call is refused before any work
    connection_idle_s: int = 300  # idle connections are closed
    connection_age_s: int = 1_800  # also bounds how long one connection's reports could be linked in memory
    connection_grace_s: int = 300  # for the calls of a connection that was closed for its age: as long as any of them may take
    ping_interval_s: int = 20  # a peer that asks more often whether we are there is cut off
    handshake_s: int = 40  # seconds a peer may take over TLS: as connect_s, of which this is the larger part
    # --- shuffler ---------------------------------------------------------------------------------------------------
    commit_rows: int = 256  # a group commit is made at this many rows ...
    commit_ms: float = 6.0  # ... or after this many milliseconds, whichever comes first
    writer_queue_rows: int = 65_536  # rows waiting for the disk; beyond it RESOURCE_EXHAUSTED
    drain_s: float = 10.0  # seconds between SIGTERM and the end of open calls
    # --- analyzer ---------------------------------------------------------------------------------------------------
    open_chunk_rows: int = 4_096  # rows that one worker opens at a time
    chunks_in_flight: int = 4  # per worker: bounds memory
    batch_rows: int = 200_000_000  # rows of one batch
    # --- task -------------------------------------------------------------------------------------------------------
    name_chars: int = 64
    text_chars: int = 2_000
    cells: int = 65_536  # domain size
    windows: int = 10_000
    delivery_s: int = 3_600  # least time between the last report of a window and the end of its retention: to seal, deliver, release
    report_bytes: int = 4 * KIB
    messages: int = 64  # per report
    # --- secure aggregation ---------------------------------------------------------------------------------------
    vector_words: int = 1 << 20  # coordinates of a vector: 8 MiB at 64 bits
    vector_bytes: int = 9 * MIB  # one masked vector, with its check words
    cohort: int = 1_024  # devices of one round: what a device does grows with log n, what the analyzer holds with n
    helper_cohort: int = 1_000_000  # devices of one sum in helper mode, where there is no graph
    upload_bytes: int = 256 * KIB  # of a sealed vector in one call
    exchange_bytes: int = 288 * KIB  # one step of a round: a chunk of a vector and its envelope, with room
    phase_s: int = 86_400  # longest phase of a round
    # --- device -----------------------------------------------------------------------------------------------------
    outbox_rows: int = 10_000  # reports waiting to be sent
    retry_first_s: float = 1.0  # first pause after a failure ...
    retry_most_s: float = 3_600.0  # ... doubling up to this, each with full jitter
    send_deadline_s: float = 60.0  # one attempt: connect_s and call_slack_s, so that a connection's failure is told as what it is
    config_bytes: int = 1 * MIB  # a configuration file
    known_tasks: int = 1_000  # tasks learnt from feeds that a device keeps
    refusals: int = 1_000  # entries on refused bundles in a device's ledger; later ones are counted only
    source_s: float = 30.0  # longest time that reading a local value may take
    source_bytes: int = 1 * MIB  # read of a local value's file, reply or output
    # --- MQTT -------------------------------------------------------------------------------------------------------
    bridge_frames: int = 8_192  # frames that a bridge holds; beyond it they are dropped, and devices send them again
    bridge_bytes: int = 32 * MIB  # of those frames together
    mqtt_connect_s: float = 45.0  # seconds a broker may take over TCP, TLS, CONNECT and SUBSCRIBE: 4 round trips, and losses
    mqtt_keepalive_s: int = 60
    mqtt_retry_first_s: float = 0.5  # first pause before a broker is tried again ...
    mqtt_retry_most_s: float = 30.0  # ... doubling up to this, each with full jitter
    mqtt_in_flight: int = 20  # publications that wait for the broker at once; more made mosquitto no faster


LIMITS = Limits()


def frame_size_for(payload: int, overhead: int) -> int | None:
    """The smallest global frame size that holds ``payload`` bytes under ``overhead`` bytes of header and HPKE; None if none does."""
    return next((size for size in LIMITS.frame_sizes if payload + overhead <= size), None)
