"""Reads the Kubernetes objects of deploy/: those of its files, and those that the Helm chart renders."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
CHART = DEPLOY / "helm" / "trimodal"
_OLDEST = yaml.safe_load((CHART / "Chart.yaml").read_text())["kubeVersion"].removeprefix(">=")
RELEASES = (_OLDEST.rsplit(".", 1)[0], "1.37")  # the oldest that is promised, and the newest
PROFILES = ("cpu", "cuda", "tensorrt")
FOLDERS = ("kserve", "keda", "inference-extension", "multi-gpu")
RENDER = (
    "import json, runpy, sys; found = runpy.run_path(sys.argv[1]);"
    "sys.stdout.write(found['rendered'](json.loads(sys.argv[2])))"
)

Object = dict[str, Any]


class Refused(Exception):
    """The chart does not take these values."""


@cache
def _render(values: str) -> list[Object]:
    """In a process of its own: Helm's SDK brings Go's runtime, which once ended a process that had run two
    hundred other tests, with their signal handlers and threads."""
    command = [sys.executable, "-c", RENDER, str(DEPLOY / "kubernetes" / "render.py"), values]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode:
        raise Refused(done.stderr)
    return [found for found in yaml.safe_load_all(done.stdout) if found]


def needs_helm() -> None:
    """Skips the test without Helm's SDK. It is looked for, not imported: with Go's runtime in the process a
    write to a pipe that nobody reads (SIGPIPE) ends it by SIGSEGV, as Python's own handlers are gone."""
    if find_spec("helm_python") is None:
        pytest.skip("pip install '.[kubernetes]' brings Helm's SDK")


def rendered(**values: Any) -> list[Object]:
    """What the chart makes of these values. Raises: Refused. Skips the test without Helm's SDK."""
    needs_helm()
    return _render(json.dumps(values))


@cache
def files() -> dict[str, list[Object]]:
    """File, relative to deploy/ → its objects: all for clusters but the chart's own."""
    found = [file for folder in FOLDERS for file in sorted((DEPLOY / folder).glob("*.yaml"))]
    return {
        str(file.relative_to(DEPLOY)): list(yaml.safe_load_all(file.read_text()))
        for file in found
        if file.name != "batch-values.yaml"  # of the chart
    }


def of_kind(kind: str, given: list[Object] | None = None) -> list[Object]:
    """Those of a kind, of all files where none are given."""
    every = given if given is not None else [one for objects in files().values() for one in objects]
    return [found for found in every if found["kind"] == kind]


def pods(one: Object) -> Iterator[tuple[Object, Object]]:
    """Labels and PodSpec of each pod that an object makes; of KServe's runtime what it has of a PodSpec."""
    spec = one.get("spec", {})
    if one["kind"] in ("Deployment", "StatefulSet", "Job"):
        yield spec["template"]["metadata"]["labels"], spec["template"]["spec"]
    elif one["kind"] == "LeaderWorkerSet":
        for role in ("leaderTemplate", "workerTemplate"):
            template = spec["leaderWorkerTemplate"][role]
            yield template["metadata"]["labels"], template["spec"]
    elif one["kind"] == "ServingRuntime":
        fields = ("containers", "volumes", "tolerations", "nodeSelector", "affinity")
        yield {}, {name: spec[name] for name in fields if name in spec}


def containers(given: list[Object]) -> list[Object]:
    """All containers of all pods, those that run before the pod's own among them."""
    return [
        one
        for object in given
        for _, spec in pods(object)
        for one in [*spec.get("initContainers", []), *spec["containers"]]
    ]


def environment(one: Object) -> dict[str, str]:
    """Variable → value; of those that come from a Secret, empty."""
    return {variable["name"]: variable.get("value", "") for variable in one.get("env", [])}


def problems(given: list[Object]) -> list[str]:
    """What is wrong with objects; strict: unknown names are. Skips the test without the schemas."""
    schemas = pytest.importorskip("kubernetes_validate", reason="pip install '.[kubernetes]' brings them")
    found = []
    for one in given:
        for release in RELEASES:
            try:
                schemas.validate(one, release, strict=True)
            except schemas.ValidationError as error:
                found.append(f"{one['kind']} {one['metadata']['name']}, {release}: {error}")
    return found


def queries() -> dict[str, dict[str, str]]:
    """Name of what is scaled → PromQL of KEDA and KServe by trigger."""
    found: dict[str, dict[str, str]] = {}
    for one in of_kind("ScaledObject"):
        asked = {each["name"]: each["metadata"].get("query") for each in one["spec"]["triggers"]}
        found[one["metadata"]["name"]] = {name: query for name, query in asked.items() if query}
    for one in of_kind("InferenceService"):
        wanted = one["spec"]["predictor"].get("autoScaling", {}).get("metrics", ())
        found[one["metadata"]["name"]] = {
            str(index): metric["external"]["metric"]["query"] for index, metric in enumerate(wanted)
        }
    return found


def picker_flags() -> dict[str, str]:
    """Flags of the endpoint picker → values."""
    (picker,) = (one for one in of_kind("Deployment") if one["metadata"]["name"] == "trimodal-epp")
    (container,) = containers([picker])
    return dict(arg.removeprefix("--").split("=", 1) for arg in container["args"])
