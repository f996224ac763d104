"""Every request of a service by what one looks for: client, generation, question under way, cancel key.

Plain books without a lock or a decision of their own: their owner has both.
"""

from __future__ import annotations

import time
from collections import OrderedDict

from trimodal.cache.values import Question
from trimodal.errors import Cancelled, InvalidArgument
from trimodal.llm.frontend.request_state import Generation, Stream

_REMEMBERED_S = 10.0
_MOST_REMEMBERED = 1024


class Book:
    """Streams that have not ended, and the generations they listen to."""

    def __init__(self) -> None:
        self.streams: set[Stream] = set()
        self.generations: dict[int, Generation] = {}
        self._under_way: dict[tuple[str, int], Generation] = {}
        self._keys: dict[str, Stream] = {}
        self._cancelled: OrderedDict[str, float] = OrderedDict()
        self._listening = 0

    @property
    def looking(self) -> int:
        """Streams for which the cache is being asked."""
        return len(self.streams) - self._listening

    def enter(self, stream: Stream) -> None:
        """A client came.

        Raises:
            InvalidArgument: its cancel key is another running request's.
            Cancelled: its key was cancelled before it arrived.
        """
        key = stream.request.terms.cancel_key
        if key:
            if key in self._keys:
                raise InvalidArgument(
                    "cancel_key is that of another running request: send a fresh random one"
                )
            if time.monotonic() - self._cancelled.pop(key, -_REMEMBERED_S) < _REMEMBERED_S:
                raise Cancelled("the client cancelled the request")
            self._keys[key] = stream
        self.streams.add(stream)

    def leave(self, stream: Stream) -> Generation | None:
        """A client is done or gone; its generation if nobody listens to that any more."""
        self.streams.discard(stream)
        self._keys.pop(stream.request.terms.cancel_key, None)
        generation = stream.generation
        if generation is None:
            return None
        self._listening -= 1
        return generation if generation.leave(stream) else None

    def add(self, generation: Generation) -> None:
        """A generation begins; those who ask the same may join it."""
        self.generations[generation.id] = generation
        self._listening += len(generation.streams)
        if generation.question:
            self._under_way[_identity(generation.question)] = generation

    def join(self, generation: Generation, stream: Stream) -> None:
        """One more client listens to a generation."""
        generation.join(stream)
        self._listening += 1

    def drop(self, generation: Generation) -> None:
        """A generation ends."""
        self.generations.pop(generation.id, None)
        if generation.question and self._under_way.get(_identity(generation.question)) is generation:
            del self._under_way[_identity(generation.question)]

    def same(self, question: Question) -> Generation | None:
        """The generation under way that answers this very question."""
        return self._under_way.get(_identity(question))

    def keyed(self, key: str) -> Stream | None:
        """The request with this cancel key; one that comes later finds it cancelled."""
        stream = self._keys.get(key)
        if stream is None:
            self._cancelled[key] = time.monotonic()
            self._cancelled.move_to_end(key)
            while len(self._cancelled) > _MOST_REMEMBERED:
                self._cancelled.popitem(last=False)
        return stream


def _identity(question: Question) -> tuple[str, int]:
    return question.key, question.max_tokens
