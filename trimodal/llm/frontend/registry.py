"""Finds requests and generations by what is asked for: client, generation id, question, cancel key."""

from __future__ import annotations

import time
from collections import OrderedDict

from trimodal.cache.values import Question
from trimodal.errors import Cancelled, InvalidArgument
from trimodal.llm.frontend.request_state import Generation, RequestState

_REMEMBERED_S = 10.0
_MAX_REMEMBERED = 1024


class RequestRegistry:
    """Holds the requests that have not ended and their generations. Guarded by the service's lock."""

    def __init__(self) -> None:
        self.states: dict[RequestState, None] = {}  # in their order of coming
        self.generations: dict[int, Generation] = {}
        self._by_question: dict[tuple[str, int], Generation] = {}
        self._by_cancel_key: dict[str, RequestState] = {}
        self._cancelled_keys: OrderedDict[str, float] = OrderedDict()
        self._listening = 0

    @property
    def looking(self) -> int:
        """Requests that are being looked up in the cache."""
        return len(self.states) - self._listening

    def add(self, state: RequestState) -> None:
        """Registers a request.

        Raises:
            InvalidArgument: its cancel key is another running request's.
            Cancelled: its key was cancelled before it arrived.
        """
        key = state.request.terms.cancel_key
        if key:
            if key in self._by_cancel_key:
                raise InvalidArgument(
                    "cancel_key is that of another running request: send a fresh random one"
                )
            if time.monotonic() - self._cancelled_keys.pop(key, -_REMEMBERED_S) < _REMEMBERED_S:
                raise Cancelled("the client cancelled the request")
            self._by_cancel_key[key] = state
        self.states[state] = None

    def remove(self, state: RequestState) -> Generation | None:
        """Forgets a request; returns its generation if that has no listener any more."""
        if state not in self.states:
            return None  # its cancel key may be another request's by now
        del self.states[state]
        self._by_cancel_key.pop(state.request.terms.cancel_key, None)
        generation = state.generation
        if generation is None:
            return None
        self._listening -= 1
        return generation if generation.leave(state) else None

    def begin(self, generation: Generation) -> None:
        """Registers a generation; requests with the same question may join it."""
        self.generations[generation.id] = generation
        self._listening += len(generation.listeners)
        if generation.question:
            self._by_question[_identity(generation.question)] = generation

    def join(self, generation: Generation, state: RequestState) -> None:
        """Lets one more request listen to a generation."""
        generation.join(state)
        self._listening += 1

    def drop(self, generation: Generation) -> None:
        """Forgets a generation."""
        self.generations.pop(generation.id, None)
        if generation.question and self._by_question.get(_identity(generation.question)) is generation:
            del self._by_question[_identity(generation.question)]

    def identical(self, question: Question) -> Generation | None:
        """The generation under way that answers this very question."""
        return self._by_question.get(_identity(question))

    def cancelled(self, key: str) -> RequestState | None:
        """The request with this cancel key; a key without one is remembered for a request that comes soon."""
        state = self._by_cancel_key.get(key)
        if state is None:
            self._cancelled_keys[key] = time.monotonic()
            self._cancelled_keys.move_to_end(key)
            while len(self._cancelled_keys) > _MAX_REMEMBERED:
                self._cancelled_keys.popitem(last=False)
        return state


def _identity(question: Question) -> tuple[str, int]:
    return question.key, question.max_tokens
