"""deploy/kubernetes: every object is one that Kubernetes knows, nothing runs with more than it
needs, the configuration loads, and the network holds the trust boundary.
"""

from __future__ import annotations

import os
import re
import subprocess
import time
import tomllib
from pathlib import Path
from runpy import run_path
from typing import Any

import kubernetes_validate
import pytest
from jsonschema import Draft202012Validator, ValidationError
from typer.testing import CliRunner

from shoal.analyzer.config import AnalyzerConfig
from shoal.cli.main import build
from shoal.limits import LIMITS
from shoal.services.settings import load_settings
from shoal.shuffler.config import ShufflerConfig
from tests.worlds.kubernetes import FOLDER, ROOT, Place, admits, allowed, only, pods, rendered

ROLES = ("shuffler", "analyzer")
OVERLAYS = [f"overlays/{size}/{role}" for size in ("single", "replicated") for role in ROLES]
EVERYTHING = [*OVERLAYS, *(f"monitoring/{role}" for role in ROLES)]
KUBERNETES = "1.35"  # a version that is run widely; native sidecars are stable from 1.33 on


def shape(required: str = "", **fields: Any) -> dict[str, Any]:
    """A schema of an object that has these fields and no other."""
    return {
        "type": "object",
        "properties": fields,
        "required": required.split(),
        "additionalProperties": False,
    }


TEXT, WHOLE, YES_NO = {"type": "string"}, {"type": "integer"}, {"type": "boolean"}
SECRET = shape("name key", name=TEXT, key=TEXT)
AMOUNTS = {"type": "object", "additionalProperties": TEXT}
METADATA = shape("name namespace", name=TEXT, namespace=TEXT, labels=AMOUNTS)
# What we use of other projects' objects, in the words of their references: CloudNativePG 1.28 and
# the Prometheus operator 0.80. An unknown field would be dropped without a word.
FOREIGN = {
    "Cluster": shape(
        "instances storage postgresql",
        imageName=TEXT,
        instances={"type": "integer", "minimum": 2},
        enableSuperuserAccess=YES_NO,
        primaryUpdateStrategy={"enum": ["unsupervised", "supervised"]},
        primaryUpdateMethod={"enum": ["switchover", "restart"]},
        bootstrap=shape(
            "initdb", initdb=shape("", database=TEXT, owner=TEXT, dataChecksums=YES_NO)
        ),
        postgresql=shape(
            "synchronous",
            synchronous=shape(
                "method number",
                method={"enum": ["any", "first"]},
                number=WHOLE,
                dataDurability={"enum": ["required", "preferred"]},
                failoverQuorum=YES_NO,
            ),
            parameters=AMOUNTS,
        ),
        affinity=shape(
            "",
            enablePodAntiAffinity=YES_NO,
            podAntiAffinityType={"enum": ["required", "preferred"]},
            topologyKey=TEXT,
        ),
        storage=shape("size", size=TEXT),
        walStorage=shape("size", size=TEXT),
        resources=shape("", requests=AMOUNTS, limits=AMOUNTS),
    ),
    "ServiceMonitor": shape(
        "selector endpoints",
        jobLabel=TEXT,
        selector=shape("matchLabels", matchLabels=AMOUNTS),
        endpoints={
            "type": "array",
            "items": shape(
                "port",
                port=TEXT,
                path=TEXT,
                scheme={"enum": ["http", "https"]},
                interval={"type": "string", "pattern": "^[0-9]+s$"},
                authorization=shape("", type=TEXT, credentials=SECRET),
                tlsConfig=shape("", serverName=TEXT, ca=shape("", secret=SECRET)),
            ),
        },
    ),
    "PrometheusRule": shape(
        "groups",
        groups={
            "type": "array",
            "items": shape(
                "name rules",
                name=TEXT,
                rules={
                    "type": "array",
                    "items": shape(
                        "alert expr",
                        alert=TEXT,
                        expr=TEXT,
                        labels=AMOUNTS,
                        annotations=AMOUNTS,
                        **{"for": TEXT},
                    ),
                },
            ),
        },
    ),
}


