"""The options of ``shoal load``."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated

import typer

from shoal.clients.fleet.arrivals import Pattern
from shoal.clients.fleet.misbehaviour import Carrier
from shoal.errors import Kind, ShoalError

MOST_DEVICES = 1_000_000_000  # of all parts of a load
MOST_OF_A_MACHINE = 50_000_000
_WHAT, _HOW, _WHO, _WHERE, _END = (
    "What is sent",
    "How it is sent",
    "Who misbehaves",
    "Where it goes",
    "What comes of it",
)

HELP = """Send the reports of many simulated devices, then compare what was acknowledged with what
was counted.

Every device verifies the signed task and key schedule, randomizes a random value (with --values
that of its row in a table), seals and submits it. With --rate or --over a report's latency counts
from the moment it was due, so waiting that a stalled server causes is in the figures. Use a task of
its own: other reports in the same window are counted too. Tasks whose shuffler is not on this
machine want --address.

Exit status 1 unless acknowledged = counted and every misbehaving client got the one answer that it
must get; 130 after Ctrl-C, with what was measured until then.

**Examples**

    # What a load would do and cost; nothing is sent
    shoal load --task load.task --devices 1000000 --plan

    # A thousand reports per second, and the proof that none was lost or doubled
    shoal load --task load.task --devices 100000 --rate 1000 --analyzer-status http://127.0.0.1:7446

    # As fast as the services go: batches, encapsulations made beforehand
    shoal load --task load.task --devices 1000000 --way relay --prepare \\
        --analyzer-status http://127.0.0.1:7446

    # Answers from a table, to compare the results with: one device per row
    shoal load --task load.task --values answers.csv:income \\
        --analyzer-status http://127.0.0.1:7446

    # A rush at the end, with clients that repeat, break frames or lie
    shoal load --task load.task --devices 50000 --arrival rush --over 60 \\
        --duplicates 0.05 --malformed 0.01 --hostile 0.01

    # A fleet of 1e8 from twenty machines; keep what each prints in a file, then merge all
    shoal load --task load.task --devices 100000000 --window 0 --part 3/20 --json
    shoal load --merge part-1.json --merge part-2.json \\
        --analyzer-status http://127.0.0.1:7446

    # Through an MQTT broker
    shoal load --task load.task --devices 10000 --way mqtt \\
        --broker localhost:8883 --broker-ca ca.pem
