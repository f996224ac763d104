"""Answers POST /v1/chat/completions and POST /v1/completions, streamed and whole."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from typing import Any

from trimodal.client.client import Client
from trimodal.client.values import TokenLogprob
from trimodal.gateway.access import Caller
from trimodal.gateway.answering import event
from trimodal.gateway.errors import unsupported
from trimodal.gateway.openai.calls import CallReader, Part, read_calls
from trimodal.gateway.openai.conversation import FindingsCache, cost_of, read_messages
from trimodal.gateway.openai.generation import (
    FINISH_REASONS,
    Stream,
    answer_headers,
    deltas,
    envelope,
    findings_body,
    note_body,
    usage_body,
    whole,
)
from trimodal.gateway.openai.logprobs import CompletionLogprobs, chat_logprobs
from trimodal.gateway.openai.schemas import ChatRequest, CompletionRequest, Generation
from trimodal.gateway.openai.talk import Talk
from trimodal.gateway.quota import Cost, KeyUsage


class Chat:
    """One request to /v1/chat/completions: to the llm, or with pictures or recordings to the assistant."""

    def __init__(self, request: ChatRequest, client: Client, caller: Caller, findings: FindingsCache) -> None:
        request.refuse_unsupported()
        self._request = request
        messages = read_messages(request.messages)
        self.cost = cost_of(messages, request.answers)
        self._talk = Talk(messages, request.model, client, caller, findings, tools=bool(request.tools))
        continues = request.continue_final_message or request.add_generation_prompt is False
        if continues and not self._talk.is_plain:
            raise unsupported("continue_final_message", "is not supported beside pictures and recordings")

    async def whole(self, usage: KeyUsage) -> tuple[Any, Mapping[str, str]]:
        """The answer's body and headers."""
        streams = await self._streams(usage)
        answers = await whole(streams, usage)
        self._talk.remember(streams[0])
        choices: list[dict[str, Any]] = []
        for index, answer in enumerate(answers):
            reader = CallReader(calling=self._request.calls_tools)
            message = read_calls(reader, answer.text)
            if answer.reasoning:
                message["reasoning_content"] = answer.reasoning
            choices.append(
                {
                    "index": index,
                    "message": {"role": "assistant", **message, "refusal": None},
                    "logprobs": chat_logprobs(answer.logprobs) if self._request.logprobs else None,
                    "finish_reason": _reason(answer.finish_reason, called=reader.called),
                }
            )
        shared = envelope("chatcmpl", "chat.completion", self._request.model)
        return _body(shared, choices, self._request, streams), answer_headers(answers)

    async def events(self, usage: KeyUsage) -> AsyncIterator[bytes]:
        """Chunks: the role, the text as it comes, the reason of the end, and the usage if it is asked for.

        The first ones, one of each choice, have what was heard and seen. They come in order: OpenAI's package
        (3.54) takes the first chunk that it sees for the choice 0.
        """
        streams = await self._streams(usage)
        shared = envelope("chatcmpl", "chat.completion.chunk", self._request.model)
        readers = [CallReader(calling=self._request.calls_tools) for _ in streams]
        held: list[list[TokenLogprob]] = [[] for _ in streams]  # of text that a reader of calls holds back
        begun = False
        async with aclosing(deltas(streams, usage)) as news:
            async for index, delta in news:
                chunks, last = b"", bool(delta.finish_reason)
                if not begun:
                    begun = True
                    findings = findings_body(streams[index])
                    for choice in range(len(streams)):
                        role = {"role": "assistant", "content": ""}
                        chunks += event(_chunk(shared, choice, role, **findings))
                reader, tokens = readers[index], held[index]
                if delta.reasoning:
                    chunks += event(_chunk(shared, index, {"reasoning_content": delta.reasoning}))
                tokens += delta.logprobs
                for part in reader.read(delta.text, last=last):
                    chunks += event(_chunk(shared, index, part, tokens))
                    tokens.clear()
                if last:
                    empty = {"delta": {}, "logprobs": chat_logprobs(tokens) if tokens else None}
                    chunks += event(_last(shared, index, empty, streams[index], called=reader.called))
                if chunks:
                    yield chunks
        self._talk.remember(streams[0])
        if self._request.wants_usage:
            yield event({**shared, "choices": [], "usage": _usage(self._request, streams)})

    async def _streams(self, usage: KeyUsage) -> Sequence[Stream]:
        """A stream for each choice; sent when they are read."""
        return await self._talk.streams([self._request.options(n) for n in range(self._request.n)], usage)


