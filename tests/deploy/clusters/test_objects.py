"""What objects name exists: in the project, and in each other."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from tests.deploy.clusters.objects import DEPLOY, FOLDERS, ROOT, Found, objects, pods
from tests.project.test_configs import REPOSITORY, SETTINGS, config
from tests.project.test_docs import refusal
from trimodal.gateway.settings import GatewaySettings
from trimodal.server.options import ServerOptions
from trimodal.server.overlay import parse_changes
from trimodal.settings import parse_parameters

COMPOSE = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
IMAGES = {service["image"] for service in COMPOSE["services"].values()}
OPTIONS = ServerOptions()
PORTS = {
    "http": OPTIONS.http_port,
    "grpc": OPTIONS.grpc_port,
    "metrics": OPTIONS.metrics_port,
    "health": OPTIONS.health_port,
}
ALL_PODS = [(found, labels, spec) for found in objects() for labels, spec in pods(found)]
CONTAINERS = [(found, container) for found, _, spec in ALL_PODS for container in spec["containers"]]
OURS = [(found, one) for found, one in CONTAINERS if one["image"].startswith("trimodal:")]
SERVERS = [(found, one) for found, one in OURS if one["args"][0] == "serve"]


def test_objects_are_found() -> None:
    """Or the tests below could not fail."""
    assert {found.file.split("/")[0] for found in objects()} == set(FOLDERS)
    assert len(SERVERS) == 5
    assert len(CONTAINERS) > 12


@pytest.mark.parametrize(("found", "container"), OURS, ids=lambda one: getattr(one, "where", ""))
def test_a_container_of_ours_is_started_as_its_command_allows(
    found: Found, container: dict[str, Any]
) -> None:
    assert container["image"] in IMAGES
    assert not refusal(list(container["args"]), whole=True)
    variables = {one["name"] for one in container["env"] if one["name"].startswith("TRIMODAL_")}
    source = "\n".join(file.read_text() for file in sorted((ROOT / "trimodal" / "cli").glob("*.py")))
    known = set(re.findall(r'envvar="(\w+)"', source)) | {"TRIMODAL_ENGINES"}
    assert variables <= known, found.where


@pytest.mark.parametrize(("found", "container"), SERVERS, ids=lambda one: getattr(one, "where", ""))
def test_parameters_that_are_set_fit_the_profile(found: Found, container: dict[str, Any]) -> None:
    profile = container["image"].split(":")[1]
    for model, changed in parse_changes(set_values(container["args"])).items():
        assert parameters(model, profile, changed), found.where


def set_values(args: list[str]) -> list[str]:
    """What --set is given, as two arguments or as one."""
    pairs = zip(args, [*args[1:], ""], strict=True)
    return [after if arg == "--set" else arg[6:] for arg, after in pairs if re.match(r"--set(=|$)", arg)]


def parameters(model: str, profile: str, changed: dict[str, str]) -> Any:
    """Settings of a model's config with these changed, or why not."""
    own = REPOSITORY / model / "configs" / f"{profile}.pbtxt"
    file = own if own.is_file() else REPOSITORY / model / "config.pbtxt"
    values = {name: value.string_value for name, value in config(file).parameters.items()}
    known = SETTINGS[model]
    return parse_parameters(known, values | changed, source=str(file))


def test_a_parameter_that_there_is_not_would_be_found() -> None:
    assert set_values(["serve", "--set", "a.b=1", "--set=c.d=2"]) == ["a.b=1", "c.d=2"]
    with pytest.raises(Exception, match="tensor_parallel"):
        parameters("llm", "cuda", {"tensor_parallel": "2"})


@pytest.mark.parametrize(("found", "container"), SERVERS, ids=lambda one: getattr(one, "where", ""))
def test_a_server_has_the_ports_and_probes_that_it_opens(found: Found, container: dict[str, Any]) -> None:
    assert {port["name"]: port["containerPort"] for port in container["ports"]} == PORTS
    page = (ROOT / "trimodal" / "server" / "supervision" / "health_page.py").read_text()
    for probe, path in (("startupProbe", "/ready"), ("readinessProbe", "/ready"), ("livenessProbe", "/live")):
        get = container[probe]["httpGet"]
        assert get["path"] == path, found.where
        assert f'"{path}"' in page
        assert get["port"] in ("health", PORTS["health"])
    environment = {one["name"]: one.get("value") for one in container["env"]}
    startup = container["startupProbe"]
    assert startup["periodSeconds"] * startup["failureThreshold"] >= int(
        environment["TRIMODAL_READY_TIMEOUT"]
    )


