"""Streams live audio: chunks go in as they are spoken, words come back as they are heard.

The server checks the audio, and its errors name what it refuses.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, TypedDict, cast

import numpy as np

from trimodal import trace
from trimodal.audio.live_words import LiveWords
from trimodal.audio.values import SAMPLE_RATE, Word
from trimodal.client.decoding import merged, read, readable
from trimodal.client.errors import ConnectionLost, TransportError, may_have_begun
from trimodal.client.streams.chunks import MAX_SAMPLES, MIN_SAMPLES, ChunkBuffer
from trimodal.client.transports.base import Array, Parameter, Request, Tensors, Timeouts, Transport
from trimodal.client.values import LiveUpdate
from trimodal.errors import InvalidArgument, ModelNotFound, RequestError, TrimodalError

if TYPE_CHECKING:
    from trimodal.audio.values import Delay, PolicyName

# An abandoned stream is told to end, and its last words are not waited for.
ABANDON_S = 1.0
# The answer to END comes when all is heard. A slow server may need so many seconds more for each second of
# audio that is not heard yet, of which it holds about a minute and the last chunk.
FLUSH_PER_S, MOST_UNHEARD_S = 4.0, 100.0
NEWS_S = 5.0  # the server answers a request for news by then


class Listening(TypedDict, total=False):
    """Options of a live stream; what is left out, or None, is as the model's settings say.

    Attributes:
        delay: how far words must lie behind before they are final: less of it, more words that are wrong.
        recording: it was spoken before, and is sent as fast as it is taken: heard after live streams.
        admitted: a turn of a session of which one was admitted before: not refused for lateness.
        trace: its end tells what took the model how long (`LiveStream.spans`).
        threshold and those after it: what is taken for speech, by the names of Silero and faster-whisper.
    """

    policy: PolicyName | None
    language: str | None
    prompt: str | None
    delay: Delay | None
    step_s: float | None
    temperature: float | None
    task: Literal["transcribe", "translate"] | None
    recording: bool | None
    admitted: bool | None
    trace: bool | None
    threshold: float | None
    neg_threshold: float | None
    min_speech_duration_ms: float | None
    min_silence_duration_ms: float | None
    speech_pad_ms: float | None
    max_speech_duration_s: float | None
    hallucination_silence_threshold: float | None
    condition_on_previous_text: bool | None
    language_detection_threshold: float | None
    language_detection_segments: int | None


class LiveStream:
    """A stream of 16 kHz mono audio, for one task at a time. It begins with the first chunk.

        async with client.listen() as stream:
            async for chunk in microphone:              # float32 in [-1, 1], or int16
                update = await stream.send(chunk)
                print(update.text, end="", flush=True)
            await stream.end()
        print(stream.text)

    Leaving the `async with` without `end`, also by an exception, frees the stream on the
    server without waiting for its last words. A stream whose connection is lost cannot be
    taken up again: what `words` holds is final, the rest has to be sent in another one.

    All calls raise InvalidArgument when the server refuses a chunk (the stream goes on without
    it), another RequestError when it refuses the stream at its start (Unavailable: too many, or
    the server is behind; `send` may be tried again) or the stream failed later, and TransportError
    when the server does not answer, which ends the stream.
    """

    def __init__(
        self,
        transport: Transport,
        timeouts: Timeouts,
        options: Listening,
        model: str = "speech",
        metadata: Mapping[str, str] | None = None,
        request_id: str = "",
    ) -> None:
        self._transport = transport
        self._timeouts = timeouts
        self._model = model
        self._metadata, self._request_id = metadata or {}, request_id
        given = {name: value for name, value in options.items() if value is not None}
        self._options = cast("dict[str, Parameter]", given)
        # tritonclient takes ids up to 2^63 - 1 only; 0 means none.
        self.id = secrets.randbelow((1 << 63) - 1) + 1
        self._gatherer = ChunkBuffer()
        self._turn = asyncio.Lock()
        self._started = False  # the server may know of it
        self._news: asyncio.Future[Tensors] | None = None  # asked for, and not taken in
        self._over: TrimodalError | None = None  # why no further call is possible
        self._words = LiveWords()
        self._heard_s = 0.0  # the end of the last committed word
        self.spans: list[trace.Span] = []  # what took the model how long, with the option `trace`
        self.latest = LiveUpdate()  # the last answer of the server, an empty one before the first

    @property
    def words(self) -> tuple[Word, ...]:
        """All committed words so far, corrected; times in seconds since the stream began."""
        return self._words.words

    @property
    def text(self) -> str:
        """The committed text so far, corrected."""
        return self._words.text.strip()

    def forget(self) -> None:
        """Drops `words` and `text` so far: all that grows of a stream which goes on for days.

        A correction of what is dropped, or of a segment that begins in it, changes nothing any more.
        """
        self._words.take()

    async def send(self, samples: Any) -> LiveUpdate:
        """Sends a chunk and gives what is new since the last one.

        Less than 20 ms is held until there is more, and more than 30 s is sent in pieces: when
        one is refused, those before it are heard and the rest is dropped.

        Args:
            samples: float32[n] in [-1, 1] or int16[n], 16 kHz mono.

        Raises:
            TypeError, ValueError: another type or shape.
        """
        async with self._turn:
            self._check()
            self._gatherer.add(samples)
            updates = []
            while len(self._gatherer) >= MIN_SAMPLES:
                updates.append(await self._ask(end=False))
            if updates:
                return merged(updates)
            return replace(self.latest, committed=(), text="", windows=(), corrections=())

    async def end(self, samples: Any = None) -> LiveUpdate:
        """Ends the stream, with a last chunk of any length or without; waits until all of it is heard."""
        async with self._turn:
            self._check()
            if samples is not None:
                self._gatherer.add(samples)
            updates = []
            while len(self._gatherer) > MAX_SAMPLES:
                updates.append(await self._ask(end=False))
            if self._started or len(self._gatherer):
                updates.append(await self._ask(end=True))
            else:  # the server has no such stream
                self._close("the stream has ended")
                updates.append(LiveUpdate(final=True))
            return merged(updates)

    async def news(self, until: asyncio.Event) -> LiveUpdate | None:
        """Waits for words that come without more audio, as those after which a microphone is muted.

        The server takes audio that does not come for silence. Returns an update without news after a few
        seconds, and None once `until` is set or something was sent: the next answer has the news.
        """
        async with self._turn:
            self._check()
            if self._started and self._news is None:
                parameters = {**self._controls(start=False, end=False), "after_s": self.latest.received_s}
                timeouts = replace(self._timeouts, total=None, silence=self._timeouts.silence + NEWS_S)
                self._news = asyncio.ensure_future(self._infer({}, parameters, timeouts))
            asked = self._news
        stop = asyncio.ensure_future(until.wait())
        try:
            await asyncio.wait((asked or stop, stop), return_when=asyncio.FIRST_COMPLETED)
        finally:
            stop.cancel()
        async with self._turn:
            if asked is None or asked is not self._news or not asked.done():
                return None
            with self._failing(start=False, end=False):
                return self._take([await self._asked()])

    async def aclose(self) -> None:
        """Frees the stream on the server, whatever is still unheard; nothing if it has ended."""
        news, self._news = self._news, None  # who waits for it is told of nothing new
        if news is not None and not news.cancel() and not news.cancelled():
            news.exception()
        started, self._started = self._started, False
        if self._over is None:
            self._close("the stream was closed")
        if started:
            with contextlib.suppress(TrimodalError):  # the server drops it by itself in the end
                timeouts = replace(self._timeouts, total=ABANDON_S)
                await self._infer({}, self._controls(start=False, end=True), timeouts)

    async def __aenter__(self) -> LiveStream:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def _ask(self, *, end: bool) -> LiveUpdate:
        samples = self._gatherer.take()
        start = not self._started
        name = "audio_int16" if samples.dtype == np.int16 else "audio"
        inputs: dict[str, Array] = {name: samples.reshape(1, -1)} if len(samples) else {}
        parameters = self._controls(start=start, end=end)
        if start:
            parameters |= self._options
        self._started = True
        with self._failing(start=start, end=end):
            timeouts = self._flush_timeouts(len(samples)) if end else self._timeouts
            outputs = await self._infer(inputs, parameters, timeouts)
            updates = [read(outputs)]
            with readable("the speech model"):
                self.spans += trace.read(outputs)
            if self._news is not None:
                updates = await self._with_news(updates[0])
        if end:
            self._started = False
            self._close("the stream has ended")
        return self._take(updates)

    async def _with_news(self, update: LiveUpdate) -> list[LiveUpdate]:
        """A chunk's answer, and that to the request for news which the chunk has ended, in their order."""
        try:
            news = await self._asked()
        except RequestError:
            if update.final:  # the END overtook it on the way
                return [update]
            raise
        # The chunk overtook it where it was answered with the chunk's audio taken in.
        overtaken = not update.final and news.received_s >= update.received_s
        return [update, news] if overtaken else [news, update]

    async def _asked(self) -> LiveUpdate:
        """The answer to the request for news; another may be made then."""
        assert self._news is not None
        try:
            return read(await self._news)
        finally:
            self._news = None

    def _take(self, updates: list[LiveUpdate]) -> LiveUpdate:
        """Takes answers in, in their order, and gives them as one."""
        update = self.latest = merged(updates)
        self._words.add(update.committed, update.corrections)
        if update.committed:
            self._heard_s = update.committed[-1].end
        return update

    @contextlib.contextmanager
    def _failing(self, *, start: bool, end: bool) -> Iterator[None]:
        """Notes what an error of a request means for the stream."""
        try:
            yield
        except RequestError as error:
            self._gatherer.drop()
            of_chunk = isinstance(error, InvalidArgument) and not isinstance(error, ModelNotFound)
            failed = not (start or end or of_chunk)
            if start or end or failed:
                self._started = False  # a refused START makes no stream, a refused END ends it
            if end or failed:
                self._close("the stream has failed" if failed else "the stream has ended")
            raise
        except TransportError as error:
            self._started = not end and may_have_begun(error)
            lost = error if start else type(error)(f"{error}; the stream is lost: open another one")
            self._over = ConnectionLost(f"the stream was lost ({error}): open another one")
            raise lost from None
        except BaseException:  # cancelled: whether the chunk was heard is not known
            self._close("the stream was left while a chunk was on its way")
            raise

    def _flush_timeouts(self, samples: int) -> Timeouts:
        unheard_s = min(self.latest.received_s - self._heard_s + samples / SAMPLE_RATE, MOST_UNHEARD_S)
        return replace(self._timeouts, silence=self._timeouts.silence + FLUSH_PER_S * unheard_s)

    async def _infer(
        self, inputs: Tensors, parameters: Mapping[str, Parameter], timeouts: Timeouts
    ) -> Tensors:
        request = Request(self._model, inputs, self._request_id, parameters, self._metadata)
        return await self._transport.infer(request, timeouts)

    def _controls(self, *, start: bool, end: bool) -> dict[str, Parameter]:
        return {"sequence_id": self.id, "sequence_start": start, "sequence_end": end}

    def _close(self, why: str) -> None:
        self._over = InvalidArgument(f"{why}: open another one")

    def _check(self) -> None:
        if self._over is not None:
            raise type(self._over)(str(self._over))
