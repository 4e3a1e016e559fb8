"""What a randomizer does with a value, in plain words."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from shoal.accounting.meaning import bound_text, percent_text
from shoal.arrays import np
from shoal.errors import ShoalError
from shoal.mechanisms.several.names import BLOCKS, MARGINALS, RANGES
from shoal.mechanisms.several.protocol import Noisy, Summed
from shoal.privacy import KaryLaw, epsilon0_upper
from shoal.task import SHUFFLER_NOISE

if TYPE_CHECKING:
    from shoal.clients.core import Assignment
    from shoal.mechanisms.several.protocol import Several


def randomized_line(assignment: Assignment) -> str:
    """How a report of this task is drawn, in one line for an owner."""
    if assignment.several is not None:
        return several_line(assignment.several)
    if assignment.vectors is not None:
        most = math.exp(min(assignment.epsilon0, 700.0)) * (1.0 + 1e-12)
        return (
            f"On this device it is randomized ({assignment.vectors.name}): many directions are "
            "drawn by chance, without looking at your numbers, and one of them is named, more "
            "often one near that of your numbers. Every report is possible whatever they are, and "
            f"at most {bound_text(most, digits=3)} times as likely under one list as under "
            "another. The draw is sealed twice; the numbers never leave the device."
        )
    if assignment.mechanism is None:
        return (
            "On this device noise is added to it, and a mask that only cancels in the sum over all "
            "devices of a round: nobody sees your "
            "vector, only that sum."
        )
    name, law = assignment.task.mechanism.name, assignment.mechanism.privacy()
    if isinstance(law, KaryLaw):
        true, other = law.same / law.total, law.other / law.total
        others = "the other" if law.k == 2 else f"each of the {law.k - 1:,} others"
        how = (
            f"the true answer is sent in {percent_text(true)} of all draws, {others} in "
            f"{percent_text(other, up=False)}"
        )
    else:
        most = math.exp(min(epsilon0_upper(law), 700.0)) * (1.0 + 1e-12)
        how = (
            f"{_DRAWN.get(name, _ANY)}. Every report is possible under every answer, and at most "
            f"{bound_text(most, digits=3)} times as "
            "likely under one as under another"
        )
    return (
        f"On this device it is randomized ({name}): {how}. The draw is sealed twice; the true "
        "value never leaves the device."
    )


def several_line(several: Several) -> str:
    """The same of a task that hides true messages among others."""
    if several.name == SHUFFLER_NOISE:
        return (
            f"On this device nothing is drawn ({several.name}): your answer is sealed as it is, in "
            "one message. The shuffler adds messages of noise to those of all devices: what is "
            "promised is promised by its noise."
        )
    if isinstance(several, Summed):
        return (
            f"On this device your number, and a little noise, is split into {several.messages} "
            f"sealed messages ({several.name}) that are drawn by chance but for their sum. Only "
            "among the messages of all devices nobody can tell which belong together."
        )
    how = (
        "as it is"
        if math.isinf(several.epsilon0)
        else "after it was randomized (epsilon0 = "
        f"{bound_text(several.epsilon0)}): by chance it may say another answer"
    )
    true, it = several.noise.truths if isinstance(several, Noisy) else several.fewest, "it"
    said = f"your answer is one sealed message ({several.name}), {how}"
    if several.name == RANGES:
        it = "them"
        said = (
            f"your answer is said in {true} sealed messages ({several.name}), {how}: the first "
            "names it, each further one a wider group of answers that holds it"
        )
    if several.name == BLOCKS:
        it = "them"
        said = (
            f"your answer is said in {true} sealed messages ({several.name}), {how}: one names the "
            "cell of the map, the other the square of cells around it"
        )
    if several.name == MARGINALS:
        it = "them"
        said = (
            f"your answers are said in {true} sealed messages ({several.name}), {how}: each says "
            "those to a few attributes together"
        )
    return (
        f"On this device {said}. Beside {it} this device sends {_beside(several, true)} "
        "Only among the messages of all devices nobody can tell which are true."
    )


def _beside(several: Several, true: int) -> str:
    """The messages that are not true ones: how many they are, and what they hide."""
    most, noise = several.messages - true, several.noise if isinstance(several, Noisy) else None
    if noise is not None and noise.full:
        return (
            f"{most} further ones, always so many, so that their number tells nothing: some are "
            "drawn by chance, whatever you answer, and the others are empty."
        )
    hidden = noise is not None and noise.hidden
    empty = ", empty ones among them, so that their number hides the others" if hidden else ""
    return (
        f"messages that are drawn by chance, whatever you answer{empty}: "
        f"{float(several.mean_messages) - true:.3g} on average, {most} at most."
    )


def drawn_label(assignment: Assignment, report: str) -> str:
    """Which answer a report says that was drawn, by its label; "" where a report is more than one
    answer, or can't be read. ``report``: in hexadecimal, as the ledger has it.
    """
    from shoal.mechanisms.parts import cells  # numpy: only for an owner who looks

    mechanism, labels = assignment.mechanism, assignment.task.domain.labels
    if mechanism is None or assignment.longitudinal is not None:
        return ""
    law = mechanism.privacy()
    if not isinstance(law, KaryLaw) or law.k != len(labels):
        return ""
    try:
        row = np.frombuffer(bytes.fromhex(report), np.uint8).reshape(1, mechanism.report_size)
        counts = cells.counts_of(mechanism.tally(row), law.k)
    except (ValueError, ShoalError):
        return ""
    return str(labels[int(counts.argmax())])


# What is drawn, where it is not simply one of the answers.
_ANY = "a report is drawn by chance, from a law that the true answer shifts a little"
_DRAWN = {
    "binary_rr": "yes or no is drawn by chance, the true answer with the larger probability",
    "l_unary": (
        "for each possible answer a mark is set or left out by chance, and the true answer's "
        "mark is set more often than another's; for every report each mark is then changed by "
        "chance once more"
    ),
    "dbitflip": (
        "the device picks some of the possible answers by chance, without looking at yours, and "
        "says of each whether it is yours, or, by chance, the contrary"
    ),
    "loloha": (
        "the device throws all possible answers into groups by chance, once, and names one "
        "group: more often than not that of the true answer, which it shares with others"
    ),
    "rappor": (
        "a public table, picked by chance, has a few marks for each possible answer; every mark "
        "of the table is set or left out by chance, your answer's marks are set more often than "
        "others; for every report each mark is then changed by chance once more"
    ),
    "count_sketch": (
        "a public table, picked by chance, throws all possible answers into groups; for each "
        "group a mark is set or left out by chance, and the mark of your answer's group is set "
        "more often than another's"
    ),
    "hadamard_sketch": (
        "a public table, picked by chance, throws all possible answers into groups; the device "
        "then picks by chance one of many ways to split the groups in two halves, and names one "
        "half: that of your answer's group more often than the other"
    ),
    "unary": (
        "for each possible answer a mark is set or left out by chance, and the true answer's "
        "mark is set more often than another's"
    ),
    "piecewise": (
        "one of a row of numbers is drawn by chance, more often one near the true number than "
        "another"
    ),
    "hybrid": (
        "by chance one of two ways is taken: one of a row of numbers is drawn, more often one "
        "near the true number, or one bit, more often 1 the larger the true number is"
    ),
    "laplace": (
        "a step up or down is drawn by chance and added to the true number, small ones more "
        "often; what leaves the scale is put at its end"
    ),
    "gaussian": (
        "a step up or down is drawn by chance and added to the true number, small ones more "
        "often; what leaves a wider scale is put at its end"
    ),
    "planar": (
        "a place on the map is drawn by chance, the true one most often, and another the less, the "
        "further it is away"
    ),
    "exponential": (
        "one of the possible answers is drawn by chance, the true one most often, and another "
        "the less, the further it is away"
    ),
    "square_wave": (
        "one of a row of numbers is drawn by chance, more often one near the true number than "
        "another; that there is no answer is said by chance as well, more often where it is "
        "true"
    ),
    "one_bit_mean": "one bit is drawn by chance, and is more often 1 the larger the true number is",
    "subset": (
        "some of the possible answers are drawn by chance, the true one more often than another "
        "among them"
    ),
    "local_hash": (
        "the device throws all possible answers into groups by chance, and names one group: "
        "more often than not that of the true answer, which it shares with others"
    ),
    "hadamard": (
        "the device picks by chance one of many ways to split all possible answers in two "
        "halves, and names one half: the true answer's more often than the other"
    ),
    "hadamard_response": (
        "one of many codes is drawn by chance, more often one of those that stand for the true "
        "answer, each of which stands for others too"
    ),
    "projective": (
        "one of many codes is drawn by chance, more often one of those that stand for the true "
        "answer, each of which stands for others too"
    ),
}
