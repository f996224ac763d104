"""Writes the dashboards of deploy/grafana/dashboards: `python deploy/grafana/generate.py`.

A panel is a title, its unit, and PromQL by legend. `$instance` is the server chosen at the top of the page.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "dashboards"
SOURCE = {"type": "prometheus", "uid": "trimodal-prometheus"}
HERE = 'instance=~"$instance"'
RATE = "[$__rate_interval]"
WIDTH, HEIGHT = 12, 8  # of a panel, on Grafana's grid of 24 columns


@dataclass(frozen=True)
class Panel:
    """One graph, or with `kind` "stat" one number; `limit` is drawn as a line."""

    title: str
    unit: str
    queries: Mapping[str, str]
    limit: float | None = None
    kind: str = "timeseries"
    text: str = ""


def quantiles(histogram: str) -> dict[str, str]:
    """p50, p90 and p99."""
    rates = f"sum by (le) (rate({histogram}_bucket{{{HERE}}}{RATE}))"
    return {f"p{round(q * 100)}": f"histogram_quantile({q}, {rates})" for q in (0.5, 0.9, 0.99)}


def rate(counter: str, labels: str = "", by: str = "") -> str:
    where = f"{HERE}, {labels}" if labels else HERE
    return f"sum{f' by ({by})' if by else ''} (rate({counter}{{{where}}}{RATE}))"


def gauge(name: str, by: str = "instance") -> str:
    return f"sum by ({by}) ({name}{{{HERE}}})"


def share(name: str, by: str = "instance") -> str:
    """A share or a mean, of which each version of a model has its own: they do not add up."""
    return f"max by ({by}) ({name}{{{HERE}}})"


def mean(histogram: str) -> str:
    return f"{rate(f'{histogram}_sum')} / {rate(f'{histogram}_count')}"


def mean_us(total: str, models: str) -> dict[str, str]:
    """The mean of one of Triton's counters of microseconds, by model."""
    labels = f'model=~"{models}"'
    requests = rate("nv_inference_request_success", labels, "model")
    return {"{{model}}": f"{rate(total, labels, 'model')} / {requests}"}


