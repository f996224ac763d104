"""Answers POST /v1/responses, streamed and whole."""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from typing import Any

from trimodal.client.client import Client
from trimodal.client.values import Delta
from trimodal.gateway.access import Caller
from trimodal.gateway.answering import encoded
from trimodal.gateway.errors import as_api_error, invalid
from trimodal.gateway.openai.conversation import DecodedMessage, FindingsCache, cost_of
from trimodal.gateway.openai.generation import Stream, answer_headers, deltas, note_body, whole
from trimodal.gateway.openai.responses.output import Output
from trimodal.gateway.openai.responses.request import ResponseRequest
from trimodal.gateway.openai.responses.store import KeptResponse, ResponseStore
from trimodal.gateway.openai.talk import Talk
from trimodal.gateway.quota import KeyUsage


class Reply:
    """One request to /v1/responses."""

    def __init__(
        self,
        request: ResponseRequest,
        client: Client,
        caller: Caller,
        findings: FindingsCache,
        store: ResponseStore,
    ) -> None:
        self._request = request
        self._client = client
        self._caller = caller
        self._findings = findings
        self._store = store
        self._new = request.messages()
        self.cost = cost_of(self._new)
        self._output = Output(calling=request.calls_tools)
        self._left_out = 0  # of the oldest messages of the talk
        self._id = f"resp_{secrets.token_hex(16)}"
        self._created = int(time.time())

    async def whole(self, usage: KeyUsage) -> tuple[Any, Mapping[str, str]]:
        """The answer's body and headers."""
        talk, stream = await self._begin(usage)
        (answer,) = await whole([stream], usage)
        status = _status(stream)
        delta = Delta(answer.text, 0, answer.finish_reason, answer.logprobs, answer.reasoning)
        for _ in self._output.read(delta):
            pass
        for _ in self._output.end(status):
            pass
        return await self._ended(talk, stream, status, usage), answer_headers([answer])

    async def events(self, usage: KeyUsage) -> AsyncIterator[bytes]:
        """OpenAI's events: each item is announced, grows and ends, then the response does.

        A failure on the way is told twice: by `response.failed`, and as every endpoint here tells it.
        """
        count = -1

        def event(kind: str, fields: Mapping[str, Any]) -> bytes:
            nonlocal count
            count += 1
            body = encoded({"type": f"response.{kind}", "sequence_number": count, **fields})
            return f"event: response.{kind}\ndata: ".encode() + body + b"\n\n"

        talk, stream = await self._begin(usage)
        try:
            async for _, delta in deltas([stream], usage):
                chunk = b""
                if count < 0:  # with the first text: a refusal has a status of its own
                    began = {"response": self._body("in_progress")}
                    chunk = event("created", began) + event("in_progress", began)
                for kind, fields in self._output.read(delta):
                    chunk += event(kind, fields)
                if chunk:
                    yield chunk
        except Exception as error:
            if count >= 0:
                failure = as_api_error(error, self._caller.request_id, self._request.own_name)
                told = {"code": failure.code or "server_error", "message": str(failure)}
                body = {**self._body("failed"), "output": self._output.items, "error": told}
                yield event("failed", {"response": body})
            raise
        status = _status(stream)
        chunk = b"".join(event(kind, fields) for kind, fields in self._output.end(status))
        ended = await self._ended(talk, stream, status, usage)
        yield chunk + event(status, {"response": ended})

    async def _begin(self, usage: KeyUsage) -> tuple[Talk, Stream]:
        """The talk with what is kept of it, and the stream of its answer, which is sent when it is read."""
        request, messages = self._request, self._new
        if request.previous_response_id is not None:
            field = "previous_response_id"
            kept = await self._store.get(self._caller.key.tenant, request.previous_response_id, field)
            messages, self._left_out = kept.talk(self._new)
        if self._left_out and request.trims == "disabled":
            raise invalid(
                f"previous_response_id: the oldest {self._left_out} messages of this talk are left out, and "
                "truncation is 'disabled'", code="context_length_exceeded",
            )  # fmt: skip
        system = [DecodedMessage("system", request.instructions)] if request.instructions else []
        talk = Talk(
            [*system, *messages],
            request.model,
            self._client,
            self._caller,
            self._findings,
            tools=bool(request.tools),
        )
        (stream,) = await talk.streams([request.options()], usage)
        return talk, stream

    async def _ended(self, talk: Talk, stream: Stream, status: str, usage: KeyUsage) -> dict[str, Any]:
        """The body of the whole response, which is kept if its request does not forbid it."""
        talk.remember(stream)
        body = self._body(status)
        body["output"] = self._output.items
        body["incomplete_details"] = {"reason": "max_output_tokens"} if status == "incomplete" else None
        tokens = stream.usage
        body["usage"] = {
            "input_tokens": tokens.prompt,
            "input_tokens_details": {"cached_tokens": tokens.cached, "cache_write_tokens": 0},
            "output_tokens": tokens.completion,
            "output_tokens_details": {"reasoning_tokens": tokens.reasoning},
            "total_tokens": tokens.prompt + tokens.completion,
        }
        body["trimodal"] = note_body(stream)
        if self._left_out:
            trimmed = body["trimodal"].setdefault("trimmed", {})
            trimmed["messages"] = trimmed.get("messages", 0) + self._left_out
        if self._request.store:
            messages = await talk.without_files(usage)
            if self._request.instructions:  # they are of one request alone
                messages = messages[1:]
            messages.append(DecodedMessage("assistant", self._output.text, calls=self._output.calls))
            kept = KeptResponse(body, [replace(one, field="") for one in messages], self._left_out)
            body["store"] = await self._store.put(self._caller.key.tenant, kept)
        return body

    def _body(self, status: str) -> dict[str, Any]:
        request = self._request
        asked = request.model_dump(by_alias=True, exclude_none=True, include={"text", "tool_choice"})
        return {
            "id": self._id,
            "object": "response",
            "created_at": self._created,
            "status": status,
            "model": request.model,
            "output": [],
            "background": False,
            "error": None,
            "incomplete_details": None,
            "instructions": request.instructions,
            "max_output_tokens": request.max_output_tokens,
            "metadata": request.metadata,
            "parallel_tool_calls": request.parallel_tool_calls,
            "previous_response_id": request.previous_response_id,
            "store": request.store,
            "temperature": request.temperature,
            "tools": [tool.model_dump() for tool in request.tools],
            "top_p": request.top_p,
            "truncation": request.trims,
            "usage": None,
            **asked,
        }


def _status(stream: Stream) -> str:
    return "incomplete" if stream.finish_reason in ("length", "deadline") else "completed"
