"""Objects for KServe, KEDA, Gateway API and several GPUs: their pods, and autoscalers' queries run."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.objects import (
    PROFILES,
    containers,
    environment,
    files,
    pods,
    problems,
    queries,
    rendered,
)
from tests.deploy.test_programs import promtool

OURS = ("v1", "apps/v1", "networking.k8s.io/v1", "policy/v1", "batch/v1")  # Kubernetes' own


@pytest.mark.parametrize("file", files())
def test_objects_and_pods_keep_kubernetes_schemas(file: str) -> None:
    """Of other projects' kinds the pods inside."""
    checked = [one for one in files()[file] if one["apiVersion"] in OURS]
    for index, (labels, spec) in enumerate(pod for one in files()[file] for pod in pods(one)):
        metadata = {"name": f"pod-{index}", "labels": labels}
        checked.append({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    assert not problems(checked)


@pytest.mark.parametrize("where", [*PROFILES, *files()])
def test_pods_keep_the_restricted_standard(where: str) -> None:
    """Pod Security Admission's strictest level, and a root file system that nobody writes to."""
    given = rendered(profile=where) if where in PROFILES else files()[where]
    for spec in (spec for one in given for _, spec in pods(one)):
        assert not {"hostNetwork", "hostPID", "hostIPC"} & spec.keys()
        kinds = {kind for volume in spec.get("volumes", ()) for kind in volume.keys() - {"name"}}
        assert kinds <= {"configMap", "secret", "emptyDir", "persistentVolumeClaim"}
        for one in [*spec.get("initContainers", ()), *spec["containers"]]:
            security = {**spec.get("securityContext", {}), **one["securityContext"]}
            assert security["runAsNonRoot"] is True
            assert security["seccompProfile"] == {"type": "RuntimeDefault"}
            assert security["readOnlyRootFilesystem"] is True
            assert security["allowPrivilegeEscalation"] is False
            assert security["capabilities"] == {"drop": ["ALL"]}


def test_vllms_own_image_is_told_the_name_of_a_user() -> None:
    """Else `getpwuid(): uid not found: 1000` ends it (vllm-project/vllm#44548)."""
    engines = [
        one for file in files().values() for one in containers(file) if re.match("vllm[/-]", one["image"])
    ]
    engines = [one for one in engines if not one["image"].startswith("vllm-router")]
    assert len(engines) == 5
    assert all({"HOME", "USER"} <= environment(one).keys() for one in engines)


@pytest.mark.parametrize(
    ("program", "start", "answer"),
    [
        ("vllm-router", "--worker-startup-timeout-secs", "--request-timeout-secs"),
        ("disaggregated", "-t", "-r"),
    ],
)
def test_routers_wait_for_engines_and_for_whole_answers(program: str, start: str, answer: str) -> None:
    """For engines as long as their own probe does. By themselves 600 s and 180 s, and 180 s for an answer."""
    every = [one for file in files().values() for one in containers(file)]
    (router,) = (one for one in every if program in one.get("command", ()))
    words = [word for arg in router["args"] for word in arg.split("=", 1)]
    probe = router["startupProbe"]
    assert int(words[words.index(start) + 1]) == probe["periodSeconds"] * probe["failureThreshold"]
    assert words[words.index(answer) + 1] == "3600"


SERVERS = 2
SERIES = {
    # Half of the requests wait less than 0.25 s, all of them less than 0.5 s: 9 of 10 within 0.45 s.
    'trimodal_llm_queue_seconds_bucket{le="0.25"}': "0+30x60",
    'trimodal_llm_queue_seconds_bucket{le="0.5"}': "0+60x60",
    'trimodal_llm_queue_seconds_bucket{le="+Inf"}': "0+60x60",
    # 1 of 16 first texts comes after 0.5 s: 6.25 times the budget of 1 %.
    'trimodal_llm_ttft_seconds_bucket{le="0.5"}': "0+900x60",
    "trimodal_llm_ttft_seconds_count": "0+960x60",
    # A third is turned away: half as much again is wanted.
    'trimodal_llm_requests_total{outcome="stop"}': "0+40x60",
    'trimodal_llm_requests_total{outcome="unavailable"}': "0+20x60",
    'trimodal_llm_unserved_total{reason="queue"}': "0+20x60",
    "trimodal_llm_kv_usage_ratio": "0.4x60",
    "trimodal_llm_active_requests": "100x60",
    "trimodal_llm_queued_requests": "48x60",
    'trimodal_speech_lag_seconds_bucket{le="2.0"}': "0+80x60",
    'trimodal_speech_lag_seconds_bucket{le="3.0"}': "0+100x60",
    'trimodal_speech_lag_seconds_bucket{le="+Inf"}': "0+100x60",
    "trimodal_speech_active_streams": "20x60",
}
ASKED = {
    "requests_in_flight": 148 * SERVERS,
    "queue_seconds": 0.45 * SERVERS,
    "ttft_burn_rate": 6.25 * SERVERS,
    "turned_away": 1.5 * SERVERS,
    "kv_usage": 0.4 * SERVERS,
    "speech_lag": 2.5 * SERVERS,
    "speech_streams": 20 * SERVERS,
}
IDLE = dict.fromkeys(ASKED, 0.0)


@pytest.mark.slow
def test_queries_answer_what_the_servers_do(tmp_path: Path) -> None:
    """Busy, idle, gone: the load, a zero, no answer (which is an error to KEDA, and ends in the fallback)."""
    cases = [
        case("busy", every("trimodal", busy=True) + every("other", busy=True), ASKED),
        case("idle", every("trimodal", busy=False), IDLE),
        case("no metrics yet", [up("trimodal", index) for index in range(SERVERS)], IDLE),
        case("gone", every("other", busy=True), {}),
        case("batch, gone", every("trimodal", busy=True), {"queued_requests": 0.0}, "trimodal-batch"),
        case(
            "batch", every("trimodal-batch", busy=True), {"queued_requests": 48 * SERVERS}, "trimodal-batch"
        ),
        case("kserve", every("trimodal-cuda", busy=True), {"0": 0.45, "1": 2.5}, "trimodal-cuda"),
        case("kserve, gone", [], {}, "trimodal-cuda"),
    ]
    text = yaml.safe_dump({"rule_files": [], "evaluation_interval": "1m", "tests": cases})
    assert "value: 3.0" in text
    for tests, code in ((text, 0), (text.replace("value: 3.0", "value: 4.0"), 1)):
        (tmp_path / "tests.yml").write_text(tests)
        command = [promtool(), "test", "rules", "tests.yml"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
        assert bool(done.returncode) == bool(code), done.stdout + done.stderr


def up(release: str, index: int) -> dict[str, str]:
    return {"series": f'up{{job="trimodal", release="{release}", pod="{release}-{index}"}}', "values": "1x60"}


def every(release: str, *, busy: bool) -> list[dict[str, str]]:
    """What all servers of a release show; idle ones count nothing."""
    found = []
    for index in range(SERVERS):
        found.append(up(release, index))
        for series, values in SERIES.items():
            name, labels = re.fullmatch(r"(\w+)(?:\{(.*)\})?", series).groups()  # type: ignore[union-attr]
            own = ", ".join(filter(None, [labels, f'release="{release}"', f'pod="{release}-{index}"']))
            found.append({"series": f"{name}{{{own}}}", "values": values if busy else "0x60"})
    return found


def case(
    name: str, series: list[dict[str, str]], asked: dict[str, float], scaled: str = "trimodal"
) -> dict[str, Any]:
    """A test of promtool: what the queries of one object answer after half an hour."""
    assert asked.keys() <= queries()[scaled].keys()
    expected = [
        {
            "expr": f"round({query}, 0.0001)",  # sums of floats come in any order
            "eval_time": "30m",
            "exp_samples": [{"labels": "{}", "value": asked[key]}] if key in asked else [],
        }
        for key, query in queries()[scaled].items()
    ]
    return {"name": name, "interval": "1m", "input_series": series, "promql_expr_test": expected}
