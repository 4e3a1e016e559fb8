"""The options of ``shoal task publish``: what they are called, and what --help says of them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

FileArgument = Annotated[
    Path,
    typer.Argument(
        metavar="TASK.task", help="Signed task; its key schedule lies beside it as TASK.keys."
    ),
]
KeysOption = Annotated[Path | None, typer.Option(help="The key schedule, if it lies elsewhere.")]
MqttOption = Annotated[
    str,
    typer.Option(metavar="HOST:PORT", help="Broker that keeps it for every device that asks."),
]
CaOption = Annotated[
    Path | None,
    typer.Option(
        help="PEM file that the broker's certificate chains to; none: what this machine trusts."
    ),
]
UsernameOption = Annotated[str, typer.Option(help="At the broker.")]
PasswordFileOption = Annotated[
    Path | None, typer.Option(help="File of mode 0600 with the password in its first line.")
]
ProtocolOption = Annotated[str, typer.Option(help="5 or 3.1.1, for brokers that know no other.")]
InsecureOption = Annotated[
    bool, typer.Option("--insecure", help="No TLS: a broker on a loopback address alone.")
]
FolderOption = Annotated[
    Path | None, typer.Option("--dir", help="Folder to put the two files into.")
]
WithdrawOption = Annotated[
    bool, typer.Option("--withdraw", help="Take it off again. Devices that have it keep it.")
]
EveryOption = Annotated[
    float | None,
    typer.Option(metavar="SECONDS", help="Publish again and again: some brokers forget."),
]
TrustOption = Annotated[
    str,
    typer.Option(help="Public key that must have signed the task; empty: the one in the file."),
]
AnalyzerKeysOption = Annotated[
    Path | None,
    typer.Option(help="The analyzer's keys_dir: refuse if a window's key is not there."),
]
ShufflerKeysOption = Annotated[
    Path | None, typer.Option(help="The shuffler's keys_dir: refuse if a hop key is not there.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="What was done, as JSON.")]
