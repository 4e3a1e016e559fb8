"""Where the files of a service are, by the names that a backup keeps them under."""

from __future__ import annotations

from pathlib import Path

from shoal.analyzer.config import AnalyzerConfig
from shoal.analyzer.core import retention_over
from shoal.crypto.admission.revocation import SUFFIX
from shoal.crypto.step_folder import STEP_SUFFIX, STEPS_FOLDER
from shoal.crypto.task_folder import load_task_folder
from shoal.crypto.trust import SCHEDULE_SUFFIX, TASK_SUFFIX, ServedTask
from shoal.domain import Discovery
from shoal.ids import KeyId
from shoal.services import given_up
from shoal.services.settings import RoleSettings
from shoal.shuffler.config import ShufflerConfig

TASKS, KEYS, CONFIG, STORE = "tasks/", "keys/", "config.toml", "analyzer.db"
STEPS = f"{STEPS_FOLDER}/"
GIVEN_UP = given_up.FILE_NAME


def public(config: RoleSettings) -> dict[str, Path]:
    """Certificates and authorities, by their configuration keys."""
    found: dict[str, Path | None] = {
        "admin.certificate": config.admin.certificate,
        "admin.client_ca": config.admin.client_ca,
    }
    if isinstance(config, ShufflerConfig):
        found |= {
            "tls.certificate": config.tls.certificate,
            "analyzer.certificate": config.analyzer.certificate,
            "analyzer.ca": config.analyzer.ca,
            "mqtt.ca": config.mqtt.ca if config.mqtt is not None else None,
        }
    if isinstance(config, AnalyzerConfig):
        found |= {"tls.certificate": config.tls.certificate, "tls.client_ca": config.tls.client_ca}
    return {name: path for name, path in found.items() if path is not None}


def secret(config: RoleSettings) -> dict[str, Path]:
    """Private keys and passwords that outlive windows."""
    found: dict[str, Path | None] = {
        "signing_key": config.signing_key,
        "admin.key": config.admin.key,
        "admin.token_file": config.admin.token_file,
    }
    if isinstance(config, ShufflerConfig):
        password = config.mqtt.password_file if config.mqtt is not None else None
        batches = config.store.batches
        found |= {
            "tls.key": config.tls.key,
            "analyzer.key": config.analyzer.key,
            "mqtt.password_file": password,
            "store.dsn_file": config.store.dsn_file,
            "store.batches.credentials_file": batches.credentials_file if batches else None,
        }
    if isinstance(config, AnalyzerConfig):
        found["tls.key"] = config.tls.key
    return {name: path for name, path in found.items() if path is not None}


def lines(config: RoleSettings) -> dict[str, Path]:
    """What operators gave up: who, when and why is to outlive the disk."""
    path = config.data_dir / GIVEN_UP
    return {GIVEN_UP: path} if path.exists() else {}


def task_files(folder: Path) -> dict[str, Path]:
    """Signed tasks, key schedules and lists of revoked devices: public."""
    return {
        f"{TASKS}{path.name}": path
        for path in sorted(folder.iterdir())
        if path.suffix in (TASK_SUFFIX, SCHEDULE_SUFFIX, SUFFIX)
    }


def steps(config: RoleSettings) -> dict[str, Path]:
    """What discoveries that are served ask, as it was told: signed and public. A service that has
    not got it would ask otherwise in a window that devices answer.
    """
    found = sorted((config.data_dir / STEPS_FOLDER).glob(f"*{STEP_SUFFIX}"))
    ids = {one.task_id.hex for one in served(config)} if found else set[str]()
    return {f"{STEPS}{path.name}": path for path in found if path.name.split(".")[0] in ids}


def served(config: RoleSettings) -> list[ServedTask]:
    """The tasks that verify. Raises CONFIG."""
    return list(load_task_folder(config.tasks_dir, config.authority_keys).served.values())


def window_keys(config: RoleSettings, one: ServedTask) -> tuple[KeyId, ...]:
    """By window, the key of this role."""
    keys = one.keys.hop_keys if isinstance(config, ShufflerConfig) else one.keys.analyzer_keys
    return tuple(key.key_id for key in keys)


def not_begun(config: RoleSettings, now: float) -> set[KeyId]:
    """Keys that a window needs which has not begun: no service would have deleted one. Those of
    windows that were given up are deleted. Raises CONFIG for damaged lines of those.
    """
    ended = {line.key for line in given_up.read(config.data_dir)}
    return {
        key_id
        for one in served(config)
        for window, key_id in enumerate(window_keys(config, one))
        if now < one.task.windows.start_of(window) - one.task.windows.skew_s
        and (one.task_id, window) not in ended
    }


def discoveries(config: RoleSettings, now: float) -> int:
    """How many are served that have begun and may not be over: what their last window asked has to
    be known until its release, or the end of its retention. ``now``: Unix seconds.
    """
    asked = [one.task for one in served(config) if isinstance(one.task.domain, Discovery)]
    return sum(
        task.windows.start_of(0) <= now and not retention_over(task, task.windows.count - 1, now)
        for task in asked
    )
