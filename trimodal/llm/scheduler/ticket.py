"""What scheduling knows of one generation: its size, its terms, and how far it is."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from trimodal.llm.tiers import Tier


@dataclass(eq=False)
class Ticket:
    """One generation's place in the queue, then in the engine. All times are `clock` seconds, absolute.

    Attributes:
        prefix: stands for the beginning of the prompt (equal beginnings, equal numbers): what the prefix
            cache spared one request, it will spare the next.
        ttft_deadline: until when the first text is to be there; inf: no such bound.
        predicted_ttft: seconds from arrival to the first text, as foreseen at admission; nan: not foreseen.
        started: handed to the engine; 0: it waits. first_token: 0 until there is one.
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
    predicted_ttft: float = math.nan
    started: float = 0.0
    first_token: float = 0.0
    completion_tokens: int = 0
    cached_tokens: int = 0
