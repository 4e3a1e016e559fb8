"""A discovery played in process, as files that anybody can check."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Collection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from shoal import codec
from shoal.analyzer.batches.manifest_signatures import FOLDER, ManifestSignatures
from shoal.analyzer.records import Spending
from shoal.analyzer.results.checkable import checkable
from shoal.analyzer.store import FILE_NAME, AnalyzerStore
from shoal.checker.check import check_releases
from shoal.checker.findings import Outcome
from shoal.crypto.discovery_steps import SignedStep
from shoal.crypto.signing import SigningContext
from shoal.crypto.step_folder import STEPS_FOLDER, StepFolder
from shoal.domain import Discovery
from shoal.ids import Digest
from shoal.protos import delivery_pb2, directory_pb2, keys_pb2, release_pb2, task_pb2
from shoal.services.whole_files import replace_whole
from tests.worlds.services.analyzer import World
from tests.worlds.words import found_in, step_of, store_release

File = dict[str, Any]


def played(
    world: World,
    words: tuple[str, ...],
    lost: Collection[int] = (),
    seed: str = "words",
    refused: int = 0,
) -> dict[int, File]:
    """Release files by window: level after level, each asked again after the ``lost`` windows. In
    each so many messages are ``refused``.
    """
    discovery = world.task.domain
    assert isinstance(discovery, Discovery)
    with TemporaryDirectory() as temporary:
        config = world.config(Path(temporary))
        config.data_dir.mkdir()
        store = AnalyzerStore(config.data_dir / FILE_NAME)
        signatures = ManifestSignatures(config.data_dir / FOLDER)
        steps = StepFolder(config.data_dir / STEPS_FOLDER, replace_whole)
        level, release, window, asked = discovery.level(0), None, 0, b""
        earlier = list[Spending]()

        def tell(signed: SignedStep) -> None:
            steps.take(world.task, world.task_id, signed.data)

        while True:
            if window:
                signed_step = step_of(world, window, level, release)
                tell(signed_step)
                asked = signed_step.name.raw
            if window not in lost:
                prepared = found_in(world, level, words, window, seed, asked, refused)
                manifest = codec.encode_manifest(prepared.batch.manifest)
                signed = world.shuffler.sign(SigningContext.MANIFEST, manifest)
                signatures.keep(Digest.of(manifest), signed)
                release = Digest.of(store_release(store, world, prepared, earlier))
                earlier.append(prepared.charge)
                assert prepared.found is not None
                after = discovery.after(level.number, prepared.found.beginnings)
                if after is None:
                    tell(step_of(world, window + 1, None, release))
                    break
                level = after
            window += 1
        store.close()
        made = (json.loads(data) for _, data in checkable(config))
        return {file["release"]["window"]: file for file in made}


def outcomes(files: dict[int, File], world: World) -> dict[int, dict[str, Outcome]]:
    """What is said of each of these files together."""
    data = [json.dumps(file).encode() for file in files.values()]
    checks = check_releases(data, [world.authority.public])
    return {check.window: {one.what: one.outcome for one in check.checked} for check in checks}


def part(file: File, name: str) -> bytes:
    """Of what is signed."""
    return base64.b64decode(file["signed"].get(name, ""))


def put(file: File, name: str, data: bytes, signature: bytes) -> None:
    """Another signed part."""
    file["signed"][name] = base64.b64encode(data).decode()
    file["signed"][f"{name}_signature"] = base64.b64encode(signature).decode()


def step_anew(
    file: File,
    world: World,
    change: Callable[[directory_pb2.DiscoveryStep], object],
    name: str = "step",
) -> None:
    """By an analyzer that lies: its signature is good."""
    step = directory_pb2.DiscoveryStep.FromString(part(file, name))
    change(step)
    data = step.SerializeToString(deterministic=True)
    put(file, name, data, world.analyzer.sign(SigningContext.DISCOVERY_STEP, data))


def task_anew(file: File, world: World, change: Callable[[task_pb2.Task], object]) -> None:
    """By an authority, a shuffler and an analyzer that lie together: the task is another one, and
    everything that names it is signed again. What the release says of its promise stays, but for
    the honest that the task counts.
    """
    task = task_pb2.Task.FromString(part(file, "task"))
    change(task)
    data = task.SerializeToString(deterministic=True)
    put(file, "task", data, world.authority.sign(SigningContext.TASK, data))
    task_id = hashlib.sha256(b"shoal/v1/task\x00" + data).digest()
    schedule = keys_pb2.KeySchedule.FromString(part(file, "schedule"))
    schedule.task_id = task_id
    keys = schedule.SerializeToString(deterministic=True)
    put(file, "schedule", keys, world.authority.sign(SigningContext.KEY_SCHEDULE, keys))
    manifest = delivery_pb2.Manifest.FromString(part(file, "manifest"))
    manifest.task_id, manifest.schedule_hash = task_id, hashlib.sha256(keys).digest()
    batch = manifest.SerializeToString(deterministic=True)
    put(file, "manifest", batch, world.shuffler.sign(SigningContext.MANIFEST, batch))
    said = {
        "honest_fraction": task.honest_fraction_ppm / 1_000_000,
        "n_certified": task.min_batch * task.honest_fraction_ppm // 1_000_000,
        "delta": task.delta,
    }

    def names(release: release_pb2.Release) -> None:
        release.task_id, release.manifest_hash = task_id, hashlib.sha256(batch).digest()
        for name, value in said.items():
            setattr(release.privacy, name, value)

    release_anew(file, world, names)
    shown = file["release"]
    shown.update(task_id=task_id.hex(), manifest_hash=hashlib.sha256(batch).hexdigest())
    shown["privacy"].update(said)
    integers = {one.name: str(one.value) for one in task.mechanism.parameters}
    file["law"] = {"mechanism": task.mechanism.name, "parameters": integers}


def release_anew(file: File, world: World, change: Callable[[release_pb2.Release], object]) -> None:
    """The same of its release; the part for readers stays."""
    release = release_pb2.Release.FromString(part(file, "release"))
    change(release)
    data = release.SerializeToString(deterministic=True)
    put(file, "release", data, world.analyzer.sign(SigningContext.RELEASE, data))
