"""Begins answers before a turn is over, on the words so far: shown if the words stand, else given up."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Literal

from trimodal.errors import Unavailable
from trimodal.gateway.realtime.openai.generation import Generation, Question

# The model is to begin within this, or refuse: a scheduler that has other work to do refuses.
TTFT_DEADLINE_MS = 1_000
OFF_S = 5.0  # after a refusal none is begun for so long
TRIES = 3  # in one turn: words may change more than once
_HALF_S = 60.0  # after which a token counts half
_LEAST_TOKENS = 1_000.0  # the share is of so many at least: each waste alone would end it
Outcome = Literal["used", "changed", "resumed", "dropped", "refused"]


class EarlyBudget:
    """Bounds the share of tokens that early answers of one key waste.

    Args:
        share: of the tokens computed for early answers, those of answers that were given up; 0: none begins.
        count: takes the outcome of each, and the tokens that were computed for it.
    """

    def __init__(
        self,
        share: float = 0.5,
        count: Callable[[Outcome, int], None] = lambda outcome, tokens: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._share = share
        self._count = count
        self._clock = clock
        self._wasted = self._used = self._off_until = 0.0
        self._at = clock()

    @property
    def open(self) -> bool:
        """Whether another may begin."""
        self._forget()
        most = self._share * max(self._wasted + self._used, _LEAST_TOKENS)
        return self._share > 0 and self._wasted <= most and self._at >= self._off_until

    def ended(self, outcome: Outcome, tokens: int, *, overloaded: bool = False) -> None:
        """Counts one that is over; `overloaded`: the server refused it for want of time."""
        self._forget()
        if outcome == "used":
            self._used += tokens
        else:
            self._wasted += tokens
        if overloaded:
            self._off_until = self._at + OFF_S
        self._count(outcome, tokens)

    def _forget(self) -> None:
        before, self._at = self._at, self._clock()
        left = 0.5 ** ((self._at - before) / _HALF_S)
        self._wasted *= left
        self._used *= left


class EarlyAnswer:
    """That of one session's turn that may be over, if there is one."""

    def __init__(self, budget: EarlyBudget) -> None:
        self._budget = budget
        self._begun: tuple[Question, Generation] | None = None
        self._tries = 0
        self._ending: set[asyncio.Task[None]] = set()

    def begin(self, question: Question, generate: Callable[[], Generation]) -> None:
        """Answers the words so far; one that answers other words is given up."""
        if self._begun is not None and self._begun[0].sounds_like(question):
            return
        self.drop("changed")
        if self._tries < TRIES and self._budget.open:
            self._tries += 1
            self._begun = (question, generate())

    def drop(self, outcome: Outcome) -> None:
        """Gives up the one that was begun."""
        begun, self._begun = self._begun, None
        if begun is not None:
            begun[1].task.cancel()
            self._watch(begun[1], outcome)

    def take(self, question: Question) -> Generation | None:
        """The answer to this question, if it was begun: the turn is over, and its words are known."""
        begun, self._tries = self._begun, 0
        if begun is None or begun[1].failed or not begun[0].sounds_like(question):
            self.drop("changed")
            return None
        self._begun = None
        self._watch(begun[1], "used")
        return begun[1]

    async def aclose(self) -> None:
        self.drop("dropped")
        if self._ending:
            await asyncio.wait(self._ending)

    def _watch(self, generation: Generation, outcome: Outcome) -> None:
        def over(task: asyncio.Task[None]) -> None:
            self._ending.discard(task)
            error = None if task.cancelled() else task.exception()
            failed = error is not None and (outcome != "used" or generation.refused)
            told: Outcome = "refused" if failed else outcome
            self._budget.ended(told, generation.tokens, overloaded=isinstance(error, Unavailable))

        self._ending.add(generation.task)
        generation.task.add_done_callback(over)
