"""Discoveries: words in symbols, the cells of levels, and steps that are taken or refused. A part
of the vectors that tools/vectors.py writes.
"""

from __future__ import annotations

from vectors_signatures import flipped
from vectors_tasks import Json, fixed, signing_key

from shoal.crypto.admission.fresh_window import fresh_window
from shoal.crypto.discovery_steps import DiscoveryStep, sign_step
from shoal.crypto.signing import SigningContext, SigningKey
from shoal.domain import Discovery
from shoal.ids import Digest, TaskId
from shoal.protos import directory_pb2
from shoal.questions import domain_codec
from shoal.questions.discovery import DiscoveryLevel
from shoal.questions.place_paths import PlacePaths
from shoal.questions.places import Places
from shoal.questions.spelling import spell

WINDOWS = 6  # of the task of the steps
TASK_ID = TaskId(fixed("discovery task id"))
ASKED = Discovery(2, 6, 3, (spell("the", 6),))
SMALL = Discovery(1, 3, 32)
_RELEASE = Digest(fixed("release of a level"))
_TEXTS = (
    "the",
    "then",
    "theory",
    "cat",
    " Cat ",
    "c\u00e4t",
    "ca\u0308t",
    "route 66",
    "route  61",
    "it\u2019s",
    "it's",
    "x",
    "s\u00f8k",
    "\u0433\u043e\u0434",
    "",
    " ",
    "a\u2010b",
)


FRESH = Discovery(2, 6, 3, (), fresh=True)
PLACES = Discovery(
    2, 4, 3, (), PlacePaths(Places(48_060_000, 11_360_000, 48_250_003, 11_720_001, 1, 1), 4)
)
QUARTERS = Discovery(1, 5, 3, (), PlacePaths(Places(-7, -11, 60, 53, 1, 1), 2))
_PLACES = (
    "48.137, 11.575",
    '{"lat": 48.137, "lon": 11.575}',
    "48.06,11.36",
    "48.0599999,11.36",
    "48.250002,11.72",
    "48.250003,11.72",
    "48.12,11.5",
    "0.0000199, 0.000001",
    "-0.0000001, -0.0000109",
    "-7e-6,52e-6",
    "48.137",
    "here",
    "",
)


def _level(number: int, *followed: str) -> DiscoveryLevel:
    return ASKED.level(number, [spell(one, 32)[: number + 1] for one in followed])


LEVELS = (
    SMALL.level(0),
    SMALL.level(1, [bytes((0,)), bytes((19,))]),
    _level(0),
    _level(1, "ca", "ro", "th"),
    _level(2, "the"),
    _level(4, "route", "theor"),
    FRESH.level(1, [spell("th", 32)[:2]]),
)
PLACE_LEVELS = (
    PLACES.level(0),
    PLACES.level(1, [bytes((1, 2)), bytes((6, 9))]),
    PLACES.level(2, [bytes((6, 9, 6))]),
    QUARTERS.level(0),
    QUARTERS.level(3, [bytes((0, 3, 0)), bytes((3, 2, 1))]),
)


def discoveries() -> list[Json]:
    """Levels with the cells of values, and of each cell what it stands for."""
    return [
        {
            "domain": domain_codec.encode_domain(level.discovery)
            .SerializeToString(deterministic=True)
            .hex(),
            "cells_of_a_task": level.discovery.size,
            "level": level.number,
            "followed": [one.hex() for one in level.followed],
            "size": level.size,
            "values": [
                {
                    "text": text,
                    "symbols": level.discovery.alphabet.spelled(
                        text, level.discovery.longest
                    ).hex(),
                    "cell": level.encode(text),
                }
                for text in (_TEXTS if level in LEVELS else _PLACES)
            ]
            + [{"text": None, "symbols": "", "cell": level.encode(None)}],
        }
        for level in (*LEVELS, *PLACE_LEVELS)
    ]


def refused() -> list[Json]:
    """Domains that nobody reads: places of which a device would answer one window alone."""
    asked = domain_codec.encode_domain(PLACES)
    asked.discovery.fresh = True
    return [{"domain": asked.SerializeToString(deterministic=True).hex(), "kind": "INVALID"}]


