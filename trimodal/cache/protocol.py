"""Declares the cache as the llm sees it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Protocol

from trimodal.cache.decision import Decision
from trimodal.cache.values import Hit, Question


class Lookup(Protocol):
    """One question's way through the cache. `exact` and `semantic` run on one of the cache's threads."""

    @property
    def until(self) -> float:
        """When the present step has had its time, in seconds of `time.perf_counter`; inf: none is limited."""

    @property
    def begun(self) -> bool:
        """Whether it has got its thread."""

    @property
    def decision(self) -> Decision | None:
        """What the semantic layer decided, once it was asked and something was near."""

    def exact(self) -> Hit | None:
        """The answer that this very question got before. Never raises."""

    def semantic(self) -> Hit | None:
        """The answer to a question that means the same. Never raises."""

    def give_up(self, now: float) -> bool:
        """Gives up a step that has had its time; True once. Called from any thread."""


class Audits(Protocol):
    """What the llm needs of the audit of its cache. No call waits."""

    @property
    def share(self) -> float:
        """Audits take at most so much of the tokens that the engine computes for clients."""

    def hit(self, question: Question) -> bool:
        """Draws whether a hit is audited: its question is then to be generated once more."""

    def missed(self, question: Question, decision: Decision) -> None:
        """Takes a near miss, whose question is generated for its client now."""

    def answered(self, question: Question, answer: str, finish_reason: str) -> bool:
        """Takes the answer that a client got; whether it is for an audit."""

    def finish(self, decision: Decision, answer: str, finish_reason: str) -> None:
        """Takes the fresh answer of an audit."""

    def dropped(self, reason: str) -> None:
        """Counts an audit that came to nothing."""

    def spent(self, tokens: int) -> None:
        """Counts tokens that the engine computed for audits."""

    def close(self, timeout: float) -> None:
        """Ends what compares answers, within `timeout` seconds."""


class Answers(Protocol):
    """What the llm needs of `AnswerCache`."""

    @property
    def audits(self) -> Audits | None:
        """None: nothing is audited."""

    def lookup(self, question: Question) -> Lookup:
        """A lookup that waits for its thread from now on."""

    def submit(self, job: Callable[..., None], *args: Any) -> bool:
        """Runs a lookup's job on a thread of the cache; False: too many wait for one."""

    def keep(self, question: Question, answer: str, finish_reason: str, completion_tokens: int) -> None:
        """Stores an answer in the background; returns at once."""

    def close(self) -> None: ...


class NoLookup:
    """Finds nothing at once."""

    until = math.inf
    begun = True
    decision = None

    def exact(self) -> Hit | None:
        return None

    def semantic(self) -> Hit | None:
        return None

    def give_up(self, now: float) -> bool:
        return False


class NoAnswers:
    """Stores nothing: requests only share what is under way. Needs no threads."""

    audits = None

    def lookup(self, question: Question) -> NoLookup:
        return NoLookup()

    def submit(self, job: Callable[..., None], *args: Any) -> bool:
        job(*args)
        return True

    def keep(self, question: Question, answer: str, finish_reason: str, completion_tokens: int) -> None:
        """Nothing is kept."""

    def close(self) -> None:
        """There is nothing to close."""
