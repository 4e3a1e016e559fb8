"""The files that take longest at reduced counts, in the order in which they start: those that wait before those that compute, in turns."""

from __future__ import annotations

_FILES = (
    "integration/test_readme.py",
    "integration/test_mechanisms.py",
    "integration/test_demo_secagg.py",
    "unit/benchmarks/test_benchmarks.py",
    "faults/test_demo_kill.py",
    "integration/test_clients_load.py",
    "faults/test_rounds_failpoints.py",
    "faults/test_shuffler_failpoints.py",
    "integration/test_enrolled_task.py",
    "integration/test_agent_run.py",
    "integration/test_mqtt_bridge.py",
    "faults/test_analyzer_failpoints.py",
    "integration/test_load_restarts.py",
    "faults/test_analyzer_kill.py",
)
# A file's number by its path.
SLOWEST = {f"tests/{name}": number for number, name in enumerate(_FILES)}
