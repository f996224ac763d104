"""Every name in the objects is the project's: options, variables, parameters, pages, ports, images."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from tests.deploy.kubernetes.objects import (
    CHART,
    PAGE,
    PROFILES,
    ROOT,
    VALUES,
    Object,
    containers,
    environment,
    gateway,
    of_kind,
    pods,
    server,
    shipped,
)
from tests.project.pages import section, tables
from tests.project.test_configs import SETTINGS
from tests.project.test_docs import COMMANDS, options_of, refusal
from trimodal.cli import build
from trimodal.gateway.settings import GatewaySettings
from trimodal.server.options import PROFILES as SERVED
from trimodal.server.options import ServerOptions
from trimodal.server.overlay import parse_changes
from trimodal.server.supervision import health_page

COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
by_profile = pytest.mark.parametrize("profile", PROFILES)
# Not ours: the hub's own token, and where libraries look for a home.
FOREIGN = {"HF_TOKEN", "HOME"}


def variables() -> set[str]:
    """Every variable that an option of `serve` or `gateway` reads."""
    found = set()
    for name in ("serve", "gateway"):
        for option in COMMANDS.get_command(typer.Context(COMMANDS), name).params:
            given = option.envvar or ()
            found |= {given} if isinstance(given, str) else set(given)
    return found


def test_profiles_are_the_project_s() -> None:
    assert set(VALUES["profiles"]) == set(PROFILES) == set(SERVED)


@by_profile
def test_commands_and_variables_are_taken(profile: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Values too: the command line's own parser reads them."""
    for one, command in ((server(shipped(profile)), "serve"), (gateway(shipped(profile)), "gateway")):
        assert one["args"][0] == command
        assert "command" not in one, "the image's entrypoint stays: NVIDIA's, too"
        with monkeypatch.context() as patch:
            for name, value in environment(one).items():
                assert name in variables(), name
                patch.setenv(name, value)
            assert not refusal(one["args"], whole=True)


def test_a_command_or_a_variable_that_is_wrong_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or the test above could not fail."""
    assert refusal(["serve", "--drain-timeouts=3"], whole=True)
    assert refusal(["gateway", "--upstreams=a", "--silent"], whole=True)
    monkeypatch.setenv("TRIMODAL_LOG_FORMAT", "xml")
    assert refusal(["serve"], whole=True)


@by_profile
def test_parameters_that_are_set_exist(profile: str) -> None:
    given = [part.removeprefix("--set=") for part in server(shipped(profile))["args"] if "--set=" in part]
    assert given == VALUES["profiles"][profile]["set"]
    for model, parameters in parse_changes(given).items():
        assert parameters.keys() <= SETTINGS[model].model_fields.keys()


def test_links_of_services_would_set_options() -> None:
    """Why enableServiceLinks is off: Kubernetes makes TRIMODAL_GATEWAY_PORT of a Service."""
    names = {one["metadata"]["name"] for one in of_kind("Service", shipped("cpu"))}
    linked = {f"{name.upper().replace('-', '_')}_PORT" for name in names}
    assert linked & variables() == {"TRIMODAL_GATEWAY_PORT", "TRIMODAL_GRPC_PORT"}
    for profile in PROFILES:
        assert all(pod["spec"]["enableServiceLinks"] is False for pod in pods(shipped(profile)))


@by_profile
def test_what_builds_engines_is_a_command_of_the_project(profile: str) -> None:
    commands = list(builds(profile))
    assert commands == [tuple(each["command"]) for each in VALUES["profiles"][profile]["builds"]]
    for program, *arguments in commands:
        if program == "/opt/nvidia/nvidia_entrypoint.sh":
            program, *arguments = arguments
        if program == "trimodal":
            assert not refusal(arguments, whole=True)
            continue
        assert program == "python3"
        script = ROOT / arguments[0]
        given = {part.split("=")[0] for part in arguments if part.startswith("--")}
        assert given <= options_of(script), script


def builds(profile: str) -> Iterator[tuple[str, ...]]:
    for pod in pods(shipped(profile)):
        for one in containers(pod):
            if one["name"].startswith("build-"):
                assert one["command"][3:5] == [
                    "build",
                    f"/engines/.built-{one['name'].removeprefix('build-')}",
                ]
                yield tuple(one["command"][6:])


@by_profile
def test_a_recipe_is_served_with_what_it_says(profile: str) -> None:
    """`trimodal build all` prints these settings at its end."""
    for _, *arguments in builds(profile):
        for recipe in re.findall(r"--recipe=(\w+)", " ".join(arguments)):
            assert build.PROFILES[recipe] == profile
            wanted = {setting for part in build.RECIPES[recipe].values() for setting in part.settings}
            assert wanted <= set(VALUES["profiles"][profile]["set"])


@by_profile
def test_images_are_those_that_compose_builds(profile: str) -> None:
    built = {service["image"] for service in COMPOSE.values() if "build" in service}
    found = {one["image"] for pod in pods(shipped(profile)) for one in containers(pod)}
    assert found == {f"trimodal:{profile}", f"trimodal:build-{profile}", "trimodal:gateway"} & built
    assert len(found) == 3


@by_profile
def test_the_commands_of_images_are_kept_where_arguments_replace_them(profile: str) -> None:
    """`args` replaces the image's CMD: what stands there has to be here, too."""
    dockerfile = (ROOT / "deploy" / "docker" / "Dockerfile").read_text()
    found = re.search(rf"AS serve-{profile}\n(?:(?!^FROM ).*\n)*?CMD \[(.+)\]", dockerfile, re.MULTILINE)
    wanted = re.findall(r'"([^"]+)"', found[1]) if found else ["serve", "--verbose"]
    text = " ".join(server(shipped(profile))["args"]).replace("--set=", "--set ")
    assert all(part in text.split() for part in wanted)


