"""The Helm chart, rendered by Helm's own SDK: it keeps schemas, refuses nonsense, and its scripts work."""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.objects import (
    CHART,
    DEPLOY,
    PROFILES,
    RELEASES,
    Object,
    Refused,
    containers,
    needs_helm,
    of_kind,
    pods,
    problems,
    rendered,
)  # fmt: skip
from tests.project.pages import section, tables
from tests.project.test_docs import refusal
from trimodal.gateway.upstreams.file import read_upstreams

PAGE = DEPLOY.parent / "docs" / "kubernetes.md"
CLAIM = {"volume": "claim", "claim": "models", "build": "job"}
VARIANTS: dict[str, dict[str, Any]] = {
    **{profile: {"profile": profile} for profile in PROFILES},
    "a job builds": {
        "profile": "tensorrt",
        "engines": CLAIM | {"hubSecret": "hub", "checkpointsClaim": "mine"},
    },
    "built already": {"profile": "cuda", "engines": CLAIM | {"build": "none"}},
    "in passing": {"profile": "cuda", "engines": {"volume": "emptyDir"}},
    "no gateway": {"gateway": {"enabled": False}, "podDisruptionBudget": {"enabled": False}},
    "open": {
        "gateway": {
            "withoutKeys": True,
            "corsOrigins": ["https://a.example"],
            "args": ["--model-alias=gpt-4o=llm", "--log-requests=0.1"],
            "env": [{"name": "TRIMODAL_RESPONSES", "value": "redis://redis:6379/0"}],
            "upstreams": ["b-0.b:8001:8003"],
        },
        "networkPolicy": {"enabled": False},
        "ingress": {"enabled": True, "className": "nginx", "tlsSecret": "tls", "annotations": {"a": "b"}},
    },
    "scaled": {
        "replicas": None,
        "maxReplicas": 3,
        "monitoring": {"enabled": True, "gatewayKeySecret": "key"},
    },
    "its own": {
        "fullnameOverride": "speech",
        "image": {"repository": "registry.example/trimodal", "tagSuffix": "-2", "pullSecrets": ["a", "b"]},
        "server": {
            "models": ["speech"],
            "set": ["speech.policy=vad"],
            "files": {"llm/tiers.toml": "[tier.default]\npriority = 0\n", "llm/1/x": "y"},
            "operatorKeySecret": "operator",
            "otlp": "http://collector:4318",
            "env": [{"name": "REDIS", "valueFrom": {"secretKeyRef": {"name": "redis", "key": "password"}}}],
            "nodeSelector": {"a": "b"},
            "tolerations": [{"operator": "Exists"}],
            "affinity": {"podAntiAffinity": {}},
            "podAnnotations": {"c": "d"},
            "podLabels": {"e": "f"},
            "priorityClassName": "high",
        },
        "gpu": {"runtimeClassName": "nvidia", "resource": "nvidia.com/mig-3g.40gb"},
        "profile": "cuda",
        "networkPolicy": {"clients": [{"podSelector": {}}], "gatewayClients": [{"podSelector": {}}]},
    },
}
by_variant = pytest.mark.parametrize(
    "values",
    [
        pytest.param(values, id=name, marks=() if name in PROFILES else pytest.mark.slow)
        for name, values in VARIANTS.items()
    ],
)


def test_helm_finds_nothing_wrong() -> None:
    """Severity 1 is advice: the chart has no icon."""
    needs_helm()
    lint = "import helm_python, json, sys; print(json.dumps(helm_python.lint(sys.argv[1])))"
    command = [sys.executable, "-c", lint, str(CHART)]
    found = json.loads(subprocess.run(command, capture_output=True, check=True, timeout=60).stdout)
    assert found["errors"] == []
    assert {message["severity"] for message in found["messages"]} <= {1}


@by_variant
def test_objects_keep_kubernetes_schemas(values: dict[str, Any]) -> None:
    """Of the oldest release promised, and of the newest."""
    ours = [one for one in rendered(**values) if one["kind"] != "PodMonitor"]  # another project's kind
    assert len(ours) > 4
    assert not problems(ours)


@by_variant
def test_commands_are_taken_and_mounts_have_volumes(values: dict[str, Any]) -> None:
    given = rendered(**values)
    for one in containers(given):
        assert "args" not in one or not refusal(one["args"], whole=True)
    claims = {"engines", "cache"} if of_kind("StatefulSet", given) else set()
    for object in given:
        for _, spec in pods(object):
            volumes = {volume["name"] for volume in spec["volumes"]} | claims
            ours = [*spec.get("initContainers", ()), *spec["containers"]]
            assert {mount["name"] for one in ours for mount in one["volumeMounts"]} <= volumes


@pytest.mark.parametrize("part", ["terminationGracePeriodSecond", "securityContexts", "volume"])
def test_a_misspelt_name_is_a_problem(part: str) -> None:
    """Or the schemas would hold nothing."""
    (whole,) = json.loads(json.dumps(of_kind("StatefulSet", rendered(profile="cpu"))))
    whole["spec"]["template"]["spec"][part] = 1
    assert len(problems([whole])) == len(RELEASES)


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"profile": "gpu"}, "profile"),
        ({"server": {"drainSecond": 3}}, "drainSecond"),
        ({"server": {"set": ["llm=3"]}}, "set"),
        ({"server": {"files": {"tiers.toml": ""}}}, "tiers.toml"),
        ({"engines": {"volume": "claim", "build": "job"}}, "claim"),
        ({"engines": CLAIM | {"build": "init"}}, "build"),
        ({"engines": {"build": "job"}}, "build"),
        ({"gateway": {"keysSecret": ""}}, "keysSecret"),
        ({"fullnameOverride": "Upper"}, "fullnameOverride"),
        ({"profiles": {"cpu": {"gpu": 1}}}, "gpu"),
    ],
)
def test_values_that_make_no_sense_are_refused_by_name(values: dict[str, Any], named: str) -> None:
    with pytest.raises(Refused, match=named):
        rendered(**values)


