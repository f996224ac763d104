"""Asks the cache before the engine is bothered: on threads of its own, so a slow store delays nobody else.

What is found or not found is told to the service, which owns the requests.
"""

from __future__ import annotations

import sys
import threading
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from trimodal.cache.keys import question
from trimodal.cache.protocol import Answers
from trimodal.cache.values import Hit, Question
from trimodal.llm.frontend.request_state import Generation, Stream
from trimodal.llm.settings import LlmSettings

_THREADS = 8
_MOST_LOOKUPS = 64
"""More at once are not looked up: they would wait here for longer than the engine might take."""

_ENDS = ("stop", "length")


class Front:
    """The cache of one model, with the rules on who may be answered from it.

    Args:
        fingerprint: of model and engine.
        templated: a bare prompt becomes a user message; otherwise it is continued as it stands.
        skipped: called when a request goes past the cache because too many look already.
    """

    def __init__(
        self,
        settings: LlmSettings,
        answers: Answers,
        fingerprint: str,
        *,
        templated: bool = True,
        skipped: Callable[[], None] = lambda: None,
    ) -> None:
        self._settings = settings
        self._skipped = skipped
        # As long as one lookup may take: the store, the embedding, and the store again.
        self._patience_s = (2 * settings.cache_budget_ms + settings.cache_embedding_budget_ms) / 1e3
        self._templated = templated
        self._answers = answers
        self._fingerprint = fingerprint
        self._looking = threading.Semaphore(_MOST_LOOKUPS)
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="llm-front")

    def question(self, stream: Stream) -> Question | None:
        """What the cache may know of a request; None: it is answered for itself alone, and not kept."""
        request, sampling, terms = stream.request, stream.request.sampling, stream.request.terms
        if sampling.temperature > 0 and "store" not in terms.cache_control:
            return None  # a sample is asked for because it differs
        asked = question(
            self._fingerprint,
            tenant=terms.tenant,
            namespace=terms.cache_namespace or next(iter(self._settings.cache_ttls)),
            prompt=request.prompt,
            messages=request.messages,
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            top_k=sampling.top_k,
            seed=sampling.seed,
            stops=request.stops,
            max_tokens=sampling.max_tokens,
            verbatim=request.messages is None and not self._templated,
        )
        asked.key  # noqa: B018 - computed once, here: a long prompt is not to be hashed under a lock
        return asked

    def consult(
        self, stream: Stream, asked: Question, join: Callable[[], bool], tell: Callable[[Hit | None], None]
    ) -> bool:
        """Looks on another thread; False: nothing is done, as the client wants no stored answer or too many
        wait and nobody asks the same.

        Args:
            join: lets the stream listen to an identical request that is under way; True when there is one.
            tell: called once with what was found, unless the stream could join.
        """
        if "no-cache" in stream.request.terms.cache_control:
            return False
        if not self._looking.acquire(blocking=False):
            self._skipped()
            return join()
        try:
            self._pool.submit(self._look, asked, time.perf_counter() + self._patience_s, join, tell)
        except RuntimeError:  # closed
            self._looking.release()
            return False
        return True

    def keep(self, generation: Generation) -> None:
        """Stores a complete answer; returns at once, and never raises."""
        if not (generation.question and generation.storable):
            return
        try:
            self._answers.keep(
                generation.question,
                generation.answer,
                generation.finish_reason,
                generation.ticket.completion_tokens,
            )
        except Exception:
            traceback.print_exc(file=sys.stderr)

    def close(self) -> None:
        """Ends the lookups, then the cache."""
        self._pool.shutdown(wait=True, cancel_futures=True)
        self._answers.close()

    def _look(
        self, asked: Question, until: float, join: Callable[[], bool], tell: Callable[[Hit | None], None]
    ) -> None:
        try:
            tell_it, hit = True, None
            # It waited here already: a slow store is not to cost more than its budget.
            late = time.perf_counter() > until
            try:
                if late:
                    self._skipped()
                else:
                    hit = _whole(self._answers.exact(asked))
                if hit is None and join():
                    tell_it = False
                elif hit is None and not late:
                    hit = _whole(self._answers.semantic(asked))
            except Exception:
                # The cache never raises; a request must not vanish here even if it does.
                traceback.print_exc(file=sys.stderr)
            if tell_it:
                tell(hit)
        finally:
            self._looking.release()


def _whole(hit: Hit | None) -> Hit | None:
    """The hit, if its answer has an end: what others can write to may hold one that never ends a request."""
    return hit if hit and hit.entry.finish_reason in _ENDS else None
