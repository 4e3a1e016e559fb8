"""The integers of a mechanism of several messages, for a question and a target: what a task carries
and a planner compares.
"""

from __future__ import annotations

from shoal.accounting.several_messages.noise_design import design_cancelling, design_dummies
from shoal.accounting.several_messages.shuffler_noise import design_shuffler_noise
from shoal.accounting.several_messages.split import design_split
from shoal.domain import (
    AnswerRecord,
    Categories,
    Discovery,
    Domain,
    Numeric,
    Places,
    Vector,
    Words,
    YesNo,
)
from shoal.errors import Kind, ShoalError
from shoal.limits import LIMITS
from shoal.mechanisms.categories.krr import law as krr_law
from shoal.mechanisms.categories.krr import least_uniform
from shoal.mechanisms.maps.block_squares import BlockGrid, usual_grid
from shoal.mechanisms.maps.blocks import LEVELS, MapBlocks
from shoal.mechanisms.several.least_squares import usual_tree
from shoal.mechanisms.several.marginals import AllMarginals
from shoal.mechanisms.several.names import (
    BLOCKS,
    CANCELLING,
    DUMMIES,
    MARGINALS,
    NAMES,
    RANGES,
    SIGNED_COUNT,
    SPLIT_MIX,
)
from shoal.mechanisms.several.noise_law import NoiseLaw, Truth
from shoal.mechanisms.several.parameters import spec_of
from shoal.mechanisms.several.ranges import Ranges, is_ordered
from shoal.mechanisms.several.shuffler_noise import ShufflerNoise
from shoal.task import SHUFFLER_NOISE, MechanismSpec

_KINDS = {
    BLOCKS: "questions for places on a map",
    SIGNED_COUNT: "yes/no questions",
    SPLIT_MIX: "questions for a mean of numbers",
    RANGES: "questions for numbers, in levels or in bins with lower_bounds,",
    MARGINALS: "records that are answered in all marginals (together = true)",
}
_AS_THEY_ARE = {
    BLOCKS: "sends values as they are, a cell and its block",
    SPLIT_MIX: "has no true message to randomize",
    SHUFFLER_NOISE: "sends values as they are",
    RANGES: "sends values as they are, once in each level",
    MARGINALS: "sends values as they are, once in each table",
}


def serves(name: str, domain: Domain) -> bool:
    """Whether a mechanism of several messages can answer questions of that domain."""
    if isinstance(domain, Vector | Words) or name not in NAMES:
        return False
    if isinstance(domain, Discovery):
        return name == DUMMIES
    if name == SPLIT_MIX:
        return isinstance(domain, Numeric)
    if name == RANGES:
        return is_ordered(domain)
    if name == BLOCKS:
        return isinstance(domain, Places)
    together = isinstance(domain, AnswerRecord) and domain.together
    if together or name == MARGINALS:
        return together and name == MARGINALS
    return name != SIGNED_COUNT or isinstance(domain, YesNo)


def design_several(
    name: str,
    domain: Domain,
    n_honest: int,
    epsilon: float,
    delta: float,
    *,
    windows: int,
    most: int = 0,
    epsilon0_if_colluding: float | None = None,
) -> MechanismSpec:
    """The least noise with which ``n_honest`` devices reach (epsilon, delta) in each of
    ``windows``, whose truncation all together takes no more than a small share of delta: else many
    windows would compose to no epsilon at all. ``most``: reports of a batch, where that is limited.
    ``epsilon0_if_colluding``: the true message is randomized so that a device keeps it, rounded up,
    against shuffler and analyzer together; None: it is the value.

    Raises ShoalError CONFIG, in a line that says how to mend it, for a domain that the mechanism
    can't serve, bad numbers, and where a device would send more messages than a report may have.
    """
    if not serves(name, domain):
        kinds = _KINDS.get(name, "questions with listed answers")
        raise ShoalError(Kind.CONFIG, f"{name} answers {kinds} alone: choose another mechanism")
    if epsilon0_if_colluding is not None and name in _AS_THEY_ARE:
        raise ShoalError(
            Kind.CONFIG, f"{name} {_AS_THEY_ARE[name]}: leave epsilon0_if_colluding out"
        )
    if name == SPLIT_MIX and isinstance(domain, Numeric):
        most = most or LIMITS.batch_rows
        return design_split(domain, n_honest, epsilon, delta, windows=windows, most=most)
    if name == SHUFFLER_NOISE:
        noise = design_shuffler_noise(epsilon, delta, windows=windows)
        try:
            return ShufflerNoise(domain.labels, noise).spec
        except ShoalError as error:  # so many cells
            raise ShoalError(Kind.CONFIG, error.message) from None
    if name == RANGES and isinstance(domain, Numeric | Categories):
        return _ranges(domain, n_honest, epsilon, delta, windows)
    if name == BLOCKS and isinstance(domain, Places):
        return design_blocks(domain, n_honest, epsilon, delta, windows=windows)
    if name == MARGINALS and isinstance(domain, AnswerRecord):
        return _marginals(domain, n_honest, epsilon, delta, windows)
    uniform = None
    if epsilon0_if_colluding is not None:
        uniform = _uniform(domain, epsilon0_if_colluding)
    law = _law(name, domain, n_honest, epsilon, delta, windows, uniform)
    _check_slots(name, law, f", or take {DUMMIES}")
    return spec_of(name, law, uniform)


