"""Keys change under traffic, by commands that are killed half done, beside services that are
killed: what was acknowledged was counted, once, and no key outlives its window.
"""

from __future__ import annotations

import asyncio
import random
import time
from pathlib import Path

import pytest

from shoal import codec
from shoal.codec import Signed
from shoal.crypto import keyfiles
from shoal.crypto.signing import SigningContext
from shoal.crypto.trust import ServedTask, serve_task
from shoal.domain import YesNo
from shoal.mechanisms import design
from tests.faults.operations.deployment import BEGUN, PLAN, Deployment
from tests.faults.operations.fleet import FULL, LENGTH, PATIENCE_S
from tests.sizes import size

LIVES, KILLS, WINDOWS = size(1, 6), size(3, 10), 60


class Rotating(Deployment):
    async def next_version(self, rng: random.Random) -> ServedTask:
        """A second task with keys of its own for every window, made by the commands of both
        operators and of the authority, each killed at random moments and run again, in the folders
        of services that run.
        """
        root, own = self.root_dir, self.root_dir / "shuffler"
        keyfiles.save_signing_key(root / "authority.key", self.authority)
        plan = {**PLAN, "count": WINDOWS, "start_s": int(time.time()) - LENGTH * BEGUN}
        data = codec.encode_task(
            self.task(
                name="next",
                mechanism=design("binary_rr", YesNo(), 2.0),
                shuffler_address=f"127.0.0.1:{self.ports[0]}",
                **plan,
            )
        )
        signature = self.authority.sign(SigningContext.TASK, data)
        signed = codec.encode_signed_task(Signed(data, self.authority.public, signature))
        (self.tasks_dir / "next.task").write_bytes(signed)
        for role, folder in (("analyzer", self.analyzer_dir), ("shuffler", own)):
            who = ("--role", role, "--windows", str(WINDOWS), "--key", folder / "signing.key")
            out = ("--out", folder / "keys", "--public", root / f"{role}.pub")
            more = ("--per-window",) if role == "shuffler" else ()
            await self._until(root / f"{role}.pub", rng, "keys", "hpke", *who, *out, *more)
        keys = ("--analyzer", root / "analyzer.pub", "--shuffler", root / "shuffler.pub")
        signing = ("--task", self.tasks_dir / "next.task", "--key", root / "authority.key")
        made = self.tasks_dir / "next.keys"
        await self._until(made, rng, "keys", "schedule", *keys, *signing, "--out", made)
        self.share()
        return serve_task(signed, made.read_bytes(), {self.authority.public})

    async def _until(self, made: Path, rng: random.Random, *command: str | Path) -> None:
        """Run it until it made its file; whole, or it is not there."""
        times = [rng.uniform(0.02, 0.5) for _ in range(2)]
        for after_s in (*times, 0.0):
            if made.exists():  # noqa: ASYNC240
                return
            said = await self.shoal(*command, after_s=after_s, as_json=False)
            assert said in (None, ""), said
        assert made.exists()  # noqa: ASYNC240


@pytest.mark.parametrize("life", range(LIVES))
@pytest.mark.timeout(600)
async def test_keys_change_by_commands_that_are_killed(tmp_path: Path, life: int) -> None:
    """Planted: a release whose n is one more than the reports of its batch -> fails. Planted: a key
    that is not deleted -> fails.
    """
    site, rng = Rotating(tmp_path), random.Random(200 + life)  # noqa: S311 - when to kill
    async with site.serving() as first:
        trouble = asyncio.create_task(site.trouble(first, rng, KILLS))
        served = await site.next_version(rng)
        async with site.sending(served) as second, asyncio.timeout(4 * PATIENCE_S):
            await trouble
            await site.trouble(second, rng, KILLS)
            await second.reach(3 * FULL)
            first.stopping = second.stopping = True
            old = await site.released(first.full())
            new = await site.released(second.full(), served.task_id)
            # a key goes after its release is there
            await site.without_keys({served.keys.analyzer_keys[one].key_id.hex for one in new})
    first.check(old)
    second.check(new)
    assert len(old) >= 2
    assert len(new) >= 2
    there = {path.stem for path in (site.analyzer_dir / "keys").iterdir()}
    for window, key in enumerate(served.keys.analyzer_keys):
        assert (key.key_id.hex in there) == (window not in new)
