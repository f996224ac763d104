"""Answers POST /v1/responses, streamed and whole: text in, text out, nothing kept."""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncIterator, Mapping
from typing import Any

from trimodal.client.client import Client
from trimodal.client.streams.answer import AnswerStream
from trimodal.gateway.access import Caller
from trimodal.gateway.answering import encoded
from trimodal.gateway.openai.generation import answer_headers, deltas, note_body, whole
from trimodal.gateway.openai.schemas import ResponseRequest
from trimodal.gateway.quota import Usage


class Reply:
    """One request to /v1/responses."""

    def __init__(self, request: ResponseRequest, client: Client, caller: Caller) -> None:
        request.refuse_unsupported()
        self._request = request
        self._stream: AnswerStream = client.stream(
            messages=request.messages,
            model=request.model,
            request_id=caller.request_id,
            **caller.terms(request.options()),
        )
        self._id = f"resp_{secrets.token_hex(16)}"
        self._message_id = f"msg_{secrets.token_hex(16)}"
        self._created = int(time.time())

    async def whole(self, usage: Usage) -> tuple[Any, Mapping[str, str]]:
        """The answer's body and headers."""
        (answer,) = await whole([self._stream], usage)
        return self._ended(answer.text), answer_headers([answer])

    async def events(self, usage: Usage) -> AsyncIterator[bytes]:
        """What OpenAI's clients expect: the text begins, grows and ends in one part of one message."""
        count = -1

        def event(kind: str, **fields: Any) -> bytes:
            nonlocal count
            count += 1
            body = encoded({"type": kind, "sequence_number": count, **fields})
            return b"event: " + kind.encode() + b"\ndata: " + body + b"\n\n"

        place = {"item_id": self._message_id, "output_index": 0, "content_index": 0}
        text: list[str] = []
        async for _, delta in deltas([self._stream], usage):
            chunk = b""
            if not count + 1:  # with the first text: a refusal has a status of its own
                began = self._body("in_progress", [])
                chunk += event("response.created", response=began)
                chunk += event("response.in_progress", response=began)
                item = {**self._message("", "in_progress"), "content": []}
                chunk += event("response.output_item.added", output_index=0, item=item)
                chunk += event("response.content_part.added", **place, part=_part(""))
            if delta.text:
                text.append(delta.text)
                chunk += event("response.output_text.delta", **place, delta=delta.text, logprobs=[])
            if chunk:
                yield chunk
        said = "".join(text)
        ended = self._ended(said)
        yield (
            event("response.output_text.done", **place, text=said, logprobs=[])
            + event("response.content_part.done", **place, part=_part(said))
            + event("response.output_item.done", output_index=0, item=ended["output"][0])
            + event(f"response.{ended['status']}", response=ended)
        )

    def _ended(self, text: str) -> dict[str, Any]:
        cut = self._stream.finish_reason in ("length", "deadline")
        status = "incomplete" if cut else "completed"
        body = self._body(status, [self._message(text, status)])
        tokens = self._stream.usage
        body["incomplete_details"] = {"reason": "max_output_tokens"} if cut else None
        body["usage"] = {
            "input_tokens": tokens.prompt,
            "input_tokens_details": {"cached_tokens": tokens.cached, "cache_write_tokens": 0},
            "output_tokens": tokens.completion,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": tokens.prompt + tokens.completion,
        }
        body["trimodal"] = note_body(self._stream)
        return body

    def _message(self, text: str, status: str) -> dict[str, Any]:
        content = [_part(text)]
        return {
            "id": self._message_id, "type": "message", "role": "assistant", "status": status,
            "content": content,
        }  # fmt: skip

    def _body(self, status: str, output: list[dict[str, Any]]) -> dict[str, Any]:
        request = self._request
        return {
            "id": self._id,
            "object": "response",
            "created_at": self._created,
            "status": status,
            "model": request.model,
            "output": output,
            "error": None,
            "incomplete_details": None,
            "instructions": request.instructions,
            "max_output_tokens": request.max_output_tokens,
            "metadata": request.metadata or {},
            "parallel_tool_calls": False,
            "previous_response_id": None,
            "store": False,
            "temperature": request.temperature,
            "text": {"format": {"type": "text"}},
            "tool_choice": "none",
            "tools": [],
            "top_p": request.top_p,
            "truncation": "disabled",
            "usage": None,
        }


def _part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
