"""Every limit of Shoal, with its unit and why. One place; a service's configuration may tighten
some of them, never loosen.
"""

from __future__ import annotations

from dataclasses import dataclass

KIB = 1024
MIB = 1024 * KIB


@dataclass(frozen=True, slots=True)
class Limits:
    """Every limit, with its unit and why: what is beyond is refused before anything is done for
    it.
    """

    # --- wire -------------------------------------------------------------------------------------
    # bytes; few, so that a size names neither task nor window
    frame_sizes: tuple[int, ...] = 512, 4 * KIB, 32 * KIB
    submit_bytes: int = 64 * KIB  # one request: the largest frame and its protobuf, with room
    batch_bytes: int = 1 * MIB  # one SubmitBatch request: 2,000 frames of 512 bytes
    batch_frames: int = 2_000  # frames in one SubmitBatch
    chunk_bytes: int = 256 * KIB  # rows in one delivery chunk
    reply_bytes: int = 256 * KIB  # any reply: 2,000 receipts of about 40 bytes fit
    health_bytes: int = 1 * KIB  # a request for a service's health: its name
    # request headers; soft and hard limit equal, so refusal isn't random
    metadata_bytes: int = 4 * KIB
    task_bytes: int = 256 * KIB  # a serialized Task
    # a serialized KeySchedule: 3 years of daily windows with post-quantum keys
    schedule_bytes: int = 4 * MIB
    bundle_bytes: int = 4 * MIB + 260 * KIB  # a task and its schedule, signed
    catalogue_bytes: int = 64 * MIB  # all tasks of one shuffler
    # --- calls ------------------------------------------------------------------------------------
    # per connection: a relay or a simulator multiplexes many devices on one
    concurrent_streams: int = 512
    # per server, shared fairly by connections; beyond it OVERLOADED, nothing queues without bound
    concurrent_calls: int = 1_024
    # a channel may take over TCP, TLS and HTTP/2: 3 round trips, and several losses of each
    connect_s: float = 40.0
    reconnect_first_s: float = 0.2  # pause after a connection that was refused ...
    reconnect_most_s: float = 5.0  # ... growing up to this
    # silence in a connection with open calls, until the peer is asked whether it is there ...
    keepalive_s: float = 60.0
    # ... and how long its answer, or TCP's of anything sent, may take
    keepalive_timeout_s: float = 60.0
    # bytes per second: a call that carries many has a second more for every so many of them
    slowest_bytes_s: int = 4 * KIB
    # a stream of a delivery, or a call that the analyzer computes for; what came is kept
    stream_deadline_s: float = 300.0
    singles_deadline_s: float = 3_600.0  # a whole window of helper mode, in one stream
    # for a broker to take one reply of a bridge: as a device's own attempt
    reply_deadline_s: float = 60.0
    # for the last word to an analyzer that needs none: a round trip and a loss
    farewell_s: float = 5.0
    status_s: float = 30.0  # for an admin port to answer: this machine, or a tunnel to one far away
    status_bytes: int = 64 * MIB  # that a command reads of such an answer
    # per server, of messages that are read or worked on, shared fairly; beyond it OVERLOADED
    call_bytes: int = 128 * MIB
    # of each message that a caller may send before anybody wants it
    lookahead_bytes: int = 16 * KIB
    # per server; an idle one over TLS was measured to take 50 KB, so 205 MB at the very most
    connections: int = 4_096
    # a connection without calls is closed: with the limit above, 136 new devices a second find room
    server_idle_s: int = 30
    # for a call's message to arrive, and the time that its largest size takes at slowest_bytes_s
    read_s: float = 30.0
    # a call that states none gets this, from when its message has come
    default_deadline_s: float = 60.0
    # a longer deadline is cut to this, from when the message has come; methods may state another
    longest_call_s: float = 120.0
    # the same for calls that stream messages, from their beginning: a window of helper mode in one
    longest_stream_s: float = 3_600.0
    smallest_deadline_s: float = 0.1  # with less left than this the call is refused before any work
    # seconds of work that may wait for the opener before batches are refused unread
    backlog_s: float = 3.0
    retry_after_s: float = 1.0  # least pause that a refusal for want of room asks for
    # longest that a server asks for: an overload is over by then, or says so again
    retry_after_most_s: float = 60.0
    connection_idle_s: int = 300  # idle connections are closed
    # also bounds how long one connection's reports could be linked in memory
    connection_age_s: int = 1_800
    # for the calls of a connection closed for its age, which takes no new ones: singles_deadline_s
    connection_grace_s: int = 3_600
    ping_interval_s: int = 20  # a peer that asks more often whether we are there is cut off
    # seconds a peer may take over TLS: as connect_s, of which this is the larger part
    handshake_s: int = 40
    # bytes left for data_dir below which a service says that its disk is full: a batch of 1M
    # reports
    disk_free: int = 64 * MIB
    # --- shuffler ---------------------------------------------------------------------------------
    # for a shared database to answer one statement, over a far link: a round trip of 2 s, several
    # losses, and as long for its standby
    database_s: float = 60.0
    commit_rows: int = 256  # a group commit is made at this many rows ...
    commit_ms: float = 6.0  # ... or after this many milliseconds, whichever comes first
    writer_queue_rows: int = 65_536  # rows waiting for the disk; beyond it RESOURCE_EXHAUSTED
    # seconds between SIGTERM and the end of open calls: who got no answer sends the same bytes
    # again
    drain_s: float = 10.0
    # first pause before the analyzer is asked again for its part of a round ...
    ask_retry_first_s: float = 0.2
    ask_retry_most_s: float = 5.0  # ... doubling up to this: devices wait meanwhile
    # least time that it is asked again for: two attempts to connect, and more
    ask_patience_s: float = 120.0
    release_retry_first_s: float = 0.5  # first pause before a batch is tried again ...
    release_retry_most_s: float = 60.0  # ... doubling up to this: its own disk and workers
    # first pause before the analyzer is asked again to finish a window ...
    finish_retry_first_s: float = 1.0
    finish_retry_most_s: float = 300.0  # ... doubling up to this, until the task's retention ends
    deliver_poll_s: float = 1.0  # between two looks at whether the analyzer is done with a batch
    deliver_retry_most_s: float = 300.0  # longest pause after a delivery that failed, from 1 s
    lonely_most_s: float = 600.0  # longest pause after rounds that too few joined
    # --- analyzer ---------------------------------------------------------------------------------
    open_chunk_rows: int = 4_096  # rows that one worker opens at a time
    chunks_in_flight: int = 4  # per worker: bounds memory
    batch_rows: int = 200_000_000  # rows of one batch
    # rows that a shuffler adds to a batch as noise: sealed one by one and held in memory, 150 MB
    noise_rows: int = 1 << 20
    # rows of a batch whose nonces are compared in memory, 18 bytes each; beyond it over parts on
    # disk
    repeat_rows: int = 1 << 25
    vectors_bytes: int = 4 * MIB  # masked vectors that are opened in one go
    # --- task -------------------------------------------------------------------------------------
    arrays: int = 2_048  # named arrays that a long vector is made of
    array_name_chars: int = 96  # as those of deep models: transformer.h.0.attn.c_attn.weight
    name_chars: int = 64
    text_chars: int = 2_000
    cells: int = 65_536  # domain size
    windows: int = 10_000
    # least time between the last report of a window and the end of its retention: to seal, deliver,
    # release
    delivery_s: int = 3_600
    report_bytes: int = 4 * KIB
    # per report: in 67 bytes each they fill half of the largest frame
    messages: int = 200
    # --- secure aggregation -----------------------------------------------------------------------
    # coordinates of a vector: 80 MB at 64 bits, which a device holds twice
    vector_words: int = 10_000_000
    vector_bytes: int = 77 * MIB  # one masked vector, with its check words
    # coordinates of a vector that is sealed in one piece, which takes several times its memory
    whole_words: int = 1 << 20
    # coordinates up to which a new task's release has an estimate for each: as many as a domain has
    # cells, 3 MB; longer vectors travel in segments, and their totals are one array
    dense_words: int = 1 << 16
    segment_words: int = 1 << 18  # coordinates of a segment of a vector: 2 MiB at 64 bits
    # numbers of a segment of a released array: 1 MiB, what is read to check one of them
    array_segment: int = 1 << 17
    # devices of one round: what a device does grows with log n, what the analyzer holds with n
    cohort: int = 10_000
    # of one device: who they all are fits into one reply
    neighbours: int = 1_023
    helper_cohort: int = 1_000_000  # devices of one sum in helper mode, where there is no graph
    upload_bytes: int = 256 * KIB  # of a sealed vector in one call
    # one step of a round: a chunk of a vector and its envelope, with room
    exchange_bytes: int = 288 * KIB
    # at the shuffler, of helper mode's vectors under way from admitted devices; beyond it
    # OVERLOADED
    staged_bytes: int = 128 * MIB
    phase_s: int = 86_400  # longest phase of a round
    # --- device -----------------------------------------------------------------------------------
    outbox_rows: int = 10_000  # reports waiting to be sent
    # of a window of a task that is answered, where its owner says nothing of delta: far above what
    # tasks ask for, far below what would let answers through
    device_delta: float = 1e-4
    retry_first_s: float = 1.0  # first pause after a failure ...
    retry_most_s: float = 3_600.0  # ... doubling up to this, each with full jitter
    # one attempt: connect_s, then a round trip with three losses of it
    send_deadline_s: float = 60.0
    step_retry_first_s: float = 0.2  # first pause before a step of a round is sent again ...
    step_retry_most_s: float = 10.0  # ... doubling up to this
    # between two polls of a round, whatever its shuffler asks for: from this ...
    step_wait_least_s: float = 0.05
    step_wait_most_s: float = 60.0  # ... to this
    # between two rounds that ended without a sum, doubling from 1 s up to this
    round_retry_most_s: float = 60.0
    # a phase of a round that is shorter loses devices that connect over far links: lint warns
    phase_far_s: int = 30
    # bytes per second of a slow link's upload, 1 Mbit/s: a vector that takes longer than its phase
    # over it loses devices: lint warns
    upload_far_bytes_s: int = 125_000
    # first pause after a feed failed, doubling up to its ``every_s``
    feed_retry_first_s: float = 5.0
    # a feed in a single pass: connect_s, and a megabyte at slowest_bytes_s
    feed_once_s: float = 300.0
    feed_pass_s: float = 18_000.0  # a look at a feed: catalogue_bytes at slowest_bytes_s
    # silence after which a broker has sent all it retains; longer where connecting took longer
    feed_quiet_s: float = 1.0
    config_bytes: int = 1 * MIB  # a configuration file
    known_tasks: int = 1_000  # tasks learnt from feeds that a device keeps
    # entries on refused bundles in a device's ledger; later ones are counted only
    refusals: int = 1_000
    source_s: float = 30.0  # longest time that reading a local value may take
    source_bytes: int = 1 * MIB  # read of a local value's file, reply or output
    # --- MQTT -------------------------------------------------------------------------------------
    # frames that a bridge holds; beyond it they are dropped, and devices send them again
    bridge_frames: int = 8_192
    bridge_bytes: int = 32 * MIB  # of those frames together
    # seconds a broker may take over TCP, TLS, CONNECT and SUBSCRIBE: 4 round trips, and losses
    mqtt_connect_s: float = 45.0
    mqtt_keepalive_s: int = 60
    mqtt_retry_first_s: float = 0.5  # first pause before a broker is tried again ...
    mqtt_retry_most_s: float = 30.0  # ... doubling up to this, each with full jitter
    # publications that wait for the broker at once; more made mosquitto no faster
    mqtt_in_flight: int = 20


LIMITS = Limits()


def call_s(deadline_s: float, size: int) -> float:
    """Seconds for a call that carries ``size`` bytes where one that carries few gets
    ``deadline_s``.
    """
    return deadline_s + size / LIMITS.slowest_bytes_s


def frame_size_for(payload: int, overhead: int) -> int | None:
    """The smallest global frame size that holds ``payload`` bytes under ``overhead`` bytes of
    header and HPKE; None if none does.
    """
    return next((size for size in LIMITS.frame_sizes if payload + overhead <= size), None)
