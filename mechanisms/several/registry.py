"""All mechanisms of several messages by name. Their code is loaded when one is asked for: most
devices have no such task.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from shoal.domain import AnswerRecord, Categories, Discovery, Numeric, Places, YesNo
from shoal.errors import Kind, ShoalError
from shoal.mechanisms.base import Mechanism, check_parameters, invalid
from shoal.mechanisms.registry import create as create_local
from shoal.mechanisms.several.names import (
    BLOCKS,
    DUMMIES,
    MARGINALS,
    NAMES,
    RANGES,
    SIGNED_COUNT,
    SPLIT_MIX,
    is_several,
)
from shoal.mechanisms.several.protocol import Several
from shoal.mechanisms.vectors.protocol import VectorRandomizer
from shoal.mechanisms.vectors.registry import create as create_of_vectors
from shoal.mechanisms.vectors.registry import is_of_vectors
from shoal.task import SHUFFLER_NOISE

if TYPE_CHECKING:
    from shoal.domain import Domain
    from shoal.task import MechanismSpec, Task


AnyMechanism: TypeAlias = Mechanism | Several | VectorRandomizer


def create(spec: MechanismSpec, domain: Domain) -> Several:
    """The mechanism that a task names. Raises INVALID, naming the parameter, unless every integer
    fits.
    """
    from shoal.mechanisms.categories.krr import KaryResponse
    from shoal.mechanisms.several.histogram import BundledHistogram
    from shoal.mechanisms.several.parameters import OPTIONAL, PARAMETERS, law_of, uniform_of
    from shoal.mechanisms.several.shuffler_noise import shuffler_noise_of
    from shoal.mechanisms.several.signed_count import SignedCount

    if not is_several(spec.name):
        raise invalid(
            f"no mechanism of several messages has that name: choose one of {', '.join(NAMES)}"
        )
    if isinstance(domain, Discovery) and spec.name != DUMMIES:
        raise invalid(f"a discovery is answered by {DUMMIES} alone, not by {spec.name}")
    check_parameters(spec, PARAMETERS[spec.name], OPTIONAL.get(spec.name, ()))
    if spec.name == SPLIT_MIX:
        from shoal.mechanisms.numbers.means import numeric
        from shoal.mechanisms.several.split_mix import SplitMix

        return SplitMix(spec, numeric(spec.name, domain))
    uniform = uniform_of(spec)
    if spec.name == SIGNED_COUNT:
        if not isinstance(domain, YesNo):
            raise invalid(f"{SIGNED_COUNT} counts the answers of a yes/no question, and no other")
        no, yes = domain.labels
        response = None if uniform is None else KaryResponse(domain.labels, uniform)
        return SignedCount((no, yes), law_of(spec), response)
    if spec.name == MARGINALS:
        return _marginals(spec, domain)
    if isinstance(domain, AnswerRecord) and domain.together:
        raise invalid(
            f"{spec.name} answers in one marginal of a record: set together = false, or take "
            f"{MARGINALS}"
        )
    if spec.get("k") != domain.size:
        raise invalid(
            f'{spec.name}: the parameter "k" is {spec.get("k")}, but the domain has {domain.size} '
            f"cells: set k = {domain.size}"
        )
    if spec.name == RANGES:
        return _ranges(spec, domain)
    if spec.name == BLOCKS:
        return _blocks(spec, domain)
    if spec.name == SHUFFLER_NOISE:
        return shuffler_noise_of(spec, domain)
    response = None if uniform is None else KaryResponse(domain.labels, uniform)
    return BundledHistogram(domain.labels, law_of(spec), response)


def _ranges(spec: MechanismSpec, domain: Domain) -> Several:
    from shoal.mechanisms.several.parameters import law_of, tree_of
    from shoal.mechanisms.several.ranges import Ranges

    if not isinstance(domain, Numeric | Categories):
        raise invalid(f"{RANGES} answers questions for numbers, in levels or in bins, and no other")
    return Ranges(domain, tree_of(spec), law_of(spec))


def _blocks(spec: MechanismSpec, domain: Domain) -> Several:
    from shoal.mechanisms.maps.block_squares import BlockGrid
    from shoal.mechanisms.maps.blocks import MapBlocks
    from shoal.mechanisms.several.parameters import dummies_of

    if not isinstance(domain, Places):
        raise invalid(f"{BLOCKS} answers questions for places on a map, and no other")
    grid = BlockGrid(domain.rows, domain.columns, spec.get("side"))
    return MapBlocks(domain, grid, dummies_of(spec, grid.nodes, len(grid.path(0))))


def _marginals(spec: MechanismSpec, domain: Domain) -> Several:
    from shoal.mechanisms.several.marginals import AllMarginals
    from shoal.mechanisms.several.parameters import law_of

    if not isinstance(domain, AnswerRecord):
        raise invalid(f"{MARGINALS} answers questions for several answers together, and no other")
    return AllMarginals(domain, law_of(spec))


def create_any(spec: MechanismSpec, domain: Domain) -> AnyMechanism:
    """What a task names, of one message or of several, or of vectors. Raises INVALID."""
    if is_of_vectors(spec.name):
        return create_of_vectors(spec, domain)
    return create_of_cells(spec, domain)


def create_of_cells(spec: MechanismSpec, domain: Domain) -> Mechanism | Several:
    """What a task names whose answers are cells. Raises INVALID, for mechanisms of vectors too."""
    return create(spec, domain) if is_several(spec.name) else create_local(spec, domain)


def fewest_messages(made: AnyMechanism) -> int:
    """``Task.fewest_messages`` of its tasks: 0 where all reports have as many."""
    return made.fewest if isinstance(made, Several) and made.fewest < made.messages else 0


def check_shape(task: Task, made: AnyMechanism) -> None:
    """Raises MISMATCH unless the task states its reports as the mechanism makes them, and INVALID
    where it wants several messages to be repeated.
    """
    stated = task.report_size, task.messages, task.fewest_messages
    makes = made.report_size, made.messages, fewest_messages(made)
    if stated != makes:
        raise ShoalError(
            Kind.MISMATCH,
            f"task {task.name}: report_size, messages and fewest_messages are "
            f"{', '.join(map(str, stated))}, and its mechanism {made.name} makes "
            f"{', '.join(map(str, makes))}: ask for a task that was checked",
        )
    if task.memoized and isinstance(made, Several):
        raise invalid(
            f"task {task.name} can't be memoized: its devices send several messages, and only one "
            "may be repeated"
        )
