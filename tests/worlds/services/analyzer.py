"""What the analyzer's tests stand on: an authority, signed tasks and schedules, keys and
certificates on disk, real sealed batches.

Reports are sealed with the production code. Most tests choose the reports' bytes themselves
(``report(cell)``), so that the exact tally is known in advance; whoever wants real noise randomizes
first.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from shoal import codec
from shoal.accounting.several_messages.of_domain import design_several
from shoal.analyzer.config import AnalyzerConfig
from shoal.codec import Manifest, Signed
from shoal.crypto import keyfiles
from shoal.crypto.envelope import seal_report, sealed_size
from shoal.crypto.hpke import HpkePrivateKey, generate
from shoal.crypto.signing import SigningContext, SigningKey
from shoal.crypto.suites import SuiteId
from shoal.crypto.tlscerts import Identity, issue, make_authority
from shoal.crypto.trust import ServedTask, serve_task
from shoal.domain import Categories, Domain
from shoal.ids import Digest, TaskId
from shoal.mechanisms import Mechanism, create, design
from shoal.mechanisms.several.registry import create as create_several
from shoal.mechanisms.several.registry import fewest_messages
from shoal.protos import delivery_pb2
from shoal.rpc.tls import TlsIdentity
from shoal.task import Task, WindowKeys, WindowPlan
from tests.worlds.schedules import schedule_bytes

START = 1_800_000_000  # Unix seconds at which window 0 of every test task begins
LENGTH = 3_600
SHUFFLER_NAME = "shuffler.test"
VISITS = Categories(("0", "1", "2", "3-4", "5-9", "10+"))  # 7 cells with "no answer"
TLS_CA = make_authority("test services")
OTHER_CA = make_authority("somebody else")
_SERVER = issue(TLS_CA, "analyzer", ["localhost", "127.0.0.1"], server=True, client=False, days=90)


def identity(ca: Identity = TLS_CA, name: str = SHUFFLER_NAME) -> TlsIdentity:
    made = issue(ca, name, [name], server=False, client=True, days=90)
    return TlsIdentity(made.cert_pem, made.key_pem)


@dataclass(frozen=True)
class Batch:
    """A batch as a shuffler holds it: its rows, and the manifest, signed."""

    manifest: Manifest
    rows: tuple[bytes, ...]
    signed: bytes

    @property
    def data(self) -> bytes:
        return b"".join(self.rows)

    @property
    def manifest_bytes(self) -> bytes:
        return bytes(delivery_pb2.SignedManifest.FromString(self.signed).manifest)

    @property
    def manifest_hash(self) -> Digest:
        return Digest.of(self.manifest_bytes)

    def chunk(self, first: int = 0, count: int | None = None, **changes: Any) -> bytes:
        last = len(self.rows) if count is None else first + count
        fields: dict[str, Any] = {
            "manifest_hash": self.manifest_hash.raw,
            "first_row": first,
            "rows": b"".join(self.rows[first:last]),
        }
        return delivery_pb2.Chunk(**{**fields, **changes}).SerializeToString()


@dataclass
class World:
    """One task with all its keys. ``write`` puts everything that an analyzer wants into a
    folder.
    """

    task: Task
    authority: SigningKey = field(default_factory=SigningKey.generate)
    shuffler: SigningKey = field(default_factory=SigningKey.generate)
    analyzer: SigningKey = field(default_factory=SigningKey.generate)
    keys: list[HpkePrivateKey] = field(default_factory=list)  # per window
    hop: HpkePrivateKey = field(default_factory=lambda: generate(SuiteId.X25519_AES128))

    def __post_init__(self) -> None:
        suite = SuiteId.of(self.task.suite)
        self.keys = self.keys or [generate(suite) for _ in range(self.task.windows.count)]
        if self.hop.config.suite is not suite:
            self.hop = generate(suite)
        self.task = replace(
            self.task,
            key_authority=self.authority.public,
            shuffler_key=self.shuffler.public,
            analyzer_key=self.analyzer.public,
        )
        self.task_bytes = codec.encode_task(self.task)
        self.task_id = TaskId.of(self.task_bytes)
        self.signed_task = codec.encode_signed_task(
            Signed(
                self.task_bytes,
                self.authority.public,
                self.authority.sign(SigningContext.TASK, self.task_bytes),
            )
        )
        self.signed_schedule = self.schedule()
        self.served: ServedTask = serve_task(
            self.signed_task, self.signed_schedule, {self.authority.public}
        )

    @property
    def mechanism(self) -> Mechanism:
        """Of a task whose reports are single messages."""
        return create(self.task.mechanism, self.task.domain)

    def schedule(self) -> bytes:
        windows = tuple(
            WindowKeys(w, key.config.raw, self.hop.config.raw) for w, key in enumerate(self.keys)
        )
        data = schedule_bytes(self.task_id.raw, windows, self.analyzer, self.shuffler)
        return codec.encode_signed_schedule(
            Signed(
                data, self.authority.public, self.authority.sign(SigningContext.KEY_SCHEDULE, data)
            )
        )

    @property
    def after(self) -> float:
        """A time at which every window is over, and none beyond its retention."""
        return float(self.task.windows.deadline_of(self.task.windows.count - 1)) + 1

    def expiry(self, window: int) -> float:
        """The time at which the analyzer may hold nothing of the window any more."""
        return float(
            self.task.windows.start_of(window) + self.task.retention_s + self.task.windows.skew_s
        )

    # --- reports and batches ----------------------------------------------------------------------

    def report(self, cell: int) -> bytes:
        return cell.to_bytes(self.task.report_size, "big")

    def seal(
        self,
        report: bytes,
        window: int = 0,
        nonce: bytes | None = None,
        key: HpkePrivateKey | None = None,
    ) -> bytes:
        return seal_report(
            (key or self.keys[window]).config,
            self.task_id,
            window,
            nonce or secrets.token_bytes(16),
            report,
        )

    def seal_cells(self, cells: Iterable[int], window: int = 0) -> list[bytes]:
        return [self.seal(self.report(cell), window) for cell in cells]

    def row_size(self) -> int:
        return sealed_size(SuiteId.of(self.task.suite), self.task.report_size)

    def batch(
        self,
        rows: Sequence[bytes],
        window: int = 0,
        signer: SigningKey | None = None,
        **changes: Any,
    ) -> Batch:
        manifest = Manifest(
            task_id=self.task_id,
            window=window,
            rows=len(rows),
            row_size=self.row_size(),
            analyzer_key_id=self.keys[window].config.key_id,
            hop_key_id=self.hop.config.key_id,
            schedule_hash=self.served.keys.digest,
            rows_hash=Digest.of(b"".join(rows)),
        )
        manifest = replace(manifest, **changes)
        data = codec.encode_manifest(manifest)
        signature = (signer or self.shuffler).sign(SigningContext.MANIFEST, data)
        return Batch(
            manifest,
            tuple(rows),
            delivery_pb2.SignedManifest(manifest=data, signature=signature).SerializeToString(),
        )

    # --- on disk ----------------------------------------------------------------------------------

    def write(self, folder: Path) -> None:
        """tasks/, keys/ and signing.key under ``folder``; several worlds may share one (with the
        same authority and analyzer).
        """
        (folder / "tasks").mkdir(parents=True, exist_ok=True)
        (folder / "keys").mkdir(exist_ok=True)
        (folder / "tasks" / f"{self.task.name}.task").write_bytes(self.signed_task)
        (folder / "tasks" / f"{self.task.name}.keys").write_bytes(self.signed_schedule)
        for key in self.keys:
            path = folder / "keys" / f"{key.config.key_id.hex}.key"
            if not path.exists():
                keyfiles.save_hpke_key(path, key)
        if not (folder / "signing.key").exists():
            keyfiles.save_signing_key(folder / "signing.key", self.analyzer)

    def write_config(self, folder: Path, **changes: str) -> Path:
        """Everything, with TLS files and an analyzer.toml on free ports; ``changes`` replace whole
        lines by key.
        """
        self.write(folder)
        write_tls(folder)
        lines = {
            "listen": '"127.0.0.1:0"',
            "admin_listen": '"127.0.0.1:0"',
            "data_dir": '"data"',
            "tasks_dir": '"tasks"',
            "keys_dir": '"keys"',
            "signing_key": '"signing.key"',
            "authorities": f'["{self.authority.public.hex()}"]',
            "allowed_shufflers": f'["{SHUFFLER_NAME}"]',
            "open_workers": "1",
        }
        text = "".join(f"{key} = {value}\n" for key, value in {**lines, **changes}.items())
        text += '[tls]\ncertificate = "tls.crt"\nkey = "tls.key"\nclient_ca = "clients.crt"\n'
        path = folder / "analyzer.toml"
        path.write_text(text)
        return path

    def config(self, folder: Path) -> AnalyzerConfig:
        from shoal.services.settings import load_settings

        return load_settings(AnalyzerConfig, self.write_config(folder))


def write_tls(folder: Path) -> None:
    (folder / "tls.crt").write_bytes(_SERVER.cert_pem)
    (folder / "clients.crt").write_bytes(TLS_CA.cert_pem)
    (folder / "tls.key").touch(mode=0o600)
    (folder / "tls.key").write_bytes(_SERVER.key_pem)


def make_task(
    *,
    name: str = "visits",
    domain: Domain = VISITS,
    mechanism: str = "krr",
    epsilon0: float = 3.0,
    windows: int = 2,
    min_batch: int = 20,
    max_batch: int = 0,
    target_epsilon: float = 3.0,
    honest_fraction_ppm: int = 900_000,
    suite: int = 1,
) -> Task:
    spec = design(mechanism, domain, epsilon0)
    made = create(spec, domain)
    return Task(
        salt=secrets.token_bytes(16),
        name=name,
        purpose="to plan clinics",
        question="How many visits?",
        domain=domain,
        mechanism=spec,
        windows=WindowPlan(START, LENGTH, windows, 600, 60),
        min_batch=min_batch,
        max_batch=max_batch,
        honest_fraction_ppm=honest_fraction_ppm,
        delta=1e-6,
        target_epsilon=target_epsilon,
        key_authority=bytes(32),
        shuffler_key=bytes(32),
        analyzer_key=bytes(32),
        shuffler_address="127.0.0.1:1",
        shuffler_ca=b"",
        retention_s=LENGTH * 10,
        report_size=made.report_size,
        messages=made.messages,
        suite=suite,
    )


def make_world(**changes: Any) -> World:
    return World(make_task(**changes))


def several_world(name: str = "dummies", **changes: Any) -> World:
    """Its devices send several messages, for the honest ones of the smallest batch."""
    task = make_task(target_epsilon=1.0, **changes)
    honest = task.min_batch * task.honest_fraction_ppm // 1_000_000
    made = create_several(
        design_several(name, task.domain, honest, 1.0, task.delta, windows=2), task.domain
    )
    return World(
        replace(
            task,
            mechanism=made.spec,
            report_size=made.report_size,
            messages=made.messages,
            fewest_messages=fewest_messages(made),
        )
    )