class Completion:
    """One request to /v1/completions: each prompt has n choices."""

    def __init__(self, request: CompletionRequest, client: Client, caller: Caller) -> None:
        request.refuse_unsupported()
        self._request = request
        self.cost = Cost(request.answers)
        self._streams = [
            client.stream(
                prompt,
                model=caller.served(request.model),
                request_id=caller.request_id,
                **caller.terms(request.options(choice)),
            )
            for prompt in request.prompts
            for choice in range(request.n)
        ]

    async def whole(self, usage: KeyUsage) -> tuple[Any, Mapping[str, str]]:
        """The answer's body and headers."""
        answers = await whole(self._streams, usage)
        choices = [
            {
                "index": index,
                "text": self._echo(index) + answer.text,
                "logprobs": CompletionLogprobs(self._request.logprobs).part(
                    (*self._streams[index].prompt_logprobs, *answer.logprobs)
                ),
                "finish_reason": _reason(answer.finish_reason),
            }
            for index, answer in enumerate(answers)
        ]
        shared = envelope("cmpl", "text_completion", self._request.model)
        return _body(shared, choices, self._request, self._streams), answer_headers(answers)

    async def events(self, usage: KeyUsage) -> AsyncIterator[bytes]:
        """Chunks of text, the reason of the end, and the usage if it is asked for."""
        shared = envelope("cmpl", "text_completion", self._request.model)
        begun: dict[int, CompletionLogprobs] = {}
        async with aclosing(deltas(self._streams, usage)) as news:
            async for index, delta in news:
                stream, text, chunks = self._streams[index], delta.text, b""
                tokens = delta.logprobs
                if index not in begun:
                    begun[index] = CompletionLogprobs(self._request.logprobs)
                    text = self._echo(index) + text
                    tokens = (*stream.prompt_logprobs, *tokens)
                if text or tokens:  # a stop string may leave nothing to send of its token
                    logprobs = begun[index].part(tokens)
                    choice = {"index": index, "text": text, "logprobs": logprobs, "finish_reason": None}
                    chunks = event({**shared, "choices": [choice]})
                if delta.finish_reason:
                    chunks += event(_last(shared, index, {"text": "", "logprobs": None}, stream))
                if chunks:
                    yield chunks
        if self._request.wants_usage:
            yield event({**shared, "choices": [], "usage": _usage(self._request, self._streams)})

    def _echo(self, index: int) -> str:
        if not self._request.echo:
            return ""
        prompt = self._request.prompts[index // self._request.n]
        if isinstance(prompt, str):
            return prompt
        return b"".join(one.bytes for one in self._streams[index].prompt_logprobs).decode(errors="replace")


def _body(
    shared: dict[str, Any], choices: list[dict[str, Any]], request: Generation, streams: Sequence[Stream]
) -> dict[str, Any]:
    return {
        **shared,
        "choices": choices,
        "usage": _usage(request, streams),
        "system_fingerprint": None,
        "trimodal": note_body(streams[0]),
    }


def _chunk(
    shared: dict[str, Any],
    index: int,
    delta: Part,
    tokens: Sequence[TokenLogprob] = (),
    /,
    **fields: Any,
) -> dict[str, Any]:
    logprobs = chat_logprobs(tokens) if tokens else None
    choice = {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": None}
    return {**shared, "choices": [choice], **fields}


def _last(
    shared: dict[str, Any], index: int, empty: dict[str, Any], stream: Stream, *, called: bool = False
) -> dict[str, Any]:
    choice = {"index": index, **empty, "finish_reason": _reason(stream.finish_reason, called=called)}
    return {**shared, "choices": [choice], "trimodal": note_body(stream)}


def _reason(finish_reason: str, *, called: bool = False) -> str:
    reason = FINISH_REASONS.get(finish_reason, "stop")
    return "tool_calls" if called and reason == "stop" else reason


def _usage(request: Generation, streams: Sequence[Stream]) -> dict[str, Any]:
    return usage_body([stream.usage for stream in streams], request.n)