def fresh_windows() -> list[Json]:
    """Which window the keys of enrolled devices draw of a task, if each answers in one alone."""
    tasks = (TASK_ID, TaskId(fixed("another discovery task id")))
    return [
        {
            "private_key": fixed(f"{role} signing key").hex(),
            "task_id": task_id.hex,
            "windows": windows,
            "window": fresh_window(signing_key(role), task_id, windows),
        }
        for role in ("device", "another device")
        for task_id in tasks
        for windows in (1, 2, 12, 365)
    ]


def _key() -> SigningKey:
    return signing_key("analyzer of a discovery")


def _signed(step: directory_pb2.DiscoveryStep, key: SigningKey | None = None) -> bytes:
    data = step.SerializeToString(deterministic=True)
    signature = (key or _key()).sign(SigningContext.DISCOVERY_STEP, data)
    return directory_pb2.SignedDiscoveryStep(step=data, signature=signature).SerializeToString(
        deterministic=True
    )


def steps() -> Json:
    """Steps of one task, in the order in which its windows come."""
    made = (
        DiscoveryStep(TASK_ID, 1, _level(1, "ca", "ro", "th"), _RELEASE),
        DiscoveryStep(TASK_ID, 3, _level(1, "ca", "ro", "th"), _RELEASE),
        DiscoveryStep(TASK_ID, 4, _level(2, "the"), _RELEASE),
        DiscoveryStep(TASK_ID, 5, None, _RELEASE),
    )
    return {
        "domain": domain_codec.encode_domain(ASKED).SerializeToString(deterministic=True).hex(),
        "task_id": TASK_ID.hex,
        "windows": WINDOWS,
        "analyzer_key": _key().public.hex(),
        "steps": [
            {
                "signed_step": sign_step(step, ASKED, _key()).data.hex(),
                "name": sign_step(step, ASKED, _key()).name.hex,
                "window": step.window,
                "level": None if step.level is None else step.level.number,
                "followed": []
                if step.level is None
                else [one.hex() for one in step.level.followed],
            }
            for step in made
        ],
    }


def _message(window: int = 1, level: int = 1, **more: object) -> directory_pb2.DiscoveryStep:
    known: dict[str, object] = {
        "version": 1,
        "task_id": TASK_ID.raw,
        "window": window,
        "level": level,
        "followed": list(_level(1, "ca").followed),
        "release_hash": _RELEASE.raw,
    }
    return directory_pb2.DiscoveryStep(**{**known, **more})  # type: ignore[arg-type]


def bad_steps() -> list[Json]:
    """Steps of the same task that must be refused by themselves."""
    good = _signed(_message())
    cases = {
        "other key": (_signed(_message(), signing_key("ack")), "BAD_SIGNATURE"),
        "bit flipped": (flipped(good, -1), "BAD_SIGNATURE"),
        "version 2": (_signed(_message(version=2)), "INVALID"),
        "other task": (_signed(_message(task_id=fixed("task id"))), "MISMATCH"),
        "of window 0": (_signed(_message(window=0)), "INVALID"),
        "beyond the last window": (_signed(_message(window=WINDOWS)), "INVALID"),
        "beyond the last level": (_signed(_message(level=6)), "INVALID"),
        "follows nothing": (_signed(_message(followed=[])), "INVALID"),
        "follows too many": (
            _signed(_message(followed=[bytes((letter, 0)) for letter in range(4)])),
            "INVALID",
        ),
        "out of order": (_signed(_message(followed=[b"\x02\x01", b"\x02\x00"])), "INVALID"),
        "follows a whole word": (_signed(_message(followed=[b"\x02\x1f"])), "INVALID"),
        "beginnings of another level": (_signed(_message(followed=[b"\x02"])), "INVALID"),
        "names no release": (_signed(_message(release_hash=b"")), "INVALID"),
        "level 0 names a release": (_signed(_message(level=0, followed=[])), "INVALID"),
        "an end that follows something": (_signed(_message(level=5)), "INVALID"),
        "no step at all": (b"\xff", "INVALID"),
    }
    return [
        {"name": name, "signed_step": data.hex(), "kind": kind}
        for name, (data, kind) in cases.items()
    ]