@pytest.mark.parametrize(("found", "labels", "spec"), ALL_PODS, ids=lambda one: getattr(one, "where", ""))
def test_pods_are_closed(found: Found, labels: dict[str, str], spec: dict[str, Any]) -> None:
    volumes = {volume["name"] for volume in spec.get("volumes", ())}
    for container in spec["containers"]:
        security = {**spec.get("securityContext", {}), **container["securityContext"]}
        assert security["runAsNonRoot"] is True
        assert security["seccompProfile"] == {"type": "RuntimeDefault"}
        assert security["readOnlyRootFilesystem"] is True
        assert security["allowPrivilegeEscalation"] is False
        assert security["capabilities"] == {"drop": ["ALL"]}
        assert {mount["name"] for mount in container.get("volumeMounts", ())} <= volumes
        limits, requests = container["resources"]["limits"], container["resources"]["requests"]
        assert limits["memory"]
        assert limits.get("nvidia.com/gpu") == requests.get("nvidia.com/gpu")
        if "nvidia.com/gpu" in limits:
            assert {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"} in spec[
                "tolerations"
            ]
    if found.kind == "ServingRuntime":
        return  # the rest is the InferenceService's
    # A Service trimodal-gateway would set TRIMODAL_GATEWAY_PORT=tcp://…, which is an option of ours.
    assert spec["enableServiceLinks"] is False, found.where
    assert labels["app.kubernetes.io/name"] == "trimodal"
    if labels["app.kubernetes.io/component"] != "endpoint-picker":
        assert spec["automountServiceAccountToken"] is False


@pytest.mark.parametrize(("found", "container"), SERVERS, ids=lambda one: getattr(one, "where", ""))
def test_a_pod_is_given_time_to_drain(found: Found, container: dict[str, Any]) -> None:
    drain = next(int(one["value"]) for one in container["env"] if one["name"] == "TRIMODAL_DRAIN_TIMEOUT")
    wait = container["lifecycle"]["preStop"]["sleep"]["seconds"]
    if found.kind == "ServingRuntime":
        (service,) = (one for one in objects("InferenceService") if one.name == found.name)
        grace = service.object["spec"]["predictor"]["terminationGracePeriodSeconds"]
    else:
        ((_, spec),) = pods(found)
        grace = spec["terminationGracePeriodSeconds"]
        for other in spec["containers"]:
            if other["image"] == "trimodal:gateway":  # it drains first: its upstream is there till the end
                assert other["lifecycle"]["preStop"]["sleep"]["seconds"] < wait
                assert GatewaySettings().drain_timeout_s <= drain
    assert grace >= wait + drain + 5, found.where


def test_services_policies_and_pools_select_pods_that_have_their_ports() -> None:
    for found in objects("Service", "InferencePool", "NetworkPolicy"):
        spec = found.object["spec"]
        wanted = spec.get("selector") or spec.get("podSelector")
        wanted = wanted.get("matchLabels", wanted)
        chosen = [pod for _, labels, pod in ALL_PODS if wanted.items() <= labels.items()]
        assert chosen, found.where
        names = {port["name"] for pod in chosen for one in pod["containers"] for port in one.get("ports", ())}
        numbers = {
            port["containerPort"]
            for pod in chosen
            for one in pod["containers"]
            for port in one.get("ports", ())
        }
        ports = [port["targetPort"] for port in spec.get("ports", ())]
        ports += [port["port"] for rule in spec.get("ingress", ()) for port in rule["ports"]]
        assert set(ports) <= names, found.where
        assert {port["number"] for port in spec.get("targetPorts", ())} <= numbers, found.where


