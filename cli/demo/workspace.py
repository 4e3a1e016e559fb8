"""Everything that a deployment prepares by hand, made afresh for one demo run: certificates, keys,
signed tasks, configurations.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from shoal.accounting.lint.task import lint
from shoal.cli.demo.ports import free_port
from shoal.cli.demo.survey import Question
from shoal.cli.keys.command import KeyRole, PublicKeys, make_role_keys, sign_schedule
from shoal.cli.task.command import sign_task
from shoal.codec import decode_signed_task
from shoal.crypto import keyfiles, tlscerts
from shoal.crypto.campaign import Campaign, OneTask
from shoal.crypto.signing import SigningKey
from shoal.crypto.suites import SuiteId
from shoal.crypto.trust import SCHEDULE_SUFFIX, TASK_SUFFIX, trust_task
from shoal.errors import Kind, ShoalError
from shoal.ids import TaskId
from shoal.mechanisms.several.registry import create_any, fewest_messages
from shoal.task import Task, WindowPlan

_HOUR = 3600


@dataclass(frozen=True, slots=True)
class TaskTerms:
    """What every task is signed with, beside its question. ``honest_ppm``: of the reports in every
    batch. ``lenient``: where so few devices hide too little for the target, a task promises what
    local randomization alone gives.
    """

    purpose: str
    honest_ppm: int
    delta: float
    target_epsilon: float
    lenient: bool = False


# Nine of ten are honest, as a cautious operator would assume. Few devices hide little: the demo
# shows that, too.
DEMO = TaskTerms("health statistics", 900_000, 1e-8, 1.0, lenient=True)


@dataclass(frozen=True, slots=True)
class SignedPair:
    """One task of the demo as devices receive it."""

    question: Question
    task: Task
    task_id: TaskId
    signed_task: bytes
    signed_schedule: bytes


@dataclass(frozen=True, slots=True)
class Workspace:
    """Where the demo's services live and how to reach them."""

    folder: Path
    authority: bytes
    pairs: tuple[SignedPair, ...]
    shuffler_config: Path
    analyzer_config: Path
    shuffler_admin: int
    analyzer_admin: int
    analyzer_data: Path

    def campaigns(self) -> list[Campaign]:
        """One for each of ``pairs``, in their order."""
        return [OneTask(trust_task(pair.signed_task, {self.authority})) for pair in self.pairs]


@dataclass(frozen=True, slots=True)
class Site:
    """Two configured services without tasks, and the keys that sign for them."""

    folder: Path
    authority: SigningKey
    shuffler: bytes
    analyzer: bytes
    ca: bytes
    hop_keys: PublicKeys
    shuffler_address: str
    shuffler_config: Path
    analyzer_config: Path
    shuffler_admin: int
    analyzer_admin: int

    @property
    def analyzer_data(self) -> Path:
        """Where the analyzer keeps what it stores."""
        return self.folder / "analyzer" / "data"

    def add(self, task: Task) -> tuple[TaskId, bytes, bytes]:
        """Sign a task and hand it to the services: its id, the SignedTask, the
        SignedKeySchedule.
        """
        signed_task = sign_task(task, self.authority)
        analyzer = keyfiles.load_signing_key(self.folder / "analyzer" / "signing.key")
        analyzer_keys = make_role_keys(
            SuiteId.X25519_AES128,
            task.windows.count,
            self.folder / "analyzer" / "keys",
            KeyRole.analyzer,
            analyzer,
        )
        signed_schedule = sign_schedule(signed_task, analyzer_keys, self.hop_keys, self.authority)
        (self.folder / "tasks" / f"{task.name}{TASK_SUFFIX}").write_bytes(signed_task)
        (self.folder / "tasks" / f"{task.name}{SCHEDULE_SUFFIX}").write_bytes(signed_schedule)
        return _id_of(signed_task), signed_task, signed_schedule


def prepare(folder: Path, port: Callable[[], int] = free_port) -> Site:
    """Keys, certificates and configurations in an empty ``folder``. ``port``: one more each call,
    for the services to listen on.
    """
    authority, shuffler, analyzer = (
        SigningKey.generate(),
        SigningKey.generate(),
        SigningKey.generate(),
    )
    for role, key in (("shuffler", shuffler), ("analyzer", analyzer)):
        (folder / role).mkdir(mode=0o700)
        keyfiles.save_signing_key(folder / role / "signing.key", key)
    ca = _certificates(folder)
    shuffler_port, analyzer_port, shuffler_admin, analyzer_admin = (port() for _ in range(4))
    hop_keys = make_role_keys(
        SuiteId.X25519_AES128, 1, folder / "shuffler" / "keys", KeyRole.shuffler, shuffler
    )
    (folder / "tasks").mkdir()
    values = {
        "authority": authority.public.hex(),
        "shuffler": shuffler_port,
        "analyzer": analyzer_port,
    }
    return Site(
        folder=folder,
        authority=authority,
        shuffler=shuffler.public,
        analyzer=analyzer.public,
        ca=ca,
        hop_keys=hop_keys,
        shuffler_address=f"localhost:{shuffler_port}",
        shuffler_config=_write(
            folder / "shuffler" / "shuffler.toml", _SHUFFLER.format(admin=shuffler_admin, **values)
        ),
        analyzer_config=_write(
            folder / "analyzer" / "analyzer.toml", _ANALYZER.format(admin=analyzer_admin, **values)
        ),
        shuffler_admin=shuffler_admin,
        analyzer_admin=analyzer_admin,
    )


