"""The files that take longest, and the order in which all files start."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

# The first compute for minutes at full counts. The others wait, most of their time: for processes
# that start, and for the clock. From the longest to the shortest.
SLOWEST = tuple(
    f"tests/{name}"
    for name in (
        "property/test_secagg_dropouts_strict.py",
        "property/test_secagg_dropouts.py",
        "integration/pipeline/test_mechanisms.py",
        "unit/benchmarks/test_benchmarks.py",
        "integration/load/test_load.py",
        "integration/pipeline/test_demo_recipe.py",
        "integration/pipeline/test_discovery.py",
        "integration/pipeline/test_hostile_words.py",
        "integration/pipeline/test_place_discovery.py",
        "integration/services/test_far_steps.py",
        "integration/pipeline/test_released_errors.py",
        "faults/test_rounds_failpoints.py",
        "integration/pipeline/test_first_hours.py",
        "integration/pipeline/test_demo_secagg.py",
        "unit/packaging/test_wheel.py",
        "integration/mqtt/test_task_publish.py",
        "integration/mqtt/test_bridge.py",
        "unit/analyzer/planner/test_accuracy.py",
        "integration/agent/test_agent_run.py",
        "faults/test_analyzer_kill.py",
        "faults/test_analyzer_failpoints.py",
        "integration/services/test_slow_links.py",
        "integration/rounds/test_rounds.py",
        "faults/test_demo_kill.py",
        "faults/test_shuffler_failpoints.py",
        "integration/agent/test_agent.py",
        "integration/load/test_restarts.py",
    )
)
_WAITING = ("tests/integration/", "tests/faults/", "tests/conformance/store/")
_BETWEEN = 3  # files after each of them, so that some compute while others wait


def in_turns(files: Iterable[str]) -> list[str]:
    """The same files: the longest early, because one that starts last keeps a core idle meanwhile;
    each is followed by some others. Those that wait are spread evenly among those that compute:
    side by side they would leave the cores idle.
    """
    rest = _spread(list(dict.fromkeys(files)))
    found: list[str] = []
    for name in SLOWEST:
        if name in rest:
            rest.remove(name)
            found.append(name)
            others = [one for one in rest if one not in SLOWEST][:_BETWEEN]
            found += others
            rest = [one for one in rest if one not in others]
    return [*found, *rest]


def _spread(files: Sequence[str]) -> list[str]:
    """The same files, both kinds in their own order, in the same proportion everywhere."""
    kinds: tuple[list[str], list[str]] = ([], [])
    for name in files:
        kinds[name.startswith(_WAITING)].append(name)
    places = {name: (place + 0.5) / len(kind) for kind in kinds for place, name in enumerate(kind)}
    return sorted(files, key=places.__getitem__)