def check(one: dict[str, Any]) -> None:
    """Raises ValidationError for a field or a value that nobody would understand."""
    if one["kind"] in FOREIGN:
        whole = shape(
            "apiVersion kind metadata spec",
            apiVersion=TEXT,
            kind=TEXT,
            metadata=METADATA,
            spec=FOREIGN[one["kind"]],
        )
        Draft202012Validator(whole).validate(one)
    else:
        kubernetes_validate.validate(one, KUBERNETES, strict=True)


@pytest.mark.parametrize("kustomization", EVERYTHING)
def test_every_object_is_one_that_kubernetes_knows(kustomization: str) -> None:
    for one in rendered(kustomization):
        check(one)


@pytest.mark.parametrize(
    ("kustomization", "kind", "name", "field", "value"),
    [
        (OVERLAYS[0], "StatefulSet", "shuffler", "replica", 1),
        (OVERLAYS[0], "Service", "shuffler", "sessionAffinity", 3),
        (OVERLAYS[2], "Cluster", "shuffler-db", "backups", {}),
        (EVERYTHING[-1], "ServiceMonitor", "analyzer", "endpoint", []),
    ],
)
def test_the_check_can_fail(
    kustomization: str, kind: str, name: str, field: str, value: object
) -> None:
    one = only(rendered(kustomization), kind, name)
    with pytest.raises((ValidationError, kubernetes_validate.ValidationError)):
        check({**one, "spec": {**one["spec"], field: value}})


def every_pod() -> list[tuple[str, dict[str, Any]]]:
    return [(name, pod) for over in OVERLAYS for name, pod in pods(rendered(over)).items()]


def test_pods_are_restricted() -> None:
    """As the namespace demands of every pod (Pod Security "restricted"), and read-only beyond it.
    Planted: no seccompProfile, or a container without its securityContext -> fails.
    """
    for over in OVERLAYS:
        namespace = next(one for one in rendered(over) if one["kind"] == "Namespace")
        assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    for name, pod in every_pod():
        spec = pod["spec"]
        assert spec["automountServiceAccountToken"] is False, name
        assert spec["enableServiceLinks"] is False, name
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["runAsUser"] == 10001, "the image's user"
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert not {"hostNetwork", "hostPID", "hostIPC"} & spec.keys()
        for container in [*spec.get("initContainers", []), *spec["containers"]]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }, (name, container["name"])
            assert "memory" in container["resources"]["limits"]
        for volume in spec["volumes"]:
            assert volume.keys() - {"name"} <= {"configMap", "secret", "projected", "emptyDir"}
            assert "emptyDir" not in volume or volume["emptyDir"]["medium"] == "Memory"


@pytest.mark.parametrize("kustomization", OVERLAYS)
def test_keys_of_reports_come_by_no_secret(kustomization: str) -> None:
    """What opens reports lies on the pod's own volume, which no other pod mounts. Planted:
    keys_dir below /etc/shoal/identity -> fails.
    """
    role = kustomization.rpartition("/")[2]
    objects = rendered(kustomization)
    made = only(objects, "StatefulSet", role)["spec"]
    (claim,) = made["volumeClaimTemplates"]
    assert claim["spec"]["accessModes"] == ["ReadWriteOncePod"]
    mounted = made["template"]["spec"]["containers"][0]["volumeMounts"]
    (state,) = [one["mountPath"] for one in mounted if one["name"] == claim["metadata"]["name"]]
    config = tomllib.loads(only(objects, "ConfigMap", role)["data"][f"{role}.toml"])
    for key in ("data_dir", "keys_dir"):
        assert config[key].startswith(f"{state}/")
    kept = {"whenDeleted": "Retain", "whenScaled": "Retain"}
    assert made["persistentVolumeClaimRetentionPolicy"] == kept
    assert not [one for one in objects if one["kind"] == "Secret"]


