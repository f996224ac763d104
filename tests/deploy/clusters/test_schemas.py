"""Every object fits its schema: that of a package (slow: npm and PyPI), or ours where no package has one."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from tests.deploy.clusters.objects import Found, objects, pods
from tests.deploy.clusters.published import NotHereError, kserve_problems, kubernetes_problems
from tests.deploy.clusters.unpublished import MODELS, EndpointPickerConfig

KSERVE = ("ServingRuntime", "InferenceService")


def test_every_kind_has_a_schema() -> None:
    """Or the tests below could pass it over."""
    kinds = {found.kind for found in objects()}
    assert {*KSERVE, *MODELS, "ScaledObject", "HTTPRoute", "Deployment", "StatefulSet"} <= kinds
    published = {found.kind for found, _ in of_kubernetes() if found.kind in kinds}
    assert published | {*KSERVE, *MODELS} == kinds


@pytest.mark.parametrize("found", objects(*MODELS), ids=lambda found: found.where)
def test_an_object_without_a_published_schema_fits_ours(found: Found) -> None:
    MODELS[found.kind].model_validate(found.object)


@pytest.mark.parametrize("found", objects(*MODELS), ids=lambda found: found.where)
def test_ours_refuse_what_is_unknown(found: Found) -> None:
    wrong = copy.deepcopy(found.object)
    wrong["spec"]["replica"] = 1
    with pytest.raises(ValidationError, match=r"spec\.replica"):
        MODELS[found.kind].model_validate(wrong)


def test_the_configuration_of_the_picker_fits() -> None:
    (config,) = (found for found in objects("ConfigMap") if "plugins.yaml" in found.object["data"])
    EndpointPickerConfig.model_validate(yaml.safe_load(config.object["data"]["plugins.yaml"]))


@pytest.mark.slow
def test_objects_fit_the_schemas_of_kubernetes_keda_and_gateway_api() -> None:
    given = [(found.where, object) for found, object in of_kubernetes()]
    assert len(given) > 30
    try:
        problems = kubernetes_problems(given)
        wrong = [("wrong", one) for one in spoilt([object for _, object in given])]
        refused = kubernetes_problems(wrong)
    except NotHereError as error:
        pytest.skip(str(error))
    assert not problems
    for word in ("bogus", "replicas must be integer", "fallback", "path/type must be equal", "podSelecter"):
        assert any(word in one for one in refused), (word, refused)


@pytest.mark.slow
@pytest.mark.parametrize("found", objects(*KSERVE), ids=lambda found: found.where)
def test_objects_fit_the_schemas_of_kserve(found: Found) -> None:
    try:
        assert not kserve_problems(found.object)
        wrong = copy.deepcopy(found.object)
        wrong["spec"]["bogus"] = {"minReplicas": "2"}
        part = wrong["spec"].get("predictor", {})
        part["minReplicas"] = "2"
        wrong["spec"].pop("containers", None)
        refused = "\n".join(kserve_problems(wrong))
    except NotHereError as error:
        pytest.skip(str(error))
    assert "spec.bogus: V1" in refused
    assert "minReplicas: '2' is no int" in refused or ".spec.containers: missing" in refused


def of_kubernetes() -> list[tuple[Found, dict[str, Any]]]:
    """Objects of kinds with a published schema, and pods for what is inside others."""
    found = [(one, one.object) for one in objects() if one.kind not in (*KSERVE, *MODELS)]
    for one in objects("ServingRuntime", "LeaderWorkerSet"):
        for index, (labels, spec) in enumerate(pods(one)):
            metadata = {"name": f"{one.name}-{index}", "labels": labels}
            pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
            found.append((Found(one.file, pod), pod))
    return found


def spoilt(given: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Objects that a schema has to refuse: an unknown name, a wrong type, a wrong value; deep inside, too."""

    def one(kind: str) -> dict[str, Any]:
        return copy.deepcopy(next(object for object in given if object["kind"] == kind))

    deployment, scaled, pod, policy = one("Deployment"), one("ScaledObject"), one("Pod"), one("NetworkPolicy")
    deployment["spec"]["replicas"] = "three"
    scaled["spec"]["fallback"] = {"replicas": 2}
    pod["spec"]["containers"][0]["bogus"] = True
    policy["spec"]["ingress"][0]["from"][0] = {"podSelecter": {}}
    route = one("HTTPRoute")
    route["spec"]["rules"][0]["matches"][0]["path"]["type"] = "Prefix"
    return [deployment, scaled, pod, policy, route]
