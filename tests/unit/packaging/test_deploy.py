"""deploy/ holds together: a port, a path and a name are the same in every file, and nothing runs
with more than it needs.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

ROOT = Path(__file__).resolve().parents[3]
DEPLOY = ROOT / "deploy"
ROLES = ("shuffler", "analyzer")


def sample(role: str) -> dict[str, Any]:
    return tomllib.loads((DEPLOY / f"{role}.toml").read_text())


def port(address: str) -> str:
    return address.rpartition(":")[2]


def compose() -> dict[str, Any]:
    loaded: dict[str, Any] = YAML(typ="safe").load((DEPLOY / "compose.yaml").read_text())
    return loaded


def unit(role: str) -> dict[str, list[str]]:
    """Directive -> its values, in order."""
    lines = [
        line
        for line in (DEPLOY / "systemd" / f"shoal-{role}.service").read_text().splitlines()
        if "=" in line and line[0] != "#"
    ]
    found: dict[str, list[str]] = {}
    for line in lines:
        name, _, value = line.partition("=")
        found.setdefault(name, []).append(value)
    return found


def paths(config: dict[str, Any]) -> list[str]:
    flat = [
        value
        for part in (config, *(v for v in config.values() if isinstance(v, dict)))
        for value in part.values()
    ]
    return [value for value in flat if isinstance(value, str) and value.startswith("/")]


def schema_check(path: Path) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        "-m",
        "check_jsonschema",
        "--builtin-schema",
        "vendor.compose-spec",
        str(path),
    ]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_compose_fits_the_compose_specification() -> None:
    done = schema_check(DEPLOY / "compose.yaml")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("restart:", "restrat:"),
        ("cap_drop:\n    - ALL", "cap_drop: ALL"),
        ("pids_limit: 256", "pids_limit: []"),
    ],
)
def test_the_check_can_fail(tmp_path: Path, old: str, new: str) -> None:
    text = (DEPLOY / "compose.yaml").read_text()
    assert old in text
    (tmp_path / "compose.yaml").write_text(text.replace(old, new))
    assert schema_check(tmp_path / "compose.yaml").returncode != 0


@pytest.mark.parametrize("role", ROLES)
def test_compose_takes_away_what_is_not_needed(role: str) -> None:
    """Planted: dropping ``<<: *service`` from a service -> this fails."""
    service = compose()["services"][role]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert "cap_add" not in service
    assert "privileged" not in service
    assert "no-new-privileges:true" in service["security_opt"]
    assert service["ulimits"]["core"] == 0
    assert service["mem_limit"] == service["memswap_limit"]
    assert service["command"] == [role, "serve", "--config", f"/etc/shoal/{role}.toml"]
    assert f"./{role}:/etc/shoal:ro" in service["volumes"]
    assert int(service["stop_grace_period"].removesuffix("s")) > 10


def test_compose_shows_the_world_one_port() -> None:
    services = compose()["services"]
    listen = port(sample("shuffler")["listen"])
    assert services["shuffler"]["ports"] == [f"{listen}:{listen}"]
    assert "ports" not in services["analyzer"]
    assert compose()["networks"]["link"]["internal"] is True
    assert "front" not in services["analyzer"]["networks"]


def test_the_samples_meet_each_other() -> None:
    """The shuffler's sample dials what the analyzer's listens on, by the name that compose gives
    it.
    """
    host, _, dialled = sample("shuffler")["analyzer"]["address"].rpartition(":")
    assert dialled == port(sample("analyzer")["listen"])
    assert host in compose()["services"]["analyzer"]["networks"]["link"]["aliases"]
    exposed = re.search(r"^EXPOSE (.*)$", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)
    assert exposed is not None
    assert exposed[1].split() == [port(sample(role)["listen"]) for role in ROLES]


@pytest.mark.parametrize("role", ROLES)
def test_health_is_asked_where_it_is_answered(role: str) -> None:
    expected = f"http://127.0.0.1:{port(sample(role)['admin_listen'])}/healthz"
    assert compose()["services"][role]["environment"]["SHOAL_HEALTH"] == expected
    dockerfile = (DEPLOY / "Dockerfile").read_text()
    assert "HEALTHCHECK" in dockerfile
    if role == "shuffler":
        assert f"SHOAL_HEALTH={expected}" in dockerfile


@pytest.mark.parametrize("role", ROLES)
def test_what_a_service_writes_is_where_it_may_write(role: str) -> None:
    """Data, and keys that it deletes, are state; everything else is read-only configuration.
    Planted: keys_dir in /etc -> this fails.
    """
    config = sample(role)
    state = unit(role)["StateDirectory"][0].split()
    written = {config["data_dir"], config["keys_dir"]}
    assert written == {f"/var/lib/{folder}" for folder in state}
    assert f"{role}-state:/var/lib/shoal" in compose()["services"][role]["volumes"]
    assert all(path.startswith("/etc/shoal/") for path in set(paths(config)) - written)


HARDENED = {
    "NoNewPrivileges": "yes",
    "CapabilityBoundingSet": "",
    "AmbientCapabilities": "",
    "ProtectSystem": "strict",
    "ProtectHome": "yes",
    "PrivateTmp": "yes",
    "PrivateDevices": "yes",
    "ProtectClock": "yes",
    "ProtectKernelTunables": "yes",
    "ProtectKernelModules": "yes",
    "ProtectKernelLogs": "yes",
    "ProtectControlGroups": "yes",
    "ProtectProc": "invisible",
    "RestrictNamespaces": "yes",
    "RestrictSUIDSGID": "yes",
    "LockPersonality": "yes",
    "LimitCORE": "0",
    "MemorySwapMax": "0",
    "UMask": "0077",
    "StateDirectoryMode": "0700",
    "SystemCallArchitectures": "native",
    "RestrictAddressFamilies": "AF_INET AF_INET6 AF_UNIX",
}


@pytest.mark.parametrize("role", ROLES)
def test_units_are_hardened(role: str) -> None:
    """Planted: LimitCORE=infinity, or User=root -> this fails."""
    found = unit(role)
    assert {name: found.get(name, ["missing"])[0] for name in HARDENED} == HARDENED
    assert found["User"] == found["Group"] == [f"shoal-{role}"]
    assert found["ExecStart"] == [
        f"/opt/shoal/bin/shoal {role} serve --config /etc/shoal/{role}.toml"
    ]
    assert found["RestartPreventExitStatus"] == ["2"], "a wrong configuration does not mend itself"
    assert int(found["TimeoutStopSec"][0]) > 10
    assert found["KillMode"] == ["mixed"]


def test_the_units_differ_in_the_role_alone() -> None:
    """One is not hardened more than the other by accident."""
    texts = [
        (DEPLOY / "systemd" / f"shoal-{role}.service").read_text().replace(role, "ROLE")
        for role in ROLES
    ]
    assert texts[0] == texts[1]


def test_the_image_is_small_and_nobody() -> None:
    """Two stages from Debian slim, the second without a compiler or pip's cache, run by a user
    without a name to log in with.
    """
    text = (DEPLOY / "Dockerfile").read_text()
    stages = re.findall(r"^FROM (\S+)(?: AS (\w+))?$", text, re.MULTILINE)
    assert [name for _, name in stages] == ["build", ""]
    assert all(re.fullmatch(r"debian:\d+-slim", image) for image, _ in stages)
    final = text[text.rindex("\nFROM ") :]
    user = re.search(r"^USER (\d+):(\d+)$", final, re.MULTILINE)
    assert user is not None
    assert int(user[1]) > 0
    assert "pip install" not in final
    assert "-c constraints.txt" in text
    assert "STOPSIGNAL SIGTERM" in final


def test_the_build_context_holds_what_the_image_needs_and_no_secrets() -> None:
    """An allow-list. Planted: leaving constraints.txt out -> this fails."""
    lines = (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines()
    allowed = {line[1:] for line in lines if line.startswith("!")}
    assert "*" in lines
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    folders = {
        folder.split("/")[0] for folder in project["tool"]["setuptools"]["package-dir"].values()
    }
    assert allowed == folders | {
        "pyproject.toml",
        "constraints.txt",
        project["project"]["readme"],
        *project["project"]["license-files"],
    }