@by_profile
def test_ports_are_those_that_the_project_listens_on(profile: str) -> None:
    options, settings = ServerOptions(), GatewaySettings()
    assert named_ports(server(shipped(profile))) == {
        "http": options.http_port,
        "grpc": options.grpc_port,
        "metrics": options.metrics_port,
        "health": options.health_port,
    }
    assert named_ports(gateway(shipped(profile))) == {"http": settings.port}


def named_ports(one: Object) -> dict[str, int]:
    return {port["name"]: port["containerPort"] for port in one["ports"]}


@by_profile
def test_probes_ask_pages_that_there_are(profile: str) -> None:
    pages = {"health": set(re.findall(r'"(/\w+)"', inspect.getsource(health_page.HealthServer)))}
    routes = (Path(ROOT / "trimodal" / "gateway" / "app.py")).read_text()
    pages["http"] = set(re.findall(r'\.get\("(/\w+)"', routes))
    assert {"/ready", "/live"} <= pages["health"]
    assert {"/health", "/ready", "/metrics"} <= pages["http"]
    for one, kinds in ((server(shipped(profile)), "health"), (gateway(shipped(profile)), "http")):
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            asked = one[probe]["httpGet"]
            assert asked["port"] == kinds
            assert asked["path"] in pages[kinds], asked
    assert server(shipped(profile))["livenessProbe"]["httpGet"]["path"] == "/live"
    assert server(shipped(profile))["readinessProbe"]["httpGet"]["path"] == "/ready"


def test_variables_of_builds_are_known() -> None:
    for profile in PROFILES:
        for pod in pods(shipped(profile)):
            for one in containers(pod):
                if one["name"].startswith("build-"):
                    assert set(environment(one)) <= variables() | FOREIGN


def test_the_chart_s_texts_name_values_that_there_are() -> None:
    """Templates read `.Values.a.b`: a name that values.yaml lacks would be empty, silently."""
    for file in (CHART / "templates").iterdir():
        for path in re.findall(r"\.Values((?:\.\w+)+)", file.read_text()):
            place: Any = VALUES
            for step in path.strip(".").split("."):
                assert step in place, f"{file.name}: .Values{path}"
                place = place[step]


def test_the_page_names_values_that_there_are() -> None:
    rows = tables(section(PAGE, "Values"))[1:]
    named = [path for row in rows for path in re.findall(r"`([\w.*]+)`", row[0])]
    assert len(named) > 15
    for path in named:
        place: Any = VALUES
        for step in path.replace("*", "cpu").split("."):
            assert step in place, path
            place = place[step]


def test_the_page_names_the_objects_that_there_are() -> None:
    named = re.findall(
        r"^(\w+) `([\w-]+)`", "\n".join(row[0] for row in tables(section(PAGE, "What is there"))), re.M
    )
    found = {(one["kind"], one["metadata"]["name"]) for one in shipped("cpu")}
    assert set(named) == {one for one in found if one[0] not in ("NetworkPolicy", "PodDisruptionBudget")}
