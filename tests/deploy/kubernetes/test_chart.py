"""The chart, rendered by Helm's own SDK: manifests are current, other values make what they say."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.kubernetes.objects import (
    CHART,
    PROFILES,
    ROOT,
    Object,
    Refused,
    containers,
    environment,
    gateway,
    of_kind,
    pods,
    render,
    rendered,
    server,
    the,
)
from tests.project.test_docs import refusal
from trimodal.gateway.upstreams.file import read_upstreams

pytest.importorskip("helm_python", reason="pip install '.[kubernetes]' brings Helm's SDK")

CLAIM = {"volume": "claim", "claim": "models", "build": "job"}
VARIANTS: dict[str, dict[str, Any]] = {
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
by_variant = pytest.mark.parametrize("values", VARIANTS.values(), ids=VARIANTS.keys())


@pytest.mark.parametrize("profile", PROFILES)
def test_a_manifest_is_what_the_chart_renders(profile: str) -> None:
    file = ROOT / "deploy" / "kubernetes" / f"{profile}.yaml"
    assert file.read_text() == render("text", json.dumps(profile)), "run python deploy/kubernetes/render.py"


def test_helm_finds_nothing_wrong() -> None:
    """Severity 1 is advice: the chart has no icon."""
    lint = "import helm_python, json, sys; print(json.dumps(helm_python.lint(sys.argv[1])))"
    command = [sys.executable, "-c", lint, str(CHART)]
    found = json.loads(subprocess.run(command, capture_output=True, check=True, timeout=60).stdout)
    assert found["errors"] == []
    assert {message["severity"] for message in found["messages"]} <= {1}


@by_variant
def test_other_values_keep_the_schemas(values: dict[str, Any]) -> None:
    schemas = pytest.importorskip("tests.deploy.kubernetes.test_schemas")
    ours = [one for one in rendered(**values) if one["kind"] != "PodMonitor"]  # another project's kind
    assert ours
    assert not schemas.problems(ours)


@by_variant
def test_other_values_make_commands_that_are_taken(values: dict[str, Any]) -> None:
    given = rendered(**values)
    assert not refusal(server(given)["args"], whole=True)
    if of_kind("Deployment", given):
        assert not refusal(gateway(given)["args"], whole=True)
    for pod in pods(given):
        claims = {"engines", "cache"} if of_kind("StatefulSet", given) else set()
        volumes = {volume["name"] for volume in pod["spec"]["volumes"]} | claims
        assert {mount["name"] for one in containers(pod) for mount in one["volumeMounts"]} <= volumes


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


def test_one_job_builds_for_all_and_servers_wait_for_it(tmp_path: Path) -> None:
    given = rendered(**VARIANTS["a job builds"])
    (job,) = of_kind("Job", given)
    pod = job["spec"]["template"]
    assert [one["name"] for one in containers(pod)] == [
        f"build-{n}" for n in ("vision", "speech", "llm", "embedding")
    ]
    assert all(environment(one).keys() >= {"HF_TOKEN", "TRIMODAL_ENGINES"} for one in containers(pod))
    (workload,) = of_kind("StatefulSet", given)
    assert "volumeClaimTemplates" not in workload["spec"]
    (wait,) = workload["spec"]["template"]["spec"]["initContainers"]
    marks = [part for one in containers(pod) for part in one["command"][4:6]]
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
    names = {
        of_kind("Job", rendered(profile=profile, engines=CLAIM, image={"tagSuffix": suffix}))[0]["metadata"][
            "name"
        ]
        for profile in PROFILES
        for suffix in ("", "-2")
    }
    assert len(names) == 6


def test_who_scales_servers_decides_their_number_and_the_gateway_knows_them(tmp_path: Path) -> None:
    given = rendered(**VARIANTS["scaled"])
    assert "replicas" not in of_kind("StatefulSet", given)[0]["spec"]
    file = tmp_path / "upstreams.toml"
    file.write_text(the("ConfigMap", "trimodal-upstreams", given)["data"]["upstreams.toml"])
    assert list(read_upstreams(file)) == [f"trimodal-{number}.trimodal-pods:8001:8003" for number in range(3)]
    assert of_kind("StatefulSet", rendered(replicas=0))[0]["spec"]["replicas"] == 0


def test_monitors_make_the_jobs_that_rules_select_by() -> None:
    monitors = of_kind("PodMonitor", rendered(**VARIANTS["scaled"]))
    config = yaml.safe_load((ROOT / "deploy" / "prometheus" / "prometheus.yml").read_text())
    jobs = [job["job_name"] for job in config["scrape_configs"]]
    found = {}
    for monitor in monitors:
        (component,) = {
            labels["app.kubernetes.io/component"] for labels in [monitor["spec"]["selector"]["matchLabels"]]
        }
        (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
        (job,) = [rule["replacement"] for rule in endpoint["relabelings"] if rule["targetLabel"] == "job"]
        one = (server if component == "server" else gateway)(rendered(**VARIANTS["scaled"]))
        assert endpoint["port"] in {port["name"] for port in one["ports"]}
        found[job] = "authorization" in endpoint
    assert found == {jobs[0]: False, jobs[1]: True}


@pytest.mark.slow
def test_monitors_keep_the_operator_s_schemas() -> None:
    """npm's validators, made of the operator's Go types, where tests/deploy/clusters has them."""
    from tests.deploy.clusters import published

    if "prometheus-operator" not in (published.TOOLS / "package.json").read_text():
        pytest.skip("tests/deploy/clusters/tools has no @kubernetes-models/prometheus-operator")
    monitors = of_kind("PodMonitor", rendered(**VARIANTS["scaled"]))
    try:
        assert not published.kubernetes_problems([(one["metadata"]["name"], one) for one in monitors])
    except published.NotHereError as error:
        pytest.skip(str(error))
    wrong: Object = monitors[0] | {"spec": monitors[0]["spec"] | {"podMetricsEndpoint": []}}
    assert published.kubernetes_problems([("wrong", wrong)])


def test_values_of_ones_own_reach_the_objects() -> None:
    given = rendered(**VARIANTS["its own"])
    one = server(given)
    assert one["image"] == "registry.example/trimodal:cuda-2"
    assert {"--model=speech", "--set=llm.python=/opt/vllm/bin/python", "--set=speech.policy=vad"} <= set(
        one["args"]
    )
    assert one["resources"]["limits"]["nvidia.com/mig-3g.40gb"] == "1"
    pod = of_kind("StatefulSet", given)[0]["spec"]["template"]["spec"]
    assert (pod["runtimeClassName"], pod["imagePullSecrets"]) == ("nvidia", [{"name": "a"}, {"name": "b"}])
    assert environment(one)["TRIMODAL_OPERATOR_KEY_FILE"] == "/operator/operator-key"
    files = the("ConfigMap", "speech-files", given)["data"]
    mounts = {
        mount["mountPath"]: mount["subPath"] for mount in one["volumeMounts"] if mount["name"] == "files"
    }
    assert mounts == {"/repository/llm/tiers.toml": "llm__tiers.toml", "/repository/llm/1/x": "llm__1__x"}
    assert files == {"llm__tiers.toml": "[tier.default]\npriority = 0\n", "llm__1__x": "y"}
    # An engine is built for the edited files.
    built = {
        mount["mountPath"] for mount in pod["initContainers"][0]["volumeMounts"] if mount["name"] == "files"
    }
    assert built == {path.replace("/repository", "/opt/trimodal/model_repository") for path in mounts}


def test_edited_files_start_servers_again() -> None:
    def template(text: str) -> Object:
        given = rendered(server={"files": {"llm/tiers.toml": text}})
        return dict(of_kind("StatefulSet", given)[0]["spec"]["template"]["metadata"])

    assert template("a") != template("b")
    assert template("a") == template("a")
