"""The objects of deploy/kubernetes as Kustomize renders them, and who reaches whom by their
NetworkPolicies.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "deploy" / "kubernetes"
Objects = list[dict[str, Any]]


@functools.cache
def rendered(kustomization: str) -> tuple[dict[str, Any], ...]:
    """The objects of a folder of deploy/kubernetes. Skips without kubectl, or fails with
    SHOAL_KUBECTL=1, as in ``.ci/run``.
    """
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        told = "kubectl is not installed: get it from the project Kubernetes, 1.27 or later"
        assert os.environ.get("SHOAL_KUBECTL") != "1", told
        pytest.skip(told)
    done = subprocess.run(
        [kubectl, "kustomize", str(FOLDER / kustomization)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return tuple(YAML(typ="safe").load_all(done.stdout))


def only(objects: tuple[dict[str, Any], ...], kind: str, name: str) -> dict[str, Any]:
    """The one object of this kind and name."""
    (found,) = [one for one in objects if one["kind"] == kind and one["metadata"]["name"] == name]
    return found


def pods(objects: tuple[dict[str, Any], ...]) -> dict[str, dict[str, Any]]:
    """Pod templates by the name of what makes them."""
    return {
        one["metadata"]["name"]: one["spec"]["template"]
        for one in objects
        if one["kind"] in {"StatefulSet", "Deployment"}
    }


@dataclass(frozen=True)
class Place:
    """Something that calls or is called: a pod, or "outside" of the cluster without a namespace."""

    name: str
    namespace: str
    labels: tuple[tuple[str, str], ...] = ()

    def has(self, wanted: dict[str, str]) -> bool:
        return set(wanted.items()) <= set(self.labels)


def allowed(policies: Objects, source: Place, target: Place, port: int) -> bool:
    """Whether both ends' policies let ``source`` call ``target``. A pod that no policy selects
    is open, as in Kubernetes.
    """
    return _one_end(policies, source, target, port, "Egress") and _one_end(
        policies, target, source, port, "Ingress"
    )


def admits(policies: Objects, target: Place, source: Place, port: int) -> bool:
    """Whether ``target``'s own policies let ``source`` in, whatever those of ``source`` say."""
    return _one_end(policies, target, source, port, "Ingress")


def _one_end(policies: Objects, here: Place, there: Place, port: int, way: str) -> bool:
    concerned = [
        one["spec"]
        for one in policies
        if one["metadata"]["namespace"] == here.namespace
        and way in one["spec"]["policyTypes"]
        and here.has(one["spec"]["podSelector"].get("matchLabels", {}))
    ]
    if not concerned:
        return True
    peers = "to" if way == "Egress" else "from"
    return any(
        (peers not in rule or any(_matches(peer, here, there) for peer in rule[peers]))
        and ("ports" not in rule or port in {one["port"] for one in rule["ports"]})
        for spec in concerned
        for rule in spec.get(way.lower()) or []
    )


def _matches(peer: dict[str, Any], here: Place, there: Place) -> bool:
    assert peer.keys() <= {"namespaceSelector", "podSelector"}, "a peer that this does not model"
    if "namespaceSelector" in peer:
        wanted = peer["namespaceSelector"]["matchLabels"]
        if wanted != {"kubernetes.io/metadata.name": there.namespace}:
            return False
    elif there.namespace != here.namespace:
        return False
    return there.has(peer.get("podSelector", {}).get("matchLabels", {}))
