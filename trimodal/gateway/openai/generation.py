"""Generates the choices of one request side by side: deltas as they come, or whole answers."""

from __future__ import annotations

import asyncio
import math
import secrets
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from typing import Any

from trimodal import logs, trace
from trimodal.client.streams.answer import AnswerStream
from trimodal.client.streams.ask import AskStream
from trimodal.client.values import Answer, Delta, Usage
from trimodal.gateway.quota import KeyUsage

Stream = AnswerStream | AskStream
_WAITS = {"window waits": "queue"}  # speech's name of it
# Answers to one request that the model has at a time: the others of its batch are other callers'.
_AT_ONCE = 8
# Our finish reasons as OpenAI's clients know them; the field "trimodal" of an answer has ours.
FINISH_REASONS = {"stop": "stop", "length": "length", "deadline": "length", "cancelled": "stop"}


def envelope(prefix: str, kind: str, model: str) -> dict[str, Any]:
    """The fields that a whole answer, and each of its chunks, begins with."""
    id = f"{prefix}-{secrets.token_hex(12)}"
    return {"id": id, "object": kind, "created": int(time.time()), "model": model}


def usage_body(tokens: Sequence[Usage], choices: int) -> dict[str, Any]:
    """OpenAI's usage of all streams, `choices` of each prompt, which counts once."""
    firsts = tokens[::choices]
    prompt = sum(one.prompt for one in firsts)
    completion = sum(one.completion for one in tokens)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": sum(one.cached for one in firsts)},
        "completion_tokens_details": {"reasoning_tokens": sum(one.reasoning for one in tokens)},
    }


def note_body(stream: Stream) -> dict[str, Any]:
    """How an answer came about, for the field "trimodal"; what there is nothing to say of is left out."""
    note = stream.note
    timing = stream.timing
    body: dict[str, Any] = {"queue_ms": round(note.queue_ms, 3), "total_ms": round(timing.latency * 1e3, 3)}
    if timing.ttft is not None:
        body["ttft_ms"] = round(timing.ttft * 1e3, 3)
    if note.cache:
        body |= {"cache": note.cache, "similarity": round(note.similarity, 4)}
    if note.trimmed:
        body["trimmed"] = dict(note.trimmed)
    if not math.isnan(note.predicted_ttft_ms):
        body["predicted_ttft_ms"] = round(note.predicted_ttft_ms, 3)
    if stream.finish_reason not in ("stop", "length"):
        body["finish_reason"] = stream.finish_reason
    if isinstance(stream, AskStream):
        body |= {**findings_body(stream)["trimodal"], "stages_ms": stream.stages}
    return body


def findings_body(stream: Stream) -> dict[str, dict[str, Any]]:
    """What the assistant heard and saw, as the field "trimodal" of a body; nothing of another model."""
    if not isinstance(stream, AskStream):
        return {}
    labels = [{"label": one.label, "score": round(one.score, 6)} for one in stream.labels]
    return {"trimodal": {"heard": stream.heard, "labels": labels}}


def answer_headers(answers: Sequence[Answer]) -> Mapping[str, str]:
    """Where the time went, and whether the cache answered."""
    first = answers[0]
    parts = [f"queue;dur={first.note.queue_ms:.1f}"]
    if first.timing.ttft is not None:
        parts.append(f"ttft;dur={first.timing.ttft * 1e3:.1f}")
    parts.append(f"total;dur={max(answer.timing.latency for answer in answers) * 1e3:.1f}")
    return {"server-timing": ", ".join(parts), "x-trimodal-cache": first.note.cache or "miss"}


def timing_headers(seconds: float, spans: Sequence[trace.Span]) -> Mapping[str, str]:
    """Where the time of one answer went: each moment counts once, and the parts are the total.

    Args:
        seconds: from the request, read, to its answer.
        spans: what the model told; "queue" is all that they leave: on the way, and waiting for a turn.
    """
    parts = {"queue": 0.0}
    until = 0
    for one in sorted(spans, key=lambda one: int(one["begin"])):
        name = _WAITS.get(one["name"], one["name"].replace(" ", "-"))
        begin = max(one["begin"], until)
        until = max(until, one["end"])
        parts[name] = parts.get(name, 0.0) + max(0, until - begin) / 1e6
    parts["queue"] += max(0.0, seconds * 1e3 - sum(parts.values()))
    told = [f"{name};dur={took:.1f}" for name, took in {**parts, "total": seconds * 1e3}.items()]
    return {"server-timing": ", ".join(told)}


@asynccontextmanager
async def charging(streams: Sequence[Stream], usage: KeyUsage) -> AsyncIterator[None]:
    """Ends the streams with the block; their tokens count against the key, also of what was left early."""
    async with AsyncExitStack() as stack:
        for stream in streams:
            await stack.enter_async_context(stream)
        try:
            yield
        finally:
            used = [stream.usage for stream in streams]
            prompt, completion = (sum(one.prompt for one in used), sum(one.completion for one in used))
            usage.tokens = prompt + completion
            cached = sum(one.cached for one in used)
            logs.note(prompt_tokens=prompt, cached_tokens=cached, completion_tokens=completion)


async def whole(streams: Sequence[Stream], usage: KeyUsage) -> list[Answer]:
    """Waits for all answers, a few at a time; the first failure ends the others."""
    turns = asyncio.Semaphore(_AT_ONCE)

    async def answer(stream: Stream) -> Answer:
        async with turns:
            return await stream.answer()

    async with charging(streams, usage):
        return list(await asyncio.gather(*map(answer, streams)))


async def deltas(streams: Sequence[Stream], usage: KeyUsage) -> AsyncGenerator[tuple[int, Delta], None]:
    """Every delta of every stream with the number of its choice, as they come; a few streams at a time."""
    async with charging(streams, usage):
        if len(streams) == 1:
            async for delta in streams[0]:
                if isinstance(delta, Delta):  # the stream keeps what the assistant heard and saw
                    yield 0, delta
            return
        async with aclosing(_merged(streams)) as merged:
            async for index, delta in merged:
                yield index, delta


async def _merged(streams: Sequence[Stream]) -> Any:
    queue: asyncio.Queue[tuple[int, Delta | BaseException | None]] = asyncio.Queue(maxsize=2 * _AT_ONCE)
    turns = asyncio.Semaphore(_AT_ONCE)

    async def copy(index: int, stream: Stream) -> None:
        try:
            async with turns:
                async for delta in stream:
                    if isinstance(delta, Delta):
                        await queue.put((index, delta))
            await queue.put((index, None))
        except Exception as error:
            await queue.put((index, error))

    tasks = [asyncio.ensure_future(copy(index, stream)) for index, stream in enumerate(streams)]
    try:
        running = len(tasks)
        while running:
            index, item = await queue.get()
            if isinstance(item, BaseException):
                raise item
            if item is None:
                running -= 1
            else:
                yield index, item
    finally:
        for task in tasks:
            task.cancel()
