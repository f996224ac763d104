"""Works out the figures of the view from two looks at the server and the gateway.

Latencies are in seconds, rates are per second, shares from 0 to 1. None: nothing is known, mostly because
nothing happened between the two looks. A part whose metrics the server does not have is None as a whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from trimodal.top.page import Change

Number = float | None
FAULTS = ("deadline", "unavailable", "internal")


@dataclass(frozen=True)
class Latency:
    p50: Number
    p90: Number
    p99: Number
    per_s: Number  # observations


@dataclass(frozen=True)
class Model:
    """As Triton counts it. `ready`: False when it does not answer, None when nobody was asked."""

    name: str
    ready: bool | None
    requests_per_s: Number
    errors_per_s: Number
    waiting: Number
    queue_s: Number  # mean, as the next
    request_s: Number
    batch_size: Number


@dataclass(frozen=True)
class Llm:
    ttft: Latency
    itl: Latency
    queue: Latency
    e2e: Latency
    requests_per_s: Number
    errors_per_s: Number
    turned_away_per_s: Number
    active: Number
    queued: Number
    kv_usage: Number
    prompt_tokens_per_s: Number
    completion_tokens_per_s: Number
    prefix_hit_share: Number  # of prompt tokens
    tokens_per_step: Number
    acceptance: Number
    speculating: bool
    engine_restarts: Number  # since the server's start


@dataclass(frozen=True)
class Cache:
    hit_share: Number  # of lookups, whichever layer
    semantic_share: Number  # of lookups, by the semantic layer
    entries: Number
    saved_tokens_per_s: Number
    bypassed_per_s: Number


@dataclass(frozen=True)
class Speech:
    lag: Latency
    turnaround: Latency
    run: Latency
    streams: Number
    windows: Number
    batch_size: Number
    audio_per_s: Number  # seconds of audio recognised in a second
    speech_share: Number  # of the audio received
    errors_per_s: Number  # streams refused or failed, windows failed


@dataclass(frozen=True)
class Vision:
    decode: Latency
    classify: Latency
    images_per_s: Number
    refused_per_s: Number
    batch_size: Number


@dataclass(frozen=True)
class Embedding:
    run: Latency
    texts_per_s: Number
    refused_per_s: Number
    batch_size: Number


@dataclass(frozen=True)
class Assistant:
    ttft: Latency
    e2e: Latency
    stages: Mapping[str, Latency]
    active: Number
    requests_per_s: Number
    errors_per_s: Number


@dataclass(frozen=True)
class Gateway:
    ttft: Latency
    itl: Latency
    request: Latency
    requests_per_s: Number
    errors_per_s: Number  # status 5xx
    refused_per_s: Number  # status 4xx; a client that left has 499 and is none
    in_flight: Number
    moved_per_s: Number
    affinity_share: Number


@dataclass(frozen=True)
class Figures:
    """One picture of the view."""

    models: tuple[Model, ...]
    llm: Llm | None
    cache: Cache | None
    speech: Speech | None
    vision: Vision | None
    embedding: Embedding | None
    assistant: Assistant | None
    gateway: Gateway | None


def figures(server: Change | None, gateway: Change | None, ready: Mapping[str, bool]) -> Figures:
    """All figures; `ready` says of each model whether it answers."""
    nothing = Figures((), None, None, None, None, None, None, None)
    parts = nothing if server is None else _of_server(server, ready)
    return Figures(**{**vars(parts), "gateway": _gateway(gateway) if gateway else None})


def ready_at_gateway(gateway: Change) -> dict[str, bool]:
    """Model → whether every server that has it and is not drained answers for it."""
    drained = {
        found["upstream"]
        for found, value in gateway.after.series("trimodal_gateway_upstream_draining", {})
        if value
    }
    models: dict[str, bool] = {}
    for found, value in gateway.after.series("trimodal_gateway_upstream_ready", {}):
        if found["upstream"] not in drained:
            models[found["model"]] = models.get(found["model"], True) and bool(value)
    return models


def _of_server(change: Change, ready: Mapping[str, bool]) -> Figures:
    has = change.after.has
    return Figures(
        models=_models(change, ready),
        llm=_llm(change) if has("trimodal_llm_ttft_seconds_count") else None,
        cache=_cache(change) if has("trimodal_cache_lookups_total") else None,
        speech=_speech(change) if has("trimodal_speech_lag_seconds_count") else None,
        vision=_vision(change) if has("trimodal_vision_images_total") else None,
        embedding=_embedding(change) if has("trimodal_embedding_texts_total") else None,
        assistant=_assistant(change) if has("trimodal_assistant_ttft_seconds_count") else None,
        gateway=None,
    )


def _latency(change: Change, histogram: str, **labels: str) -> Latency:
    p50, p90, p99 = (change.quantile(q, histogram, **labels) for q in (0.5, 0.9, 0.99))
    return Latency(p50, p90, p99, change.rate(f"{histogram}_count", **labels))


def _models(change: Change, ready: Mapping[str, bool]) -> tuple[Model, ...]:
    def one(name: str) -> Model:
        def mean_s(total: str) -> Number:
            share = change.ratio(total, "nv_inference_request_success", {"model": name}, {"model": name})
            return None if share is None else share / 1e6

        failures = ("BACKEND", "OTHER", "REJECTED")
        return Model(
            name=name,
            ready=ready.get(name),
            requests_per_s=change.rate("nv_inference_request_success", model=name),
            errors_per_s=change.rate("nv_inference_request_failure", model=name, reason=failures),
            waiting=change.after.total("nv_inference_pending_request_count", model=name),
            queue_s=mean_s("nv_inference_queue_duration_us"),
            request_s=mean_s("nv_inference_request_duration_us"),
            batch_size=change.ratio(
                "nv_inference_count", "nv_inference_exec_count", {"model": name}, {"model": name}
            ),
        )

    return tuple(map(one, change.after.values("nv_inference_request_success", "model")))


def _llm(change: Change) -> Llm:
    name, total, rate = "trimodal_llm_", change.after.total, change.rate
    tokens = f"{name}tokens_total"
    return Llm(
        ttft=_latency(change, f"{name}ttft_seconds"),
        itl=_latency(change, f"{name}itl_seconds"),
        queue=_latency(change, f"{name}queue_seconds"),
        e2e=_latency(change, f"{name}e2e_seconds"),
        # None of both is there before the first request.
        requests_per_s=rate(f"{name}requests_total") or 0.0,
        errors_per_s=rate(f"{name}requests_total", outcome=FAULTS) or 0.0,
        turned_away_per_s=rate(f"{name}unserved_total"),
        active=total(f"{name}active_requests"),
        queued=total(f"{name}queued_requests"),
        kv_usage=total(f"{name}kv_usage_ratio"),
        prompt_tokens_per_s=rate(tokens, kind="prompt") or 0.0,
        completion_tokens_per_s=rate(tokens, kind="completion") or 0.0,
        prefix_hit_share=change.ratio(tokens, tokens, {"kind": "cached"}, {"kind": "prompt"}),
        tokens_per_step=total(f"{name}tokens_per_step"),
        acceptance=total(f"{name}speculation_acceptance_ratio"),
        speculating=bool(total(f"{name}speculation_active")),
        engine_restarts=total(f"{name}engine_restarts_total"),
    )


def _cache(change: Change) -> Cache:
    lookups = "trimodal_cache_lookups_total"
    # Every request is looked up by the exact layer first.
    every = {"layer": "exact"}
    return Cache(
        hit_share=change.ratio(lookups, lookups, {"outcome": "hit"}, every),
        semantic_share=change.ratio(lookups, lookups, {"outcome": "hit", "layer": "semantic"}, every),
        entries=change.after.total("trimodal_cache_entries"),
        saved_tokens_per_s=change.rate("trimodal_llm_tokens_total", kind="saved") or 0.0,
        bypassed_per_s=change.rate("trimodal_cache_bypassed_total"),
    )


def _speech(change: Change) -> Speech:
    name, total, rate = "trimodal_speech_", change.after.total, change.rate
    failed = rate(f"{name}windows_total", outcome="failed") or 0.0
    return Speech(
        lag=_latency(change, f"{name}lag_seconds"),
        turnaround=_latency(change, f"{name}turnaround_seconds"),
        run=_latency(change, f"{name}recognize_seconds"),
        streams=total(f"{name}active_streams"),
        windows=total(f"{name}windows_in_flight"),
        batch_size=change.mean(f"{name}batch_size"),
        audio_per_s=rate(f"{name}audio_seconds_total"),
        speech_share=change.ratio(f"{name}voiced_seconds_total", f"{name}received_seconds_total"),
        errors_per_s=(rate(f"{name}streams_total", outcome=("refused", "failed")) or 0.0) + failed,
    )


def _vision(change: Change) -> Vision:
    return Vision(
        decode=_latency(change, "trimodal_vision_decode_seconds"),
        classify=_latency(change, "trimodal_vision_classify_seconds"),
        images_per_s=change.rate("trimodal_vision_images_total", outcome="prepared"),
        refused_per_s=change.rate("trimodal_vision_images_total", outcome="refused"),
        batch_size=change.mean("trimodal_vision_classify_batch_size"),
    )


def _embedding(change: Change) -> Embedding:
    texts = "trimodal_embedding_texts_total"
    return Embedding(
        run=_latency(change, "trimodal_embedding_seconds"),
        texts_per_s=change.rate(texts, outcome=("whole", "truncated")),
        refused_per_s=change.rate(texts, outcome="refused"),
        batch_size=change.mean("trimodal_embedding_batch_size"),
    )


def _assistant(change: Change) -> Assistant:
    name = "trimodal_assistant_"
    stages = change.after.values(f"{name}stage_seconds_count", "stage")
    return Assistant(
        ttft=_latency(change, f"{name}ttft_seconds"),
        e2e=_latency(change, f"{name}e2e_seconds"),
        stages={stage: _latency(change, f"{name}stage_seconds", stage=stage) for stage in stages},
        active=change.after.total(f"{name}active_requests"),
        requests_per_s=change.rate(f"{name}requests_total"),
        errors_per_s=change.rate(f"{name}requests_total", outcome=FAULTS),
    )


def _gateway(change: Change) -> Gateway:
    name, rate = "trimodal_gateway_", change.rate
    statuses = change.after.values(f"{name}requests_total", "status")
    affinity = f"{name}affinity_total"

    def per_s(begins: str) -> float:
        return rate(f"{name}requests_total", status=[s for s in statuses if s.startswith(begins)]) or 0.0

    left = rate(f"{name}requests_total", status="499") or 0.0
    return Gateway(
        ttft=_latency(change, f"{name}ttft_seconds"),
        itl=_latency(change, f"{name}itl_seconds"),
        request=_latency(change, f"{name}request_seconds"),
        requests_per_s=per_s(""),
        errors_per_s=per_s("5"),
        refused_per_s=per_s("4") - left,
        in_flight=change.after.total(f"{name}in_flight"),
        moved_per_s=rate(f"{name}upstream_moved_total"),
        affinity_share=change.ratio(affinity, affinity, {"result": "hit"}),
    )
