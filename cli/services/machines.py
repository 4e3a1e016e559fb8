"""``shoal analyzer scheduler`` and ``shoal analyzer worker``: other machines for one batch."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from shoal.cli.extras import need
from shoal.errors import Kind, ShoalError

CaOption = Annotated[
    Path, typer.Option(help="PEM certificates of the operator's own CA for these machines.")
]
CertificateOption = Annotated[Path, typer.Option(help="PEM certificate that is shown.")]
KeyOption = Annotated[Path, typer.Option(help="Its private key, PEM, mode 0600.")]


def add_machines(app: typer.Typer) -> None:
    """Both commands."""
    app.command("scheduler")(scheduler)
    app.command("worker")(worker)


def scheduler(
    listen: Annotated[str, typer.Option(help="HOST:PORT where workers and the analyzer come.")],
    ca: CaOption,
    certificate: CertificateOption,
    key: KeyOption,
) -> None:
    """Where workers on other machines and the analyzer find one another: Dask's scheduler, without
    a dashboard. It sees who is there, and neither keys nor rows. Stops cleanly on SIGTERM.

    Example: shoal analyzer scheduler --listen 10.0.0.5:8786 --ca machines-ca.pem
    --certificate scheduler.pem --key scheduler.key
    """
    need("dask")
    from shoal.analyzer.machines.comms import MachineTls
    from shoal.analyzer.machines.processes import run_scheduler
    from shoal.log import configure

    configure("info")
    run_scheduler(_address(listen), MachineTls(ca, certificate, key))


def worker(
    scheduler: Annotated[str, typer.Option(help="HOST:PORT of `shoal analyzer scheduler`.")],
    listen: Annotated[str, typer.Option(help="HOST:PORT here, as the analyzer reaches it.")],
    ca: CaOption,
    certificate: CertificateOption,
    key: KeyOption,
    identity: Annotated[
        Path,
        typer.Option(
            help="This worker's Ed25519 key, mode 0600 (`shoal keys signing`); its public key "
            "stands in the analyzer's opening.workers."
        ),
    ],
    analyzer: Annotated[
        str, typer.Option(help="Public key of the analyzer it works for, 64 hex digits.")
    ],
    spool: Annotated[
        Path | None,
        typer.Option(help="The analyzer's spool folder, mounted here: with opening.shared_spool."),
    ] = None,
    memory_mib: Annotated[
        int | None, typer.Option(min=256, help="Most memory for data; default: no limit.")
    ] = None,
) -> None:
    """Open reports for an analyzer on another machine: one process, one CPU. Start one per CPU.

    It holds a window's private key in memory while that window is opened. It simulates devices for
    `shoal plan --engine` too, if its analyzer's key asks. A scheduler that goes is
    waited for. Stops cleanly on SIGTERM.

    Example: shoal analyzer worker --scheduler 10.0.0.5:8786 --listen 10.0.0.7:8801
    --ca machines-ca.pem --certificate worker.pem --key worker.key --identity worker-signing.key
    --analyzer 3a5f...
    """
    need("dask")
    from shoal.analyzer.machines.comms import MachineTls, over_tls
    from shoal.analyzer.machines.processes import run_worker
    from shoal.analyzer.machines.worker import WorkerSettings
    from shoal.crypto.keyfiles import load_signing_key
    from shoal.log import configure

    configure("info")
    try:
        public = bytes.fromhex(analyzer)
    except ValueError:
        public = b""
    if len(public) != 32:
        raise ShoalError(Kind.CONFIG, "--analyzer is a public key of 64 hex digits")
    settings = WorkerSettings(
        scheduler=over_tls(_address(scheduler)),
        listen=_address(listen),
        tls=MachineTls(ca, certificate, key),
        identity=load_signing_key(identity),
        analyzer=public,
        folder=spool,
        scratch=Path(),
    )
    run_worker(settings, memory_mib)


def _address(text: str) -> str:
    from shoal.task import split_address

    if split_address(text) is None:
        raise ShoalError(Kind.CONFIG, f'"{text[:64]}" is not HOST:PORT, for example 10.0.0.5:8786')
    return text
