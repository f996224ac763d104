"""Reads Kubernetes objects, of the manifests or as the chart renders them, and finds the pods in them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[3]
MANIFESTS = ROOT / "deploy" / "kubernetes"
CHART = ROOT / "deploy" / "helm" / "trimodal"
PAGE = ROOT / "docs" / "kubernetes.md"
VALUES: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
PROFILES = ("cpu", "cuda", "tensorrt")
RENDER = (
    "import json, runpy, sys; found = runpy.run_path(sys.argv[1]);"
    "sys.stdout.write(found[sys.argv[2]](json.loads(sys.argv[3])))"
)

Object = dict[str, Any]


class Refused(Exception):
    """The chart does not take these values."""


def objects(text: str) -> list[Object]:
    return [found for found in yaml.safe_load_all(text) if found]


@cache
def shipped(profile: str) -> list[Object]:
    """The objects of a plain manifest."""
    return objects((MANIFESTS / f"{profile}.yaml").read_text())


@cache
def render(function: str, argument: str) -> str:
    """What a function of render.py makes of an argument in JSON. Raises: Refused.

    In a process of its own: Helm's SDK brings Go's runtime, which once ended a process that had run two
    hundred other tests, with their signal handlers and threads.
    """
    command = [sys.executable, "-c", RENDER, str(MANIFESTS / "render.py"), function, argument]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode:
        raise Refused(done.stderr)
    return done.stdout


def rendered(**values: Any) -> list[Object]:
    """What the chart makes of these values."""
    return objects(render("rendered", json.dumps(values)))


def of_kind(kind: str, given: list[Object]) -> list[Object]:
    return [found for found in given if found["kind"] == kind]


def the(kind: str, name: str, given: list[Object]) -> Object:
    (found,) = [one for one in of_kind(kind, given) if one["metadata"]["name"] == name]
    return found


def pods(given: list[Object]) -> Iterator[Object]:
    """The template of each pod: its labels and its PodSpec."""
    for found in given:
        if found["kind"] in ("StatefulSet", "Deployment", "Job"):
            yield found["spec"]["template"]


def containers(pod: Object) -> list[Object]:
    """Those that run before the pod's own, and these."""
    spec = pod["spec"]
    return [*spec.get("initContainers", []), *spec["containers"]]


def server(given: list[Object]) -> Object:
    """The container that runs `trimodal serve`."""
    return container("StatefulSet", "server", given)


def gateway(given: list[Object]) -> Object:
    """The container that runs `trimodal gateway`."""
    return container("Deployment", "gateway", given)


def container(kind: str, name: str, given: list[Object]) -> Object:
    (workload,) = of_kind(kind, given)
    (found,) = [one for one in workload["spec"]["template"]["spec"]["containers"] if one["name"] == name]
    return found


def environment(one: Object) -> dict[str, str]:
    """Variable → value; of those that come from a Secret, empty."""
    return {variable["name"]: variable.get("value", "") for variable in one.get("env", [])}


def selects(selector: Object, labels: Object) -> bool:
    """Whether a selector of labels takes these."""
    assert set(selector) == {"matchLabels"}
    return bool(selector["matchLabels"].items() <= labels.items())


def matched(expression: Object, given: list[Object]) -> set[str]:
    """The components of the pods that a selector takes."""
    found = [pod["metadata"]["labels"] for pod in pods(given)]
    return {labels["app.kubernetes.io/component"] for labels in found if selects(expression, labels)}


def size(quantity: str) -> int:
    """Bytes of a quantity in Ki, Mi or Gi."""
    return int(quantity[:-2]) << {"Ki": 10, "Mi": 20, "Gi": 30}[quantity[-2:]]
