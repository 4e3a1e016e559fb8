"""Services for ``shoal load``: one site, and in it a task for every load, so that what a load
counts is its own.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from shoal.accounting.lint.task import lint
from shoal.cli.demo.processes import Process
from shoal.cli.demo.survey import questions
from shoal.cli.demo.workspace import prepare
from shoal.clients.fleet.misbehaviour import REPORTING, Conduct, Shares, mix
from shoal.task import Task, WindowPlan
from tests.worlds.mqtt.broker import Broker
from tests.worlds.services.load import task_of

_HOUR = 3600


@dataclass(frozen=True, slots=True)
class Load:
    """``devices`` in all, of which ``reports`` are to be counted. The window closes with the last
    frame that it stores.
    """

    path: Path
    reports: int
    devices: int
    shares: Shares = field(default_factory=Shares)

    @property
    def arguments(self) -> list[str]:
        """What ``shoal load`` is told of this load."""
        shares = self.shares
        named = (
            ("duplicates", shares.duplicates),
            ("malformed", shares.malformed),
            ("hostile", shares.hostile),
        )
        return [
            *("--task", str(self.path), "--devices", str(self.devices)),
            *(text for name, share in named if share for text in (f"--{name}", repr(share))),
        ]

    def check(self, told: dict[str, Any]) -> None:
        """Raises RuntimeError unless every report was acknowledged and counted once, and no
        misbehaving client got a wrong answer.
        """
        (row,) = told["tasks"]
        found = {
            "sent": told["sent"],
            "acknowledged": told["acked"],
            "counted": row["counted"],
            "unknown": told["unknown"],
            "refused": sum(told["refused"].values()),
            "surprises": sum(told["surprises"].values()),
            "rejected": row["rejected"],
            "restarts": sum(one["restarts"] for one in told["services"].values()),
        }
        garbage = mix(self.shares, self.devices, enrolled=False)[Conduct.GARBAGE]
        wanted = {
            "sent": self.reports,
            "acknowledged": self.reports,
            "counted": self.reports,
            "rejected": garbage,
        }
        if found != {**dict.fromkeys(found, 0), **wanted}:
            raise RuntimeError(
                f"lost, doubled, or wrongly answered: {found}, where {wanted} and nothing else is "
                "right"
            )


class FleetSite:
    """Keys, certificates and configurations in ``folder``, for a shuffler that also listens to
    ``broker``, and an analyzer.
    """

    def __init__(self, folder: Path, broker: Broker) -> None:
        folder.mkdir(parents=True)
        self._folder, self._site = folder, prepare(folder)
        config, ca = self._site.shuffler_config, folder / "broker.pem"
        ca.write_bytes(broker.settings.ca or b"")
        # What the demo tunes for itself is left to the shuffler.
        kept = [
            line
            for line in config.read_text().splitlines()
            if not line.startswith(("open_workers", "commit_ms"))
        ]
        protocol = broker.settings.protocol
        kept += [
            "[mqtt]",
            f'broker = "127.0.0.1:{broker.port}"',
            f'ca = "{ca}"',
            f'protocol = "{protocol}"',
        ]
        config.write_text("\n".join(kept) + "\n")
        self.broker_options = (
            "--broker",
            f"127.0.0.1:{broker.port}",
            "--broker-ca",
            str(ca),
            "--broker-protocol",
            protocol,
        )
        self.shuffler = Process("shuffler", config, self._site.shuffler_admin)
        self.analyzer = Process("analyzer", self._site.analyzer_config, self._site.analyzer_admin)
        self.status_options = (
            *("--shuffler-status", f"http://127.0.0.1:{self._site.shuffler_admin}"),
            *("--analyzer-status", f"http://127.0.0.1:{self._site.analyzer_admin}"),
        )

    def load(self, name: str, reports: int, *, misbehaving: bool = False) -> Load:
        """A task for ``reports`` reports. ``misbehaving``: one device in a hundred sends its frame
        three times, and for a hundred that report there are one that sends a broken frame and one
        that lies.
        """
        few = max(1, reports // 100)
        devices = reports + 2 * few if misbehaving else reports
        shares = (
            Shares(duplicates=few / devices, malformed=few / devices, hostile=few / devices)
            if misbehaving
            else Shares()
        )
        counts = mix(shares, devices, enrolled=False)
        if sum(counts[conduct] for conduct in REPORTING) != reports:
            raise RuntimeError(f"{devices} devices with {shares} are not {reports} reports")
        self._site.add(self._task(name, reports, reports + counts[Conduct.GARBAGE]))
        return Load(self._folder / "tasks" / f"{name}.task", reports, devices, shares)

    def _task(self, name: str, reports: int, stored: int) -> Task:
        question, site = questions()[1], self._site

        windows = WindowPlan(
            start_s=int(time.time()) - 60, length_s=_HOUR, count=1, grace_s=0, skew_s=60
        )

        def task(target: float) -> Task:
            return replace(
                task_of(
                    site,
                    name,
                    question.domain,
                    question.mechanism,
                    windows,
                    max(2, reports // 2),
                    stored,
                ),
                target_epsilon=target,
            )

        certificate = lint(task(100.0)).guarantee
        if certificate is None:
            raise RuntimeError("the task of this benchmark has no certificate")
        return task(certificate.epsilon0)
