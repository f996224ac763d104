"""Describes the objects whose schemas no package on PyPI or npm has, as far as deploy/ uses them.

Written after the types of the releases that are named; a field that is not here is refused.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

Name = Annotated[str, Field(pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$", max_length=253)]
LabelValue = Annotated[str, Field(pattern=r"^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$", max_length=63)]


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class Metadata(Strict):
    name: Name
    labels: dict[str, LabelValue] = {}


# Gateway API inference extension v1.2.0: api/v1, apix/v1alpha2, apix/config/v1alpha1.


class Port(Strict):
    number: int = Field(ge=1, le=65535)


class PoolSelector(Strict):
    matchLabels: dict[str, LabelValue] = Field(min_length=1, max_length=64)  # noqa: N815 - Kubernetes'


class EndpointPickerRef(Strict):
    group: str = ""
    kind: str = "Service"
    name: Name
    port: Port | None = None
    failureMode: Literal["FailOpen", "FailClose"] = "FailClose"  # noqa: N815

    @model_validator(mode="after")
    def _a_service_has_a_port(self) -> EndpointPickerRef:
        if self.kind == "Service" and not self.port:
            raise ValueError("port is required when kind is 'Service'")
        return self


class PoolSpec(Strict):
    selector: PoolSelector
    targetPorts: list[Port] = Field(min_length=1, max_length=8)  # noqa: N815
    endpointPickerRef: EndpointPickerRef  # noqa: N815


class InferencePool(Strict):
    apiVersion: Literal["inference.networking.k8s.io/v1"]  # noqa: N815
    kind: Literal["InferencePool"]
    metadata: Metadata
    spec: PoolSpec


class PoolRef(Strict):
    group: str = "inference.networking.k8s.io"
    kind: str = "InferencePool"
    name: Name


class ObjectiveSpec(Strict):
    priority: int | None = None
    poolRef: PoolRef  # noqa: N815


class InferenceObjective(Strict):
    apiVersion: Literal["inference.networking.x-k8s.io/v1alpha2"]  # noqa: N815
    kind: Literal["InferenceObjective"]
    metadata: Metadata
    spec: ObjectiveSpec


class Plugin(Strict):
    type: Literal["queue-scorer", "kv-cache-utilization-scorer", "prefix-cache-scorer", "max-score-picker"]
    name: str = ""
    parameters: dict[str, Any] = {}


class Weighted(Strict):
    pluginRef: str  # noqa: N815
    weight: int | float | None = Field(None, ge=0)


class Profile(Strict):
    name: str
    plugins: list[Weighted] = Field(min_length=1)


class EndpointPickerConfig(Strict):
    apiVersion: Literal["inference.networking.x-k8s.io/v1alpha1"]  # noqa: N815
    kind: Literal["EndpointPickerConfig"]
    plugins: list[Plugin] = Field(min_length=1)
    schedulingProfiles: list[Profile] = Field(min_length=1)  # noqa: N815

    @model_validator(mode="after")
    def _plugins_are_there(self) -> EndpointPickerConfig:
        known = {plugin.name or plugin.type for plugin in self.plugins}
        for profile in self.schedulingProfiles:
            for one in profile.plugins:
                if one.pluginRef not in known:
                    raise ValueError(f"profile {profile.name}: no plugin {one.pluginRef}")
        return self


# LeaderWorkerSet v0.7.0: api/leaderworkerset/v1. Templates of pods are checked as pods.


class RollingUpdate(Strict):
    partition: int | None = Field(None, ge=0)
    maxUnavailable: int | str = 1  # noqa: N815
    maxSurge: int | str = 0  # noqa: N815


class RolloutStrategy(Strict):
    type: Literal["RollingUpdate"]
    rollingUpdateConfiguration: RollingUpdate | None = None  # noqa: N815


class SubGroupPolicy(Strict):
    subGroupSize: int = Field(ge=1)  # noqa: N815


class NetworkConfig(Strict):
    subdomainPolicy: Literal["Shared", "UniquePerReplica"]  # noqa: N815


class LeaderWorkerTemplate(Strict):
    leaderTemplate: dict[str, Any] | None = None  # noqa: N815
    workerTemplate: dict[str, Any]  # noqa: N815
    size: int = Field(1, ge=1)
    restartPolicy: Literal["RecreateGroupOnPodRestart", "None"] = "RecreateGroupOnPodRestart"  # noqa: N815
    subGroupPolicy: SubGroupPolicy | None = None  # noqa: N815


class SetSpec(Strict):
    replicas: int = Field(1, ge=0)
    leaderWorkerTemplate: LeaderWorkerTemplate  # noqa: N815
    rolloutStrategy: RolloutStrategy | None = None  # noqa: N815
    startupPolicy: Literal["LeaderCreated", "LeaderReady"] = "LeaderCreated"  # noqa: N815
    networkConfig: NetworkConfig | None = None  # noqa: N815


class LeaderWorkerSet(Strict):
    apiVersion: Literal["leaderworkerset.x-k8s.io/v1"]  # noqa: N815
    kind: Literal["LeaderWorkerSet"]
    metadata: Metadata
    spec: SetSpec


MODELS: dict[str, type[Strict]] = {
    "InferencePool": InferencePool,
    "InferenceObjective": InferenceObjective,
    "LeaderWorkerSet": LeaderWorkerSet,
}
