"""Rules, dashboards and autoscalers name metrics that exist; promtool (slow) runs the rules' tests."""

from __future__ import annotations

import ast
import re
import subprocess

import pytest
import yaml

from tests.deploy.expressions import (
    RULES,
    expressions,
    labels,
    metrics,
    panels,
    rules,
    scaled_by,
    scaling,
    scraped,
)
from tests.deploy.objects import DEPLOY, ROOT
from tests.project.test_docs import families
from trimodal.top.screen import LIMITS

# Triton's own, as 2.51 and 2.71 have them.
TRITONS = {
    "nv_inference_request_success",
    "nv_inference_request_failure",
    "nv_inference_pending_request_count",
    "nv_inference_request_duration_us",
    "nv_inference_queue_duration_us",
    "nv_cpu_utilization",
    "nv_cpu_memory_used_bytes",
}
# What Prometheus itself puts on every series, deploy/keda/scrape.yml on those of a cluster.
SCRAPED = {"job", "instance", "release"}
# Those of a process, as every program with prometheus_client has them: the gateway.
PROCESS = {"process_cpu_seconds_total", "process_resident_memory_bytes"}


def gateway_families() -> set[str]:
    """The families of docs/gateway.md, which tests hold against the gateway's own page."""
    page = (ROOT / "docs" / "gateway.md").read_text()
    rows = re.findall(r"^\| ((?:`\w+`(?:, )?)+) \| (counter|gauge|histogram) \|", page, re.MULTILINE)
    return {f"trimodal_gateway_{name}" for row, _ in rows for name in re.findall(r"`(\w+)`", row)}


def labelled() -> dict[str, set[str]]:
    """Family → what the two pages of metrics set in backticks of it: its labels, and values of them."""
    found = {}
    for page, prefix, common in (
        ("metrics", "", {"model", "version"}),
        ("gateway", "trimodal_gateway_", set()),
    ):
        text = (ROOT / "docs" / f"{page}.md").read_text()
        for names, told in re.findall(r"^\| (`\w.*?) \| (?:counter|gauge|histogram) \| (.*) \|$", text, re.M):
            for name in re.findall(r"`(\w+)`", names):
                found[prefix + name] = common | set(re.findall(r"`(\w+)`", told))
    return found


def base(name: str) -> str:
    return re.sub(r"_(?:bucket|sum|count)$", "", name)


def test_every_metric_exists() -> None:
    asked = scraped() | scaled_by()
    assert len(asked) > 40
    known = {*families(), *gateway_families(), *TRITONS, *PROCESS}
    assert not {name for name in asked if name not in known and base(name) not in known}
    histograms = {name for name, kind in families().items() if kind == "histogram"}
    assert not histograms & asked, "a histogram's samples end in _bucket, _sum or _count"


def test_every_label_exists() -> None:
    """Without it a selector finds nothing, and a sum has one line; neither is an error in PromQL."""
    known = labelled()
    known |= {name: {"model", "version", "reason"} for name in TRITONS} | {name: set() for name in PROCESS}
    for rule in rules():
        if "record" in rule:
            kept = {
                label.strip()
                for by in re.findall(r" by \(([^)]*)\)", rule["expr"])
                for label in by.split(",")
            }
            known[rule["record"]] = known.get(rule["record"], set()) | kept | set(rule.get("labels", ()))
    pairs = {pair for each in [*expressions(), *scaling()] for pair in labels(each)}
    assert len(pairs) > 100
    families = {
        name: name if name in known else base(name) for name, _ in pairs if name not in ("up", "ALERTS")
    }
    buckets = {name for name in families if name.endswith("_bucket")}
    wrong = [
        (name, label)
        for name, label in pairs
        if name in families
        and label not in known[families[name]] | SCRAPED | ({"le"} if name in buckets else set())
    ]
    assert not wrong


def test_a_legend_names_labels_that_are_left() -> None:
    for query, legend in panels():
        sums = re.findall(r" by \(([^)]*)\)", query)
        left = {label.strip() for by in sums for label in by.split(",")}
        assert not sums or set(re.findall(r"\{\{(\w+)\}\}", legend)) <= left, (query, legend)


def test_shares_of_two_versions_do_not_add_up() -> None:
    """A model that is rolled out has two."""
    shares = re.compile(r"sum by \([^)]*\) \(\w+(?:_ratio|_per_step|_active)\{")
    assert not [query for query, _ in panels() if shares.search(query)]


def test_every_recorded_metric_that_is_read_is_recorded() -> None:
    recorded = {rule["record"] for rule in rules() if "record" in rule}
    assert {name for each in expressions() for name in metrics(each) if ":" in name} == recorded


def test_limits_are_bounds_of_their_histograms() -> None:
    """A bucket that is not there is no error in PromQL: the objective would be kept for ever, or never."""
    found = [
        (name, le.split("|"))
        for expression in [*expressions(), *scaling()]
        for name, le in re.findall(r'(\w+)_bucket\{[^}]*le=~?"([^"]+)"', expression)
    ]
    assert len(found) == 5
    for name, texts in found:
        for bound in map(float, texts):
            assert bound in bounds(name), f"{name} has no bucket of {bound} s"
            # Triton writes 3, Prometheus 3 makes 3.0 of it: both must match.
            assert bound % 1 or len(texts) == 2


def bounds(histogram: str) -> tuple[float, ...]:
    places = {
        "trimodal_llm_": "trimodal/llm/frontend/metrics.py",
        "trimodal_speech_lag": "trimodal/speech/live/metrics.py",
        "trimodal_assistant_": "trimodal/assistant/metrics.py",
    }
    file = next(file for begins, file in places.items() if histogram.startswith(begins))
    for node in ast.parse((ROOT / file).read_text()).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "").strip("_") == "SECONDS":
            return tuple(ast.literal_eval(node.value))
    raise AssertionError(f"{file} has no SECONDS")


def test_top_marks_what_is_above_the_same_limits() -> None:
    told = {}
    for rule in rules():
        if found := re.search(r'_bucket\{le=~?"([\d.]+)', rule["expr"]):
            told[rule["labels"]["slo"]] = float(found[1])
    assert told == LIMITS


def test_every_alert_is_told_and_tested() -> None:
    alerts = {rule["alert"]: rule for rule in rules() if "alert" in rule}
    assert len(alerts) > 15
    for name, rule in alerts.items():
        # $labels are those of the expression: what the rule itself adds is empty there.
        used = set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]))
        assert not used & set(rule["labels"]), name
        for path in re.findall(r"docs/[\w.]+\.md", str(rule["annotations"])):
            assert (ROOT / path).is_file(), path
    fired = set()
    for file in (DEPLOY / "prometheus" / "tests").glob("*.yml"):
        for case in yaml.safe_load(file.read_text())["tests"]:
            fired |= {one["alertname"] for one in case.get("alert_rule_test", []) if one["exp_alerts"]}
    assert fired == set(alerts)


@pytest.mark.slow
def test_promtool_finds_all_of_it_right() -> None:
    """On PATH, or Debian's (`scripts/ci/promtool` fetches it)."""
    command = [ROOT / "scripts" / "ci" / "promtool"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=170, check=False)
    if done.returncode == 69:
        pytest.skip(f"no promtool here: {done.stderr.strip()[-200:]}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("SUCCESS") == len(RULES) + 1 + 3
