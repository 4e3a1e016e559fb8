"""What is looked at of each role, in the order in which things depend on one another."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Iterator
from contextlib import closing, suppress
from pathlib import Path

from shoal.analyzer.config import AnalyzerConfig
from shoal.analyzer.store import FILE_NAME as ANALYZER_STORE
from shoal.analyzer.store import AnalyzerStore
from shoal.cli.operations import link_checks, machine_checks, task_checks, tls_checks
from shoal.cli.operations.findings import Findings
from shoal.cli.operations.handshakes import TlsEnd
from shoal.clients.settings.config import AgentConfig
from shoal.crypto.keyfiles import load_signing_key
from shoal.crypto.trust import ServedTask
from shoal.errors import ShoalError
from shoal.rpc.tls import TlsIdentity, read_pem
from shoal.services import given_up
from shoal.services.certificates import SOON_DAYS
from shoal.services.given_up import TaskWindow
from shoal.services.settings import AdminSection, RoleSettings, load_settings
from shoal.shuffler.config import ShufflerConfig
from shoal.shuffler.core import WindowState
from shoal.shuffler.stores.sqlite.records import stored
from shoal.storage import sqlite
from shoal.task import split_address

_SHUFFLER_STORES = ("state.db", "rounds.db", "singles.db")
_DAY_S = 86_400


def shuffler(findings: Findings, path: Path) -> ShufflerConfig | None:
    """All of a shuffler; None where its configuration can't be read."""
    findings.about("shuffler")
    with findings.checking("config"):
        config = load_settings(ShufflerConfig, path)
        findings.ok("config", f"{path.name} is understood")
        secrets = [
            config.signing_key,
            config.tls.key,
            config.analyzer.key,
            *_admin_secrets(config.admin),
        ]
        if config.mqtt is not None and config.mqtt.password_file is not None:
            secrets.append(config.mqtt.password_file)
        if config.store.dsn_file is not None:
            secrets.append(config.store.dsn_file)
        if config.store.batches is not None and config.store.batches.credentials_file is not None:
            secrets.append(config.store.batches.credentials_file)
        _common(findings, config, secrets, _SHUFFLER_STORES)
        shared = _database(findings, config)
        front, to = config.tls, config.analyzer
        usable = tls_checks.own_files(findings, "tls", front.certificate, front.key, None, "")
        linked = tls_checks.own_files(findings, "analyzer", to.certificate, to.key, to.ca, "ca")
        served = _tasks(findings, config, hop=True, decided=shared)
        if config.store.kind == "postgresql":
            from shoal.cli.operations import database_checks

            database_checks.shared_hop_keys(findings, served)
        if usable:
            for address, ca in sorted(
                {(t.task.shuffler_address, t.task.shuffler_ca) for t in served}
            ):
                tls_checks.fits(
                    findings,
                    TlsEnd(front.certificate, front.key),
                    TlsEnd(trusts=ca),
                    address,
                    "what devices see",
                    "have [tls] issued by that authority, for that name",
                )
        runs = link_checks.service(findings, "shuffler", config)
        with findings.checking("link"):
            asyncio.run(_shuffler_links(findings, config, served if runs else [], linked))
        return config
    return None


def _database(findings: Findings, config: ShufflerConfig) -> set[TaskWindow]:
    """The windows that a shared database has decided."""
    if config.store.kind == "postgresql":
        with findings.checking("database"):
            from shoal.cli.operations import database_checks

            return asyncio.run(database_checks.database(findings, config))
    return set()


async def _shuffler_links(
    findings: Findings, config: ShufflerConfig, served: list[ServedTask], linked: bool
) -> None:
    if linked:
        to = config.analyzer
        identity = TlsIdentity.load(to.certificate, to.key, to.ca)
        await link_checks.analyzer(findings, to.address, identity)
    await link_checks.shufflers(findings, served, insecure=False)
    if config.mqtt is not None and config.mqtt.enabled:
        await link_checks.broker(findings, config.mqtt.settings())


def analyzer(findings: Findings, path: Path) -> AnalyzerConfig | None:
    """All of an analyzer; None where its configuration can't be read."""
    findings.about("analyzer")
    with findings.checking("config"):
        config = load_settings(AnalyzerConfig, path)
        findings.ok("config", f"{path.name} is understood")
        secrets = [config.signing_key, config.tls.key, *_admin_secrets(config.admin)]
        _common(findings, config, secrets, (ANALYZER_STORE,))
        tls = config.tls
        tls_checks.own_files(findings, "tls", tls.certificate, tls.key, tls.client_ca, "client_ca")
        _tasks(findings, config, hop=False)
        link_checks.service(findings, "analyzer", config)
        if config.opening.engine == "dask":
            with findings.checking("workers"):
                from shoal.cli.operations import worker_checks  # the extra [dask]

                signing_key = load_signing_key(config.signing_key)
                asyncio.run(worker_checks.workers(findings, config.opening, signing_key))
        return config
    return None