SLO = (
    Panel(
        "Burn rate of the error budgets, last hour (1: spent in 30 days)",
        "none",
        {"{{slo}}": "trimodal:slo_bad:ratio_rate1h / on (slo) group_left () trimodal:slo_budget:ratio"},
        limit=14.4,
        text="Above 14.4 for an hour, or 6 for six hours, somebody is paged.",
    ),
    Panel(
        "Left of each budget at the rate of the last 3 days",
        "percentunit",
        {"{{slo}}": "1 - trimodal:slo_bad:ratio_rate3d / on (slo) group_left () trimodal:slo_budget:ratio"},
        kind="stat",
    ),
    Panel("Bad events, 5 minutes", "percentunit", {"{{slo}}": "trimodal:slo_bad:ratio_rate5m"}),
    Panel("Events", "reqps", {"{{slo}}": "sum by (slo) (rate(trimodal:slo_events:total[5m]))"}),
    Panel(
        "Alerts that fire",
        "none",
        {"{{alertname}} {{slo}}{{model}}": 'sum by (alertname, slo, model) (ALERTS{alertstate="firing"})'},
    ),
    Panel("Servers and gateways that answer", "none", {"{{job}} {{instance}}": 'up{job=~"trimodal.*"}'}),
    Panel(
        "Models that answer, as the gateway finds them",
        "none",
        {"{{model}} {{version}} at {{upstream}}": "trimodal_gateway_upstream_ready"},
    ),
    Panel(
        "Requests by version, as routes share them out",
        "reqps",
        {"{{model}} {{version}}": f"sum by (model, version) (rate(trimodal_gateway_routed_total{RATE}))"},
    ),
    Panel(
        "Requests at the gateway",
        "reqps",
        {
            "{{endpoint}} {{status}}": "sum by (endpoint, status) "
            f"(rate(trimodal_gateway_requests_total{RATE}))"
        },
    ),
    Panel(
        "Time to first event at the gateway, p90",
        "s",
        {
            "{{model}}": "histogram_quantile(0.9, sum by (le, model) "
            f"(rate(trimodal_gateway_ttft_seconds_bucket{RATE})))"
        },
    ),
    Panel(
        "Refusals told to clients",
        "reqps",
        {"{{cause}}": f"sum by (cause) (rate(trimodal_gateway_refusals_total{RATE}))"},
    ),
    Panel(
        "Requests in flight",
        "none",
        {
            "at {{upstream}}": "trimodal_gateway_upstream_in_flight",
            "in the gateway": "sum(trimodal_gateway_in_flight)",
        },
    ),
    Panel(
        "Moved to another server, clients that left",
        "reqps",
        {
            "moved from {{upstream}}": "sum by (upstream) "
            f"(rate(trimodal_gateway_upstream_moved_total{RATE}))",
            "left": f'sum(rate(trimodal_gateway_requests_total{{status="499"}}{RATE}))',
        },
    ),
    Panel(
        "Requests by tenant",
        "reqps",
        {"{{tenant}}": f"sum by (tenant) (rate(trimodal_gateway_requests_total{RATE}))"},
    ),
    Panel(
        "Tokens by tenant, each second",
        "none",
        {"{{tenant}}": f"sum by (tenant) (rate(trimodal_gateway_tokens_total{RATE}))"},
    ),
    Panel(
        "Processors in use",
        "none",
        {
            "machine of {{instance}}, of all its cores": "sum by (instance) (nv_cpu_utilization)",
            "gateway {{instance}}, cores": "sum by (instance) "
            f'(rate(process_cpu_seconds_total{{job="trimodal-gateway"}}{RATE}))',
        },
    ),
    Panel(
        "Memory in use",
        "bytes",
        {
            "machine of {{instance}}": "sum by (instance) (nv_cpu_memory_used_bytes)",
            "gateway {{instance}}": "sum by (instance) "
            '(process_resident_memory_bytes{job="trimodal-gateway"})',
        },
    ),
)
LLM = (
    Panel("Time to first token", "s", quantiles("trimodal_llm_ttft_seconds"), limit=0.5),
    Panel("Inter-token latency", "s", quantiles("trimodal_llm_itl_seconds"), limit=0.1),
    Panel("Queue", "s", quantiles("trimodal_llm_queue_seconds")),
    Panel("End to end", "s", quantiles("trimodal_llm_e2e_seconds")),
    Panel(
        "Time to first token by version, p90",
        "s",
        {
            "{{version}}": "histogram_quantile(0.9, sum by (le, version) "
            f"(rate(trimodal_llm_ttft_seconds_bucket{{{HERE}}}{RATE})))"
        },
    ),
    Panel(
        "Requests by version and outcome",
        "reqps",
        {"{{version}} {{outcome}}": rate("trimodal_llm_requests_total", by="version, outcome")},
    ),
    Panel("Tokens", "none", {"{{kind}} tokens/s": rate("trimodal_llm_tokens_total", by="kind")}),
    Panel(
        "Requests in the engine, and waiting",
        "none",
        {
            "active {{instance}}": gauge("trimodal_llm_active_requests"),
            "queued {{instance}}": gauge("trimodal_llm_queued_requests"),
        },
    ),
    Panel(
        "KV blocks in use", "percentunit", {"{{instance}}": share("trimodal_llm_kv_usage_ratio")}, limit=0.9
    ),
    Panel("Turned away", "reqps", {"{{reason}}": rate("trimodal_llm_unserved_total", by="reason")}),
    Panel(
        "Cache hits",
        "percentunit",
        {"{{cache}} {{instance}}": f"trimodal:cache_hit:ratio_rate30m{{{HERE}}}"},
        text="answers: of lookups. prefix: of prompt tokens.",
    ),
    Panel(
        "Cache lookups",
        "reqps",
        {"{{layer}} {{outcome}}": rate("trimodal_cache_lookups_total", by="layer, outcome")},
    ),
    Panel(
        "Past the cache, and near answers refused",
        "reqps",
        {
            "bypassed: {{reason}}": rate("trimodal_cache_bypassed_total", by="reason"),
            "refused: {{reason}}": rate("trimodal_cache_refused_total", by="reason"),
        },
    ),
    Panel(
        "Cache: what the audit estimates",
        "percentunit",
        {
            "false hits {{bound}} {{instance}}": share(
                "trimodal_cache_audit_false_hit_ratio", "instance, bound"
            ),
        },
        text="Wrong ones among semantic hits.",
    ),
    Panel(
        "Cache: audits",
        "none",
        {
            "{{agreement}}/s": rate("trimodal_cache_audit_answers_total", by="agreement"),
            "dropped: {{reason}}/s": rate("trimodal_cache_audit_dropped_total", by="reason"),
            "tokens/s": rate("trimodal_cache_audit_tokens_total"),
        },
    ),
    Panel(
        "Speculation",
        "none",
        {
            "tokens a step {{instance}}": share("trimodal_llm_tokens_per_step"),
            "accepted, 0 to 1 {{instance}}": share("trimodal_llm_speculation_acceptance_ratio"),
            "on {{instance}}": share("trimodal_llm_speculation_active"),
        },
    ),
    Panel(
        "Engines lost in an hour",
        "none",
        {"{{instance}}": f"sum by (instance) (increase(trimodal_llm_engine_restarts_total{{{HERE}}}[1h]))"},
    ),
    Panel(
        "How far forecasts of the time to first token were off",
        "s",
        quantiles("trimodal_llm_ttft_prediction_error_seconds"),
    ),
    Panel("Assistant: time to first text", "s", quantiles("trimodal_assistant_ttft_seconds"), limit=2.5),
    Panel(
        "Assistant: stages, p90",
        "s",
        {
            "{{stage}}": "histogram_quantile(0.9, sum by (le, stage) "
            f"(rate(trimodal_assistant_stage_seconds_bucket{{{HERE}}}{RATE})))"
        },
    ),
    Panel(
        "Assistant: requests and failed stages",
        "reqps",
        {
            "{{outcome}}": rate("trimodal_assistant_requests_total", by="outcome"),
            "failed: {{stage}}": rate("trimodal_assistant_stage_failures_total", by="stage"),
        },
    ),
)
VISION = (
    Panel("Images", "none", {"{{outcome}}/s": rate("trimodal_vision_images_total", by="outcome")}),
    Panel(
        "Mean batch",
        "none",
        {
            "images in a run": mean("trimodal_vision_classify_batch_size"),
            "texts in a run": mean("trimodal_embedding_batch_size"),
            "pairs in a run of the judge": mean("trimodal_judge_batch_size"),
        },
    ),
    Panel("Bytes of an image to prepared pixels", "s", quantiles("trimodal_vision_decode_seconds")),
    Panel("One run of the classifier", "s", quantiles("trimodal_vision_classify_seconds")),
    Panel(
        "Mean time in the server, by step",
        "µs",
        mean_us("nv_inference_request_duration_us", "vision.*|embedding|judge"),
    ),
    Panel(
        "Mean time in queues, by step",
        "µs",
        mean_us("nv_inference_queue_duration_us", "vision.*|embedding|judge"),
    ),
    Panel(
        "Requests that wait",
        "none",
        {
            "{{model}}": "sum by (model) "
            f'(nv_inference_pending_request_count{{{HERE}, model=~"vision.*|embedding|judge"}})'
        },
    ),
    Panel(
        "Requests that failed",
        "reqps",
        {
            "{{model}} {{reason}}": rate(
                "nv_inference_request_failure", 'model=~"vision.*|embedding|judge"', "model, reason"
            )
        },
        text="BACKEND counts what clients sent wrongly, too.",
    ),
    Panel("Texts embedded", "none", {"{{outcome}}/s": rate("trimodal_embedding_texts_total", by="outcome")}),
    Panel("One run of the embedder", "s", quantiles("trimodal_embedding_seconds")),
    Panel("Pairs judged", "none", {"{{outcome}}/s": rate("trimodal_judge_pairs_total", by="outcome")}),
    Panel("One run of the judge", "s", quantiles("trimodal_judge_seconds")),
)
SPEECH = (
    Panel(
        "Lag: audio received less the end of a word, when it is told",
        "s",
        quantiles("trimodal_speech_lag_seconds"),
        limit=3,
    ),
    Panel("A window is due, to its words", "s", quantiles("trimodal_speech_turnaround_seconds")),
    Panel("Streams open", "none", {"{{instance}}": gauge("trimodal_speech_active_streams")}),
    Panel(
        "Streams by how they ended",
        "reqps",
        {"{{outcome}}": rate("trimodal_speech_streams_total", by="outcome")},
    ),
    Panel(
        "Seconds of audio, each second",
        "none",
        {
            "received": rate("trimodal_speech_received_seconds_total"),
            "taken for speech": rate("trimodal_speech_voiced_seconds_total"),
            "recognised": rate("trimodal_speech_audio_seconds_total"),
        },
    ),
    Panel("Mean batch of the recogniser", "none", {"windows": mean("trimodal_speech_batch_size")}),
    Panel("One run of the recogniser", "s", quantiles("trimodal_speech_recognize_seconds")),
    Panel("Windows at the recogniser", "none", {"{{instance}}": gauge("trimodal_speech_windows_in_flight")}),
    Panel(
        "Windows by outcome",
        "none",
        {
            "{{outcome}}/s": rate("trimodal_speech_windows_total", by="outcome"),
            "decoded again/s": rate("trimodal_speech_fallbacks_total"),
            "failed, sent again/s": rate("trimodal_speech_window_retries_total"),
        },
    ),
    Panel("Windows doubted", "none", {"{{guard}}/s": rate("trimodal_speech_doubted_total", by="guard")}),
    Panel("Chunks by outcome", "none", {"{{outcome}}/s": rate("trimodal_speech_chunks_total", by="outcome")}),
    Panel(
        "Chunks whose answer is not out", "none", {"{{instance}}": gauge("trimodal_speech_active_requests")}
    ),
)
DASHBOARDS = {
    "slo": ("trimodal: objectives", SLO),
    "llm": ("trimodal: text and assistant", LLM),
    "vision": ("trimodal: images and embeddings", VISION),
    "speech": ("trimodal: speech", SPEECH),
}


