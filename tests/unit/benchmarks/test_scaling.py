"""The model behind docs/SCALING.md, and that the page says what it says."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from benchmarks.__main__ import NAMES
from benchmarks.scaling import SOURCES, VOLUMES, Measured, Model, short, tables
from shoal.limits import LIMITS

PAGE = Path(__file__).resolve().parents[3] / "docs" / "SCALING.md"


def test_the_page_has_the_tables_of_the_model() -> None:
    """Planted: a digit of docs/SCALING.md changed; ``open_us`` raised by 1 -> each fails."""
    text = PAGE.read_text()
    for table in tables():
        assert table in text, f"run python -m benchmarks.scaling: {table.splitlines()[0]}"
    model = Model()
    times = model.front(10**8, relayed=False) / model.front(10**8, relayed=True)
    assert f"{times:.0f} times less per report" in " ".join(text.split())


def test_every_measured_input_names_its_benchmark() -> None:
    """Planted: a field of ``Measured`` without a line in ``SOURCES`` -> fails."""
    assert [name for name, *_ in SOURCES] == list(Measured.__dataclass_fields__)
    assert {benchmark for *_, benchmark, _ in SOURCES} <= set(NAMES)


def test_the_model_follows_its_inputs() -> None:
    """By hand: 1e8 reports of 1.12 ms are 31.1 core-hours; at five times the mean they are 5,787 a
    second, which want ten cores at 70 %. Planted: the peak left out of ``replicas`` -> fails.
    """
    model = Model(Measured(own_us=1_120.0))
    assert abs(model.front(10**8, relayed=False) - 1e8 * 1.12e-3 / 3_600) < 1e-9
    assert abs(model.capacity(relayed=False) - 625.0) < 1e-9
    assert model.replicas(10**8, relayed=False) == 10 + 1
    assert model.replicas(10**6, relayed=False) == 1
    twice = Model(replace(model.measured, own_us=2 * model.measured.own_us))
    assert twice.replicas(10**8, relayed=False) == 19 + 1
    for volume in VOLUMES:
        most = volume / model.windows(volume)
        assert most <= LIMITS.batch_rows
    assert model.stored(10**8) == 10**8 * 156 * 2.1


def test_numbers_are_short() -> None:
    shown = [short(value) for value in (0, 0.00044, 0.155, 1.12, 9.96, 31.1, 625.0, 4.03e8)]
    assert shown == ["0", "0.00044", "0.15", "1.1", "10", "31", "620", "400,000,000"]
