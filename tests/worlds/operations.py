"""A small deployment in a folder: shuffler, analyzer and a device that fit one another, for the
commands of operators.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from shoal.analyzer.config import AnalyzerConfig
from shoal.analyzer.service import AnalyzerService
from shoal.analyzer.store import FILE_NAME, AnalyzerStore
from shoal.crypto import keyfiles
from shoal.crypto.tlscerts import issue
from shoal.domain import YesNo
from shoal.mechanisms import design
from shoal.services.process import DataFolder
from shoal.services.settings import load_settings
from shoal.shuffler.config import ShufflerConfig
from shoal.shuffler.service import Shuffler
from tests.worlds.ports import free_port
from tests.worlds.services.analyzer_service import shared_pool
from tests.worlds.services.shuffler import CA, SHUFFLER_NAME, Published, World

DAY = 86_400
TOKEN = "canary" * 8


def agreed(now: float | None = None) -> tuple[str, ...]:
    """What a program that restores says of the clock."""
    seconds = time.time() if now is None else now
    return "--yes", "--now", f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d}"


class Site(World):
    """``folder``/shuffler and ``folder``/analyzer with a configuration each, and one task of 40
    days, of which this is the first.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / "shuffler")
        self.root_dir, self.analyzer_dir = folder, folder / "analyzer"
        self.ports = [free_port() for _ in range(4)]
        (self.analyzer_dir / "keys").mkdir(parents=True)
        self.data_dir.mkdir(mode=0o700)
        keyfiles.save_signing_key(self.analyzer_dir / "signing.key", self.analyzer)
        made = issue(CA, "analyzer", ["127.0.0.1"], server=True, client=False, days=90)
        (self.analyzer_dir / "own.pem").write_bytes(made.cert_pem)
        keyfiles.save_private_pem(self.analyzer_dir / "own.key", made.key_pem)
        (self.analyzer_dir / "ca.pem").write_bytes(CA.cert_pem)
        (self.analyzer_dir / "token").touch(mode=0o600)
        (self.analyzer_dir / "token").write_text(TOKEN)
        self.published = self.ask()

    def ask(self, **changes: Any) -> Published:
        """Publish a task whose services are these, and give the analyzer its keys."""
        defaults: dict[str, Any] = {
            "start_s": int(time.time()) - 3_600,
            "length_s": DAY,
            "count": 40,
            "mechanism": design("binary_rr", YesNo(), 2.0),
        }
        published = self.publish(
            self.task(**{**defaults, "shuffler_address": f"127.0.0.1:{self.ports[0]}", **changes})
        )
        for key in published.analyzer_keys:
            keyfiles.save_hpke_key(self.analyzer_dir / "keys" / f"{key.config.key_id.hex}.key", key)
        return published

    def shuffler_toml(self, **changes: Any) -> Path:
        return self.write_config(
            f"127.0.0.1:{self.ports[2]}",
            listen=f"127.0.0.1:{self.ports[0]}",
            admin_listen=f"127.0.0.1:{self.ports[1]}",
            **changes,
        )

    def analyzer_toml(self, shufflers: str = SHUFFLER_NAME) -> Path:
        path = self.analyzer_dir / "analyzer.toml"
        path.write_text(f"""
listen = "127.0.0.1:{self.ports[2]}"
admin_listen = "127.0.0.1:{self.ports[3]}"
data_dir = "data"
tasks_dir = "../shuffler/tasks"
keys_dir = "keys"
signing_key = "signing.key"
authorities = ["{self.authority.public.hex()}"]
allowed_shufflers = ["{shufflers}"]
open_workers = 2
admin = {{ token_file = "token" }}
tls = {{ certificate = "own.pem", key = "own.key", client_ca = "ca.pem" }}
""")
        return path

    def agent_toml(self, more: str = "") -> Path:
        folder = self.root_dir / "device"
        folder.mkdir(exist_ok=True)
        path = folder / "agent.toml"
        path.write_text(f"""
tasks = "../shuffler/tasks"
outbox = "outbox.db"
[policy]
authorities = ["{self.authority.public.hex()}"]
max_epsilon0 = 4.0
min_batch_floor = 2
{more}
""")
        return path

    @asynccontextmanager
    async def running(self) -> AsyncIterator[tuple[Shuffler, AnalyzerService]]:
        """Both services in this process."""
        config = load_settings(AnalyzerConfig, self.analyzer_toml())
        with DataFolder(config.data_dir) as folder:
            store = AnalyzerStore(folder / FILE_NAME)
            service = AnalyzerService(config, folder, store, pool=shared_pool())
            await service.start()
            try:
                async with Shuffler(load_settings(ShufflerConfig, self.shuffler_toml())) as one:
                    await one.serving.look()
                    yield one, service
            finally:
                await service.stop()
                store.close()

    def secrets(self) -> list[str]:
        """Every line of every private file: none of it may be shown."""
        files = [*self.root_dir.rglob("*.key"), *self.root_dir.rglob("token")]
        lines = {line for path in files for line in path.read_text().splitlines()}
        return [line for line in lines if "-----" not in line and len(line) > 20]
