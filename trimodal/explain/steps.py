"""Turns what Triton and the models tell of a request into spans, on the client's time scale."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from trimodal.explain.triton_trace import TraceRecord
from trimodal.explain.values import Part, Span

# Nanoseconds of the server's clock → seconds since the client sent.
Scale = Callable[[int], float]
_SHOWN_LEAST = 2e-6
# What Triton tells of one model, in order.
_PHASES: tuple[tuple[str, Part], ...] = (
    ("queue", "queue"),
    ("compute input", "processing"),
    ("compute", "processing"),
    ("compute output", "processing"),
)
# How our models call what they do → what a reader is told, and which part it is.
_NAMES: dict[str, tuple[str, Part]] = {
    "tokenize": ("tokenize", "processing"),
    "admission": ("cache lookup, admission", "processing"),
    "queue": ("wait for the engine", "queue"),
    "first token": ("prefill, first token", "processing"),
    "next tokens": ("next tokens", "processing"),
    "answer of another request": ("from the cache", "processing"),
    "take audio in": ("find speech in the audio", "processing"),
    "window waits": ("wait for a thread", "queue"),
    "window": ("recognise", "processing"),
    "take words in": ("merge the words", "processing"),
    "embed": ("embed", "processing"),
    "decode": ("decode and resize", "processing"),
    "classify": ("classify", "processing"),
    "rank": ("rank", "processing"),
    "heard": ("hear", "processing"),
    "saw": ("see", "processing"),
    "answer": ("answer", "processing"),
}


def of_record(record: TraceRecord, scale: Scale, depth: int) -> list[Span]:
    """Queue and computing of one model that is no ensemble."""
    marks = ("QUEUE_START", "COMPUTE_START", "COMPUTE_INPUT_END", "COMPUTE_OUTPUT_START", "COMPUTE_END")
    spans = []
    for (name, part), begin, end in zip(_PHASES, marks, marks[1:], strict=False):
        low, high = record.first(begin), record.first(end)
        if low is not None and high is not None:
            spans.append(Span(name, scale(low), scale(high), part, record.model, depth))
    return spans


def of_ensemble(records: Sequence[TraceRecord], parent: int, scale: Scale, depth: int) -> list[Span]:
    """Each step of the ensemble with this id, and what stands in it."""
    spans: list[Span] = []
    steps = [one for one in records if one.parent == parent and one.first("REQUEST_START") is not None]
    for step in sorted(steps, key=lambda one: one.first("REQUEST_START") or 0):
        inside = of_record(step, scale, depth + 1) or of_ensemble(records, step.id, scale, depth + 1)
        begin = scale(step.first("REQUEST_START") or 0)
        end = max((one.end for one in inside), default=scale(step.last("REQUEST_END") or 0))
        spans += [Span(step.model, begin, end, "processing", step.model, depth), *inside]
    return spans


def of_model(spans: Sequence[Mapping[str, Any]], place: str, scale: Scale, depth: int) -> list[Span]:
    """What a model of ours tells of itself; its texts are left out, as they take no time."""
    found = []
    for one in spans:
        if one["name"] == "text":
            continue
        name, part = _NAMES.get(one["name"], (str(one["name"]), "processing"))
        if one["name"] == "window":
            name = f"{name} {one['audio_s']:.1f} s"
        if one["name"] == "next tokens":
            texts = [text["tokens"] for text in spans if text["name"] == "text"]
            more = texts[-1] - texts[0] if texts else 0
            name = f"{more} more tokens" if more != 1 else "1 more token"
        found.append(Span(name, scale(one["begin"]), scale(one["end"]), part, place, depth))
    return sorted(found, key=lambda span: span.begin)


def worth_showing(spans: Sequence[Span]) -> list[Span]:
    """Without those that take no time, unless others stand in them."""
    return [
        one
        for one, after in zip(spans, [*spans[1:], None], strict=True)
        if one.seconds >= _SHOWN_LEAST or (after is not None and after.depth > one.depth)
    ]
