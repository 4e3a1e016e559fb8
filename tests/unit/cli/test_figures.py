"""How figures are written for people."""

from __future__ import annotations

from shoal.cli.figures import duration, figure, volume
from tests.cases import for_each


@for_each(
    "value, text",
    [
        (0.0, "0"),
        (0.01, "0.01"),
        (0.01234, "0.0123"),
        (1.0, "1"),
        (9.999, "10"),
        (99.94, "99.9"),
        (99.95, "100"),
        (1_234.5, "1,234"),
    ],
)
def test_a_figure_has_the_digits_that_count(value: float, text: str) -> None:
    """Planted: ``:.3g`` for all -> 1.23e+03."""
    assert figure(value) == text


@for_each(
    "seconds, text",
    [
        (0.0, "under 1 s"),
        (0.99, "under 1 s"),
        (1.0, "1.0 s"),
        (12.34, "12.3 s"),
        (1_234.5, "1,234.5 s"),
    ],
)
def test_a_duration_is_never_nothing(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@for_each(
    "size, text",
    [
        (0, "0 bytes"),
        (1_023, "1023 bytes"),
        (1_024, "1.0 KiB"),
        (1_230, "1.2 KiB"),
        (512_000_000, "488.3 MiB"),
        (1 << 30, "1.0 GiB"),
        (5 << 40, "5,120.0 GiB"),
    ],
)
def test_a_volume_is_in_its_own_unit(size: int, text: str) -> None:
    """Planted: MiB for all -> 0.0 MiB."""
    assert volume(size) == text
