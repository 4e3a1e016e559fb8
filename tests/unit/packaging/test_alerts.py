"""Alerts and dashboard: every metric that they name is one of the services', every alert has its
runbook, and promtool sees each fire and be quiet.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from shoal.analyzer.core import REASONS, BatchState
from shoal.errors import Kind
from shoal.services.conditions import CODES
from shoal.shuffler.core import WindowState
from tests.worlds.operations import TOKEN, Site

ROOT = Path(__file__).resolve().parents[3]
FOLDER = ROOT / "deploy" / "prometheus"
RULES, CASES = FOLDER / "shoal.rules.yml", FOLDER / "shoal.rules.test.yml"
DASHBOARD = ROOT / "deploy" / "grafana" / "shoal.json"
PAGE = ROOT / "docs" / "OPERATIONS.md"
METRIC = re.compile(r"\b((?:shoal|process)_[a-z_]+)")


def rules() -> list[dict[str, Any]]:
    (group,) = YAML(typ="safe").load(RULES.read_text())["groups"]
    listed: list[dict[str, Any]] = group["rules"]
    return listed


def expressions() -> dict[str, str]:
    """By alert, or by panel of the dashboard."""
    panels = json.loads(DASHBOARD.read_text())["panels"]
    shown = {
        f"{one['title']} {at}": t["expr"] for one in panels for at, t in enumerate(one["targets"])
    }
    return shown | {rule["alert"]: rule["expr"] for rule in rules()}


async def page(port: int, token: str) -> str:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = f"GET /metrics HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n"
    writer.write(f"{head}Connection: close\r\n\r\n".encode())
    answer = (await reader.read()).decode()
    writer.close()
    assert answer.startswith("HTTP/1.1 200")
    return answer


async def test_every_metric_and_label_that_is_asked_for_is_one_of_the_services(
    tmp_path: Path,
) -> None:
    """Asked of both services, with a broker configured. Planted: ``shoal_disk_free`` in a rule; a
    metric of the shuffler taken out -> fails, and names the alert.
    """
    site = Site(tmp_path)
    with_broker = {"mqtt": {"broker": f"127.0.0.1:{site.ports[3]}", "insecure": True}}
    original = site.shuffler_toml
    site.shuffler_toml = lambda **changes: original(**with_broker, **changes)  # type: ignore[method-assign] # one more table
    async with site.running():
        pages = await page(site.ports[1], "") + await page(site.ports[3], TOKEN)
    samples = set(re.findall(r"^# TYPE ([a-z_]+) ", pages, re.MULTILINE))
    histograms = re.findall(r"^# TYPE ([a-z_]+) histogram", pages, re.MULTILINE)
    samples |= {f"{name}_bucket" for name in histograms}
    labels = set(re.findall(r"[{,]([a-z_]+)=\"", pages)) | {"job", "instance", "kind", "reason"}
    values = {
        "code": set(CODES),
        "state": {one.name for one in WindowState} | {one.name.lower() for one in BatchState},
        "outcome": {one.name for one in WindowState} | {"released", "withheld"},
        "kind": {one.name for one in Kind},
        "reason": set(REASONS),
    }
    for name, expression in expressions().items():
        told = re.sub(r"label_values|\$__?[a-z]+", "", expression)
        assert set(METRIC.findall(told)) <= samples, name
        for label, matched in re.findall(r"([a-z_]+)[=!]~?\"([^\"]*)\"", told):
            assert label in labels, (name, label)
            if label in values:
                assert set(matched.split("|")) <= values[label], (name, label, matched)


def test_every_alert_has_its_runbook_and_every_runbook_its_alert() -> None:
    """Planted: an alert renamed in the rules alone -> fails. Planted: a section more -> fails."""
    text = PAGE.read_text()
    sections = re.findall(r"^### (Shoal\w+)$", text, re.MULTILINE)
    alerts = [rule["alert"] for rule in rules()]
    assert sections == alerts
    for rule in rules():
        name = rule["alert"]
        assert rule["annotations"]["runbook"] == f"docs/OPERATIONS.md#{name.lower()}"
        assert rule["annotations"]["summary"].endswith(".")
        assert rule["labels"]["severity"] in {"critical", "warning"}
        body = text.partition(f"### {name}\n")[2].partition("\n### ")[0]
        assert "\n- " in body, f"{name}: says nothing to do"
    for other in re.findall(r"\b(Shoal[A-Z]\w+)\b", text):
        assert other in alerts, other


def test_each_alert_is_tried_firing_and_quiet() -> None:
    """Planted: the quiet case of one alert taken out -> fails."""
    tried = [case["name"] for case in YAML(typ="safe").load(CASES.read_text())["tests"]]
    wanted = [f"{rule['alert']} {how}" for rule in rules() for how in ("fires", "is quiet")]
    assert tried == wanted


def test_promtool_sees_each_alert_fire_and_be_quiet(tmp_path: Path) -> None:
    """SHOAL_PROMTOOL=1, as in ``.ci/run``, makes a machine without it a failure. Planted: each
    comparison of the rules turned around, one by one -> each fails.
    """
    promtool = shutil.which("promtool")
    if promtool is None:
        assert os.environ.get("SHOAL_PROMTOOL") != "1", "apt-get install prometheus"
        pytest.skip("promtool is not installed: apt-get install prometheus")
    done = subprocess.run(
        [promtool, "test", "rules", CASES.name],
        check=False,
        cwd=FOLDER,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
