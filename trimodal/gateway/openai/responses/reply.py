"""Answers POST /v1/responses, streamed and whole."""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import aclosing
from dataclasses import replace
from typing import Any, NamedTuple

from trimodal.client.client import Client
from trimodal.client.values import Delta, TokenLogprob
from trimodal.gateway.access import Caller
from trimodal.gateway.answering import encoded
from trimodal.gateway.errors import as_api_error, invalid
from trimodal.gateway.openai.calls import CallReader, chat_call
from trimodal.gateway.openai.conversation import DecodedMessage, FindingsCache, cost_of
from trimodal.gateway.openai.generation import Stream, answer_headers, deltas, note_body, whole
from trimodal.gateway.openai.logprobs import chat_logprobs
from trimodal.gateway.openai.responses.request import ResponseRequest
from trimodal.gateway.openai.responses.store import KeptResponse, ResponseStore
from trimodal.gateway.openai.talk import Talk
from trimodal.gateway.quota import KeyUsage

Item = dict[str, Any]
Event = tuple[str, dict[str, Any]]
"""Type, without "response." in front, and fields."""


class ThoughtsPlace(NamedTuple):
    """Where an item has its thoughts, and what its part and events are called."""

    field: str
    part: str
    event: str
    number: str


_AS_TEXT = ThoughtsPlace("content", "reasoning_text", "reasoning_text", "content_index")
_AS_SUMMARY = ThoughtsPlace("summary", "summary_text", "reasoning_summary_text", "summary_index")


