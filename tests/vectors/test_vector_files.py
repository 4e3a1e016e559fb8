"""What holds in every file of vectors, so that a reader in any language reads them as they are
meant.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from shoal.crypto.trust import trust_task
from shoal.rpc.tls import check_certificates
from shoal.task import Task
from tests.cases import for_each

FOLDER = Path(__file__).resolve().parent
FILES = sorted(FOLDER.rglob("*.json"))
# up to here a double holds every whole number, and many readers of JSON have nothing else
MOST = 1 << 53


def numbers(node: Any, place: str = "") -> Iterator[tuple[str, int]]:
    """Every whole number of a JSON tree, and where it stands."""
    if isinstance(node, dict):
        for name, value in node.items():
            yield from numbers(value, f"{place}/{name}")
    elif isinstance(node, list):
        for index, value in enumerate(node):
            yield from numbers(value, f"{place}/{index}")
    elif isinstance(node, int) and not isinstance(node, bool):
        yield place, node


@for_each("file", FILES, ids=lambda file: str(file.relative_to(FOLDER)))
def test_no_number_is_too_large_for_a_reader_of_json(file: Path) -> None:
    """Larger ones are decimal text. Planted: the cell of a word as a number, as it once was -> this
    fails.
    """
    assert [
        place for place, number in numbers(json.loads(file.read_text())) if abs(number) > MOST
    ] == []


def tasks() -> list[Task]:
    wire = json.loads((FOLDER / "shoal_wire_v1.json").read_text())["documents"]
    secagg = json.loads((FOLDER / "shoal_secagg_v1.json").read_text())["round"]["documents"]
    return [
        trust_task(bytes.fromhex(one["signed_task"]), {bytes.fromhex(one["authority"])}).task
        for one in (wire, secagg)
    ]


def test_tasks_that_are_to_be_accepted_keep_the_ranges() -> None:
    """Of the page, which are narrower than what is refused: a task that is reached over gRPC has a
    CA. Planted: an empty one -> fails.
    """
    for task in tasks():
        check_certificates(task.shuffler_ca, "the task's CA")
