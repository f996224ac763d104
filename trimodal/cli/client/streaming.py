"""Shows a streamed answer to its end: text, or a JSON object a line."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

import typer

from trimodal.cli import common

if TYPE_CHECKING:
    from trimodal.client import AnswerStream, AskStream, AudioFindings, Delta, ImageFindings
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
        typer.echo(" · ".join(_footer(stream)), err=True)


def _tell(item: AudioFindings | ImageFindings | Delta) -> None:
    """Findings go to stderr: stdout is the answer alone."""
    from trimodal.client import AudioFindings, Delta

    if isinstance(item, Delta):
        typer.echo(common.plain(item.text) if sys.stdout.isatty() else item.text, nl=False)
    elif isinstance(item, AudioFindings):
        typer.echo(f"heard: {common.plain(item.text) or '(no words)'}", err=True)
    else:
        labels = (f"{common.plain(one.label)} {one.score:.2f}" for one in item.labels[:_SHOWN_LABELS])
        typer.echo(f"saw: {', '.join(labels)}", err=True)


def _row(item: AudioFindings | ImageFindings | Delta, head: dict[str, Any]) -> dict[str, Any]:
    from trimodal.client import AudioFindings, Delta

    if isinstance(item, Delta):
        return head | {"delta": item.text, "tokens": item.tokens}
    if isinstance(item, AudioFindings):
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


def _footer(stream: AnswerStream | AskStream) -> list[str]:
    """Tokens and times of an answer, for a person."""
    from trimodal.client import AskStream

    timing, usage, note = stream.timing, stream.usage, stream.note
    parts = [
        stream.finish_reason or "stopped",
        f"prompt {usage.prompt} tokens ({usage.cached} cached)",
        f"answer {usage.completion} tokens",
    ]
    if note.cache in ("exact", "semantic"):
        parts.append(f"from the cache ({note.cache})")
    if note.trimmed:
        parts.append(f"left out {note.trimmed.get('messages', 0)} older messages")
    times: Mapping[str, float | None] = {"ttft": _ms(timing.ttft), "total": _ms(timing.latency)}
    if isinstance(stream, AskStream):
        times = stream.stages
    names = {"heard": "heard in", "saw": "saw in", "ttft": "first text after", "total": "all in"}
    for name, what in names.items():
        if (ms := times.get(name)) is not None:
            parts.append(f"{what} {ms:.0f} ms")
    if timing.itl:
        p50, p99 = timing.itl_percentile(50) or 0.0, timing.itl_percentile(99) or 0.0
        parts.append(f"gaps {p50 * 1e3:.1f} ms (p50), {p99 * 1e3:.1f} ms (p99)")
    return parts


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1e3, 3)


def _line(value: dict[str, Any]) -> None:
    typer.echo(json.dumps(value, ensure_ascii=False))