def test_what_objects_refer_to_is_there() -> None:
    there = {(found.kind, found.name): found.object for found in objects()}
    (pool,) = objects("InferencePool")
    picker = pool.object["spec"]["endpointPickerRef"]
    service = there["Service", picker["name"]]
    assert picker["port"]["number"] in {port["port"] for port in service["spec"]["ports"]}
    for objective in objects("InferenceObjective"):
        assert objective.object["spec"]["poolRef"]["name"] == pool.name
    (route,) = objects("HTTPRoute")
    for parent in route.object["spec"]["parentRefs"]:
        listeners = there["Gateway", parent["name"]]["spec"]["listeners"]
        assert parent["sectionName"] in {listener["name"] for listener in listeners}
    for rule in route.object["spec"]["rules"]:
        for backend in rule["backendRefs"]:
            target = there[backend.get("kind", "Service"), backend["name"]]
            if "port" in backend:
                assert backend["port"] in {port["port"] for port in target["spec"]["ports"]}
    for service_of_kserve in objects("InferenceService"):
        model = service_of_kserve.object["spec"]["predictor"]["model"]
        runtime = there["ServingRuntime", model["runtime"]]["spec"]
        assert model["protocolVersion"] in runtime["protocolVersions"]
        assert model["modelFormat"]["name"] in {one["name"] for one in runtime["supportedModelFormats"]}
    for found, _, spec in ALL_PODS:
        for volume in spec.get("volumes", ()):
            if "configMap" in volume:
                assert ("ConfigMap", volume["configMap"]["name"]) in there, found.where


def test_paths_of_the_route_are_those_of_the_gateway() -> None:
    page = (ROOT / "docs" / "gateway.md").read_text()
    (route,) = objects("HTTPRoute")
    prompts, others = route.object["spec"]["rules"]
    for match in prompts["matches"]:
        assert f"`{match['method']} {match['path']['value']}`" in page
    assert others["matches"] == [{"path": {"type": "PathPrefix", "value": "/v1"}}], "never /metrics"


def test_objectives_are_the_tiers() -> None:
    text = (REPOSITORY / "llm" / "tiers.toml").read_text()
    tiers = {
        name: int((re.findall(r"^priority = (-?\d+)", body, re.MULTILINE) or ["0"])[0])
        for name, body in re.findall(r"^\[tier\.(\w+)\](.*?)(?=^\[|\Z)", text, re.MULTILINE | re.DOTALL)
    }
    assert {one.name: one.object["spec"]["priority"] for one in objects("InferenceObjective")} == tiers


def test_an_engines_own_router_knows_the_pods_that_there_are() -> None:
    replicas = {found.name: found.object["spec"]["replicas"] for found in objects("StatefulSet")}
    there = {f"{name}-{index}.{name}:8000" for name, count in replicas.items() for index in range(count)}
    known: dict[str, set[str]] = {}
    for file in ("disaggregated-vllm.yaml", "disaggregated-tensorrt-llm.yaml"):
        text = (DEPLOY / "multi-gpu" / file).read_text()
        known[file] = set(re.findall(r"([a-z-]+-\d\.[a-z-]+:8000)", text))
        assert len(known[file]) == 3
        assert known[file] <= there
    sleeper = {"trimodal-vllm-sleeper-0.trimodal-vllm-sleeper:8000"}
    assert set().union(*known.values()) | sleeper == there


def test_what_was_not_run_says_so() -> None:
    for file in (DEPLOY / "multi-gpu").glob("*.yaml"):
        assert file.read_text().startswith("# Not run. "), file.name


def test_versions_are_those_of_the_images() -> None:
    dockerfile = (ROOT / "deploy" / "docker" / "Dockerfile").read_text()
    (vllm,) = set(re.findall(r"vllm==([\d.]+)", dockerfile))
    (tensorrt_llm,) = set(re.findall(r"tensorrt_llm==([\d.]+)", dockerfile))
    compose = COMPOSE["services"]["proxy"]["image"]
    wanted = {
        f"vllm/vllm-openai:v{vllm}",
        f"vllm-ray:{vllm}",
        f"nvcr.io/nvidia/tensorrt-llm/release:{tensorrt_llm}",
        compose,
    }
    names = {image.rsplit(":", 1)[0] for image in wanted}
    used = {one["image"] for _, one in CONTAINERS}
    assert {image for image in used if image.rsplit(":", 1)[0] in names} == wanted