"""

DevicesOption = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=MOST_DEVICES,
        help="Simulated devices; each answers every task once. Default: one per row of --values.",
        rich_help_panel=_WHAT,
    ),
]
ValuesOption = Annotated[
    list[str] | None,
    typer.Option(
        "--values",
        metavar="[TASK=]FILE:COLUMN",
        help=(
            "What the devices answer: the rows of a column of a CSV or Parquet file, instead of "
            "random values. With several tasks TASK=, once for each."
        ),
        rich_help_panel=_WHAT,
    ),
]
TaskOption = Annotated[
    list[Path] | None,
    typer.Option(
        metavar="FILE",
        help="NAME.task, with NAME.keys beside it; may be repeated.",
        rich_help_panel=_WHAT,
    ),
]
TasksDirOption = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR", help="All tasks of a folder, instead of --task.", rich_help_panel=_WHAT
    ),
]
WindowOption = Annotated[
    int | None,
    typer.Option(
        min=0, help="Window to report in; default: the one that is open now.", rich_help_panel=_WHAT
    ),
]
AuthorityOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="HEX",
        help="Public key that devices trust; default: whoever signed the first task.",
        rich_help_panel=_WHAT,
    ),
]
RootsOption = Annotated[
    list[Path] | None,
    typer.Option(
        metavar="ROOT.key",
        help=(
            "Signing key of a task's enrolment authority: enrols the simulated devices. For tests "
            "alone."
        ),
        rich_help_panel=_WHAT,
    ),
]
RateOption = Annotated[
    float | None,
    typer.Option(
        min=0.01,
        help="Reports per second over all devices; default: as fast as they go.",
        rich_help_panel=_HOW,
    ),
]
OverOption = Annotated[
    float | None,
    typer.Option(
        min=0.01,
        metavar="SECONDS",
        help="Time for all reports, instead of --rate. A rush: default, until its window ends.",
        rich_help_panel=_HOW,
    ),
]
ArrivalOption = Annotated[
    Pattern,
    typer.Option(
        help=(
            "steady; spike: 4 of 5 reports in the middle twentieth of the time; rush: half of them "
            "in the last tenth."
        ),
        rich_help_panel=_HOW,
    ),
]
WayOption = Annotated[
    Carrier,
    typer.Option(
        "--way",
        help="One call per report, batches of up to 500 frames as a relay sends them, or a broker.",
        rich_help_panel=_HOW,
    ),
]
RelayOption = Annotated[
    bool, typer.Option("--relay", help="The same as --way relay.", rich_help_panel=_HOW)
]
PrepareOption = Annotated[
    bool,
    typer.Option(
        "--prepare",
        help=(
            "Make all HPKE encapsulations before the clock starts; the signatures of a task are "
            "then verified once per process."
        ),
        rich_help_panel=_HOW,
    ),
]
InFlightOption = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=4096,
        help="Devices (of a relay: batches) under way per process; default 64 (4).",
        rich_help_panel=_HOW,
    ),
]
ProcessesOption = Annotated[
    int, typer.Option(min=0, max=256, help="Processes; 0: one per CPU.", rich_help_panel=_HOW)
]
ChannelsOption = Annotated[
    int, typer.Option(min=1, max=64, help="Connections per process.", rich_help_panel=_HOW)
]
PatienceOption = Annotated[
    float,
    typer.Option(
        min=0,
        help="Seconds for which a report is tried again after a retryable failure.",
        rich_help_panel=_HOW,
    ),
]
_SHARE = {"min": 0.0, "max": 1.0, "metavar": "SHARE", "rich_help_panel": _WHO}
DuplicatesOption = Annotated[
    float,
    typer.Option(
        **_SHARE,
        help="Part of the devices that send their frame twice at once and again after the receipt.",
    ),
]
LateOption = Annotated[
    float, typer.Option(**_SHARE, help="Part that seals for a window that is over.")
]
MalformedOption = Annotated[
    float,
    typer.Option(
        **_SHARE, help="Part that sends noise, cut or damaged frames, unknown versions or keys."
    ),
]
HostileOption = Annotated[
    float,
    typer.Option(
        **_SHARE,
        help=(
            "Part that sends garbage for the analyzer, unknown tasks, wrong lengths, too much, or "
            "reports twice."
        ),
    ),
]
AddressOption = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT",
        help="Shuffler to submit to; default: the tasks' own, on this machine.",
        rich_help_panel=_WHERE,
    ),
]
BrokerOption = Annotated[
    str | None,
    typer.Option(metavar="HOST:PORT", help="MQTT broker, for --way mqtt.", rich_help_panel=_WHERE),
]
BrokerCaOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="CA that the broker's certificate chains to; default: the system's.",
        rich_help_panel=_WHERE,
    ),
]
BrokerUserOption = Annotated[
    str, typer.Option(metavar="NAME", help="User name at the broker.", rich_help_panel=_WHERE)
]
BrokerPasswordOption = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="File with its password.", rich_help_panel=_WHERE),
]
BrokerProtocolOption = Annotated[
    str, typer.Option(metavar="5|3.1.1", help="Version of MQTT.", rich_help_panel=_WHERE)
]
BrokerInsecureOption = Annotated[
    bool,
    typer.Option(
        "--broker-insecure", help="No TLS: a broker on this machine alone.", rich_help_panel=_WHERE
    ),
]
AnalyzerStatusOption = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help=(
            "The analyzer's admin address, for example http://127.0.0.1:7446: counts after the "
            "window."
        ),
        rich_help_panel=_END,
    ),
]
ShufflerStatusOption = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help=(
            "The shuffler's admin address, for example http://127.0.0.1:7444: also counts withheld "
            "windows."
        ),
        rich_help_panel=_END,
    ),
]
WaitOption = Annotated[
    float,
    typer.Option(min=0, help="Seconds to wait for the counts after sending.", rich_help_panel=_END),
]
PlanOnlyOption = Annotated[
    bool,
    typer.Option(
        "--plan",
        help="Say what would be sent and what it costs, and send nothing.",
        rich_help_panel=_END,
    ),
]
PartOption = Annotated[
    str | None,
    typer.Option(
        metavar="I/N",
        help="Of N machines this is the I-th: send its share of the same load. With --json.",
        rich_help_panel=_WHAT,
    ),
]
MergeOption = Annotated[
    list[Path] | None,
    typer.Option(
        metavar="PART.json",
        help="Send nothing: add up the JSON of all parts, and compare once. Once for each part.",
        rich_help_panel=_END,
    ),
]
AsJsonOption = Annotated[bool, typer.Option("--json", help="For programs.", rich_help_panel=_END)]


def part_of(text: str) -> tuple[int, int]:
    """(number from 0, of so many) of "I/N". Raises CONFIG."""
    number, slash, of = text.partition("/")
    if not (slash and number.isdecimal() and of.isdecimal() and 1 <= int(number) <= int(of)):
        raise ShoalError(Kind.CONFIG, "--part: I/N is wanted, the I-th of N machines, as 3/20")
    return int(number) - 1, int(of)


_OF_MERGE = {"analyzer_status", "shuffler_status", "wait", "as_json", "merge"}


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """What was asked for, as the command's parameters are called. Raises CONFIG for a combination
    that makes no sense.
    """

    devices: int | None = None
    task: list[Path] | None = None
    tasks_dir: Path | None = None
    window: int | None = None
    authority: list[str] | None = None
    enrolment: list[Path] | None = field(default=None, repr=False)
    rate: float | None = None
    over: float | None = None
    arrival: Pattern = Pattern.STEADY
    way: Carrier = Carrier.GRPC
    relay: bool = False
    prepare: bool = False
    in_flight: int | None = None
    processes: int = 0
    channels: int = 2
    patience: float = 60.0
    duplicates: float = 0.0
    late: float = 0.0
    malformed: float = 0.0
    hostile: float = 0.0
    address: str | None = None
    broker: str | None = None
    broker_ca: Path | None = None
    broker_user: str = ""
    broker_password: Path | None = None
    broker_protocol: str = "5"
    broker_insecure: bool = False
    analyzer_status: str | None = None
    shuffler_status: str | None = None
    wait: float = 600.0
    plan: bool = False
    as_json: bool = False
    values: list[str] | None = None
    part: str | None = None
    merge: list[Path] | None = None

    def __post_init__(self) -> None:
        def refuse(condition: bool, message: str) -> None:
            if condition:
                raise ShoalError(Kind.CONFIG, message)

        refuse(self.relay and self.way is Carrier.MQTT, "--relay is --way relay: choose one way")
        refuse(
            self.carrier is Carrier.MQTT and self.broker is None,
            "--way mqtt wants --broker HOST:PORT",
        )
        refuse(
            self.carrier is not Carrier.MQTT and self.broker is not None,
            "--broker is for --way mqtt",
        )
        refuse(
            self.carrier is Carrier.MQTT and self.address is not None,
            "--address is for gRPC: over MQTT frames go to --broker",
        )
        refuse(self.rate is not None and self.over is not None, "give --rate or --over, not both")
        refuse(
            self.arrival is Pattern.SPIKE and self.rate is None and self.over is None,
            "--arrival spike wants --over SECONDS or --rate: the time in which all reports come",
        )
        if self.merge:
            for one in fields(self):
                refuse(
                    one.name not in _OF_MERGE and getattr(self, one.name) != one.default,
                    "--merge sends nothing, its parts say what was sent: leave out "
                    f"--{one.name.replace('_', '-')}",
                )
        if self.part is not None:
            part_of(self.part)
            refuse(
                bool(self.analyzer_status or self.shuffler_status),
                "a part is not all of its window: give --analyzer-status and --shuffler-status "
                "with --merge, once all parts have ended",
            )
            refuse(
                not (self.as_json or self.plan),
                "a part's figures are for --merge: add --json, and keep what is printed in a file",
            )

    @property
    def carrier(self) -> Carrier:
        """How frames travel, ``--relay`` included."""
        return Carrier.RELAY if self.relay else self.way