def dashboard(name: str) -> dict[str, Any]:
    """One dashboard as Grafana reads it."""
    title, panels = DASHBOARDS[name]
    return {
        "uid": f"trimodal-{name}",
        "title": title,
        "tags": ["trimodal"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "15s",
        "time": {"from": "now-1h", "to": "now"},
        "links": [{"type": "dashboards", "tags": ["trimodal"], "title": "trimodal", "keepTime": True}],
        "templating": {"list": [_instances()]},
        "panels": [_panel(number, panel) for number, panel in enumerate(panels)],
    }


def _instances() -> dict[str, Any]:
    return {
        "name": "instance",
        "label": "server",
        "type": "query",
        "datasource": SOURCE,
        "query": {"query": 'label_values(up{job="trimodal"}, instance)', "refId": "instance"},
        "refresh": 2,
        "includeAll": True,
        "multi": True,
        "current": {"text": "All", "value": "$__all"},
    }


def _panel(number: int, panel: Panel) -> dict[str, Any]:
    steps = [{"color": "green", "value": None}]
    if panel.limit is not None:
        steps.append({"color": "red", "value": panel.limit})
    drawn = {"thresholdsStyle": {"mode": "line" if panel.limit is not None else "off"}, "fillOpacity": 8}
    return {
        "id": number + 1,
        "title": panel.title,
        "description": panel.text,
        "type": panel.kind,
        "datasource": SOURCE,
        "gridPos": {
            "x": number % 2 * WIDTH,
            "y": number // 2 * HEIGHT,
            "w": WIDTH,
            "h": HEIGHT,
        },
        "fieldConfig": {
            "defaults": {
                "unit": panel.unit,
                "min": 0 if panel.kind == "timeseries" else None,
                "custom": drawn if panel.kind == "timeseries" else {},
                "thresholds": {"mode": "absolute", "steps": steps},
            },
            "overrides": [],
        },
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}}
        if panel.kind == "timeseries"
        else {"colorMode": "value", "reduceOptions": {"calcs": ["lastNotNull"]}},
        "targets": [
            {"refId": chr(ord("A") + index), "datasource": SOURCE, "expr": query, "legendFormat": legend}
            for index, (legend, query) in enumerate(panel.queries.items())
        ],
    }


def text(name: str) -> str:
    """The contents of a dashboard's file."""
    return json.dumps(dashboard(name), indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    for each in DASHBOARDS:
        (FOLDER / f"{each}.json").write_text(text(each))
