"""A draw that is run: by one device, or by the many of a fleet. All of a mechanism's
``randomize_one`` and ``randomize``.
"""

from __future__ import annotations

from shoal.arrays import NDArray, np
from shoal.entropy import Entropy, streamed
from shoal.mechanisms.parts import cells, sampling
from shoal.mechanisms.parts.draws import Draw
from shoal.mechanisms.parts.one_device import OneDevice


def one_report(draw: Draw, value: int, k: int, entropy: Entropy) -> tuple[bytes, ...]:
    """``randomize_one`` of a mechanism of k cells whose reports ``draw`` makes. Raises INVALID for
    what is no cell, before anything is drawn.
    """
    return (draw(cells.check_value(value, k), OneDevice(entropy)),)


def many_reports(
    draw: Draw,
    values: NDArray[np.int64],
    k: int,
    entropy: Entropy,
    size: int,
    most: int = sampling.BLOCK,
) -> NDArray[np.uint8]:
    """``randomize`` of the same mechanism: uint8[n, 1, size], ``most`` devices at a time, so that
    their words stay in cache. Raises INVALID for what are no cells.
    """
    # Here, because no device has an array.
    from shoal.mechanisms.parts.many_devices import ManyDevices

    reports = np.empty((cells.check_shape(values).shape[0], 1, size), dtype=np.uint8)
    if values.shape[0] > most:
        entropy = streamed(entropy)
    for part in sampling.blocks(values.shape[0], max(1, most)):
        checked = cells.check_values(values[part], k)
        reports[part, 0] = draw(checked, ManyDevices(checked.shape[0], entropy))
    return reports
