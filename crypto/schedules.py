"""A role's word that the HPKE keys of a schedule are its own, so that who signs schedules can't
name keys of theirs instead.

Analyzer and shuffler sign the list of their public keys when they make them (``shoal keys hpke``),
with the Ed25519 key that the task names. The key authority copies the signature into the schedule,
and whoever reads one verifies both lists. No task is named: keys are made before it is signed, and
an old list moved to another task holds keys of the same role still.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby

from shoal.crypto.signing import SigningContext, SigningKey, verify
from shoal.errors import Kind, ShoalError
from shoal.task import KeySchedule, Task


def key_list(configs: Iterable[bytes]) -> bytes:
    """What a role signs: its public key configurations in the order of the windows, one after the
    other; of equal ones in a row the first.

    Configurations of one suite have one length, and a schedule has one suite: no list can be read
    as another.
    """
    return b"".join(config for config, _ in groupby(configs))


def sign_keys(signer: SigningKey, context: SigningContext, configs: Iterable[bytes]) -> bytes:
    """``context``: ANALYZER_KEYS or HOP_KEYS. 64 bytes."""
    return signer.sign(context, key_list(configs))


def verify_keys(schedule: KeySchedule, task: Task) -> None:
    """Both lists, by the keys that the task names. Raises BAD_SIGNATURE."""
    analyzer_keys, hop_keys = (
        [w.analyzer_key for w in schedule.windows],
        [w.hop_key for w in schedule.windows],
    )
    lists = (
        (
            "analyzer",
            SigningContext.ANALYZER_KEYS,
            task.analyzer_key,
            analyzer_keys,
            schedule.analyzer_signature,
        ),
        ("shuffler", SigningContext.HOP_KEYS, task.shuffler_key, hop_keys, schedule.hop_signature),
    )
    for role, context, key, configs, signature in lists:
        try:
            verify(key, context, key_list(configs), signature)
        except ShoalError:
            raise ShoalError(
                Kind.BAD_SIGNATURE,
                f"key schedule of task {task.name}: its {role} keys are not signed by the task's "
                f"{role}: refuse it",
            ) from None
