"""Replay what shoal_wire_v1.json says of discoveries: the symbols of words, the cells of levels,
the steps of a task.
"""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from shoal.crypto.admission.fresh_window import fresh_window
from shoal.crypto.discovery_steps import DiscoveryStep, SignedStep, check_step, trust_step
from shoal.crypto.signing import SigningKey
from shoal.domain import Discovery
from shoal.errors import Kind, ShoalError
from shoal.ids import TaskId
from shoal.protos import task_pb2
from shoal.questions import domain_codec
from shoal.task import Task, WindowPlan
from tests.cases import for_each

VECTORS: dict[str, Any] = json.loads((Path(__file__).parent / "shoal_wire_v1.json").read_text())


def _discovery(entry: dict[str, Any]) -> Discovery:
    domain = domain_codec.decode_domain(task_pb2.Domain.FromString(bytes.fromhex(entry["domain"])))
    assert isinstance(domain, Discovery)
    assert domain_codec.encode_domain(domain).SerializeToString().hex() == entry["domain"]
    return domain


@for_each("entry", VECTORS["discoveries"], ids=lambda e: f"{e['domain'][:16]}-{e['level']}")
def test_discoveries(entry: dict[str, Any]) -> None:
    """Of words and of places. Planted: a level that writes its first cells with the last symbol
    first -> fails; columns before rows -> fails.
    """
    domain = _discovery(entry)
    level = domain.level(entry["level"], [bytes.fromhex(one) for one in entry["followed"]])
    assert (domain.size, level.size) == (entry["cells_of_a_task"], entry["size"])
    for case in entry["values"]:
        assert domain.alphabet.spelled(case["text"], domain.longest).hex() == case["symbols"]
        assert level.encode(case["text"]) == case["cell"]


@for_each("entry", VECTORS["discoveries_refused"])
def test_discoveries_that_are_none(entry: dict[str, Any]) -> None:
    """Planted: places with ``fresh`` are read -> nothing is raised, fails."""
    with pytest.raises(ShoalError) as refused:
        _discovery(entry)
    assert refused.value.kind is Kind[entry["kind"]]


def test_devices_that_answer_once_are_among_them() -> None:
    """Planted: ``fresh`` is not written -> none."""
    assert [_discovery(entry).fresh for entry in VECTORS["discoveries"]].count(True) == 1


@for_each("entry", VECTORS["fresh_windows"])
def test_windows_that_keys_of_enrolled_devices_draw(entry: dict[str, Any]) -> None:
    """Planted: the public key in the place of the private one -> fails."""
    secret = Ed25519PrivateKey.from_private_bytes(bytes.fromhex(entry["private_key"]))
    task_id = TaskId.parse(entry["task_id"])
    assert fresh_window(SigningKey(secret), task_id, entry["windows"]) == entry["window"]


STEPS = VECTORS["steps"]


def _step(data: str) -> SignedStep:
    domain = _discovery(STEPS)
    key = bytes.fromhex(STEPS["analyzer_key"])
    plan = WindowPlan(start_s=0, length_s=60, count=STEPS["windows"], grace_s=0, skew_s=0)
    task = cast(
        Task,
        SimpleNamespace(
            name="words",
            domain=domain,
            windows=plan,
            analyzer_key=key,
        ),
    )
    return trust_step(bytes.fromhex(data), task, TaskId.parse(STEPS["task_id"]))


def test_steps() -> None:
    """Each is what it says, and follows from those before. Planted: a step may ask level 2 in the
    window after level 0 -> see test_discovery_steps.
    """
    domain, before = _discovery(STEPS), list[DiscoveryStep]()
    for entry in STEPS["steps"]:
        signed = _step(entry["signed_step"])
        assert (signed.data.hex(), signed.name.hex) == (entry["signed_step"], entry["name"])
        check_step(signed.step, before, domain)
        before.append(signed.step)
        level = signed.step.level
        assert (signed.step.window, None if level is None else level.number) == (
            entry["window"],
            entry["level"],
        )
        assert [one.hex() for one in (level.followed if level else ())] == entry["followed"]


@for_each("entry", VECTORS["refuse"]["steps"], ids=lambda e: e["name"])
def test_refused_steps(entry: dict[str, Any]) -> None:
    with pytest.raises(ShoalError) as caught:
        _step(entry["signed_step"])
    assert caught.value.kind is Kind[entry["kind"]]
