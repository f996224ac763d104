"""Asks one question of the demo through the gateway, with OpenAI's own package, and takes its times."""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from openai import AsyncOpenAI

from trimodal.client.timing import Stopwatch, Timing

MAX_TOKENS = 60


@dataclass
class Reply:
    """An answer. `note` is the field "trimodal" of its last chunk: cache, what was heard and seen, stages."""

    text: str = ""
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    note: dict[str, Any] = field(default_factory=dict)
    timing: Timing = field(default_factory=Timing)


async def ask(
    api: AsyncOpenAI,
    messages: Any,
    *,
    model: str = "llm",
    show: Callable[[str], None] = lambda text: None,
    show_findings: Callable[[dict[str, Any]], None] = lambda findings: None,
    no_cache: bool = False,
) -> Reply:
    """Streams one answer. Raises: openai.OpenAIError.

    Args:
        messages: as OpenAI's package takes them.
        show: gets each piece of text as it comes.
        show_findings: gets what the assistant heard and saw, before the text.
    """
    reply = Reply()
    watch = Stopwatch()
    extra = {"cache-control": "no-cache"} if no_cache else {}
    stream = await api.chat.completions.create(
        model=model,
        messages=messages,
        max_tokens=MAX_TOKENS,
        stream=True,
        stream_options={"include_usage": True},
        extra_headers=extra,
    )
    async for chunk in stream:
        if told := (chunk.model_extra or {}).get("trimodal"):
            if not reply.note and "heard" in told:
                show_findings(told)
            reply.note = told
        for choice in chunk.choices:
            if choice.delta.content:
                watch.text()
                reply.text += choice.delta.content
                show(choice.delta.content)
        if chunk.usage:
            reply.prompt_tokens = chunk.usage.prompt_tokens
            reply.completion_tokens = chunk.usage.completion_tokens
            details = chunk.usage.prompt_tokens_details
            reply.cached_tokens = (details and details.cached_tokens) or 0
    watch.end()
    reply.timing = watch.read(reply.completion_tokens)
    return reply


def question(text: str | None, image: Path | None = None, audio: Path | None = None) -> dict[str, Any]:
    """A user's message of words, a picture and a recording, of which any may be missing."""
    parts: list[dict[str, Any]] = []
    if text:
        parts.append({"type": "text", "text": text})
    if image:
        parts.append({"type": "image_url", "image_url": {"url": data_url(image)}})
    if audio:
        parts.append({"type": "input_audio", "input_audio": {"data": _base64(audio), "format": "wav"}})
    return {"role": "user", "content": parts}


def data_url(file: Path) -> str:
    return f"data:;base64,{_base64(file)}"


def _base64(file: Path) -> str:
    return base64.b64encode(file.read_bytes()).decode()
