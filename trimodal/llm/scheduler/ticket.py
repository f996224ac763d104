"""Holds what the scheduler knows of one generation: its size, its terms, and how far it is."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from trimodal.llm.request.tiers import Tier


@dataclass(eq=False)
class Ticket:
    """One generation's place in the queue, then in the engine. All times are `clock` seconds, absolute.

    Attributes:
        id: grows in the order of coming.
        prefix: hash of the prompt's beginning, for predicting prefix cache hits; 0: unknown.
        ttft_deadline: until when the first text is to be there; inf: no such bound.
        bound: the field that set ttft_deadline, for errors.
        predicted_ttft: seconds from arrival to the first text, as predicted at admission; nan: not predicted.
        started: handed to the engine; 0: it waits. first_token: 0 until there is one.
        blocks: KV blocks for its prompt and its whole answer; set by the scheduler, as the next two are.
        uncached: prompt tokens that the prefix cache is not expected to hold.
        expected_tokens: expected tokens of its answer; nan: unknown.
        expires: when it leaves the queue unanswered; later than ttft_deadline where several clients wait for
            it on different terms.
        queued: it was expected to wait. trial: admitted to see whether the latency model still holds.
        problem: a sentence on why `Scheduler.overdue` took it out of the queue; retry_after_s goes with it.
    """

    id: int
    prompt_tokens: int
    max_tokens: int
    tier: Tier = field(default_factory=Tier)
    tier_name: str = "standard"
    priority: int = 0
    prefix: int = 0
    arrived: float = 0.0
    ttft_deadline: float = math.inf
    bound: str = "ttft_deadline_ms"
    predicted_ttft: float = math.nan
    started: float = 0.0
    first_token: float = 0.0
    completion_tokens: int = 0
    cached_tokens: int = 0
    blocks: int = 0
    uncached: int = 0
    expected_tokens: float = math.nan
    expires: float = math.inf
    queued: bool = False
    trial: bool = False
    problem: str = ""
    retry_after_s: float = 0.0
