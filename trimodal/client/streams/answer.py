"""Streams one answer: iterated once, awaited whole, or cancelled."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from trimodal.client.async_iteration import is_cancelling
from trimodal.client.decoding import read_logprobs, read_note, readable
from trimodal.client.errors import ConnectionLost
from trimodal.client.timing import Stopwatch, Timing
from trimodal.client.transports.base import Responses, Tensors
from trimodal.client.values import Answer, Delta, Note, TokenLogprob, Usage

if TYPE_CHECKING:
    from typing_extensions import Self


Item = TypeVar("Item")


class BaseStream(Generic[Item]):
    """Keeps the text, the usage and the times. The request is sent when the first item is asked for.

    Leaving early (break, an exception, a cancelled task, `cancel`, the end of the `async with`)
    ends the request on the server at once.
    """

    _of = "the llm model"

    def __init__(self, send: Callable[[], Coroutine[Any, Any, Responses]]) -> None:
        self._send = send
        self._sending: asyncio.Task[Responses] | None = None
        self._responses: Responses | None = None
        self._stopwatch = Stopwatch()
        self._parts: list[str] = []
        self._logprobs: list[TokenLogprob] = []
        self._done = False
        self.reasoning = ""  # what the model thought, so far
        self.prompt_logprobs: tuple[TokenLogprob, ...] = ()
        self.usage = Usage()
        self.note = Note()
        self.finish_reason = ""

    @property
    def text(self) -> str:
        """The answer so far."""
        return "".join(self._parts)

    @property
    def timing(self) -> Timing:
        """Timing so far."""
        return self._stopwatch.read(self.usage.completion)

    def __aiter__(self) -> AsyncIterator[Item]:
        return self

    async def __anext__(self) -> Item:
        """Returns the next item. Raises: RequestError (refused or ended), TransportError (no answer)."""
        if self._done:
            raise StopAsyncIteration
        try:
            if self._responses is None:
                self._stopwatch = Stopwatch()
                self._responses = await self._sent()
            responses = self._responses
            while True:
                outputs = await responses.read()
                if outputs is None:
                    if self._done:  # cancelled while this task waited
                        raise StopAsyncIteration
                    raise ConnectionLost("the server ended the stream without a finish_reason")
                # The final response has no outputs; the finish_reason came before it.
                if outputs:
                    item = self._item(outputs)
                    if self._done and self._responses is responses:  # else it was cancelled
                        self._responses = None
                        responses.finish()
                    if item is not None:
                        return item
        except StopAsyncIteration:
            raise
        except BaseException:
            self._stop("error")
            raise

    async def answer(self) -> Answer:
        """Waits for the rest and gives the whole answer."""
        async for _ in self:
            pass
        logprobs = tuple(self._logprobs)
        return Answer(
            self.text, self.finish_reason, self.usage, self.timing, self.note, logprobs, self.reasoning
        )

    def cancel(self) -> None:
        """Ends the request on the server; the iteration stops after this. Nothing if it is over."""
        self._stop("cancelled")

    async def aclose(self) -> None:
        """As `cancel`."""
        self.cancel()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.cancel()

    def __del__(self) -> None:
        # `async for … break` closes nothing by itself: dropping the last reference does.
        if self._responses is not None:
            with contextlib.suppress(RuntimeError):  # the event loop is closed already
                self._responses.cancel()

    async def _sent(self) -> Responses:
        """Sends the request, as a task of its own so that `cancel` ends that too.

        Raises:
            StopAsyncIteration: it was cancelled meanwhile.
        """
        sending = self._sending = asyncio.ensure_future(self._send())
        try:
            responses = await sending
        except asyncio.CancelledError:
            if sending.done() and not sending.cancelled() and not sending.exception():
                sending.result().cancel()  # it was sent in the moment in which this task was cancelled
            if self._done and not is_cancelling():
                raise StopAsyncIteration from None
            raise
        finally:
            self._sending = None
        if self._done:  # cancelled after the last byte was sent, before this task ran again
            responses.cancel()
            raise StopAsyncIteration
        return responses

    def _item(self, outputs: Tensors) -> Item | None:
        """What a response is to the caller; None: nothing to tell. Raises ProtocolError."""
        raise NotImplementedError

    def _delta(self, outputs: Tensors) -> Delta | None:
        """New text of the answer, taken in; None: a response without any."""
        with readable(self._of):
            text = bytes(outputs["text_output"][0]).decode()
            finish_reason = bytes(outputs["finish_reason"][0]).decode()
            names = ("prompt_tokens", "cached_tokens", "completion_tokens")
            prompt, cached, completion = (int(outputs[name][0]) for name in names)
            thought = int(outputs["reasoning_tokens"][0]) if "reasoning_tokens" in outputs else 0
            usage = Usage(prompt, cached, completion, thought)
            reasoning = bytes(outputs["reasoning"][0]).decode() if "reasoning" in outputs else ""
            logprobs = read_logprobs(outputs)
            self.prompt_logprobs = read_logprobs(outputs, "prompt_logprobs") or self.prompt_logprobs
            if finish_reason:
                self.note = read_note(outputs)
        tokens = usage.completion - self.usage.completion
        self.usage = usage
        if text or reasoning:
            self._stopwatch.text()
            self._parts.append(text)
            self.reasoning += reasoning
        self._logprobs += logprobs
        if finish_reason:
            self._done = True
            self.finish_reason = finish_reason
            self._stopwatch.end()
        if not (text or reasoning or finish_reason):
            return None
        return Delta(text, tokens, finish_reason, logprobs, reasoning)

    def _stop(self, finish_reason: str) -> None:
        if self._done:
            return
        self._done = True
        self.finish_reason = finish_reason
        self._stopwatch.end()
        if self._sending is not None:
            self._sending.cancel()
        responses, self._responses = self._responses, None
        if responses is not None:
            responses.cancel()


class AnswerStream(BaseStream[Delta]):
    """The deltas of one answer, to be iterated once. The request is sent when the first one is asked for.

        async with client.stream("…") as stream:
            async for delta in stream:
                print(delta.text, end="")
        print(stream.usage, stream.timing.ttft)

    Leaving early ends the request, see `BaseStream`.
    """

    def _item(self, outputs: Tensors) -> Delta | None:
        return self._delta(outputs)
