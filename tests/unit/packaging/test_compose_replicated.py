"""deploy/compose.replicated.yaml and the files that it mounts: two shufflers behind one door, a
database that nobody else reaches.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from tests.unit.packaging.test_deploy import DEPLOY, schema_check

PATH = DEPLOY / "compose.replicated.yaml"
SHUFFLERS = ("shuffler-1", "shuffler-2")


def compose() -> dict[str, Any]:
    loaded: dict[str, Any] = YAML(typ="safe").load(PATH.read_text())
    return loaded


def test_it_fits_the_compose_specification() -> None:
    done = schema_check(PATH)
    assert done.returncode == 0, done.stdout + done.stderr


def test_nothing_runs_with_more_than_it_needs() -> None:
    """Planted: ``<<: *hardened`` taken out of the balancer -> fails."""
    for name, service in compose()["services"].items():
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"], name
        assert "no-new-privileges:true" in service["security_opt"], name
        assert service["ulimits"]["core"] == 0, name
        assert not {"privileged", "cap_add"} & service.keys(), name


def test_each_reaches_what_it_must() -> None:
    """One port is the world's; the database is reached by shufflers alone, the analyzer by them.
    Planted: network ``store`` given to the balancer -> fails.
    """
    services = compose()["services"]
    on = {
        network: {name for name, one in services.items() if network in one["networks"]}
        for network in compose()["networks"]
    }
    assert on == {
        "front": {"balancer", *SHUFFLERS},
        "link": {"analyzer", *SHUFFLERS},
        "store": {"database", "standby", *SHUFFLERS},
    }
    assert compose()["networks"]["link"]["internal"] is True
    assert compose()["networks"]["store"]["internal"] is True
    assert {name: one["ports"] for name, one in services.items() if "ports" in one} == {
        "balancer": ["7443:7443"]
    }


def test_the_shufflers_differ_in_their_volume_alone() -> None:
    services = compose()["services"]
    one, two = (services[name] for name in SHUFFLERS)
    assert {key: value for key, value in one.items() if key != "volumes"} == {
        key: value for key, value in two.items() if key != "volumes"
    }
    volumes = [services[name]["volumes"][1] for name in SHUFFLERS]
    assert volumes == [f"{name}-state:/var/lib/shoal" for name in SHUFFLERS]


def test_what_is_mounted_from_here_is_here() -> None:
    """Folders with secrets are the operator's; every file is one of deploy/."""
    for service in compose()["services"].values():
        for volume in service["volumes"]:
            source = volume.partition(":")[0]
            if source.startswith("./") and Path(source).suffix:
                assert (DEPLOY / source).is_file(), source


def test_the_balancer_takes_the_configuration(tmp_path: Path) -> None:
    """The names resolve in compose alone. SHOAL_HAPROXY=1, as in ``.ci/run``, makes a machine
    without HAProxy a failure. Planted: ``mode tpc`` -> fails.
    """
    text = (DEPLOY / "haproxy.cfg").read_text()
    listen = tomllib.loads((DEPLOY / "shuffler.toml").read_text())["listen"].rpartition(":")[2]
    for name in SHUFFLERS:
        assert f"server {name} {name}:{listen}\n" in text
    assert f"bind :{listen}\n" in text
    assert "send-proxy" not in text
    assert "\n    log" not in text, "addresses of devices"
    haproxy = shutil.which("haproxy", path=f"{os.environ['PATH']}:/usr/sbin")
    if haproxy is None:
        assert os.environ.get("SHOAL_HAPROXY") != "1", "apt-get install haproxy"
        pytest.skip("HAProxy is not installed: apt-get install haproxy")
    for name in SHUFFLERS:
        text = text.replace(f"{name}:", "127.0.0.1:")
    (tmp_path / "haproxy.cfg").write_text(text)
    command = [haproxy, "-c", "-f", str(tmp_path / "haproxy.cfg")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "[WARNING]" not in done.stderr, done.stderr
