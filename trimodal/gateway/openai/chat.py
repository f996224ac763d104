"""Answers POST /v1/chat/completions and POST /v1/completions, streamed and whole."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from trimodal.client.client import Client
from trimodal.client.streams.answer import AnswerStream
from trimodal.client.values import Answer, Message
from trimodal.gateway.access import Caller
from trimodal.gateway.answering import event
from trimodal.gateway.errors import ApiError
from trimodal.gateway.openai.generation import (
    FINISH_REASONS,
    Named,
    answer_headers,
    deltas,
    named,
    note_body,
    usage_body,
    whole,
)
from trimodal.gateway.openai.schemas import ChatMessage, ChatRequest, CompletionRequest, Generation
from trimodal.gateway.quota import Usage


class Chat:
    """One request to /v1/chat/completions."""

    def __init__(self, request: ChatRequest, client: Client, caller: Caller) -> None:
        request.refuse_unsupported()
        chat = [_message(index, message) for index, message in enumerate(request.messages)]
        self._request = request
        self._streams = _streams(request, client, caller, [(None, chat)])

    async def whole(self, usage: Usage) -> tuple[Any, Mapping[str, str]]:
        """The answer's body and headers."""
        answers = await whole(self._streams, usage)
        choices = [
            {
                "index": index,
                "message": {"role": "assistant", "content": answer.text, "refusal": None},
                "logprobs": None,
                "finish_reason": _reason(answer.finish_reason),
            }
            for index, answer in enumerate(answers)
        ]
        name = named("chatcmpl", "chat.completion", self._request.model)
        return _body(name, choices, answers, self._request.n), answer_headers(answers)

    async def events(self, usage: Usage) -> AsyncIterator[bytes]:
        """Chunks: the role, the text as it comes, the reason of the end, and the usage if it is asked for."""
        name = named("chatcmpl", "chat.completion.chunk", self._request.model)
        begun: set[int] = set()
        async for index, delta in deltas(self._streams, usage):
            text = ""
            chunks = b""
            if index not in begun:
                begun.add(index)
                chunks = event(_chunk(name, index, {"role": "assistant", "content": ""}))
            if text := delta.text:
                chunks += event(_chunk(name, index, {"content": text}))
            if delta.finish_reason:
                chunks += event(_last(name, index, {"delta": {}}, self._streams[index]))
            yield chunks
        if _wants_usage(self._request):
            yield event(
                name.body(choices=[], usage=usage_body([one.usage for one in self._streams], self._request.n))
            )


class Completion:
    """One request to /v1/completions: each prompt has n choices."""

    def __init__(self, request: CompletionRequest, client: Client, caller: Caller) -> None:
        request.refuse_unsupported()
        if not request.prompts:
            raise ApiError(400, "prompt: at least one is needed", param="prompt")
        self._request = request
        self._streams = _streams(request, client, caller, [(prompt, None) for prompt in request.prompts])

    def _echo(self, index: int) -> str:
        return self._request.prompts[index // self._request.n] if self._request.echo else ""

    async def whole(self, usage: Usage) -> tuple[Any, Mapping[str, str]]:
        """The answer's body and headers."""
        answers = await whole(self._streams, usage)
        choices = [
            {
                "index": index,
                "text": self._echo(index) + answer.text,
                "logprobs": None,
                "finish_reason": _reason(answer.finish_reason),
            }
            for index, answer in enumerate(answers)
        ]
        name = named("cmpl", "text_completion", self._request.model)
        return _body(name, choices, answers, self._request.n), answer_headers(answers)

    async def events(self, usage: Usage) -> AsyncIterator[bytes]:
        """Chunks of text, the reason of the end, and the usage if it is asked for."""
        name = named("cmpl", "text_completion", self._request.model)
        begun: set[int] = set()
        async for index, delta in deltas(self._streams, usage):
            text = delta.text if index in begun else self._echo(index) + delta.text
            begun.add(index)
            chunks = b""
            if text:
                choice = {"index": index, "text": text, "logprobs": None, "finish_reason": None}
                chunks = event(name.body(choices=[choice]))
            if delta.finish_reason:
                chunks += event(_last(name, index, {"text": "", "logprobs": None}, self._streams[index]))
            if chunks:
                yield chunks
        if _wants_usage(self._request):
            yield event(
                name.body(choices=[], usage=usage_body([one.usage for one in self._streams], self._request.n))
            )


def _message(index: int, message: ChatMessage) -> Message:
    role = "system" if message.role == "developer" else message.role
    if isinstance(message.content, list):
        for number, part in enumerate(message.content):
            if part.type != "text":
                field = f"messages[{index}].content[{number}]"
                raise ApiError(400, f"{field}: '{part.type}' is not supported here yet", param=field)
    return {"role": role, "content": message.text}


def _streams(
    request: Generation,
    client: Client,
    caller: Caller,
    prompts: Sequence[tuple[str | None, Sequence[Message] | None]],
) -> list[AnswerStream]:
    """A stream for each choice of each prompt; sent when they are read."""
    return [
        client.stream(
            prompt,
            messages=messages,
            model=request.model,
            request_id=caller.request_id,
            **caller.terms(request.options(choice)),
        )
        for prompt, messages in prompts
        for choice in range(request.n)
    ]


def _body(name: Named, choices: list[dict[str, Any]], answers: list[Answer], n: int) -> dict[str, Any]:
    return name.body(
        choices=choices,
        usage=usage_body([answer.usage for answer in answers], n),
        system_fingerprint=None,
        trimodal=note_body(answers[0].note, answers[0].finish_reason),
    )


def _chunk(name: Named, index: int, delta: dict[str, Any]) -> dict[str, Any]:
    return name.body(choices=[{"index": index, "delta": delta, "logprobs": None, "finish_reason": None}])


def _last(name: Named, index: int, empty: dict[str, Any], stream: AnswerStream) -> dict[str, Any]:
    choice = {"index": index, **empty, "finish_reason": _reason(stream.finish_reason)}
    return name.body(choices=[choice], trimodal=note_body(stream.note, stream.finish_reason))


def _reason(finish_reason: str) -> str:
    return FINISH_REASONS.get(finish_reason, "stop")


def _usage(request: Generation, streams: Sequence[AnswerStream]) -> dict[str, Any]:
    return usage_body([stream.usage for stream in streams], request.n)


def _wants_usage(request: Generation) -> bool:
    return request.stream_options is not None and request.stream_options.include_usage
