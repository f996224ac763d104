"""Calls a trimodal server from asyncio: text, image labels, vectors, live speech, the assistant.

The server checks the limits of fields, and its errors name them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Literal, overload

import numpy as np
from numpy.typing import NDArray

from trimodal import trace
from trimodal.client.async_iteration import pumped
from trimodal.client.batches import each_alone, in_batches
from trimodal.client.decoding import predictions, readable, vectors
from trimodal.client.options import Options, flag, generation_inputs, listed, number
from trimodal.client.streams.answer import AnswerStream
from trimodal.client.streams.ask import AskStream, ask_inputs
from trimodal.client.streams.chunks import blocks_of, checked
from trimodal.client.streams.live import Listening, LiveStream
from trimodal.client.transports.base import (
    Parameter,
    Request,
    Responses,
    Tensors,
    Timeouts,
    Transport,
    check_id,
    check_metadata,
    named,
    utf8,
)
from trimodal.client.transports.tensors import strings
from trimodal.client.values import (
    Answer,
    Embeddings,
    LiveUpdate,
    Message,
    Model,
    Prediction,
    Transcript,
    Turn,
)
from trimodal.errors import InvalidArgument, RequestError

if TYPE_CHECKING:
    from pathlib import Path

    from typing_extensions import Self, Unpack

    from trimodal.audio.values import Samples
    from trimodal.client.streams.chunks import Audio


# Of a file, sent at once. Its words are not needed one by one: full windows need the least computing.
BLOCK_S = 10
FILE_LISTENING: Listening = {"policy": "file", "recording": True}


class Client:
    """Client of one server, for one event loop and as many tasks of it as you like.

        async with Client("127.0.0.1:8001") as client:
            async for delta in client.stream("What is the capital of Japan?", max_tokens=64):
                print(delta.text, end="", flush=True)

    Args:
        url: host:port of the gRPC endpoint; "grpcs://host:port" for TLS.
        timeouts: bounds of every wait.
        connections: HTTP/2 connections that requests are spread over.
        transport: another way to a server, such as `FakeTransport`, instead of the three above.

    All calls raise RequestError when the server refuses or ends a request, and
    TransportError when it does not answer; the tree is drawn in `trimodal.client.errors`.
    """

    def __init__(
        self,
        url: str = "127.0.0.1:8001",
        *,
        timeouts: Timeouts | None = None,
        connections: int = 2,
        transport: Transport | None = None,
    ) -> None:
        self._timeouts = Timeouts() if timeouts is None else timeouts
        if not isinstance(self._timeouts, Timeouts):
            raise ValueError(f"timeouts is {type(timeouts).__name__}: Timeouts are needed")
        if transport is None:
            from trimodal.client.transports.grpc import GrpcTransport

            transport = GrpcTransport(url, self._timeouts, connections)
        self._transport = transport
        self._batch_sizes: dict[str, int] = {}
        self._metadata: Mapping[str, str] = {}
        self._request_id = ""
        self._shared = False  # the connections are another client's to close

    def with_metadata(self, metadata: Mapping[str, str], request_id: str = "") -> Client:
        """A client of the same connections whose requests carry gRPC metadata, as {"traceparent": …}.

        `request_id` is that of requests which are given none. The connections stay open when it is closed.

        Raises: InvalidArgument: HTTP/2 has no such header, or no log's line has room for such an id.
        """
        check_metadata(metadata)
        check_id(request_id)
        client = copy(self)
        client._metadata, client._shared = {**self._metadata, **metadata}, True
        client._request_id = request_id or self._request_id
        return client

    async def ready(self, model: str = "") -> bool:
        """Whether the server, or one model, takes requests; False also when no server answers."""
        return await self._transport.ready(model, self._timeouts)

    async def models(self) -> list[Model]:
        """Lists the models that are ready."""
        return await self._transport.models(self._timeouts)

    async def max_batch_size(self, model: str, *, timeout: float | None = None) -> int:
        """Returns the most items in a request to `model`; 0: no batches. Asked once, and after a refusal."""
        named(model)
        timeouts = self._within(timeout)
        if model not in self._batch_sizes:
            self._batch_sizes[model] = await self._transport.max_batch_size(model, timeouts)
        return self._batch_sizes[model]

    async def aclose(self) -> None:
        """Closes the connections; what still runs ends with Cancelled, later calls with InvalidArgument."""
        if not self._shared:
            await self._transport.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def stream(
        self,
        prompt: str | Sequence[int] | None = None,
        *,
        messages: Sequence[Message] | None = None,
        timeout: float | None = None,
        model: str = "llm",
        request_id: str = "",
        **options: Unpack[Options],
    ) -> AnswerStream:
        """Streams the answer to a prompt or a chat (one of the two). The request is sent when it is iterated.

        Args:
            prompt: a text, or its token ids.
            timeout: seconds for the whole answer; None: as the client's timeouts say.
            options: max_tokens, temperature and the like, seed, stop; tenant, tier, deadlines, what the
                cache may do, and a key to cancel it by: see `Options`. The model's defaults otherwise.
        """
        check_id(request_id)
        request = Request(model, generation_inputs(prompt, messages, options), request_id)
        return AnswerStream(lambda: self._stream(request, timeout))

    generate = stream

    async def complete(
        self,
        prompt: str | Sequence[int] | None = None,
        *,
        messages: Sequence[Message] | None = None,
        timeout: float | None = None,
        model: str = "llm",
        request_id: str = "",
        **options: Unpack[Options],
    ) -> Answer:
        """Returns the whole answer at once; arguments as for `stream`."""
        stream = self.stream(
            prompt, messages=messages, timeout=timeout, model=model, request_id=request_id, **options
        )
        return await stream.answer()

    async def cancel(self, cancel_key: str, *, model: str = "llm") -> bool:
        """Ends the request that was sent with this `cancel_key`, from whichever client; False: there is none.

        One that is still on its way to the server ends when it arrives (within 10 s).
        """
        request = Request(model, {"cancel": strings([utf8("cancel_key", cancel_key)])})
        stream = AnswerStream(lambda: self._stream(request, None))
        return (await stream.answer()).finish_reason == "cancelled"

    async def probe(self, request: Request) -> str:
        """The text that a decoupled model answers a probe of `trimodal.client.transports.probes` with."""
        timeout = self._timeouts.connect
        return (await AnswerStream(lambda: self._stream(request, timeout)).answer()).text

    def ask(
        self,
        text: str | None = None,
        *,
        image: bytes | str | Path | None = None,
        audio: str | Path | Audio | None = None,
        history: Sequence[Turn] = (),
        timeout: float | None = None,
        model: str = "assistant",
        request_id: str = "",
        **options: Unpack[Options],
    ) -> AskStream:
        """Streams the assistant's answer to a question that is typed, spoken or both, perhaps about an image.

        Args:
            image: the contents of a picture file, or its path.
            audio: a file (wav, flac, ogg, mp3; needs the extra `audio`), or samples as for `LiveStream.send`.
            history: the talk until now; what was heard and seen in it is not heard and seen again.
            timeout: seconds for the whole answer; None: as the client's timeouts say.
            options: as for `stream`, without cancel_key; deadlines count for all stages together.
        """

        check_id(request_id)

        async def send() -> Responses:
            inputs = await ask_inputs(text, image, audio, history, options)
            return await self._stream(Request(model, inputs, request_id), timeout)

        return AskStream(send)

    @overload
    async def classify(
        self,
        images: Sequence[bytes],
        *,
        top_k: int | None = None,
        return_exceptions: Literal[False] = False,
        timeout: float | None = None,
        model: str = "vision",
        spans: list[trace.Span] | None = None,
    ) -> list[list[Prediction]]: ...

    @overload
    async def classify(
        self,
        images: Sequence[bytes],
        *,
        top_k: int | None = None,
        return_exceptions: Literal[True],
        timeout: float | None = None,
        model: str = "vision",
        spans: list[trace.Span] | None = None,
    ) -> list[list[Prediction] | RequestError]: ...

    async def classify(
        self,
        images: Sequence[bytes],
        *,
        top_k: int | None = None,
        return_exceptions: bool = False,
        timeout: float | None = None,
        model: str = "vision",
        spans: list[trace.Span] | None = None,
    ) -> list[list[Prediction]] | list[list[Prediction] | RequestError]:
        """Labels of picture files, best first; in as many batches as the model needs.

        Args:
            images: contents of files.
            top_k: at most so many labels an image; None: all that the model gives.
            return_exceptions: an image that is refused gets its error as its row, and harms no other.
                Otherwise the first error is raised; an index in it counts within its batch.
            timeout: seconds for each batch.
            spans: gets what took the model how long; None: it is not asked.
        """
        images = listed("images", images)
        for one in images:
            if not isinstance(one, bytes):  # tritonclient would send the letters of its `str`
                raise InvalidArgument(f"images has {type(one).__name__}: the bytes of files are needed")
        if top_k is not None and number("top_k", top_k, np.int32) < 1:
            raise InvalidArgument(f"top_k is {top_k}: at least 1 is needed")

        async def ask(part: Sequence[bytes]) -> list[list[Prediction]]:
            inputs = {"image": strings(list(part)).reshape(-1, 1)}
            outputs = await self._infer(model, inputs, timeout, spans=spans)
            return [row[:top_k] for row in predictions(outputs, len(part), model)]

        size = await self.max_batch_size(model, timeout=timeout)
        if return_exceptions:
            return await in_batches(images, size, each_alone(ask))
        return await in_batches(images, size, ask)

    async def embed(
        self, texts: Sequence[str], *, timeout: float | None = None, model: str = "embedding"
    ) -> NDArray[np.float32]:
        """Vectors of unit length, float32[N, d]; texts beyond the model's length are cut."""
        return (await self.embeddings(texts, timeout=timeout, model=model)).vectors

    async def embeddings(
        self,
        texts: Sequence[str],
        *,
        truncate: bool = True,
        timeout: float | None = None,
        model: str = "embedding",
        spans: list[trace.Span] | None = None,
    ) -> Embeddings:
        """Vectors and the tokens that were read, in as many batches as the model needs.

        Args:
            truncate: texts beyond the model's length are cut, not refused.
            timeout: seconds for each batch.
            spans: gets what took the model how long; None: it is not asked.
        """
        texts = listed("texts", texts)
        if not texts:
            raise InvalidArgument("texts is empty: at least one is needed")
        flag("truncate", truncate)

        async def ask(part: Sequence[str]) -> list[tuple[NDArray[np.float32], int]]:
            encoded = strings([utf8("texts", text) for text in part]).reshape(-1, 1)
            parameters: dict[str, Parameter] = {} if truncate else {"truncate": False}
            outputs = await self._infer(model, {"text_input": encoded}, timeout, parameters, spans)
            return vectors(outputs, len(part), model)

        rows = await in_batches(texts, await self.max_batch_size(model, timeout=timeout), ask)
        with readable(f"model '{model}'"):  # another one may have been loaded meanwhile
            return Embeddings(np.stack([row for row, _ in rows]), sum(tokens for _, tokens in rows))

    async def finished(self, audio: Samples, *, timeout: float | None = None, model: str = "turn") -> float:
        """How probable it is that the speaker has finished, by float32[n] of 16 kHz that ends in a pause."""
        outputs = await self._infer(model, {"audio": checked(audio)[None]}, timeout)
        with readable(f"model '{model}'"):
            return float(outputs["finished"][0, 0])

    def listen(
        self, *, timeout: float | None = None, model: str = "speech", **listening: Unpack[Listening]
    ) -> LiveStream:
        """Opens a live stream of speech: `async with client.listen() as stream: …`, see `LiveStream`.

        Args:
            timeout: seconds for the answer to each chunk; None: as the client's timeouts say.
            listening: policy, language, prompt, step_s; the model's settings otherwise. task: "translate" for
                English text, whatever is spoken.
        """
        return LiveStream(
            self._transport, self._within(timeout), listening, model, self._metadata, self._request_id
        )

    async def transcribe(
        self,
        audio: str | Path | Audio,
        *,
        on_update: Callable[[LiveUpdate], object] | None = None,
        timeout: float | None = None,
        model: str = "speech",
        **listening: Unpack[Listening],
    ) -> Transcript:
        """Transcribes a recording, which is sent as fast as the server takes it.

        Args:
            audio: a file (wav, flac, ogg, mp3; needs the extra `audio`), or samples as for `LiveStream.send`.
            on_update: called with each answer on the way, see `LiveUpdate`.
            timeout: seconds for each answer; the server delays them when it is behind.
            listening: as for `listen`; the policy is "file" here, unless another is given.

        Raises:
            AudioError: the file cannot be read as audio.
        """
        listening = {**FILE_LISTENING, **listening}
        tell = on_update or (lambda update: None)
        if not callable(tell):
            raise InvalidArgument(f"on_update is {type(tell).__name__}: a function is needed")
        async with self.listen(timeout=timeout, model=model, **listening) as stream:
            async with aclosing(pumped(blocks_of(audio, BLOCK_S))) as blocks:
                async for block in blocks:
                    tell(await stream.send(block))
            tell(await stream.end())
        return Transcript(stream.words, stream.text, stream.latest.received_s)

    def _within(self, timeout: float | None) -> Timeouts:
        try:
            return self._timeouts if timeout is None else replace(self._timeouts, total=timeout)
        except ValueError:
            raise InvalidArgument(f"timeout is {timeout!r}: it must be above 0 seconds") from None

    async def _infer(
        self,
        model: str,
        inputs: Tensors,
        timeout: float | None,
        parameters: Mapping[str, Parameter] | None = None,
        spans: list[trace.Span] | None = None,
    ) -> Tensors:
        asked = {**(parameters or {}), **({} if spans is None else {trace.NAME: True})}
        request = Request(model, inputs, self._request_id, asked, self._metadata)
        try:
            outputs = await self._transport.infer(request, self._within(timeout))
        except InvalidArgument:
            self._batch_sizes.pop(model, None)  # it may have been loaded again, and take fewer at once
            raise
        if spans is not None:
            with readable(f"model '{model}'"):
                spans += trace.shifted(trace.read(outputs), time.monotonic())
        return outputs

    async def _stream(self, request: Request, timeout: float | None) -> Responses:
        request = replace(request, id=request.id or self._request_id, metadata=self._metadata)
        return await self._transport.stream(request, self._within(timeout))