class Output:
    """The items of one answer, as far as it has come: thoughts, a message, calls of functions.

    Args:
        key: what its response's id ends with, by which the store finds an item.
        summarised: the thoughts, whole, are told as their summary: Vercel's AI SDK (3.0) shows no others.
    """

    def __init__(self, key: str, *, calling: bool, summarised: bool) -> None:
        self.items: list[Item] = []
        self._key = key
        self._thoughts = _AS_SUMMARY if summarised else _AS_TEXT
        self._reader = CallReader(calling=calling)
        self._tokens: list[TokenLogprob] = []  # of text that the reader of calls still holds back

    @property
    def text(self) -> str:
        return "".join(item["content"][0]["text"] for item in self.items if item["type"] == "message")

    @property
    def calls(self) -> list[Item]:
        """The whole calls, as a chat has them."""
        return [
            chat_call(item["call_id"], item["name"], item["arguments"])
            for item in self.items
            if item["type"] == "function_call" and item["status"] == "completed"
        ]

    def read(self, delta: Delta) -> Iterator[Event]:
        """Takes new text in."""
        if delta.reasoning:
            yield from self._think(delta.reasoning)
        self._tokens += delta.logprobs
        for part in self._reader.read(delta.text, last=bool(delta.finish_reason)):
            if "content" in part:
                yield from self._write(part["content"])
            for call in part.get("tool_calls", ()):
                yield from self._call(call)
        if delta.finish_reason and self._tokens and self.items and self.items[-1]["type"] == "message":
            yield from self._write("")  # a stop string left nothing to send of its token

    def end(self, status: str) -> Iterator[Event]:
        """Ends the last item, completed or incomplete; an empty answer is an empty message."""
        if not self.items:
            yield from self._begin_message()
        if self.items[-1]["type"] == "function_call":  # the answer may be cut behind its arguments
            status = "incomplete" if self._reader.within else "completed"
        yield from self._end_item(status)

    def _think(self, text: str) -> Iterator[Event]:
        place = self._thoughts
        if not self.items or self.items[-1]["type"] != "reasoning":
            part = {"type": place.part, "text": ""}
            item: Item = {"id": self._id("rs"), "type": "reasoning", "status": "in_progress", "summary": []}
            if place is _AS_SUMMARY:
                yield from self._begin(item)
                yield "reasoning_summary_part.added", self._place(summary_index=0, part=dict(part))
                item["summary"] = [part]
            else:
                yield from self._begin({**item, "content": [part]})
        self.items[-1][place.field][0]["text"] += text
        yield f"{place.event}.delta", self._place(**{place.number: 0}, delta=text)

    def _write(self, text: str) -> Iterator[Event]:
        if not self.items or self.items[-1]["type"] != "message":
            yield from self._begin_message()
        part = self.items[-1]["content"][0]
        logprobs = (chat_logprobs(self._tokens)["content"] or []) if self._tokens else []
        self._tokens.clear()
        part["text"] += text
        part["logprobs"] += logprobs
        yield "output_text.delta", self._place(content_index=0, delta=text, logprobs=logprobs)

    def _call(self, call: dict[str, Any]) -> Iterator[Event]:
        if "id" in call:
            yield from self._begin(
                {"id": self._id("fc"), "type": "function_call", "status": "in_progress",
                 "call_id": call["id"], "name": call["function"]["name"], "arguments": ""}
            )  # fmt: skip
        elif arguments := call["function"]["arguments"]:
            self.items[-1]["arguments"] += arguments
            yield "function_call_arguments.delta", self._place(delta=arguments)

    def _begin_message(self) -> Iterator[Event]:
        item = {"id": self._id("msg"), "type": "message", "status": "in_progress", "role": "assistant"}
        yield from self._begin({**item, "content": []})
        part = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
        yield "content_part.added", self._place(content_index=0, part=dict(part, logprobs=[]))
        self.items[-1]["content"].append(part)

    def _begin(self, item: Item) -> Iterator[Event]:
        if self.items:
            yield from self._end_item("completed")
        self.items.append(item)
        yield "output_item.added", {"output_index": len(self.items) - 1, "item": item}

    def _end_item(self, status: str) -> Iterator[Event]:
        item = self.items[-1]
        item["status"] = status
        if item["type"] == "message":
            (part,) = item["content"]
            text, logprobs = part["text"], part["logprobs"]
            yield "output_text.done", self._place(content_index=0, text=text, logprobs=logprobs)
            yield "content_part.done", self._place(content_index=0, part=part)
        elif item["type"] == "reasoning":
            place = self._thoughts
            (part,) = item[place.field]
            yield f"{place.event}.done", self._place(**{place.number: 0}, text=part["text"])
            if place is _AS_SUMMARY:
                yield "reasoning_summary_part.done", self._place(summary_index=0, part=part)
        else:
            called = {"name": item["name"], "arguments": item["arguments"]}
            yield "function_call_arguments.done", self._place(**called)
        yield "output_item.done", {"output_index": len(self.items) - 1, "item": item}

    def _id(self, prefix: str) -> str:
        return f"{prefix}_{self._key}_{len(self.items)}"

    def _place(self, **fields: Any) -> dict[str, Any]:
        return {"item_id": self.items[-1]["id"], "output_index": len(self.items) - 1, **fields}


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
        key = secrets.token_hex(16)
        self._output = Output(key, calling=request.calls_tools, summarised=request.wants_summary)
        self._left_out = 0  # of the oldest messages of the talk
        self._id = f"resp_{key}"
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
            async with aclosing(deltas([stream], usage)) as news:
                async for _, delta in news:
                    chunk = b""
                    if count < 0:  # with the first text: a refusal has a status of its own
                        began = {"response": self._body("in_progress")}
                        chunk = event("created", began) + event("in_progress", began)
                    for kind, fields in self._output.read(delta):
                        chunk += event(kind, fields)
                    if chunk:
                        yield chunk
            status = _status(stream)
            if chunk := b"".join(event(kind, fields) for kind, fields in self._output.end(status)):
                yield chunk
            ended = await self._ended(talk, stream, status, usage)
        except Exception as error:
            if count >= 0:
                failure = as_api_error(error, self._caller.request_id, self._request.own_name)
                told = {"code": failure.code or "server_error", "message": str(failure)}
                body = {**self._body("failed"), "output": self._output.items, "error": told}
                yield event("failed", {"response": body})
            raise
        yield event(status, {"response": ended})

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
        shown = {"reasoning", "text", "tool_choice"}
        asked = request.model_dump(by_alias=True, exclude_none=True, include=shown)
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