@pytest.mark.parametrize("kustomization", OVERLAYS)
def test_the_configuration_names_what_is_mounted(kustomization: str) -> None:
    """Every path lies in a mount; every port of a Service is one of the container. Planted: the
    mount of /tasks taken out -> fails.
    """
    role = kustomization.rpartition("/")[2]
    objects = rendered(kustomization)
    config = tomllib.loads(only(objects, "ConfigMap", role)["data"][f"{role}.toml"])
    (container,) = only(objects, "StatefulSet", role)["spec"]["template"]["spec"]["containers"]
    mounts = [one["mountPath"] for one in container["volumeMounts"]]
    flat = [
        *config.values(),
        *(v for t in config.values() if isinstance(t, dict) for v in t.values()),
    ]
    for path in flat:
        if isinstance(path, str) and path.startswith("/"):
            assert any(path == at or path.startswith(f"{at}/") for at in mounts), path
    ports = {str(one["containerPort"]): one["name"] for one in container["ports"]}
    assert {config[key].rpartition(":")[2] for key in ("listen", "admin_listen")} == ports.keys()
    for service in objects:
        if service["kind"] == "Service" and service["spec"]["selector"] == {
            "app.kubernetes.io/name": role
        }:
            assert service["spec"].get("sessionAffinity", "None") == "None"
            for port in service["spec"]["ports"]:
                assert ports[str(port["port"])] == port["targetPort"]


