"""Dashboards are those of their generator, and Grafana is told to read them."""

from __future__ import annotations

import runpy
from typing import Any

import pytest
import yaml

from tests.deploy.expressions import DASHBOARDS, DEPLOY, panels

GRAFANA = DEPLOY / "grafana"
GENERATOR: dict[str, Any] = runpy.run_path(str(GRAFANA / "generate.py"))


def test_there_is_a_file_for_each() -> None:
    assert (
        {file.stem for file in DASHBOARDS}
        == set(GENERATOR["DASHBOARDS"])
        == {"slo", "llm", "vision", "speech"}
    )


@pytest.mark.parametrize("file", DASHBOARDS, ids=lambda file: file.stem)
def test_a_file_is_what_the_generator_writes(file: Any) -> None:
    assert file.read_text() == GENERATOR["text"](file.stem), "run python deploy/grafana/generate.py"


def test_panels_have_places_of_their_own_and_something_to_show() -> None:
    for name in GENERATOR["DASHBOARDS"]:
        shown = GENERATOR["dashboard"](name)["panels"]
        places = {(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in shown}
        assert len(places) == len(shown)
        assert len({panel["title"] for panel in shown}) == len(shown)
    assert all(target["expr"] for panel in panels() for target in panel["targets"])


def test_the_data_source_is_the_one_that_is_provisioned() -> None:
    (source,) = yaml.safe_load((GRAFANA / "provisioning/datasources/prometheus.yml").read_text())[
        "datasources"
    ]
    assert {panel["datasource"]["uid"] for panel in panels()} == {source["uid"]}
    assert source["url"] == "http://prometheus:9090"
