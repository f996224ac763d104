"""Takes one request through its stages: hear and see at the same time, then prompt, then answer.

The error of a stage ends the request, with the stage's name in front.
"""

from __future__ import annotations

import contextlib
import json
import secrets
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trimodal.assistant import values
from trimodal.assistant.metrics import AssistantMetrics
from trimodal.assistant.models import Models
from trimodal.assistant.prompt import Prompt
from trimodal.assistant.request import Turn, read_examples
from trimodal.assistant.request_state import RequestState
from trimodal.assistant.settings import AssistantSettings
from trimodal.assistant.values import ANSWER, HEARD, SAW, Labels, Piece, Stopped, Versions
from trimodal.cache.bounded_calls import DaemonThreads
from trimodal.errors import InternalError, InvalidArgument, RequestError, Unavailable, as_request_error

MAX_STREAM = (1 << 63) - 1


class Pipeline:
    """The stages. `threads` runs what goes on beside the caller's own thread, `stoppers` ends hearing."""

    def __init__(
        self,
        settings: AssistantSettings,
        models: Models,
        metrics: AssistantMetrics,
        threads: DaemonThreads,
        stoppers: DaemonThreads,
    ) -> None:
        self._system = settings.system
        self._prompt = Prompt(settings.template_file)
        self._examples, _ = self._rendered(read_examples(settings.examples_file))
        self._models, self._metrics, self._threads, self._stoppers = models, metrics, threads, stoppers

    def run(self, state: RequestState) -> None:
        """Takes a request to its end, and returns when none of its stages works any more. Raises nothing."""
        seeing: Future[Labels] | None = None
        try:
            with contextlib.suppress(Stopped):
                if state.request.image is not None:
                    seeing = self._beside(partial(self._see, state, state.request.image))
                heard = "" if state.request.samples is None else self._hear(state)
                saw = seeing.result() if seeing else ()
                self._answer(state, heard, saw)
        except Exception as error:  # a defect: the stages tell what is theirs
            if not state.done:  # else the service may be closing: it has no thread for a stage any more
                state.fail(as_request_error(error))
        finally:
            if seeing:
                seeing.exception()  # waits

    def _beside(self, call: Callable[[], Labels]) -> Future[Labels]:
        """The result of a call that goes on in another thread."""
        future: Future[Labels] = Future()

        def run() -> None:
            try:
                future.set_result(call())
            except BaseException as error:
                future.set_exception(error)

        if not self._threads.submit(run):
            raise Unavailable("the system lets the assistant have no thread; try again later")
        return future

    def _hear(self, state: RequestState) -> str:
        stream, versions = secrets.randbelow(MAX_STREAM) + 1, state.request.versions
        with self._stage(state, HEARD):
            assert state.request.samples is not None
            with state.on_cancel(partial(self._stop_hearing, stream, versions)):
                heard = self._models.hear(state.request.samples, stream, state.check, state.spans, versions)
            if not heard and state.request.text is None:
                raise InvalidArgument("audio: no words are heard in it, and there is no text_input to answer")
            state.send(values.texts(stage=HEARD, text_output=heard))
            return heard

    def _stop_hearing(self, stream: int, versions: Versions) -> None:
        """Has a stream ended by another thread: it waits for a model that may hang."""
        self._stoppers.submit(_logged, partial(self._models.stop_hearing, stream, versions))

    def _see(self, state: RequestState, image: bytes) -> Labels:
        with self._stage(state, SAW):
            saw = self._models.see(image, state.check, state.request.versions)
            state.send(values.saw_columns(saw))
            return saw

    def _answer(self, state: RequestState, heard: str, saw: Labels) -> None:
        with self._stage(state, ANSWER):
            prompted = self._prompted(state.request.text or "", heard, saw, state.request.history)
            inputs = {**prompted, **state.request.options, **_limits(state)}
            finish_reason = ""
            asked = state.request
            more: dict[str, Any] = {"trace": asked.trace, "headers": asked.headers, "request_id": asked.id}
            for piece in self._models.answer(inputs, state.on_cancel, asked.versions, **more):
                finish_reason = piece.finish_reason or finish_reason
                if not state.done:  # else it is read to the end that its cancellation brings
                    self._tell(state, piece)
            if not finish_reason:
                raise InternalError("the model ended its answer without a finish_reason")

    def _tell(self, state: RequestState, piece: Piece) -> None:
        state.wrote(piece)
        try:
            columns = values.answer_columns(piece, state.timing, state.spans)
            state.send(columns, finish_reason=piece.finish_reason)
        except Stopped:
            pass
        except Exception as error:  # what would follow is not the answer any more
            as_request_error(error)
            state.fail(InternalError("answer: it could not be sent; send the request again"))

    def _prompted(
        self, text: str, heard: str, saw: Labels, history: Sequence[Turn]
    ) -> dict[str, NDArray[Any]]:
        """Makes the llm's inputs. A lone question is its `text_input`: cached as if it came directly."""
        talk, seen = self._rendered(history)
        prompt = self._prompt.render(text, heard, saw or seen)
        examples = self._examples if saw or seen else []
        system = [{"role": "system", "content": self._system}] if self._system else []
        before = [*system, *examples, *talk]
        if not before:
            return values.texts(text_input=prompt)
        messages = [*before, {"role": "user", "content": prompt}]
        return values.texts(messages=json.dumps(messages, ensure_ascii=False))

    def _rendered(self, turns: Sequence[Turn]) -> tuple[list[dict[str, str]], Labels]:
        """The messages of a talk, each as it was rendered when it was asked, and what was seen last.

        A question without an image is about the last one: a small model (SmolLM2-135M) forgets by the second
        question what the first message said of it, and names what it likes.
        """
        messages: list[dict[str, str]] = []
        seen: Labels = ()
        for turn in turns:
            content = turn.content
            if turn.role == "user":
                seen = turn.labels or seen
                content = self._prompt.render(content, turn.heard, seen)
            messages.append({"role": turn.role, "content": content})
        return messages, seen

    @contextmanager
    def _stage(self, state: RequestState, name: str) -> Iterator[None]:
        """Times a stage. Its error ends the request, with the stage's name in front, and raises Stopped."""
        state.check()
        try:
            with state.stage(name):
                yield
        except Stopped:
            raise
        except Exception as error:
            failure = as_request_error(error) if not state.done else error
            if isinstance(failure, RequestError) and state.fail(type(failure)(f"{name}: {failure}")):
                self._metrics.failures[name].increment(1)
            raise Stopped from None
        finally:
            if (took := state.timing[name]) is not None:
                self._metrics.stages[name].observe(took / 1e3)


def _logged(stop: Callable[[], None]) -> None:
    try:
        stop()
    except Exception as error:  # the other model failed: so did what was to be stopped there
        as_request_error(error)


def _limits(state: RequestState) -> dict[str, NDArray[Any]]:
    """What is left of the deadlines, for the llm. Raises Unavailable: nothing is."""
    request = state.request
    limits = {"ttft_deadline_ms": request.ttft_deadline_ms, "deadline_ms": request.deadline_ms}
    left = {name: state.left_ms(name, limit) for name, limit in limits.items()}
    return {name: np.array([ms], np.int32) for name, ms in left.items() if ms is not None}
