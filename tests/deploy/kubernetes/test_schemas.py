"""Every object keeps Kubernetes' published schemas: of the oldest release promised, and of the newest."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import yaml

from tests.deploy.kubernetes.objects import CHART, PROFILES, Object, shipped

kubernetes_validate: Any = pytest.importorskip(
    "kubernetes_validate", reason="pip install '.[kubernetes]' brings Kubernetes' schemas"
)
OLDEST = (
    yaml.safe_load((CHART / "Chart.yaml").read_text())["kubeVersion"].removeprefix(">=").rsplit(".", 1)[0]
)
RELEASES = (OLDEST, "1.37")


def problems(given: list[Object], releases: tuple[str, ...] = RELEASES) -> list[str]:
    """What is wrong with objects; strict: unknown names are."""
    found = []
    for one in given:
        for release in releases:
            try:
                kubernetes_validate.validate(one, release, strict=True)
            except kubernetes_validate.ValidationError as error:
                found.append(f"{one['kind']} {one['metadata']['name']}, {release}: {error}")
    return found


@pytest.mark.parametrize("profile", PROFILES)
def test_a_manifest_keeps_the_schemas(profile: str) -> None:
    assert len(shipped(profile)) >= 11
    assert not problems(shipped(profile))


@pytest.mark.parametrize(
    "path",
    [
        ("spec", "template", "spec", "terminationGracePeriodSecond"),
        ("spec", "template", "spec", "containers", 0, "readinesProbe"),
        ("spec", "template", "spec", "containers", 0, "securityContext", "readOnlyRootFileSystem"),
        ("spec", "volumeClaimTemplates", 0, "spec", "storageClass"),
    ],
)
def test_a_misspelt_name_is_a_problem(path: tuple[Any, ...]) -> None:
    """Or the test above could not fail."""
    (whole,) = [copy.deepcopy(one) for one in shipped("cpu") if one["kind"] == "StatefulSet"]
    place = whole
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = 1
    assert len(problems([whole])) == len(RELEASES)


def test_the_preStop_hook_is_one_that_the_oldest_release_has() -> None:
    (whole,) = [one for one in shipped("cpu") if one["kind"] == "StatefulSet"]
    assert "sleep" in whole["spec"]["template"]["spec"]["containers"][0]["lifecycle"]["preStop"]
    assert problems([whole], ("1.28",)), "1.28 knows no sleep: if it does, so may the chart"
    assert not problems([whole], (OLDEST,))
