"""Answers POST /v1/responses, streamed and whole: text in, text out, nothing kept."""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncIterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from trimodal.client.client import Client
from trimodal.client.options import Options
from trimodal.client.streams.answer import AnswerStream
from trimodal.client.values import Message
from trimodal.gateway.access import Caller
from trimodal.gateway.answering import encoded
from trimodal.gateway.errors import unsupported
from trimodal.gateway.openai.fields import Body, ModelBody
from trimodal.gateway.openai.generation import answer_headers, deltas, note_body, whole
from trimodal.gateway.openai.schemas import MAX_MESSAGES, StreamOptions
from trimodal.gateway.quota import KeyUsage


class InputText(Body):
    """A part of a message to /v1/responses. What was answered comes back with all of its fields."""

    type: Literal["input_text", "output_text"]
    text: str
    annotations: list[Any] | None = None
    logprobs: list[Any] | None = None


class InputMessage(Body):
    """One entry of a talk with /v1/responses."""

    type: Literal["message"] = "message"
    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[InputText]
    id: str | None = None
    status: str | None = None
    phase: str | None = None

    @property
    def message(self) -> Message:
        """As the llm takes it."""
        role = "system" if self.role == "developer" else self.role
        if isinstance(self.content, str):
            return {"role": role, "content": self.content}
        return {"role": role, "content": "\n".join(part.text for part in self.content)}


class TextFormat(Body):
    type: Literal["text", "json_object", "json_schema"]


class TextOptions(Body):
    format: TextFormat | None = None
    verbosity: str | None = None


class ResponseRequest(ModelBody):
    """POST /v1/responses: text in, text out; nothing is kept for a later request."""

    input: str | Annotated[list[InputMessage], Field(min_length=1, max_length=MAX_MESSAGES)]
    instructions: str | None = None
    stream: bool = False
    stream_options: StreamOptions | None = None
    max_output_tokens: int | None = Field(default=None, ge=1)
    temperature: float | None = Field(default=None, ge=0, le=2)
    top_p: float | None = Field(default=None, gt=0, le=1)
    text: TextOptions | None = None
    tools: list[dict[str, Any]] | None = None
    previous_response_id: str | None = None
    conversation: str | dict[str, Any] | None = None
    background: bool | None = None
    store: bool | None = None
    top_logprobs: int | None = None
    metadata: dict[str, str] | None = None
    # They change nothing here.
    include: list[str] | None = None
    parallel_tool_calls: bool | None = None
    prompt_cache_key: str | None = None
    reasoning: dict[str, Any] | None = None
    safety_identifier: str | None = None
    service_tier: str | None = None
    tool_choice: str | dict[str, Any] | None = None
    truncation: str | None = None
    user: str | None = None

    @property
    def messages(self) -> list[Message]:
        """The talk as the llm takes it."""
        talk: list[Message] = []
        if self.instructions:
            talk.append({"role": "system", "content": self.instructions})
        if isinstance(self.input, str):
            return [*talk, {"role": "user", "content": self.input}]
        return talk + [one.message for one in self.input]

    def refuse_unsupported(self) -> None:
        """Raises: ApiError naming the field."""
        for field in ("previous_response_id", "conversation", "background", "store"):
            if getattr(self, field):
                raise unsupported(field, "is not supported: this server keeps no responses")
        if self.tools:
            raise unsupported("tools", "are not supported at this endpoint: use /v1/chat/completions")
        if self.top_logprobs:
            raise unsupported("top_logprobs", "is not supported at this endpoint")
        if self.text and self.text.format and self.text.format.type != "text":
            kind = f"'{self.text.format.type}' is not supported at this endpoint: use /v1/chat/completions"
            raise unsupported("text.format.type", kind)

    def options(self) -> Options:
        """The client's options."""
        return Options(max_tokens=self.max_output_tokens, temperature=self.temperature, top_p=self.top_p)


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

    async def whole(self, usage: KeyUsage) -> tuple[Any, Mapping[str, str]]:
        """The answer's body and headers."""
        (answer,) = await whole([self._stream], usage)
        return self._ended(answer.text), answer_headers([answer])

    async def events(self, usage: KeyUsage) -> AsyncIterator[bytes]:
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
        whole_text = "".join(text)
        ended = self._ended(whole_text)
        yield (
            event("response.output_text.done", **place, text=whole_text, logprobs=[])
            + event("response.content_part.done", **place, part=_part(whole_text))
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
