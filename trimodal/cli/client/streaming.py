"""Shows a streamed answer to its end: text, or a JSON object a line."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from trimodal.client import AnswerStream, AskStream


async def show(
    stream: AnswerStream | AskStream,
    *,
    row: Callable[[Any], dict[str, Any]],
    tell: Callable[[Any], None],
    summary: Callable[[Any], dict[str, Any]],
    footer: Callable[[Any], str],
    as_json: bool,
    stats: bool,
) -> None:
    """Shows every item as it comes.

    Args:
        row: an item as JSON.
        tell: writes an item for people.
        summary: the last JSON line.
        footer: the same in one line for people, shown on stderr with `stats`.

    Raises:
        TrimodalError: what the stream raises; its text so far is ended with a newline.
    """
    from trimodal.errors import RequestError, TrimodalError

    if not as_json and hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")  # a terminal that is not UTF-8 must not end an answer
    try:
        async with stream:
            async for item in stream:
                if as_json:
                    _line(row(item))
                else:
                    tell(item)
    except TrimodalError as error:
        if as_json:
            code = error.code if isinstance(error, RequestError) else type(error).__name__
            _line({"error": str(error), "code": code})
        elif stream.text:
            typer.echo()
        raise
    if as_json:
        _line(common_fields(stream) | summary(stream))
    else:
        typer.echo()
    if stats:
        typer.echo(footer(stream), err=True)


def common_fields(stream: AnswerStream | AskStream) -> dict[str, Any]:
    """What the last JSON line of every answer has."""
    return {
        "text": stream.text,
        "finish_reason": stream.finish_reason,
        "usage": {
            "prompt_tokens": stream.usage.prompt,
            "cached_tokens": stream.usage.cached,
            "completion_tokens": stream.usage.completion,
        },
        "cache": stream.note.cache,
    }


def _line(value: dict[str, Any]) -> None:
    typer.echo(json.dumps(value, ensure_ascii=False))
