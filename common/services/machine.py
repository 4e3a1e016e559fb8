"""What a service tells of the machine that it runs on: the room on its disk, the ends of its
certificates, how its clock stands. In coarse steps: finer ones would count the reports of an open
window.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from shoal import __version__
from shoal.clocks.clock import SureClock
from shoal.clocks.timekeeper import Timekeeper
from shoal.limits import MIB
from shoal.services.certificates import Certificates

# A stored report takes a few hundred bytes: a step is a hundred thousand of them, or more.
_LEAST_STEP = 64 * MIB
_STEPS = 128  # at most, from an empty disk to a full one


class Machine(Collector):
    """For metrics (as a Prometheus collector) and /status. ``folder``: the service's data."""

    def __init__(self, folder: Path, certificates: Certificates, clock: SureClock) -> None:
        self._folder, self._certificates = folder, certificates
        self._keeper = clock if isinstance(clock, Timekeeper) else None

    def status(self) -> dict[str, Any]:
        """{"version", "certificates": [{"file", "role", "days_left", "not_after"}], "disk":
        {"free_bytes", "total_bytes"}, "clock": {"difference_s", "peers": {key: seconds}}}.

        The disk's are null where it can't be looked at. difference_s: whole seconds that the wall
        clock is ahead of what was expected, null where nothing was.
        """
        free, total = self._room()
        ahead, peers = self._differences()
        return {
            "version": __version__,
            "certificates": self._certificates.status(),
            "disk": {"free_bytes": free, "total_bytes": total},
            "clock": {"difference_s": ahead, "peers": peers},
        }

    def collect(self) -> Iterator[Metric]:
        """Prometheus. What is not known is left out."""
        days = GaugeMetricFamily(
            "shoal_certificate_days_left",
            "Whole days until a TLS certificate ends, by its configuration key",
            labels=["role"],
        )
        for ending in self._certificates.endings():
            days.add_metric([ending.role], self._certificates.days_left(ending))
        yield days
        free, total = self._room()
        if free is not None and total is not None:
            yield GaugeMetricFamily(
                "shoal_disk_free_bytes", "Room left for data_dir, in coarse steps", value=free
            )
            yield GaugeMetricFamily("shoal_disk_total_bytes", "Size of that disk", value=total)
        ahead, peers = self._differences()
        if ahead is not None:
            yield GaugeMetricFamily(
                "shoal_clock_difference_seconds",
                "How far the wall clock is ahead of what was expected",
                value=ahead,
            )
        others = GaugeMetricFamily(
            "shoal_clock_peer_difference_seconds",
            "How far the other service's clock is ahead of ours, by its key",
            labels=["peer"],
        )
        for peer, difference in peers.items():
            others.add_metric([peer], difference)
        yield others

    def _room(self) -> tuple[int | None, int | None]:
        try:
            disk = os.statvfs(self._folder)
        except OSError:
            return None, None
        total = disk.f_blocks * disk.f_frsize
        step = max(_LEAST_STEP, total // _STEPS)
        return disk.f_bavail * disk.f_frsize // step * step, total

    def _differences(self) -> tuple[int | None, dict[str, int]]:
        if self._keeper is None:
            return None, {}
        report = self._keeper.report()
        ahead = None if report.ahead is None else round(report.ahead)
        return ahead, {peer: round(difference) for peer, difference in report.peers.items()}
