"""Turns the text of an answer into the items of a response, and into the events that tell of them."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from typing import Any

from trimodal.client.values import Delta, TokenLogprob
from trimodal.gateway.openai.calls import CallReader, chat_call
from trimodal.gateway.openai.logprobs import chat_logprobs

Item = dict[str, Any]
Event = tuple[str, dict[str, Any]]
"""Type, without "response." in front, and fields."""


class Output:
    """The items of one answer, as far as it has come: thoughts, a message, calls of functions."""

    def __init__(self, *, calling: bool) -> None:
        self.items: list[Item] = []
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

    def end(self, status: str) -> Iterator[Event]:
        """Ends the last item, completed or incomplete; an empty answer is an empty message."""
        if not self.items:
            yield from self._begin_message()
        yield from self._end_item(status)

    def _think(self, text: str) -> Iterator[Event]:
        if not self.items or self.items[-1]["type"] != "reasoning":
            part = {"type": "reasoning_text", "text": ""}
            item = {"id": _id("rs"), "type": "reasoning", "status": "in_progress", "summary": []}
            yield from self._begin({**item, "content": [part]})
        self.items[-1]["content"][0]["text"] += text
        yield "reasoning_text.delta", self._place(content_index=0, delta=text)

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
                {"id": _id("fc"), "type": "function_call", "status": "in_progress", "call_id": call["id"],
                 "name": call["function"]["name"], "arguments": ""}
            )  # fmt: skip
        elif arguments := call["function"]["arguments"]:
            self.items[-1]["arguments"] += arguments
            yield "function_call_arguments.delta", self._place(delta=arguments)

    def _begin_message(self) -> Iterator[Event]:
        item = {"id": _id("msg"), "type": "message", "status": "in_progress", "role": "assistant"}
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
            yield "reasoning_text.done", self._place(content_index=0, text=item["content"][0]["text"])
        else:
            called = {"name": item["name"], "arguments": item["arguments"]}
            yield "function_call_arguments.done", self._place(**called)
        yield "output_item.done", {"output_index": len(self.items) - 1, "item": item}

    def _place(self, **fields: Any) -> dict[str, Any]:
        return {"item_id": self.items[-1]["id"], "output_index": len(self.items) - 1, **fields}


def _id(prefix: str) -> str:
    return f"{prefix}_{secrets.token_hex(16)}"
