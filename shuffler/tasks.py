"""The tasks that this shuffler serves, and the hop keys that open their frames for as long as they
may.

A task folder is read at the start and again later. What can't be served is named by ``conditions``
and stops no other task. Tasks are only ever added: a file that goes away leaves its task served
until the next start. A hop key is deleted, file and memory, once no window that uses it takes
reports any more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from shoal.clocks.clock import SureClock
from shoal.crypto.admission.admission import Verifier
from shoal.crypto.admission.members import verifier_of
from shoal.crypto.admission.open import OPEN
from shoal.crypto.hpke import HpkePrivateKey
from shoal.crypto.keyfiles import delete_key_file, load_hpke_key
from shoal.crypto.task_folder import TaskFolder
from shoal.crypto.trust import ServedTask
from shoal.errors import Kind, ShoalError
from shoal.ids import Digest, KeyId, TaskId
from shoal.log import get_log
from shoal.services.conditions import Condition
from shoal.shuffler.core import Capacity, WindowId, WindowState, row_size
from shoal.shuffler.reports.noise import AddedNoise
from shoal.shuffler.stores.store import Store

log = get_log("shuffler")
KEY_SUFFIX = ".key"


class ShufflerTasks(TaskFolder):
    """``served``: by id; ``keys``: the hop keys in use. Raises CONFIG on construction if there is
    no folder.
    """

    def __init__(
        self,
        store: Store,
        clock: SureClock,
        tasks_dir: Path,
        keys_dir: Path,
        authorities: frozenset[bytes],
        signer: bytes,
        delivery_delay_max_s: float = 0.0,
        noise: AddedNoise | None = None,
    ) -> None:
        """``signer``: this shuffler's Ed25519 public key, which every task must name as its
        shuffler_key. ``noise``: what batches of tasks that ask for it get; None: they are refused.
        """
        self._noise = noise or AddedNoise()
        self._delay = delivery_delay_max_s
        self._store, self._clock = store, clock
        self._keys_dir, self._signer = keys_dir, signer
        self.keys: dict[KeyId, HpkePrivateKey] = {}
        self.keys_by_raw_id: dict[bytes, HpkePrivateKey] = {}  # the same, for look-ups per frame
        # of admissions, by raw task id, of tasks that do not admit everybody
        self.verifiers: dict[bytes, Verifier] = {}
        # windows that may still take reports, ascending
        self._undecided: dict[TaskId, dict[int, None]] = {}
        self._uses: Counter[KeyId] = Counter()  # undecided windows per hop key
        self._retired: set[KeyId] = set()
        super().__init__(tasks_dir, authorities, "shuffler", "hop key")
        self.retire()

    def conditions(self) -> Iterator[Condition]:
        """What is not served, and why, for ``Conditions.watch``; also reports that are held of a
        task that is not served.
        """
        yield from super().conditions()
        orphans = {
            window.task_id
            for window, record in self._store.records().items()
            if record.state is not WindowState.SHREDDED
        }
        for task_id in orphans - self.served.keys():
            yield Condition(
                "task",
                task_id.short,
                f"data_dir holds reports of task {task_id.short}, which is not served: put its "
                ".task and .keys files back into tasks_dir;"
                " until then they are neither delivered nor deleted",
            )

    def take_up(self, served: ServedTask) -> None:
        """See ``TaskFolder.take_up``: the task's windows and hop keys. Raises CONFIG, KEY_FILE, and
        what the store raises.
        """
        task, task_id = served.task, served.task_id
        if self._signer not in task.hops:
            raise ShoalError(
                Kind.CONFIG,
                f"task {task.name}: it names another shuffler key than signing_key holds: use that "
                "key, or another task",
            )
        spare = task.retention_s - task.windows.length_s - task.windows.grace_s
        if self._delay >= spare:
            raise ShoalError(
                Kind.CONFIG,
                f"delivery_delay_max_s: task {task.name} leaves {spare} s between a window's last "
                "report and the end of its retention: "
                "lower the delay, or batches are deleted undelivered",
            )
        self._noise.check(task)
        sure = self._clock.decide()
        now = self._clock.now() if sure is None else sure
        undecided = dict.fromkeys(
            w for w in range(task.windows.count) if not self.is_decided(WindowId(task_id, w))
        )
        keys: dict[KeyId, HpkePrivateKey] = {}
        for window in undecided:
            key_id = served.keys.hop_keys[window].key_id
            # By a clock that is disputed no window is over whose key is still there.
            wanted = now < task.windows.deadline_of(window) or (
                sure is None and self.key_path(self._keys_dir, key_id).is_file()
            )
            if key_id not in self.keys and key_id not in keys and wanted:
                keys[key_id] = self._load_key(key_id)
        verifier = verifier_of(task)  # like all that may raise, before anything changes
        self._store.adopt(
            task_id,
            served.keys.digest,
            Capacity.of(task),
            row_size(task),
            lambda window: self._hop_key(served.keys.hop_keys[window].key_id),
        )
        self.keys.update(keys)
        self.keys_by_raw_id.update((key_id.raw, key) for key_id, key in keys.items())
        self._uses.update(served.keys.hop_keys[window].key_id for window in undecided)
        for key in served.keys.hop_keys:
            self._uses.setdefault(key.key_id, 0)
        self._undecided[task_id] = undecided
        if verifier is not OPEN:
            self.verifiers[task_id.raw] = verifier
        log.info("task served", task=task_id, name=task.name, windows=len(undecided))
        if task.max_batch and self._delay == 0:
            log.warning(
                "delivery_delay_max_s is 0 and the task has a max_batch: the time of a delivery "
                "shows when the last report came, to about "
                "a second; set a delay",
                task=task_id,
                name=task.name,
            )

    def _load_key(self, key_id: KeyId) -> HpkePrivateKey:
        path = self.key_path(self._keys_dir, key_id)
        key = load_hpke_key(path)
        if key.config.key_id != key_id:
            raise ShoalError(
                Kind.KEY_FILE,
                f"key file {path} holds another key than its name says: put the right file there",
            )
        return key

    def _hop_key(self, key_id: KeyId) -> HpkePrivateKey | None:
        """For the store: also one that no window needs any more whose file is still there."""
        key = self.keys.get(key_id)
        if key is None and self.key_path(self._keys_dir, key_id).is_file():
            key = self._load_key(key_id)
        return key

    @staticmethod
    def key_path(folder: Path, key_id: KeyId) -> Path:
        """Where the key of this id is, or would be."""
        return folder / f"{key_id.hex}{KEY_SUFFIX}"

    # --- windows and keys -------------------------------------------------------------------------

    def running(self, now: float) -> Iterator[tuple[ServedTask, WindowId]]:
        """Undecided windows that have begun, per task in order. Take a list of it before closing
        any.
        """
        for task_id, windows in self._undecided.items():
            served = self.served[task_id]
            for window in windows:
                if now < served.task.windows.start_of(window) - served.task.windows.skew_s:
                    break
                yield served, WindowId(task_id, window)

    def schedules(self, *, waiting: bool) -> dict[TaskId, Digest]:
        """The hash of each task's key schedule; ``waiting``: of those alone that have windows to be
        decided.
        """
        return {
            task_id: served.keys.digest
            for task_id, served in self.served.items()
            if not waiting or self._undecided[task_id]
        }

    def nothing_over(self, now: float) -> bool:
        """Whether by that time no window is over that is not decided: a clock that says so leads to
        nothing that can't be undone.
        """
        return all(
            now < self.served[task_id].task.windows.deadline_of(window)
            for task_id, windows in self._undecided.items()
            for window in windows
        )

    def is_decided(self, window: WindowId) -> bool:
        """Whether the store says that this window takes no more reports, whoever decided it."""
        record = self._store.record(window)
        return record is not None and record.state is not WindowState.OPEN

    def is_over(self, window: WindowId) -> bool:
        """Whether nothing of this window is here any more, nor will be."""
        record = self._store.record(window)
        return record is not None and record.state is WindowState.SHREDDED

    def decided(self, window: WindowId) -> None:
        """This window takes no more reports, durably."""
        if window.window in self._undecided[window.task_id]:
            del self._undecided[window.task_id][window.window]
            self._uses[self.served[window.task_id].keys.hop_keys[window.window].key_id] -= 1

    def over(self, key_id: KeyId) -> bool:
        """Whether this was a hop key of ours whose windows are all over."""
        return key_id in self._uses and key_id not in self.keys

    def retire(self) -> bool:
        """Delete hop keys that no undecided window uses; whether there were any. May be repeated.

        A task in the folder that is not served yet may use the same key, so nothing is deleted
        before all of them are taken up: a mistake in the folder, or a folder that is not mounted,
        keeps the keys until it is mended.
        """
        if not self._unused() or not self.refresh():
            return False
        retired = False
        for key_id in self._unused():
            delete_key_file(self.key_path(self._keys_dir, key_id))
            self.keys.pop(key_id, None)
            self.keys_by_raw_id.pop(key_id.raw, None)
            self._retired.add(key_id)
            log.info("hop key deleted: its windows are over", key_id=key_id)
            retired = True
        return retired

    def _unused(self) -> list[KeyId]:
        unused = [
            key_id
            for key_id, count in self._uses.items()
            if count <= 0 and key_id not in self._retired
        ]
        wanted = self._wanted() if unused and self._refused else frozenset[KeyId]()
        return [key_id for key_id in unused if key_id not in wanted]

    def _wanted(self) -> frozenset[KeyId]:
        """Hop keys of tasks that are refused and may be mended: of windows that still might take
        reports.
        """
        now = self._clock.decide()
        return frozenset(
            key.key_id
            for refused_task in self.refused()
            for window, key in enumerate(refused_task.keys.hop_keys)
            if refused_task.task_id not in self.served
            and (now is None or now < refused_task.task.windows.deadline_of(window))
        )
