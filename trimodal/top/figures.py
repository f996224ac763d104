"""Works out the figures of the view from two looks at the server and the gateway.

A figure is a field, and stands beside how it is read and what the view says of it. Latencies are in seconds,
rates are per second, shares from 0 to 1. None: nothing is known, mostly because nothing happened between the
two looks. A part whose metrics the server does not have is None as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

from trimodal.report.numbers import Number, count, decimal, rate, share
from trimodal.top.page import Change, Labels

Part = TypeVar("Part")
FAULTS = ("deadline", "unavailable", "internal")
_LOOKUPS = "trimodal_cache_lookups_total"
_TOKENS = "trimodal_llm_tokens_total"
# Every request is looked up by the exact layer first.
_EVERY = {"layer": "exact"}


@dataclass(frozen=True)
class Latency:
    p50: Number
    p90: Number
    p99: Number
    per_s: Number  # observations


def _read(how: Callable[[Change], Any], text: str = "", number: Callable[[Number], str] = rate) -> Any:
    """A figure; `text` has it as a number in it, or names a row. Without one it is not shown by itself."""
    return field(metadata={"read": how, "text": text, "number": number})


def _latency(histogram: str, row: str) -> Any:
    return _read(lambda change: _quantiles(change, histogram), row)


def _rate(counter: str, text: str = "", *, least: Number = None, **labels: str | Collection[str]) -> Any:
    """Growth a second; `least`: of a counter that is not there before the first of what it counts."""

    def grown(change: Change) -> Number:
        found = change.rate(counter, **labels)
        return least if found is None else found

    return _read(grown, text)


def _ratio(part: str, whole: str, text: str, of: Labels | None = None, by: Labels | None = None) -> Any:
    return _read(lambda change: change.ratio(part, whole, of, by), text, share)


def _mean(histogram: str) -> Any:
    return _read(lambda change: change.mean(histogram), "batch {}", decimal)


def _now(gauge: str, text: str = "") -> Any:
    return _read(lambda change: change.after.total(gauge), text, count)


def _most(gauge: str) -> Any:
    """A share or a mean, of which each version of a model has its own: they do not add up."""
    return _read(lambda change: change.after.most(gauge))


@dataclass(frozen=True)
class Model:
    """As Triton counts it. `ready`: False when it does not answer, None when nobody was asked.

    `silent` are the versions that do not answer while another does, as "llm@2".
    """

    name: str
    ready: bool | None
    silent: tuple[str, ...]
    requests_per_s: Number
    errors_per_s: Number
    waiting: Number
    queue_s: Number  # mean, as the next
    request_s: Number
    batch_size: Number


@dataclass(frozen=True)
class Llm:
    ttft: Latency = _latency("trimodal_llm_ttft_seconds", "TTFT")
    itl: Latency = _latency("trimodal_llm_itl_seconds", "ITL")
    queue: Latency = _latency("trimodal_llm_queue_seconds", "queue")
    e2e: Latency = _latency("trimodal_llm_e2e_seconds", "end to end")
    requests_per_s: Number = _rate("trimodal_llm_requests_total", least=0.0)
    errors_per_s: Number = _rate("trimodal_llm_requests_total", least=0.0, outcome=FAULTS)
    turned_away_per_s: Number = _rate("trimodal_llm_unserved_total")
    active: Number = _now("trimodal_llm_active_requests")
    queued: Number = _now("trimodal_llm_queued_requests")
    kv_usage: Number = _most("trimodal_llm_kv_usage_ratio")
    prompt_tokens_per_s: Number = _rate(_TOKENS, least=0.0, kind="prompt")
    completion_tokens_per_s: Number = _rate(_TOKENS, least=0.0, kind="completion")
    prefix_hit_share: Number = _ratio(_TOKENS, _TOKENS, "", {"kind": "cached"}, {"kind": "prompt"})
    tokens_per_step: Number = _most("trimodal_llm_tokens_per_step")
    acceptance: Number = _most("trimodal_llm_speculation_acceptance_ratio")
    speculating: bool = _read(lambda change: bool(change.after.total("trimodal_llm_speculation_active")))
    engine_restarts: Number = _now("trimodal_llm_engine_restarts_total")  # since the server's start


@dataclass(frozen=True)
class Cache:
    """`hit_share` is of lookups, whichever layer; `semantic_share` of lookups, by the semantic layer."""

    hit_share: Number = _ratio(_LOOKUPS, _LOOKUPS, "{} hits", {"outcome": "hit"}, _EVERY)
    semantic_share: Number = _ratio(
        _LOOKUPS, _LOOKUPS, "{} semantic", {"outcome": "hit", "layer": "semantic"}, _EVERY
    )
    entries: Number = _now("trimodal_cache_entries", "entries {}")
    saved_tokens_per_s: Number = _rate(_TOKENS, "{} tokens/s saved", least=0.0, kind="saved")
    bypassed_per_s: Number = _rate("trimodal_cache_bypassed_total", "{} bypassed/s")


@dataclass(frozen=True)
class Speech:
    """`audio_per_s`: seconds of audio recognised in a second; `speech_share`: of the audio received."""

    lag: Latency = _latency("trimodal_speech_lag_seconds", "lag")
    turnaround: Latency = _latency("trimodal_speech_turnaround_seconds", "window to words")
    run: Latency = _latency("trimodal_speech_recognize_seconds", "recogniser's run")
    streams: Number = _now("trimodal_speech_active_streams", "streams {}")
    audio_per_s: Number = _rate("trimodal_speech_audio_seconds_total", "{} s of audio/s")
    speech_share: Number = _ratio(
        "trimodal_speech_voiced_seconds_total", "trimodal_speech_received_seconds_total", "{} speech"
    )
    batch_size: Number = _mean("trimodal_speech_batch_size")
    errors_per_s: Number = _read(
        lambda change: (
            (change.rate("trimodal_speech_streams_total", outcome=("refused", "failed")) or 0.0)
            + (change.rate("trimodal_speech_windows_total", outcome="failed") or 0.0)
        ),
        "{} errors/s",
    )


@dataclass(frozen=True)
class Vision:
    decode: Latency = _latency("trimodal_vision_decode_seconds", "decode")
    classify: Latency = _latency("trimodal_vision_classify_seconds", "classifier's run")
    images_per_s: Number = _rate("trimodal_vision_images_total", "{} images/s", outcome="prepared")
    batch_size: Number = _mean("trimodal_vision_classify_batch_size")
    refused_per_s: Number = _rate("trimodal_vision_images_total", "{} refused/s", outcome="refused")


@dataclass(frozen=True)
class Embedding:
    run: Latency = _latency("trimodal_embedding_seconds", "embedder's run")
    texts_per_s: Number = _rate(
        "trimodal_embedding_texts_total", "{} texts/s", outcome=("whole", "truncated")
    )
    batch_size: Number = _mean("trimodal_embedding_batch_size")
    refused_per_s: Number = _rate("trimodal_embedding_texts_total", "{} refused/s", outcome="refused")


def _stages(change: Change) -> Mapping[str, Latency]:
    histogram = "trimodal_assistant_stage_seconds"
    stages = change.after.values(f"{histogram}_count", "stage")
    return {stage: _quantiles(change, histogram, stage=stage) for stage in stages}


@dataclass(frozen=True)
class Assistant:
    ttft: Latency = _latency("trimodal_assistant_ttft_seconds", "TTFT")
    e2e: Latency = _latency("trimodal_assistant_e2e_seconds", "end to end")
    stages: Mapping[str, Latency] = _read(_stages, "stage")
    requests_per_s: Number = _rate("trimodal_assistant_requests_total", "{} requests/s")
    active: Number = _now("trimodal_assistant_active_requests", "active {}")
    errors_per_s: Number = _rate("trimodal_assistant_requests_total", "{} errors/s", outcome=FAULTS)


def _answered(change: Change, begins: str) -> float:
    """Requests a second with such a status; a client that left has 499."""
    name = "trimodal_gateway_requests_total"
    statuses = [one for one in change.after.values(name, "status") if one.startswith(begins)]
    return change.rate(name, status=statuses) or 0.0


@dataclass(frozen=True)
class Gateway:
    """`errors_per_s`: status 5xx; `refused_per_s`: 4xx, without the clients that left."""

    ttft: Latency = _latency("trimodal_gateway_ttft_seconds", "TTFT")
    itl: Latency = _latency("trimodal_gateway_itl_seconds", "ITL, mean of each")
    request: Latency = _latency("trimodal_gateway_request_seconds", "end to end")
    requests_per_s: Number = _read(lambda change: _answered(change, ""), "{} requests/s")
    in_flight: Number = _now("trimodal_gateway_in_flight", "in flight {}")
    errors_per_s: Number = _read(lambda change: _answered(change, "5"), "{} errors/s")
    refused_per_s: Number = _read(
        lambda change: _answered(change, "4") - _answered(change, "499"), "{} refused/s"
    )
    moved_per_s: Number = _rate("trimodal_gateway_upstream_moved_total", "{} moved/s")


@dataclass(frozen=True)
class Figures:
    """One picture of the view."""

    models: tuple[Model, ...] = ()
    llm: Llm | None = None
    cache: Cache | None = None
    speech: Speech | None = None
    vision: Vision | None = None
    embedding: Embedding | None = None
    assistant: Assistant | None = None
    gateway: Gateway | None = None


def figures(server: Change | None, gateway: Change | None, ready: Mapping[str, bool]) -> Figures:
    """All figures; `ready` says of each model, and of each version as "llm@2", whether it answers."""
    return Figures(
        models=_models(server, ready) if server else (),
        llm=_part(Llm, server, "trimodal_llm_ttft_seconds_count"),
        cache=_part(Cache, server, _LOOKUPS),
        speech=_part(Speech, server, "trimodal_speech_lag_seconds_count"),
        vision=_part(Vision, server, "trimodal_vision_images_total"),
        embedding=_part(Embedding, server, "trimodal_embedding_texts_total"),
        assistant=_part(Assistant, server, "trimodal_assistant_ttft_seconds_count"),
        gateway=_part(Gateway, gateway),
    )


def ready_at_gateway(gateway: Change) -> dict[str, bool]:
    """Model → whether every server that has it and is not drained answers for it, in one version.

    Of a model with several each stands beside it, as "llm@2": routes say how many requests which has.
    """
    drained = {
        found["upstream"]
        for found, value in gateway.after.series("trimodal_gateway_upstream_draining", {})
        if value
    }
    models: dict[str, dict[str, bool]] = {}
    for found, value in gateway.after.series("trimodal_gateway_upstream_ready", {}):
        if found["upstream"] not in drained:
            own, version = models.setdefault(found["model"], {}), found.get("version", "")
            own[version] = own.get(version, True) and bool(value)
    versions = {
        f"{name}@{one}": ok for name, own in models.items() if len(own) > 1 for one, ok in own.items()
    }
    return {name: any(own.values()) for name, own in models.items()} | versions


def _part(part: type[Part], change: Change | None, metric: str = "") -> Part | None:
    """Its figures; None: the page has no such metric."""
    if change is None or (metric and not change.after.has(metric)):
        return None
    return part(**{one.name: one.metadata["read"](change) for one in fields(part)})  # type: ignore[arg-type]


def _quantiles(change: Change, histogram: str, **labels: str) -> Latency:
    p50, p90, p99 = (change.quantile(q, histogram, **labels) for q in (0.5, 0.9, 0.99))
    return Latency(p50, p90, p99, change.rate(f"{histogram}_count", **labels))


def _models(change: Change, ready: Mapping[str, bool]) -> tuple[Model, ...]:
    def one(name: str) -> Model:
        label = {"model": name}

        def mean_s(total: str) -> Number:
            mean = change.ratio(total, "nv_inference_request_success", label, label)
            return None if mean is None else mean / 1e6

        failures = ("BACKEND", "OTHER", "REJECTED")
        return Model(
            name=name,
            ready=ready.get(name),
            silent=tuple(sorted(one for one in ready if one.startswith(f"{name}@") and not ready[one]))
            if ready.get(name)
            else (),
            requests_per_s=change.rate("nv_inference_request_success", model=name),
            errors_per_s=change.rate("nv_inference_request_failure", model=name, reason=failures),
            waiting=change.after.total("nv_inference_pending_request_count", model=name),
            queue_s=mean_s("nv_inference_queue_duration_us"),
            request_s=mean_s("nv_inference_request_duration_us"),
            batch_size=change.ratio("nv_inference_count", "nv_inference_exec_count", label, label),
        )

    return tuple(map(one, change.after.values("nv_inference_request_success", "model")))
