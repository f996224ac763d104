"""A cache of answers that a test fills, slows down and breaks, and requests on terms."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from typing import Any

from tests.llm.doubles.sinks import Collector, FakeServer
from trimodal.cache.audit.auditor import Auditor
from trimodal.cache.bounded_calls import DaemonThreads
from trimodal.cache.values import Entry, Hit, Question
from trimodal.llm.engines.protocol import Sampling
from trimodal.llm.request.request import GenerationRequest
from trimodal.llm.request.terms import Terms


class Answers:
    """A cache that holds what the test puts in, and may be slow or raise."""

    def __init__(self) -> None:
        self.kept: list[tuple[Question, str, str, int]] = []
        self.held: dict[str, Hit] = {}
        self.near: Hit | None = None
        self.audits: Auditor | None = None
        self.gate = threading.Event()
        self.gate.set()
        self.broken = False
        self.closed = False
        self.patience_s = math.inf
        self.threads = DaemonThreads(8, "llm-lookup", 64)

    def lookup(self, question: Question) -> PlayedLookup:
        return PlayedLookup(self, question)

    def submit(self, job: Callable[..., None], *args: Any) -> bool:
        return self.threads.submit(job, *args)

    def exact(self, question: Question) -> Hit | None:
        self.gate.wait(10)
        if self.broken:
            raise RuntimeError("the cache broke its promise")
        return self.held.get(question.key)

    def semantic(self, question: Question) -> Hit | None:
        return self.near

    def keep(self, question: Question, answer: str, finish_reason: str, completion_tokens: int) -> None:
        self.kept.append((question, answer, finish_reason, completion_tokens))
        self.held[question.key] = Hit(
            Entry(question.text, answer, finish_reason, completion_tokens, question.max_tokens, 0, 1), "exact"
        )

    def close(self) -> None:
        self.threads.close(10)
        self.closed = True


class PlayedLookup:
    """Asks `answers`; given up only while it waits for a thread longer than `patience_s`."""

    def __init__(self, answers: Answers, question: Question) -> None:
        self._answers, self._question = answers, question
        self.until = time.perf_counter() + answers.patience_s
        self.begun = False

    def exact(self) -> Hit | None:
        self.begun, self.until = True, math.inf
        return self._answers.exact(self._question)

    def semantic(self) -> Hit | None:
        return self._answers.semantic(self._question)

    def give_up(self, now: float) -> bool:
        late = now >= self.until
        if late:
            self.until = math.inf
        return late


def ask(server: FakeServer, prompt: str = "hello", max_tokens: int = 30, **terms: object) -> Collector:
    """Submits a prompt on some terms."""
    temperature = float(terms.pop("temperature", 0.0))  # type: ignore[arg-type]
    top: Any = terms.pop("top_logprobs", None)
    sampling = Sampling(max_tokens, temperature=temperature, logprobs=top)
    request = GenerationRequest(prompt, None, sampling, terms=Terms(**terms))  # type: ignore[arg-type]
    return server.submit(request)
