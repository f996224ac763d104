"""Shows a streamed answer to its end: text, or a JSON object a line."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

import typer

from trimodal.cli import common

if TYPE_CHECKING:
    from trimodal.client import AnswerStream, AskStream, Delta, Heard, Saw
    from trimodal.client.options import Options

_SHOWN_LABELS = 3


def options_of(given: Mapping[str, Any]) -> Options:
    """Those of a command's arguments, by their names, that are options of an answer."""
    from trimodal.client.options import Options

    return cast("Options", {name: given[name] for name in Options.__annotations__ if name in given})


async def show(stream: AnswerStream | AskStream, *, as_json: bool, stats: bool) -> None:
    """Shows every item as it comes. Raises what the stream raises, its text so far ended with a newline."""
    from trimodal.client import AskStream
    from trimodal.errors import RequestError, TrimodalError

    with_stages = isinstance(stream, AskStream)
    if not as_json and hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")  # a terminal that is not UTF-8 must not end an answer
    try:
        async with stream:
            async for item in stream:
                if as_json:
                    _line(_row(item, {"stage": "answer"} if with_stages else {}))
                else:
                    _tell(item)
    except TrimodalError as error:
        if as_json:
            code = error.code if isinstance(error, RequestError) else type(error).__name__
            _line({"error": str(error), "code": code})
        elif stream.text:
            typer.echo()
        raise
    if as_json:
        _line(_summary(stream))
    else:
        typer.echo()
    if stats:
        parts = _ask_footer(stream) if isinstance(stream, AskStream) else _answer_footer(stream)
        typer.echo(" · ".join(parts), err=True)


def _tell(item: Heard | Saw | Delta) -> None:
    """Findings go to stderr: stdout is the answer alone."""
    from trimodal.client import Delta, Heard

    if isinstance(item, Delta):
        typer.echo(common.plain(item.text) if sys.stdout.isatty() else item.text, nl=False)
    elif isinstance(item, Heard):
        typer.echo(f"heard: {common.plain(item.text) or '(no words)'}", err=True)
    else:
        labels = (f"{common.plain(one.label)} {one.score:.2f}" for one in item.labels[:_SHOWN_LABELS])
        typer.echo(f"saw: {', '.join(labels)}", err=True)


def _row(item: Heard | Saw | Delta, head: dict[str, Any]) -> dict[str, Any]:
    from trimodal.client import Delta, Heard

    if isinstance(item, Delta):
        return head | {"delta": item.text, "tokens": item.tokens}
    if isinstance(item, Heard):
        return {"stage": "heard", "text": item.text}
    return {"stage": "saw", "labels": [{"label": one.label, "score": one.score} for one in item.labels]}


def _summary(stream: AnswerStream | AskStream) -> dict[str, Any]:
    """The last JSON line; times in milliseconds."""
    from trimodal.client import AskStream

    usage, note, timing = stream.usage, stream.note, stream.timing
    summary = {
        "text": stream.text,
        "finish_reason": stream.finish_reason,
        "usage": {
            "prompt_tokens": usage.prompt,
            "cached_tokens": usage.cached,
            "completion_tokens": usage.completion,
        },
        "cache": note.cache,
    }
    if isinstance(stream, AskStream):
        return summary | {"stages_ms": stream.stages}
    return summary | {
        "similarity": round(note.similarity, 4),
        "trimmed": dict(note.trimmed),
        "ttft_ms": _ms(timing.ttft),
        "itl_p50_ms": _ms(timing.itl_percentile(50)),
        "itl_p99_ms": _ms(timing.itl_percentile(99)),
        "latency_ms": _ms(timing.latency),
    }


def _answer_footer(stream: AnswerStream) -> list[str]:
    timing, usage, note = stream.timing, stream.usage, stream.note
    parts = [
        stream.finish_reason or "stopped",
        f"prompt {usage.prompt} tokens ({usage.cached} cached)",
        f"answer {usage.completion} tokens in {timing.latency:.2f} s",
    ]
    if note.cache in ("exact", "semantic"):
        likeness = f", similarity {note.similarity:.3f}" if note.cache == "semantic" else ""
        parts.append(f"from the cache ({note.cache}{likeness})")
    if note.trimmed:
        parts.append(f"left out {note.trimmed.get('messages', 0)} older messages")
    if timing.ttft is not None:
        parts.append(f"first text after {timing.ttft * 1e3:.1f} ms")
    if timing.itl:
        p50, p99 = timing.itl_percentile(50) or 0.0, timing.itl_percentile(99) or 0.0
        parts.append(f"gaps {p50 * 1e3:.1f} ms (p50), {p99 * 1e3:.1f} ms (p99)")
    return parts


def _ask_footer(stream: AskStream) -> list[str]:
    parts = [stream.finish_reason or "stopped", f"{stream.usage.completion} tokens"]
    if stream.note.cache:
        parts.append(f"from the cache ({stream.note.cache})")
    names = {"heard": "heard in", "saw": "saw in", "ttft": "first text after", "total": "all in"}
    for name, said in names.items():
        if (ms := stream.stages.get(name)) is not None:
            parts.append(f"{said} {ms:.0f} ms")
    return parts


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1e3, 3)


def _line(value: dict[str, Any]) -> None:
    typer.echo(json.dumps(value, ensure_ascii=False))
