"""What autoscalers and the endpoint picker ask for exists."""

from __future__ import annotations

import re

import yaml

from tests.deploy.clusters.objects import (
    DEPLOY,
    ROOT,
    asked_metrics,
    objects,
    picker_flags,
    queries,
    triggers,
)
from tests.deploy.expressions import rules
from tests.deploy.test_prometheus import base, bounds
from tests.project.test_configs import REPOSITORY, config
from tests.project.test_docs import families
from trimodal.speech.settings import SpeechSettings

SCRAPE = yaml.safe_load((DEPLOY / "keda" / "scrape.yml").read_text())
BATCH = yaml.safe_load((DEPLOY / "keda" / "batch-values.yaml").read_text())


def test_every_metric_exists() -> None:
    """Families that the code declares; a histogram's samples end in _bucket, _sum or _count."""
    known = families()
    asked = asked_metrics()
    assert len(queries()) == 10
    assert len(asked) >= 8
    for name in asked:
        kind = known.get(name) or known.get(base(name))
        assert kind, f"{name} is no metric"
        assert (kind == "histogram") == (name not in known), name


def test_every_label_exists() -> None:
    jobs = {one["job_name"] for one in SCRAPE["scrape_configs"]}
    for name, query in queries().items():
        release = name.split(":")[0]
        for selector in re.findall(r"\{(.*?)\}", query):
            labels = dict(re.findall(r'(\w+)=~?"([^"]*)"', selector))
            assert labels.pop("release") == release, "servers of this release alone"
            assert labels.pop("job", "trimodal") in jobs
            assert set(labels) <= {"le"}, name
        for metric, le in re.findall(r'(\w+)_bucket\{[^}]*le="([^"]+)"', query):
            assert float(le) in bounds(metric)
            assert float(le) % 1, "Prometheus 3 writes 3 as 3.0"


def test_a_release_is_an_instance_of_what_is_scaled() -> None:
    for one in objects("ScaledObject"):
        assert one.object["spec"]["scaleTargetRef"]["name"] == one.name, "the chart calls it by the release"
    assert BATCH["fullnameOverride"] == "trimodal-batch"
    for one in objects("InferenceService"):
        assert one.object["spec"]["predictor"]["labels"]["app.kubernetes.io/instance"] == one.name
    for job in SCRAPE["scrape_configs"]:
        (release,) = (one for one in job["relabel_configs"] if one.get("target_label") == "release")
        assert release["source_labels"] == ["__meta_kubernetes_pod_label_app_kubernetes_io_instance"]


def test_objectives_are_those_of_the_rules() -> None:
    """The burn rate is computed of one release; limit and budget are written out, and held here."""
    query = triggers("trimodal")["ttft_burn_rate"]["metadata"]["query"]
    (budget,) = (
        rule["expr"]
        for rule in rules()
        if rule.get("record") == "trimodal:slo_budget:ratio" and rule["labels"]["slo"] == "llm_ttft"
    )
    assert f"/ {budget[len('vector(') : -1]} >= 0" in query
    (bad,) = (
        rule["expr"]
        for rule in rules()
        if rule.get("record") == "trimodal:slo_bad_events:total" and rule["labels"]["slo"] == "llm_ttft"
    )
    assert re.search(r'le="([\d.]+)"', bad)[1] == re.search(r'le="([\d.]+)"', query)[1]  # type: ignore[index]
    lag = float(triggers("trimodal")["speech_lag"]["metadata"]["threshold"])
    (late,) = (
        float(re.search(r'le=~"(\d+)', rule["expr"])[1])  # type: ignore[index]
        for rule in rules()
        if rule.get("record") == "trimodal:slo_bad_events:total" and rule["labels"]["slo"] == "speech_lag"
    )
    assert lag < late < SpeechSettings().refuse_lag_s
    assert (
        float(triggers("trimodal")["speech_streams"]["metadata"]["threshold"]) < SpeechSettings().max_streams
    )


def test_servers_that_people_wait_for_stay_and_batch_goes_to_zero() -> None:
    specs = {one.name: one.object["spec"] for one in objects("ScaledObject")}
    interactive, batch = specs["trimodal"], specs["trimodal-batch"]
    assert interactive["minReplicaCount"] >= 2
    assert interactive["fallback"]["behavior"] == "currentReplicasIfHigher"
    assert interactive["fallback"]["replicas"] >= interactive["minReplicaCount"]
    for trigger in interactive["triggers"]:
        assert trigger["metricType"] == "AverageValue", "KEDA falls back with this one alone"
        assert trigger["metadata"]["ignoreNullValues"] == "false", trigger["name"]
    assert batch["minReplicaCount"] == 0
    assert batch["cooldownPeriod"] >= 300
    assert BATCH["replicas"] is None
    # Without a server there are no metrics: something else has to wake it.
    assert [one["type"] for one in batch["triggers"]] == ["kubernetes-workload", "prometheus"]
    clients = dict(part.split("=") for part in batch["triggers"][0]["metadata"]["podSelector"].split(","))
    (peer,) = BATCH["networkPolicy"]["clients"]
    assert peer["podSelector"]["matchLabels"] == clients
    assert clients["app.kubernetes.io/component"] != "server"
    chart = yaml.safe_load((DEPLOY / "helm" / "trimodal" / "values.yaml").read_text())
    for key, value in BATCH.items():
        assert key in chart
        assert not isinstance(value, dict) or value.keys() <= chart[key].keys(), key
    names = config(REPOSITORY / "llm" / "configs" / "cuda.pbtxt").parameters
    assert {text.split("=")[0].removeprefix("llm.") for text in BATCH["server"]["set"]} <= set(names)


def test_the_picker_is_told_of_gauges_that_exist() -> None:
    flags = picker_flags()
    for flag in ("total-queued-requests-metric", "kv-cache-usage-percentage-metric"):
        assert families()[flags[flag]] == "gauge", flag
    assert flags["lora-info-metric"] == ""
    (pool,) = objects("InferencePool")
    assert flags["pool-name"] == pool.name
    page = (ROOT / "docs" / "metrics.md").read_text()
    share = flags["kv-cache-usage-percentage-metric"]
    assert f"| `{share}` | gauge | KV blocks held by running requests, 0 to 1 |" in page


def test_the_scrape_configuration_is_that_of_a_machine_with_pods() -> None:
    """Intervals and rules of deploy/prometheus, its jobs, and the ports of its targets."""
    machine = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())
    assert (SCRAPE["global"], SCRAPE["rule_files"]) == (machine["global"], machine["rule_files"])
    ports = {
        job["job_name"]: job["static_configs"][0]["targets"][0].split(":")[1]
        for job in machine["scrape_configs"]
    }
    for job in SCRAPE["scrape_configs"]:
        kept = {one["source_labels"][0]: one["regex"] for one in job["relabel_configs"] if "action" in one}
        port = kept["__meta_kubernetes_pod_container_port_number"]
        (discovery,) = job["kubernetes_sd_configs"]
        assert discovery.keys() == {"role", "selectors"}
        assert discovery["role"] == discovery["selectors"][0]["role"] == "pod"
        component = "server" if job["job_name"] == "trimodal" else "gateway"
        wanted = f"app.kubernetes.io/name=trimodal,app.kubernetes.io/component={component}"
        assert [one["label"] for one in discovery["selectors"]] == [wanted]
        assert port == ports[job["job_name"]]