@pytest.mark.parametrize("kustomization", OVERLAYS)
def test_the_configuration_loads_with_what_the_site_sets(
    kustomization: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: the authorities without their quotes -> fails."""
    role = kustomization.rpartition("/")[2]
    objects = rendered(kustomization)
    (tmp_path / "own.toml").write_text(only(objects, "ConfigMap", role)["data"][f"{role}.toml"])
    for name, value in only(objects, "ConfigMap", f"{role}-site")["data"].items():
        monkeypatch.setenv(name, value)
    (container,) = only(objects, "StatefulSet", role)["spec"]["template"]["spec"]["containers"]
    hosts = f"SHOAL_{role.upper()}_ADMIN__HOSTS"
    (given,) = [one["value"] for one in container["env"] if one["name"] == hosts]
    monkeypatch.setenv(hosts, given.replace("$(POD_IP)", "10.1.2.3"))
    kind: type[ShufflerConfig | AnalyzerConfig] = (
        ShufflerConfig if role == "shuffler" else AnalyzerConfig
    )
    config = load_settings(kind, tmp_path / "own.toml")
    assert config.authorities == ["0" * 64]
    assert config.admin.hosts == ["10.1.2.3"]
    if isinstance(config, ShufflerConfig):
        assert config.store.replicas == only(objects, "StatefulSet", role)["spec"]["replicas"]
    elif "replicated" in kustomization:
        assert config.opening.workers == ("0" * 64,)
    args = ["serve", "--config", f"/etc/shoal/config/{role}.toml"]
    assert container["args"] == [role, *args]


@pytest.mark.parametrize("name", ["scheduler", "worker"])
def test_machines_for_batches_are_started_with_options_that_there_are(name: str) -> None:
    """Planted: ``--worker-key`` in place of ``--identity`` -> fails."""
    (container,) = pods(rendered("overlays/replicated/analyzer"))[f"dask-{name}"]["spec"][
        "containers"
    ]
    part, command, *options = container["args"]
    assert (part, command) == ("analyzer", name)
    told = (
        CliRunner()
        .invoke(build(["analyzer"]), [part, command, "--help"], env={"COLUMNS": "400"})
        .output
    )
    known = set(re.findall(r"--[a-z-]+", re.sub(r"\x1b\[[0-9;]*m", "", told)))
    given = {option.partition("=")[0] for option in options}
    assert given <= known
    assert given >= {"--listen", "--ca", "--certificate", "--key"}


def test_the_identity_is_copied_for_one_user_and_renewed(tmp_path: Path) -> None:
    """The script of the sidecar, on files as Kubernetes lays them: links through ``..data``, which
    is exchanged as a whole. Planted: ``install -m 0640`` -> fails; ``last=$now`` before the loop
    -> the renewal is not seen.
    """
    given, identity, tools = (tmp_path / name for name in ("given", "identity", "tools"))
    for folder in (given, identity, tools):
        folder.mkdir()
    (tools / "sleep").write_text("#!/bin/sh\nexec /bin/sleep 0.05\n")
    (tools / "sleep").chmod(0o755)

    def give(version: str) -> None:
        (given / version).mkdir()
        (given / version / "signing.key").write_text(version)
        (given / "new").symlink_to(version)
        (given / "new").rename(given / "..data")

    give("..first")
    (given / "signing.key").symlink_to("..data/signing.key")
    spec = pods(rendered(OVERLAYS[0]))["shuffler"]["spec"]
    (sidecar,) = [one for one in spec["initContainers"] if one["name"] == "identity"]
    assert sidecar["restartPolicy"] == "Always"
    script = sidecar["args"][0].replace("/given", str(given)).replace("/identity", str(identity))
    path = f"{tools}:{os.environ['PATH']}"
    running = subprocess.Popen([*sidecar["command"], script], env={"PATH": path})
    try:
        holds(identity / "signing.key", "..first")
        assert (identity / "signing.key").stat().st_mode & 0o777 == 0o600
        give("..second")
        holds(identity / "signing.key", "..second")
        assert {one.name for one in identity.iterdir()} == {".copied", "signing.key"}
    finally:
        running.kill()
        running.wait()


def holds(path: Path, text: str) -> None:
    """Wait until the file does."""
    until = time.monotonic() + 30
    while not (path.exists() and path.read_text() == text):
        assert time.monotonic() < until, f"{path.name} never held {text}"
        time.sleep(0.01)


@pytest.mark.parametrize("role", ROLES)
def test_the_components_add_one_table_to_the_configuration(role: str) -> None:
    """Planted: a line of the base's file changed in the base alone -> fails."""
    component = {"shuffler": "postgresql", "analyzer": "dask"}[role]
    base = (FOLDER / "base" / role / f"{role}.toml").read_text()
    more = (FOLDER / "components" / component / f"{role}.toml").read_text()
    assert more.startswith(base)
    added = tomllib.loads(more).keys() - tomllib.loads(base).keys()
    assert added == {{"shuffler": "store", "analyzer": "opening"}[role]}
    if role == "shuffler":
        objects = rendered("overlays/replicated/shuffler")
        assert (
            tomllib.loads(more)["store"]["replicas"]
            == (only(objects, "StatefulSet", role)["spec"]["replicas"])
        )


def test_a_replica_has_time_to_drain() -> None:
    """SIGTERM comes after preStop; then calls drain, and the last commit is made."""
    spec = pods(rendered(OVERLAYS[0]))["shuffler"]["spec"]
    waits = float(spec["containers"][0]["lifecycle"]["preStop"]["exec"]["command"][1])
    assert spec["terminationGracePeriodSeconds"] >= waits + LIMITS.drain_s + 30


def test_replicas_are_spread_and_leave_one_by_one() -> None:
    objects = rendered("overlays/replicated/shuffler")
    made = only(objects, "StatefulSet", "shuffler")["spec"]
    assert made["replicas"] == 3
    assert made["updateStrategy"]["type"] == "RollingUpdate"
    spread = made["template"]["spec"]["topologySpreadConstraints"]
    assert {one["topologyKey"]: one["whenUnsatisfiable"] for one in spread} == {
        "kubernetes.io/hostname": "DoNotSchedule",
        "topology.kubernetes.io/zone": "ScheduleAnyway",
    }
    budget = only(objects, "PodDisruptionBudget", "shuffler")["spec"]
    assert budget["maxUnavailable"] == 1
    assert budget["selector"]["matchLabels"].items() <= (
        made["template"]["metadata"]["labels"].items()
    )


def test_the_database_acknowledges_on_two_machines_and_keeps_no_copies() -> None:
    """Planted: dataDurability "preferred", or a backup section -> fails."""
    cluster = only(rendered("overlays/replicated/shuffler"), "Cluster", "shuffler-db")["spec"]
    synchronous = cluster["postgresql"]["synchronous"]
    assert synchronous["dataDurability"] == "required"
    assert synchronous["failoverQuorum"] is True
    assert 1 <= synchronous["number"] < cluster["instances"] - 1, "one may fail"
    assert "backup" not in cluster
    assert cluster["affinity"]["podAntiAffinityType"] == "required"


def place(name: str, namespace: str, label: str = "app.kubernetes.io/name") -> Place:
    return Place(name, namespace, ((label, name),))


SHUFFLER, ANALYZER = place("shuffler", "shoal-shuffler"), place("analyzer", "shoal-analyzer")
DATABASE = place("shuffler-db", "shoal-shuffler", "cnpg.io/cluster")
SCHEDULER, WORKER = (place(f"dask-{one}", "shoal-analyzer") for one in ("scheduler", "worker"))
PROMETHEUS, OUTSIDE = place("prometheus", "monitoring"), Place("outside", "")
OPERATOR = place("cloudnative-pg", "cnpg-system")
OTHER = Place("other", "shoal-shuffler"), Place("other", "shoal-analyzer"), Place("other", "web")
DNS = Place("kube-dns", "kube-system", (("k8s-app", "kube-dns"),))
# Who listens where.
PORTS = {
    SHUFFLER: (7443, 7444),
    ANALYZER: (7445, 7446),
    DATABASE: (5432, 8000),
    SCHEDULER: (8786, 8787),
    WORKER: (8788,),
}
# All that may be: every other pair of caller and port is refused.
REACHED = {
    *((caller, SHUFFLER, 7443) for caller in (PROMETHEUS, OUTSIDE, OPERATOR, OTHER[2], DNS)),
    (PROMETHEUS, SHUFFLER, 7444),
    (SHUFFLER, ANALYZER, 7445),
    (PROMETHEUS, ANALYZER, 7446),
    (SHUFFLER, DATABASE, 5432),
    (DATABASE, DATABASE, 5432),
    (DATABASE, DATABASE, 8000),
    (OPERATOR, DATABASE, 5432),
    (OPERATOR, DATABASE, 8000),
    (ANALYZER, SCHEDULER, 8786),
    (WORKER, SCHEDULER, 8786),
    (ANALYZER, WORKER, 8788),
    (SCHEDULER, WORKER, 8788),
    (WORKER, WORKER, 8788),
}


def test_the_network_holds_the_trust_boundary() -> None:
    """Every caller against every port, with both sides in one cluster. Planted: the policy
    "nothing" taken out; 5432 opened for the namespace; ``from`` taken out of the analyzer's rule;
    an egress of the analyzer's without ``to`` -> each fails.
    """
    objects = [one for role in ROLES for one in rendered(f"overlays/replicated/{role}")]
    policies = [one for one in objects if one["kind"] == "NetworkPolicy"]
    callers = [*PORTS, PROMETHEUS, OUTSIDE, OPERATOR, *OTHER, DNS]
    found = {
        (caller, target, port)
        for caller in callers
        for target, ports in PORTS.items()
        for port in ports
        if allowed(policies, caller, target, port)
    }
    assert found == REACHED
    # a pod that somebody adds is refused by the ports themselves, not only kept from calling
    for caller in OTHER:
        for target, ports in PORTS.items():
            for port in ports:
                let_in = admits(policies, target, caller, port)
                assert let_in == (port == 7443), (caller, target, port)
    # nobody goes out into the world, but for the database's instances, which tell the API
    for caller in PORTS:
        for port in (53, 80, 443, 6443, 8443):
            told = caller == DATABASE and port in {443, 6443}
            assert allowed(policies, caller, OUTSIDE, port) == told, (caller, port)
    assert not allowed(policies, ANALYZER, SHUFFLER, 7443)
    single = [one for one in rendered(OVERLAYS[1]) if one["kind"] == "NetworkPolicy"]
    assert not allowed(single, ANALYZER, DNS, 53), "alone it calls nobody"


def test_what_is_written_twice_is_the_same() -> None:
    """Planted: a threshold changed in deploy/prometheus alone -> fails."""
    written: dict[Path, str] = run_path(str(ROOT / "tools" / "deployment.py"))["files"]()
    for path, text in written.items():
        assert path.read_text() == text, f"{path.name}: run python tools/deployment.py"


@pytest.mark.parametrize("role", ROLES)
def test_the_monitor_finds_its_service(role: str) -> None:
    """The alerts ask for the job "shoal"; the token is one that the configuration wants."""
    spec = only(rendered(f"monitoring/{role}"), "ServiceMonitor", role)["spec"]
    objects = rendered(f"overlays/single/{role}")
    (service,) = [
        one
        for one in objects
        if one["kind"] == "Service"
        and spec["selector"]["matchLabels"].items() <= one["metadata"]["labels"].items()
    ]
    assert service["metadata"]["labels"][spec["jobLabel"]] == "shoal"
    (endpoint,) = spec["endpoints"]
    assert endpoint["port"] in {port["name"] for port in service["spec"]["ports"]}
    config = tomllib.loads(only(objects, "ConfigMap", role)["data"][f"{role}.toml"])
    wanted = Path(config["admin"]["token_file"]).name
    assert endpoint["authorization"]["credentials"]["key"] == wanted
