"""Generates the choices of one request side by side: deltas as they come, or whole answers."""

from __future__ import annotations

import asyncio
import math
import secrets
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass
from typing import Any

from trimodal.client.streams.answer import AnswerStream
from trimodal.client.streams.ask import AskStream
from trimodal.client.values import Answer, Delta
from trimodal.client.values import Usage as Tokens
from trimodal.gateway.quota import Usage

Stream = AnswerStream | AskStream
# What OpenAI's clients know → ours is told in "trimodal" beside it.
FINISH_REASONS = {"stop": "stop", "length": "length", "deadline": "length", "cancelled": "stop"}


@dataclass(frozen=True)
class Named:
    """What all chunks of one answer begin with."""

    id: str
    kind: str
    model: str
    created: int

    def body(self, **fields: Any) -> dict[str, Any]:
        return {"id": self.id, "object": self.kind, "created": self.created, "model": self.model, **fields}


def named(prefix: str, kind: str, model: str) -> Named:
    return Named(f"{prefix}-{secrets.token_hex(12)}", kind, model, int(time.time()))


def usage_body(tokens: Sequence[Tokens], choices: int) -> dict[str, Any]:
    """OpenAI's usage of all streams, `choices` of each prompt, which counts once."""
    firsts = tokens[::choices]
    prompt = sum(one.prompt for one in firsts)
    completion = sum(one.completion for one in tokens)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": sum(one.cached for one in firsts)},
    }


def note_body(stream: Stream) -> dict[str, Any]:
    """How an answer came about, for the field "trimodal"; what there is nothing to say of is left out."""
    note = stream.note
    timing = stream.timing
    told: dict[str, Any] = {"queue_ms": round(note.queue_ms, 3), "total_ms": round(timing.latency * 1e3, 3)}
    if timing.ttft is not None:
        told["ttft_ms"] = round(timing.ttft * 1e3, 3)
    if note.cache:
        told |= {"cache": note.cache, "similarity": round(note.similarity, 4)}
    if note.trimmed:
        told["trimmed"] = dict(note.trimmed)
    if not math.isnan(note.predicted_ttft_ms):
        told["predicted_ttft_ms"] = round(note.predicted_ttft_ms, 3)
    if stream.finish_reason not in ("stop", "length"):
        told["finish_reason"] = stream.finish_reason
    if isinstance(stream, AskStream):
        told |= {**findings_body(stream)["trimodal"], "stages_ms": stream.stages}
    return told


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


async def whole(streams: Sequence[Stream], usage: Usage) -> list[Answer]:
    """Waits for all answers; the first failure ends the others."""
    async with AsyncExitStack() as stack:
        for stream in streams:
            await stack.enter_async_context(stream)
        try:
            return list(await asyncio.gather(*(stream.answer() for stream in streams)))
        finally:
            usage.tokens = charged(streams)


async def deltas(streams: Sequence[Stream], usage: Usage) -> AsyncIterator[tuple[int, Delta]]:
    """Every delta of every stream with the number of its choice, as they come."""
    async with AsyncExitStack() as stack:
        for stream in streams:
            await stack.enter_async_context(stream)
        try:
            if len(streams) == 1:
                async for delta in streams[0]:
                    if isinstance(delta, Delta):  # the stream keeps what the assistant heard and saw
                        yield 0, delta
                return
            async with aclosing(_merged(streams)) as merged:
                async for index, delta in merged:
                    yield index, delta
        finally:
            usage.tokens = charged(streams)


def charged(streams: Sequence[Stream]) -> int:
    """Tokens that count against the key's limit: also those of an answer that was left early."""
    return sum(stream.usage.prompt + stream.usage.completion for stream in streams)


async def _merged(streams: Sequence[Stream]) -> Any:
    queue: asyncio.Queue[tuple[int, Delta | BaseException | None]] = asyncio.Queue(maxsize=2 * len(streams))

    async def copy(index: int, stream: Stream) -> None:
        try:
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