def build(
    folder: Path, questions: Sequence[Question], devices: int, terms: TaskTerms = DEMO
) -> Workspace:
    """Make a workspace in an empty ``folder`` for one report of each of ``devices`` devices per
    question.
    """
    site = prepare(folder)
    pairs = []
    for question in questions:
        task = task_of(question, devices, site, terms)
        pairs.append(SignedPair(question, task, *site.add(task)))
    return Workspace(
        folder=folder,
        authority=site.authority.public,
        pairs=tuple(pairs),
        shuffler_config=site.shuffler_config,
        analyzer_config=site.analyzer_config,
        shuffler_admin=site.shuffler_admin,
        analyzer_admin=site.analyzer_admin,
        analyzer_data=site.analyzer_data,
    )


def _id_of(signed_task: bytes) -> TaskId:
    return TaskId.of(decode_signed_task(signed_task).data)


def _certificates(folder: Path) -> bytes:
    """A CA that is forgotten at once, and one certificate per service, for the loopback names
    alone.
    """
    authority = tlscerts.make_authority("Shoal demo CA")
    for role in ("shuffler", "analyzer"):
        identity = tlscerts.issue(
            authority, role, ["localhost", "127.0.0.1", role], server=True, client=True, days=2
        )
        keyfiles.save_private_pem(folder / role / "tls.key", identity.key_pem)
        (folder / role / "tls.pem").write_bytes(identity.cert_pem)
        (folder / role / "ca.pem").write_bytes(authority.cert_pem)
    return authority.cert_pem


def task_of(
    question: Question,
    devices: int,
    site: Site,
    terms: TaskTerms = DEMO,
    windows: WindowPlan | None = None,
    *,
    memoized: bool = False,
    least: int | None = None,
) -> Task:
    """Of ``windows``, each of which closes when every device has reported; None: one that began a
    minute ago. ``least``: reports of a window, where not every device answers it: then each closes
    at its end. Raises CONFIG where lint finds that no task may be so.
    """
    made = create_any(question.mechanism, question.domain)
    if windows is None:
        windows = WindowPlan(
            start_s=int(time.time()) - 60, length_s=_HOUR, count=1, grace_s=0, skew_s=60
        )
    task = Task(
        salt=os.urandom(16),
        name=question.name,
        purpose=terms.purpose,
        question=question.question,
        domain=question.domain,
        mechanism=question.mechanism,
        windows=windows,
        min_batch=devices if least is None else least,
        max_batch=devices,
        honest_fraction_ppm=terms.honest_ppm,
        delta=terms.delta,
        target_epsilon=terms.target_epsilon,
        key_authority=site.authority.public,
        shuffler_key=site.shuffler,
        analyzer_key=site.analyzer,
        shuffler_address=site.shuffler_address,
        shuffler_ca=site.ca,
        retention_s=_HOUR + windows.count * windows.length_s + windows.grace_s,
        report_size=made.report_size,
        messages=made.messages,
        fewest_messages=fewest_messages(made),
        memoized=memoized,
    )
    result = lint(task)
    if (
        terms.lenient
        and result.errors
        and result.guarantee is not None
        and result.guarantee.epsilon_upper > terms.target_epsilon
    ):
        task = replace(task, target_epsilon=result.guarantee.epsilon0)
        result = lint(task)
    if result.errors:
        raise ShoalError(Kind.CONFIG, f"{devices} devices are too few: {result.errors[0]}")
    return task


def _write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


_SHUFFLER = """\
listen = "127.0.0.1:{shuffler}"
admin_listen = "127.0.0.1:{admin}"
data_dir = "data"
tasks_dir = "../tasks"
keys_dir = "keys"
authorities = ["{authority}"]
signing_key = "signing.key"
delivery_delay_max_s = 0.5
commit_ms = 25.0
open_workers = 0

[tls]
certificate = "tls.pem"
key = "tls.key"

[analyzer]
address = "localhost:{analyzer}"
ca = "ca.pem"
certificate = "tls.pem"
key = "tls.key"
"""

_ANALYZER = """\
listen = "127.0.0.1:{analyzer}"
admin_listen = "127.0.0.1:{admin}"
data_dir = "data"
tasks_dir = "../tasks"
keys_dir = "keys"
authorities = ["{authority}"]
signing_key = "signing.key"
allowed_shufflers = ["shuffler"]

[tls]
certificate = "tls.pem"
key = "tls.key"
client_ca = "ca.pem"
"""
