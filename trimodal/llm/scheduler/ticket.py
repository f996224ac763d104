"""What scheduling knows of one generation: its size, its terms, and how far it is."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from trimodal.llm.request.tiers import Tier


@dataclass(eq=False)
class Ticket:
    """One generation's place in the queue, then in the engine. All times are `clock` seconds, absolute.

    Attributes:
        prefix: stands for the beginning of the prompt (equal beginnings, equal numbers; 0: unknown): what
            the prefix cache spared one request, it will spare the next.
        ttft_deadline: until when the first text is to be there; inf: no such bound.
        bound: the field that set ttft_deadline, for errors.
        predicted_ttft: seconds from arrival to the first text, as foreseen at admission; nan: not foreseen.
        started: handed to the engine; 0: it waits. first_token: 0 until there is one.
        blocks: KV blocks for its prompt and its whole answer. uncached: prompt tokens that the prefix cache
            is not foreseen to spare. foreseen_tokens: of its answer; nan: not foreseen. The scheduler's own.
        expires: when it leaves the queue unanswered; later than ttft_deadline where several clients wait for
            it on different terms.
        queued: it was foreseen to wait. trial: let in to see whether the model of the speed still holds.
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
    foreseen_tokens: float = math.nan
    expires: float = math.inf
    queued: bool = False
    trial: bool = False
    problem: str = ""
    retry_after_s: float = 0.0
