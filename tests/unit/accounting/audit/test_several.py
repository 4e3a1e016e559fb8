"""What the attack on several messages looks at: counted by hand from the messages themselves."""

from __future__ import annotations

import math

import numpy as np
import pytest

from shoal.accounting.audit.several import (
    Messages,
    all_of_them,
    attacked_answers,
    several_views,
)
from shoal.accounting.several_messages.of_domain import design_several
from shoal.domain import AnswerRecord, Categories, Domain, Numeric, Places, YesNo
from shoal.entropy import SeededEntropy
from shoal.errors import Kind, ShoalError
from shoal.mechanisms.maps.blocks import MapBlocks
from shoal.mechanisms.several.marginals import AllMarginals
from shoal.mechanisms.several.names import NAMES
from shoal.mechanisms.several.protocol import Several
from shoal.mechanisms.several.ranges import Ranges
from shoal.mechanisms.several.registry import create
from shoal.mechanisms.several.shuffler_noise import ShufflerNoise
from shoal.questions.record import all_pairs
from tests.cases import for_each
from tests.worlds.tasks import ATTRIBUTES

DEVICES, TRIALS = 50, 40
MANY = Categories(tuple(f"c{i}" for i in range(300)))  # messages of two bytes


def made(name: str) -> tuple[Several, Domain]:
    few = Categories(("a", "b", "c"))
    others: dict[str, Domain] = {
        "dummies": MANY,
        "signed_count": YesNo(),
        "split_mix": Numeric(0.0, 1.0, 5),
        "ranges": Numeric(0.0, 1.0, 39),
        "blocks": Places(0, 0, 600, 600, 6, 6),
        "marginals": AnswerRecord(ATTRIBUTES, all_pairs(3), together=True),
    }
    domain = others.get(name, few)
    return create(design_several(name, domain, DEVICES, 4.0, 0.05, windows=1), domain), domain


@for_each("name", NAMES)
def test_the_statistics_are_those_of_the_messages(name: str) -> None:
    """Once per message, each in its trial; the victim's last. Planted: the victim first; minus
    taken for plus; the noise of a shuffler left out; two bytes read backwards -> this fails.
    """
    mechanism, domain = made(name)
    answers = attacked_answers(mechanism, domain.size)
    kept = list[Messages]()

    def seen(messages: Messages) -> Messages:
        kept.append(messages)
        return messages

    views = several_views(
        mechanism, domain.size, DEVICES, SeededEntropy(name), answers=answers, seen=seen
    )
    found = views(1, TRIALS)
    third = {"ranges": 20, "blocks": 18, "marginals": 1}.get(name, 2)
    crowd = answers[0] if name == "split_mix" else answers[1] if domain.size == 2 else third
    values = np.full(TRIALS * DEVICES, crowd)
    values[DEVICES - 1 :: DEVICES] = answers[1]
    entropy = SeededEntropy(name)
    bundles = mechanism.randomize(values, entropy)
    numbers = [int.from_bytes(row.tobytes(), "big") for row in bundles.rows]
    trial = (np.repeat(np.arange(TRIALS * DEVICES), bundles.sizes) // DEVICES).tolist()
    if isinstance(mechanism, ShufflerNoise):
        for at in range(TRIALS):
            added = [int.from_bytes(each, "big") for each in mechanism.added(entropy)]
            numbers, trial = numbers + added, trial + [at] * len(added)
    modulus = 1 << 8 * mechanism.report_size
    for at in range(TRIALS):
        own = [number for number, index in zip(numbers, trial, strict=True) if index == at]
        if name == "split_mix":
            total = sum(own) % modulus
            assert found["sum"][at] == total - modulus * (total >= modulus // 2)
            assert found["negative"][at] == sum(number >= modulus // 2 for number in own)
        elif name == "cancelling":
            counts = [own.count(number) for number in range(4)]
            assert found["first"][at] == counts[0] - counts[1]
            assert found["difference"][at] == counts[0] - counts[1] - counts[2] + counts[3]
        elif isinstance(mechanism, Ranges | MapBlocks | AllMarginals):
            if isinstance(mechanism, Ranges):
                assert mechanism.tree.levels == 2
                paths = [mechanism.tree.path(cell) for cell in (0, 38)]
            elif isinstance(mechanism, MapBlocks):
                assert mechanism.grid.side == 2
                paths = [(0, 37), (35, 45)]
            else:
                paths = [(0, 9, 21), (8, 20, 32)]  # the first cells of three tables, and the last
            first, second = ([own.count(message) for message in path] for path in paths)
            assert found["difference"][at] == sum(first) - sum(second)
            logs = [sum(math.log(count + 0.5) for count in each) for each in (first, second)]
            assert found["ratio"][at] == pytest.approx(logs[0] - logs[1])
        else:
            assert found["difference"][at] == own.count(0) - own.count(1)
    assert len(kept) == 1
    assert [number % modulus for number in kept[0].numbers.tolist()] == numbers
    assert (kept[0].devices // DEVICES).tolist() == trial


def test_a_number_is_attacked_at_its_ends() -> None:
    mechanism, domain = made("split_mix")
    assert attacked_answers(mechanism, domain.size) == (0, 4)
    assert attacked_answers(made("dummies")[0], 301) == (0, 1)


@for_each("answers, n", [((0, 0), 5), ((0, 9), 5), ((0, 1), 0)])
def test_answers_are_two_cells_of_the_domain(answers: tuple[int, int], n: int) -> None:
    mechanism, domain = made("cancelling")
    with pytest.raises(ShoalError) as error:
        several_views(
            mechanism, domain.size, n, SeededEntropy("x"), answers=answers, seen=all_of_them
        )
    assert error.value.kind in (Kind.INVALID, Kind.CONFIG)
