"""The files that take longest, and the order in which all files start."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

# The first compute for minutes at full counts. The others are those that take longest at reduced
# counts, from the longest to the shortest.
SLOWEST = tuple(
    f"tests/{name}"
    for name in (
        "property/test_secagg_dropouts_strict.py",
        "property/test_secagg_dropouts.py",
        "unit/benchmarks/test_benchmarks.py",
        "integration/pipeline/test_discovery.py",
        "integration/services/test_machines.py",
        "integration/pipeline/test_first_hours.py",
        "integration/console/test_planner_browser.py",
        "unit/console/test_planner.py",
        "integration/services/test_replicas.py",
        "integration/pipeline/test_released_errors.py",
        "statistical/test_several_services_victims.py",
        "unit/console/test_planner_several.py",
        "conformance/store/test_postgresql.py",
        "conformance/store/test_postgresql_objects.py",
        "unit/checker/test_bounds.py",
        "integration/pipeline/test_fresh_devices.py",
        "unit/cli/task/test_mechanisms.py",
        "unit/analyzer/planner/test_predictions.py",
        "integration/pipeline/test_mechanisms.py",
        "statistical/test_several_services_audit.py",
        "faults/test_shuffler_failpoints.py",
        "integration/pipeline/test_demo_federated.py",
        "faults/test_rounds_failpoints.py",
        "integration/console/test_browser.py",
        "conformance/opening/test_machines.py",
        "unit/checker/test_tables.py",
        "unit/accounting/test_certify.py",
        "integration/load/test_rolling_restart.py",
        "integration/load/test_load.py",
        "unit/analyzer/planner/test_several_simulated.py",
        "integration/services/test_machines_secrets.py",
        "integration/agent/test_agent_run.py",
        "unit/analyzer/planner/test_several.py",
        "integration/stores/test_database_health.py",
        "faults/test_analyzer_failpoints.py",
        "statistical/test_several_audit.py",
        "integration/mqtt/test_bridge.py",
        "unit/packaging/test_wheel.py",
        "unit/analyzer/planner/vectors/test_choose.py",
        "integration/pipeline/test_place_discovery.py",
        "faults/operations/test_backup_kill.py",
        "unit/cli/plan/test_emit.py",
        "integration/stores/test_database.py",
        "faults/test_postgresql_owners.py",
        "integration/mqtt/test_task_publish.py",
        "integration/pipeline/test_demo_secagg.py",
        "integration/pipeline/test_several_messages.py",
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
