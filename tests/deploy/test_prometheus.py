"""Rules name what exists, each alert is tested, and promtool (slow) finds all of it right."""

from __future__ import annotations

import ast
import re
import subprocess

import pytest
import yaml

from tests.deploy.expressions import DEPLOY, RULES, expressions, metrics, rules, scraped
from tests.project.test_docs import families
from trimodal.top.screen import LIMITS

ROOT = DEPLOY.parent
# Triton's own, as 2.51 and 2.71 have them.
TRITONS = {
    "nv_inference_request_success",
    "nv_inference_request_failure",
    "nv_inference_pending_request_count",
    "nv_inference_request_duration_us",
    "nv_inference_queue_duration_us",
}


def gateway_families() -> set[str]:
    """The families of docs/gateway.md, which tests hold against the gateway's own page."""
    rows = re.findall(r"^\| ((?:`\w+`(?:, )?)+) \| (counter|gauge|histogram) \|", page(), re.MULTILINE)
    return {f"trimodal_gateway_{name}" for row, _ in rows for name in re.findall(r"`(\w+)`", row)}


def page() -> str:
    return (ROOT / "docs" / "gateway.md").read_text()


def test_expressions_and_their_metrics_are_found() -> None:
    """Or the tests below could not fail."""
    assert len(expressions()) > 100
    assert metrics('rate(nv_x{model="nv_y"}[5m]) > on (a) trimodal:z:ratio') == {"nv_x", "trimodal:z:ratio"}
    assert len(scraped()) > 40


def test_every_metric_of_a_rule_or_panel_exists() -> None:
    known = {*families(), *gateway_families(), *TRITONS}
    missing = {name for name in scraped() if name not in known and base(name) not in known}
    assert not missing
    histograms = {name for name, kind in families().items() if kind == "histogram"}
    assert not histograms & scraped(), "a histogram's samples end in _bucket, _sum or _count"


def base(name: str) -> str:
    return re.sub(r"_(?:bucket|sum|count)$", "", name)


def test_every_recorded_metric_that_is_read_is_recorded() -> None:
    recorded = {rule["record"] for rule in rules() if "record" in rule}
    read = {name for each in expressions() for name in metrics(each) if ":" in name}
    assert read == recorded


def test_every_family_of_a_model_is_on_a_dashboard_or_in_a_rule() -> None:
    """But for those that only tune the scheduler, and those that another one tells."""
    left_out = {
        "trimodal_llm_token_seconds",
        "trimodal_llm_prefill_token_seconds",
        "trimodal_llm_prefix_cache_hits_total",
        "trimodal_llm_cache_skipped_total",
        "trimodal_cache_lookup_seconds",
        "trimodal_cache_stored_total",
        "trimodal_cache_entries",
        "trimodal_assistant_active_requests",
        "trimodal_assistant_e2e_seconds",
    }
    assert set(families()) - {base(name) for name in scraped()} - scraped() == left_out


def test_limits_are_bounds_of_their_histograms() -> None:
    """A bucket that is not there is no error in PromQL: the objective would be kept for ever, or never."""
    for expression in expressions():
        for name, le in re.findall(r'(\w+)_bucket\{le=~?"([^"]+)"', expression):
            for bound in le.split("|"):
                assert float(bound) in bounds(name), f"{name} has no bucket of {bound} s"
                # Triton writes 3, Prometheus 3 makes 3.0 of it: both must match.
                assert float(bound) % 1 or len(le.split("|")) == 2


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


def test_every_objective_has_a_budget_and_both_counts() -> None:
    slos: dict[str, set[str]] = {}
    for rule in rules():
        if rule.get("record") in (
            "trimodal:slo_budget:ratio", "trimodal:slo_events:total", "trimodal:slo_bad_events:total"
        ):  # fmt: skip
            slos.setdefault(rule["record"], set()).add(rule["labels"]["slo"])
    assert len(slos) == 3
    assert len(set(map(frozenset, slos.values()))) == 1, slos


def test_every_alert_is_told_and_tested() -> None:
    alerts = {rule["alert"]: rule for rule in rules() if "alert" in rule}
    assert len(alerts) > 15
    for name, rule in alerts.items():
        assert rule["labels"]["severity"] in ("page", "ticket"), name
        assert set(rule["annotations"]) == {"summary", "description"}, name
        # $labels are those of the expression: what the rule itself adds is empty there.
        used = set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]))
        assert not used & set(rule["labels"]), name
    fired = set()
    for file in (DEPLOY / "prometheus" / "tests").glob("*.yml"):
        for case in yaml.safe_load(file.read_text())["tests"]:
            fired |= {one["alertname"] for one in case.get("alert_rule_test", []) if one["exp_alerts"]}
    assert fired == set(alerts)


def test_the_pages_that_alerts_name_exist() -> None:
    for rule in rules():
        for path in re.findall(r"docs/[\w.]+\.md", str(rule.get("annotations", {}))):
            assert (ROOT / path).is_file(), path


def test_scraped_jobs_are_those_of_rules_and_dashboards() -> None:
    config = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())
    jobs = {job["job_name"] for job in config["scrape_configs"]}
    named = {
        job
        for each in expressions()
        for text in re.findall(r'job=~?"([^"]+)"', each)
        for job in text.split("|")
    }
    assert jobs == {job for job in named if "*" not in job}


@pytest.mark.slow
def test_promtool_finds_all_of_it_right() -> None:
    """On PATH, or Debian's (`scripts/ci/promtool` fetches it)."""
    done = subprocess.run(
        [ROOT / "scripts" / "ci" / "promtool"], capture_output=True, text=True, timeout=170, check=False
    )
    if done.returncode == 69:
        pytest.skip(f"no promtool here: {done.stderr.strip()[-200:]}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("SUCCESS") == len(RULES) + 1 + 3