def test_the_manifests_are_written_by_one_command(tmp_path: Path) -> None:
    needs_helm()
    script = DEPLOY / "kubernetes" / "render.py"
    subprocess.run([sys.executable, script, tmp_path], check=True, timeout=60)
    assert {file.stem for file in tmp_path.glob("*.yaml")} == set(PROFILES)
    for profile in PROFILES:
        text = (tmp_path / f"{profile}.yaml").read_text()
        assert text.startswith(f"# Profile {profile} ")
        assert [one for one in yaml.safe_load_all(text) if one] == rendered(profile=profile)


def test_dashboards_are_what_their_generator_writes() -> None:
    """They are kept: docker-compose hands them to Grafana as they are."""
    generator = runpy.run_path(str(DEPLOY / "grafana" / "generate.py"))
    kept = {file.stem: file.read_text() for file in (DEPLOY / "grafana" / "dashboards").glob("*.json")}
    assert kept == {name: generator["text"](name) for name in generator["DASHBOARDS"]}


# What runs before a server


@pytest.mark.parametrize("profile", PROFILES)
def test_engines_are_built_once_and_again_when_something_changed(profile: str, tmp_path: Path) -> None:
    """The scripts themselves, with another command in the place of the build."""
    (workload,) = of_kind("StatefulSet", rendered(profile=profile))
    script = workload["spec"]["template"]["spec"]["initContainers"][0]["command"][:4]
    mark, log = tmp_path / ".built-all", tmp_path / "log"

    def run(wanted: str, *command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*script, mark, wanted, *command], capture_output=True, text=True, timeout=20, check=False
        )

    command = ("/bin/sh", "-c", f"echo built >> {log}")
    assert run("1", *command).returncode == 0
    assert "built before" in run("1", *command).stdout
    assert log.read_text().count("built") == 1
    assert run("2", "/bin/sh", "-c", "exit 3").returncode == 3
    assert mark.read_text() == "1", "a build that failed is none"
    assert run("2", *command).returncode == 0
    assert (mark.read_text(), log.read_text().count("built")) == ("2", 2)


def test_servers_wait_for_the_job_that_builds_for_all(tmp_path: Path) -> None:
    given = rendered(**VARIANTS["a job builds"])
    (job,) = of_kind("Job", given)
    (workload,) = of_kind("StatefulSet", given)
    (wait,) = workload["spec"]["template"]["spec"]["initContainers"]
    marks = [part for one in containers([job]) for part in one["command"][4:6]]
    assert len(marks) == 8
    assert wait["command"][4:] == marks, "it waits for what the job leaves"
    # The script itself, on files of this test.
    here = [str(tmp_path / Path(part).name) if part.startswith("/") else part for part in marks]
    for mark, wanted in list(zip(here[::2], here[1::2], strict=True))[:-1]:
        Path(mark).write_text(wanted)
    waiting = subprocess.Popen([*wait["command"][:4], *here])
    with pytest.raises(subprocess.TimeoutExpired):
        waiting.wait(0.3)
    Path(here[-2]).write_text(here[-1])
    assert waiting.wait(10) == 0


def test_a_job_of_other_builds_has_another_name() -> None:
    """A Job that is there cannot be changed."""
    jobs = [
        of_kind("Job", rendered(profile=profile, engines=CLAIM, image={"tagSuffix": suffix}))
        for profile in PROFILES
        for suffix in ("", "-2")
    ]
    assert len({job["metadata"]["name"] for (job,) in jobs}) == 6


def test_edited_files_start_servers_again() -> None:
    def template(text: str) -> Object:
        (one,) = of_kind("StatefulSet", rendered(server={"files": {"llm/tiers.toml": text}}))
        return dict(one["spec"]["template"]["metadata"])

    assert template("a") != template("b")


def test_gateways_reach_the_store_that_is_named_for_them() -> None:
    store = {"to": [{"podSelector": {"matchLabels": {"app": "redis"}}}], "ports": [{"port": 6379}]}
    policies = of_kind("NetworkPolicy", rendered(networkPolicy={"gatewayEgress": [store]}))
    reach = {one["metadata"]["name"]: store in one["spec"]["egress"] for one in policies}
    assert reach == {"trimodal": False, "trimodal-gateway": True}


@pytest.mark.parametrize("values", [{"profile": "cpu"}, VARIANTS["scaled"]])
def test_the_gateway_reads_the_file_that_names_its_servers(values: dict[str, Any], tmp_path: Path) -> None:
    given = rendered(**values)
    configs = {one["metadata"]["name"]: one["data"] for one in of_kind("ConfigMap", given)}
    (tmp_path / "upstreams.toml").write_text(configs["trimodal-upstreams"]["upstreams.toml"])
    count = values.get("maxReplicas", 1)
    wanted = [f"trimodal-{number}.trimodal-pods:8001:8003" for number in range(count)]
    assert list(read_upstreams(tmp_path / "upstreams.toml")) == wanted


def test_the_page_names_values_that_there_are() -> None:
    rows = tables(section(PAGE, "Values"))[1:]
    named = [path for row in rows for path in row[0].replace("*", "cpu").split("`")[1::2]]
    assert len(named) > 15
    for path in named:
        place: Any = yaml.safe_load((CHART / "values.yaml").read_text())
        for step in path.split("."):
            assert step in place, path
            place = place[step]
