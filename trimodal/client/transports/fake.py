"""Fakes a server inside the process, for tests of applications.

    def labels(request): ...                       # Request → outputs
    transport = FakeTransport(llm=scripted("An answer in a few words."), vision=labels)
    client = Client(transport=transport)

It records the requests and which of them were cancelled. `FakeSpeech` is a model for live streams.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from trimodal.audio.values import SAMPLE_RATE, Correction, HeardWindow, Word
from trimodal.client.async_iteration import wait_within
from trimodal.client.errors import ConnectError, Timeout
from trimodal.client.transports.base import Array, Request, Responses, Tensors, Timeouts, named
from trimodal.client.transports.tensors import strings
from trimodal.client.values import Model
from trimodal.errors import InvalidArgument, ModelNotFound, RequestError

_NEWS_S = 5.0  # a request for news waits so long
Unary = Callable[[Request], Tensors | Awaitable[Tensors]]
Streaming = Callable[[Request], AsyncIterator[Tensors]]


class FakeTransport:
    """A transport that calls functions.

    Args:
        batch_sizes: max_batch_size by model; 16 for those that are not named.
        reachable: False: every call ends as if no server listened.
        versions: those of a model that has not "1" alone, the highest last.
        models: model name → a function that gives outputs, at once or when awaited, or an async
            generator function that gives them bit by bit; each may raise the client's errors.
    """

    def __init__(
        self,
        *,
        batch_sizes: dict[str, int] | None = None,
        reachable: bool = True,
        versions: Mapping[str, Sequence[str]] | None = None,
        **models: Unary | Streaming,
    ) -> None:
        self.functions = models
        self._batch_sizes = batch_sizes or {}
        self._versions = versions or {}
        self.reachable = reachable
        self.requests: list[Request] = []
        self.cancelled: list[Request] = []
        self.closed = False

    async def infer(self, request: Request, timeouts: Timeouts) -> Tensors:
        outputs = self._call(request)
        if isinstance(outputs, Awaitable):
            patience = timeouts.total or timeouts.silence
            try:
                return await wait_within(outputs, patience)
            except asyncio.TimeoutError:
                raise Timeout(f"the fake server did not answer within {patience:g} s") from None
            except asyncio.CancelledError:
                self.cancelled.append(request)
                raise
        if isinstance(outputs, Mapping):
            return outputs
        raise InvalidArgument("ModelInfer RPC doesn't support models with decoupled transaction policy")

    async def stream(self, request: Request, timeouts: Timeouts) -> Responses:
        outputs = self._call(request)
        if not isinstance(outputs, AsyncIterator):
            raise TypeError(f"the fake of '{request.model}' must be an async generator function")
        return _FakeResponses(outputs, timeouts, lambda: self.cancelled.append(request))

    async def ready(self, model: str, timeouts: Timeouts) -> bool:
        return self.reachable and (not model or named(model)[0] in self.functions)

    async def models(self, timeouts: Timeouts) -> list[Model]:
        self._reach()
        return [
            Model(
                name, version, sum(request.model in (name, f"{name}@{version}") for request in self.requests)
            )
            for name in sorted(self.functions)
            for version in self._versions.get(name, ("1",))
        ]

    async def max_batch_size(self, model: str, timeouts: Timeouts) -> int:
        self._reach()
        return self._batch_sizes.get(named(model)[0], 16)

    async def aclose(self) -> None:
        self.closed = True

    def _reach(self) -> None:
        if not self.reachable:
            raise ConnectError("no server at nowhere")

    def _call(self, request: Request) -> Tensors | Awaitable[Tensors] | AsyncIterator[Tensors]:
        self._reach()
        self.requests.append(request)
        if request.name not in self.functions:
            raise ModelNotFound(f"the server has no model '{request.model}'")
        return self.functions[request.name](request)


class _FakeResponses:
    def __init__(
        self, outputs: AsyncIterator[Tensors], timeouts: Timeouts, on_cancel: Callable[[], None]
    ) -> None:
        self._outputs = outputs
        self._silence = timeouts.silence
        self._deadline = None if timeouts.total is None else time.monotonic() + timeouts.total
        self._on_cancel = on_cancel
        self._ended = False
        self._reading: asyncio.Future[Tensors | None] | None = None

    async def read(self) -> Tensors | None:
        if self._ended:
            return None
        patience = self._silence
        if self._deadline is not None:
            patience = min(patience, max(0.0, self._deadline - time.monotonic()))
        reading = self._reading = asyncio.ensure_future(anext(self._outputs, None))
        try:
            await asyncio.wait({reading}, timeout=patience)
        except asyncio.CancelledError:
            self.cancel()
            raise
        if reading.cancelled():
            return None
        if not reading.done():
            self.cancel()
            raise Timeout(f"the fake server did not answer within {patience:g} s")
        try:
            outputs = reading.result()
        except RequestError:
            self._ended = True
            raise
        self._ended = outputs is None
        return outputs

    def cancel(self) -> None:
        if not self._ended:
            self._ended = True
            self._on_cancel()
            if self._reading:
                self._reading.cancel()

    def finish(self) -> None:
        self._ended = True


def scripted(
    text: str, *, step: float = 0.0, finish_reason: str = "stop", prompt_tokens: int = 8
) -> Streaming:
    """Makes an llm model that always answers `text`: a word is a token, each takes `step` seconds.

    Log probabilities, where they are asked for, are -1/8 for the first word, and so on.
    """
    words = re.findall(r"\s*\S+\s*?(?=\s|$)|\s+$", text) or [""]

    async def model(request: Request) -> AsyncIterator[Tensors]:
        limit = int(request.inputs.get("max_tokens", [len(words)])[0])
        said = words[:limit]
        top = request.inputs.get("top_logprobs")
        for count, word in enumerate(said, 1):
            await asyncio.sleep(step)
            last = count == len(said)
            reason = "" if not last else finish_reason if limit >= len(words) else "length"
            outputs = llm_outputs(word, reason, prompt_tokens=prompt_tokens, completion_tokens=count)
            if top is not None:
                outputs["logprobs"] = strings([json.dumps([_logprob(word, count, int(top[0]))]).encode()])
            yield outputs

    return model


def _logprob(word: str, count: int, top: int) -> dict[str, Any]:
    """A token as the llm model tells it; "?" and "??" are what might have been there."""
    texts = [word, *("?" * rank for rank in range(1, top))][:top]
    others = [_entry(text, -count / 8 - rank) for rank, text in enumerate(texts)]
    return {**_entry(word, -count / 8), "top_logprobs": others}


def _entry(text: str, logprob: float) -> dict[str, Any]:
    return {"token": text, "bytes": list(text.encode()), "logprob": logprob}


def llm_outputs(
    text: str,
    finish_reason: str = "",
    *,
    prompt_tokens: int = 8,
    cached_tokens: int = 0,
    completion_tokens: int = 1,
) -> dict[str, Array]:
    """Returns the outputs of one response of the llm model."""
    return {
        "text_output": strings([text.encode()]),
        "finish_reason": strings([finish_reason.encode()]),
        "prompt_tokens": np.array([prompt_tokens], np.int32),
        "cached_tokens": np.array([cached_tokens], np.int32),
        "completion_tokens": np.array([completion_tokens], np.int32),
    }


def labelled(*labels: tuple[str, float]) -> Unary:
    """Makes a vision model that sees the same in every image: (label, score), best first."""

    def model(request: Request) -> Tensors:
        count = len(request.inputs["image"])
        names = strings([name.encode() for name, _ in labels])
        scores = np.array([score for _, score in labels], np.float32)
        return {"labels": np.tile(names, (count, 1)), "scores": np.tile(scores, (count, 1))}

    return model


@dataclass
class _HeardStream:
    received: int = 0
    committed: int = 0
    more: asyncio.Event = field(default_factory=asyncio.Event)  # a request came


class FakeSpeech:
    """A speech model with scripted words at their times, whatever audio is sent.

        speech = FakeSpeech(("what", 0.1, 0.3), ("is", 0.4, 0.6))
        client = Client(transport=FakeTransport(speech=speech))

    It enforces the rules of streams (START, END, one id each), not those of audio. `streams` are those that
    have begun and not ended, by id.

    Args:
        words: (text, start, end), times in seconds since the stream began.
        delay_s: a word is tentative once it is over, and committed so much later: of audio, or of the time
            that a request for news has waited.
    """

    def __init__(self, *words: tuple[str, float, float], delay_s: float = 0.5) -> None:
        self.streams: dict[int, _HeardStream] = {}
        self._words = tuple(
            Word(f" {text}", start, end, 0.9, (number,)) for number, (text, start, end) in enumerate(words)
        )
        self._delay_s = delay_s

    def __call__(self, request: Request) -> dict[str, Array] | Awaitable[dict[str, Array]]:
        key = int(request.parameters["sequence_id"])
        if request.parameters["sequence_start"]:
            self.streams[key] = _HeardStream()
        if key not in self.streams:
            raise InvalidArgument(f"stream {key} has not begun: its first chunk needs START")
        stream = self.streams[key]
        stream.more.set()
        if "after_s" in request.parameters:
            return self._news(stream)
        stream.received += sum(array.size for array in request.inputs.values())
        received_s = stream.received / SAMPLE_RATE
        final = bool(request.parameters["sequence_end"])
        if final:
            del self.streams[key]
        return self._answer(stream, received_s if final else received_s - self._delay_s, final=final)

    async def _news(self, stream: _HeardStream) -> dict[str, Array]:
        """Commits what is tentative after a while, unless the next request comes."""
        stream.more = more = asyncio.Event()
        received_s = stream.received / SAMPLE_RATE
        is_news = any(word.end <= received_s for word in self._words[stream.committed :])
        try:
            await asyncio.wait_for(more.wait(), self._delay_s if is_news else _NEWS_S)
            return self._answer(stream, received_s - self._delay_s)
        except asyncio.TimeoutError:
            return self._answer(stream, received_s)

    def _answer(self, stream: _HeardStream, until_s: float, *, final: bool = False) -> dict[str, Array]:
        """What is heard so far; the words that ended by `until_s` are committed."""
        received_s = stream.received / SAMPLE_RATE
        heard = [word for word in self._words if word.end <= received_s]
        done = max(stream.committed, sum(word.end <= until_s for word in heard))
        new, rest = heard[stream.committed : done], heard[done:]
        stream.committed = done
        lag_s = received_s - heard[done - 1].end if done else 0.0
        return speech_outputs(*new, tentative=rest, received_s=received_s, lag_s=lag_s, final=final)


def speech_outputs(
    *committed: Word,
    tentative: list[Word] | tuple[Word, ...] = (),
    corrections: Sequence[Correction] = (),
    received_s: float = 0.0,
    lag_s: float = 0.0,
    final: bool = False,
) -> dict[str, Array]:
    """Returns the outputs of one answer of the speech model."""
    texts = [word.text.encode() for word in committed]
    windows = []
    if committed:
        chances = {"en": 0.9, "de": 0.1}
        windows = [
            HeardWindow(
                committed[0].start, committed[-1].end, "en", 0.9, 0.2, -0.25, 1.5, 0.125,
                language_probabilities=chances,
            )
        ]  # fmt: skip
    return {
        "committed": strings([b"".join(texts)]),
        "tentative": strings(["".join(word.text for word in tentative).encode()]),
        "words": strings(texts),
        "word_starts": np.array([word.start for word in committed], np.float64),
        "word_ends": np.array([word.end for word in committed], np.float64),
        "word_probabilities": np.array([word.probability for word in committed], np.float32),
        "word_tokens": strings([" ".join(map(str, word.tokens)).encode() for word in committed]),
        "corrections": strings([json.dumps(asdict(one)).encode() for one in corrections]),
        "windows": strings([json.dumps(asdict(window)).encode() for window in windows]),
        "received_s": np.array([received_s], np.float64),
        "lag_s": np.array([lag_s], np.float64),
        "final": np.array([final]),
    }
