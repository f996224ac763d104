"""Reads the objects of deploy/ for clusters, and finds the pods and queries in them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.deploy.expressions import metrics

ROOT = Path(__file__).parents[3]
DEPLOY = ROOT / "deploy"
FOLDERS = ("kserve", "keda", "inference-extension", "multi-gpu")
NOT_OBJECTS = ("batch-values.yaml",)  # of the chart


@dataclass(frozen=True)
class Found:
    """One object and its file, relative to deploy/."""

    file: str
    object: dict[str, Any]

    @property
    def kind(self) -> str:
        return str(self.object["kind"])

    @property
    def name(self) -> str:
        return str(self.object["metadata"]["name"])

    @property
    def where(self) -> str:
        return f"{self.file} {self.kind} {self.name}"


def objects(*kinds: str) -> list[Found]:
    """Those of these kinds; of all, if none is named."""
    return [found for found in _read() if not kinds or found.kind in kinds]


def pods(found: Found) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Labels and PodSpec of each pod that the object makes; of KServe's kinds what they have of a PodSpec."""
    spec = found.object.get("spec", {})
    if found.kind in ("Deployment", "StatefulSet"):
        yield spec["template"]["metadata"]["labels"], spec["template"]["spec"]
    elif found.kind == "LeaderWorkerSet":
        for role in ("leaderTemplate", "workerTemplate"):
            template = spec["leaderWorkerTemplate"][role]
            yield template["metadata"]["labels"], template["spec"]
    elif found.kind == "ServingRuntime":
        fields = ("containers", "volumes", "tolerations", "nodeSelector", "affinity")
        yield {}, {name: spec[name] for name in fields if name in spec}


def triggers(name: str) -> dict[str, dict[str, Any]]:
    """Those of a ScaledObject, by name."""
    (found,) = (one for one in objects("ScaledObject") if one.name == name)
    return {one["name"]: one for one in found.object["spec"]["triggers"]}


def queries() -> dict[str, str]:
    """All PromQL of KEDA and KServe, by a name of it."""
    found = {}
    for one in objects("ScaledObject"):
        for trigger in one.object["spec"]["triggers"]:
            if "query" in trigger["metadata"]:
                found[f"{one.name}:{trigger['name']}"] = trigger["metadata"]["query"]
    for one in objects("InferenceService"):
        wanted = one.object["spec"]["predictor"].get("autoScaling", {}).get("metrics", ())
        for index, metric in enumerate(wanted):
            found[f"{one.name}:{index}"] = metric["external"]["metric"]["query"]
    return found


def picker_flags() -> dict[str, str]:
    """Flags of the endpoint picker → values."""
    (picker,) = (one for one in objects("Deployment") if one.name == "trimodal-epp")
    (container,) = picker.object["spec"]["template"]["spec"]["containers"]
    return dict(arg.removeprefix("--").split("=", 1) for arg in container["args"])


def asked_metrics() -> set[str]:
    """Every metric of a server that a query or the picker names; Prometheus makes `up` itself."""
    asked = {name for query in queries().values() for name in metrics(query)}
    return asked | {value for flag, value in picker_flags().items() if flag.endswith("-metric") and value}


def _read() -> Iterator[Found]:
    for folder in FOLDERS:
        for file in sorted((DEPLOY / folder).glob("*.yaml")):
            if file.name not in NOT_OBJECTS:
                for object in yaml.safe_load_all(file.read_text()):
                    yield Found(str(file.relative_to(DEPLOY)), object)
