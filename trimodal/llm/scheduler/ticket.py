"""Holds what the scheduler knows of one generation: its size, its terms, and how far it is."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from trimodal.llm.tiers import Tier


@dataclass(eq=False)
class Ticket:
    """One generation's place in the queue, then in the engine. All times are `clock` seconds, absolute."""

    id: int  # grows in the order of coming
    prompt_tokens: int
    max_tokens: int
    tier: Tier = field(default_factory=Tier)
    tier_name: str = "standard"
    priority: int = 0
    prefix: int = 0  # hash of the prompt's beginning, for predicting prefix cache hits; 0: unknown
    arrived: float = 0.0
    ttft_deadline: float = math.inf  # until when the first text is to be there; inf: no such bound
    bound: str = "ttft_deadline_ms"  # the field that set ttft_deadline, for errors
    tenant: str = ""  # tenants of one priority take turns
    # From here on the scheduler sets what it knows.
    predicted_ttft: float = math.nan  # seconds from arrival to first text, at admission; nan: not predicted
    started: float = 0.0  # handed to the engine; 0: it waits
    first_token: float = 0.0  # 0 until there is one
    completion_tokens: int = 0
    cached_tokens: int = 0
    blocks: int = 0  # KV blocks reserved for its prompt and its answer
    held: float = 0.0  # since when it is the first in order and lacks room; 0: it never was
    uncached: int = 0  # prompt tokens that the prefix cache is not expected to hold
    expected_tokens: float = math.nan  # of its answer; nan: unknown
    # When it leaves the queue unanswered: later than ttft_deadline where clients wait on different terms.
    expires: float = math.inf
    queued: bool = False  # it was expected to wait
    trial: bool = False  # admitted to see whether the latency model still holds
    problem: str = ""  # why `Scheduler.overdue` took it out of the queue, a sentence
    retry_after_s: float = 0.0  # goes with `problem`

    @property
    def prompt_cost(self) -> float:
        """Prompt tokens that the engine has to compute."""
        return self.uncached or self.prompt_tokens

    @property
    def answer_cost(self) -> float:
        """Tokens that its answer is expected to have."""
        return self.max_tokens if math.isnan(self.expected_tokens) else self.expected_tokens