def _check_slots(name: str, law: NoiseLaw, instead: str = "") -> None:
    """Raises CONFIG for more messages than a report may have."""
    if law.slots > LIMITS.messages:
        raise ShoalError(
            Kind.CONFIG,
            f"{name}: a device would send up to {law.slots} messages, and {LIMITS.messages} are "
            "the most that a report may have: raise min_batch or the target, give fewer answers to "
            f"choose from{instead}",
        )


def _ranges(
    domain: Numeric | Categories, n_honest: int, epsilon: float, delta: float, windows: int
) -> MechanismSpec:
    """Raises CONFIG."""
    try:
        tree = usual_tree(domain.size)
    except ShoalError as error:  # so many cells
        raise ShoalError(Kind.CONFIG, error.message) from None
    law = design_dummies(tree.nodes, n_honest, epsilon, delta, windows=windows, tables=tree.levels)
    _check_slots(RANGES, law)
    return Ranges(domain, tree, law).spec


def design_blocks(
    domain: Places, n_honest: int, epsilon: float, delta: float, *, windows: int, side: int = 0
) -> MechanismSpec:
    """The same of a map in blocks of ``side`` x ``side`` cells; 0: those with which rectangles err
    least. Raises CONFIG.
    """
    try:
        rows, columns = domain.rows, domain.columns
        grid = BlockGrid(rows, columns, side) if side else usual_grid(rows, columns)
    except ShoalError as error:  # so many cells
        raise ShoalError(Kind.CONFIG, error.message) from None
    law = design_dummies(grid.nodes, n_honest, epsilon, delta, windows=windows, tables=LEVELS)
    _check_slots(BLOCKS, law)
    return MapBlocks(domain, grid, law).spec


def _marginals(
    domain: AnswerRecord, n_honest: int, epsilon: float, delta: float, windows: int
) -> MechanismSpec:
    """Raises CONFIG."""
    tables = len(domain.marginals)
    law = design_dummies(domain.cells, n_honest, epsilon, delta, windows=windows, tables=tables)
    _check_slots(
        MARGINALS,
        law,
        ", ask for fewer marginals, or let each device answer one (together = false)",
    )
    return AllMarginals(domain, law).spec


def _uniform(domain: Domain, epsilon0: float) -> int:
    """``krr``'s integer for the domain. Raises CONFIG where there is none."""
    try:
        return least_uniform(domain.size, epsilon0)
    except ShoalError as error:
        raise ShoalError(Kind.CONFIG, f"epsilon0_if_colluding: {error.message}") from None


def _law(
    name: str,
    domain: Domain,
    n_honest: int,
    epsilon: float,
    delta: float,
    windows: int,
    uniform: int | None,
) -> NoiseLaw:
    drawn = None if uniform is None else krr_law(domain.size, uniform)
    if name == DUMMIES:
        return design_dummies(domain.size, n_honest, epsilon, delta, windows=windows, drawn=drawn)
    truth, cells = (Truth.CELL, domain.size) if name == CANCELLING else (Truth.SIGN, 1)
    return design_cancelling(truth, cells, n_honest, epsilon, delta, windows=windows, drawn=drawn)