def between(findings: Findings, shuffler: ShufflerConfig, analyzer: AnalyzerConfig) -> None:
    """What only who has both files can see: whether each end takes the other."""
    findings.about("link")
    with findings.checking("certificates"):
        to, at = shuffler.analyzer, analyzer.tls
        tls_checks.fits(
            findings,
            TlsEnd(at.certificate, at.key, read_pem(at.client_ca)),
            TlsEnd(to.certificate, to.key, read_pem(to.ca)),
            to.address,
            "shuffler to analyzer",
            "[analyzer] of the shuffler and [tls] of the analyzer must know each other's authority",
        )
        names = tls_checks.dns_names(to.certificate)
        if names & set(analyzer.allowed_shufflers):
            findings.ok("certificates", "the analyzer's allowed_shufflers names this shuffler")
        else:
            findings.fail(
                "certificates",
                "no DNS name of the shuffler's [analyzer] certificate is in the analyzer's "
                "allowed_shufflers: add one",
            )
    with findings.checking("ports"):
        ours, theirs = split_address(analyzer.listen), split_address(shuffler.analyzer.address)
        if ours is not None and theirs is not None and ours[1] != theirs[1]:
            findings.warn(
                "ports",
                f"the analyzer listens on port {ours[1]}, the shuffler dials {theirs[1]}: right "
                "only behind a forwarder",
            )


def agent(findings: Findings, path: Path) -> None:
    """All of a device."""
    findings.about("agent")
    with findings.checking("config"):
        config = AgentConfig.load(path)
        findings.ok("config", f"{path.name} is understood")
        for note in config.notes:
            findings.warn("config", note)
        machine_checks.versions(findings)
        with findings.checking("disk"):
            machine_checks.disk(findings, config.outbox.parent)
        with findings.checking("permissions"):
            secrets = [] if config.enrolment is None else [config.enrolment.key]
            machine_checks.rights(findings, config.outbox, secrets, [])
        with findings.checking("store"):
            names = (config.outbox.name, config.ledger.name)
            machine_checks.stores(findings, config.outbox.parent, names)
        if config.enrolment is not None:
            _enrolment(findings, config)
        served = list[ServedTask]()
        with findings.checking("tasks"):
            authorities = config.effective_policy.authorities
            served = task_checks.tasks(findings, config.tasks, authorities)
        with findings.checking("link"):
            asyncio.run(_agent_links(findings, config, served))


async def _agent_links(findings: Findings, config: AgentConfig, served: list[ServedTask]) -> None:
    if not config.uplink:
        await link_checks.shufflers(findings, served, insecure=config.insecure)
    if config.mqtt is not None:
        await link_checks.broker(findings, config.mqtt)


def _enrolment(findings: Findings, config: AgentConfig) -> None:
    with findings.checking("certificates"):
        assert config.enrolment is not None  # noqa: S101 - asked by the caller
        left = (config.enrolment.load().not_after_s - time.time()) / _DAY_S
        if left < 0:
            findings.fail("certificates", "the enrolment is over: ask its authority for a new one")
        elif left < SOON_DAYS:
            findings.warn(
                "certificates",
                f"the enrolment ends in {int(left)} days: ask its authority for a new one",
            )
        else:
            findings.ok("certificates", f"the enrolment holds for {int(left)} days")


def _admin_secrets(admin: AdminSection) -> Iterator[Path]:
    yield from (path for path in (admin.token_file, admin.key) if path is not None)


def _common(
    findings: Findings, config: RoleSettings, secrets: list[Path], stores: tuple[str, ...]
) -> None:
    role = "shuffler" if isinstance(config, ShufflerConfig) else "analyzer"
    machine_checks.versions(findings)
    with findings.checking("disk"):
        machine_checks.disk(findings, config.data_dir)
    with findings.checking("permissions"):
        machine_checks.rights(findings, config.data_dir, secrets, [config.keys_dir])
    with findings.checking("clock"):
        machine_checks.clock(findings, config.data_dir, role)
    with findings.checking("store"):
        machine_checks.stores(findings, config.data_dir, stores)
    with findings.checking("certificates"):
        admin = config.admin
        if admin.certificate is not None and admin.key is not None:
            tls_checks.own_files(
                findings, "admin", admin.certificate, admin.key, admin.client_ca, "client_ca"
            )


def _tasks(
    findings: Findings,
    config: RoleSettings,
    *,
    hop: bool,
    decided: Collection[TaskWindow] = (),
) -> list[ServedTask]:
    """Those that this role can serve. ``hop``: for a shuffler. ``decided``: windows that are over,
    beside those of which data_dir says so.
    """
    served = list[ServedTask]()
    with findings.checking("tasks"):
        served = task_checks.tasks(findings, config.tasks_dir, config.authority_keys)
    with findings.checking("keys"):
        public = load_signing_key(config.signing_key).public
        for one in served:
            if public not in (one.task.hops if hop else (one.task.analyzer_key,)):
                findings.fail(
                    "keys",
                    f"task {one.task.name}: it names another {'shuffler' if hop else 'analyzer'} "
                    "key than signing_key holds: use that key, or another task",
                )
        task_checks.private_keys(
            findings,
            served,
            config.keys_dir,
            lambda one: tuple(
                key.key_id for key in (one.keys.hop_keys if hop else one.keys.analyzer_keys)
            ),
            _over(config.data_dir, hop=hop) | set(decided),
        )
    return served


def _over(data_dir: Path, *, hop: bool) -> set[TaskWindow]:
    """Windows whose key is deleted, as the store says: decided (shuffler) or released (analyzer),
    maybe long before their time was over because they were full; and those that are given up. A
    store that can't be read is a finding of its own, and has none.
    """
    over = set[TaskWindow]()
    with suppress(ShoalError):
        over |= {entry.key for entry in given_up.read(data_dir)}
    with suppress(ShoalError, OSError, sqlite.Error):
        if hop:
            records = stored(data_dir).items()
            over |= {
                (window.task_id, window.window)
                for window, record in records
                if record.state not in (WindowState.OPEN, WindowState.CLOSING)
            }
        elif (data_dir / ANALYZER_STORE).exists():
            with closing(AnalyzerStore(data_dir / ANALYZER_STORE, read_only=True)) as store:
                over |= store.over()
    return over
