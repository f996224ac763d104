"""Limits the prompt tokens handed to the engine at once, so that running streams keep their ITL bound.

An engine computes a step's prompt tokens between two tokens of its streams. max_num_batched_tokens bounds
them; handing over less bounds them further. An engine without pending prompts always gets the next one.
"""

from __future__ import annotations

import math
from collections.abc import Collection

from trimodal.llm.scheduler.estimators.latency_model import LatencyModel
from trimodal.llm.scheduler.ticket import Ticket

_SAFETY = 0.9  # of the bound: steps of one size differ


class PrefillBudget:
    """Keeps the ITL bounds of the streams that decode.

    Args:
        running: those in the engine, at any time. batch_tokens: of one step of the present engine.
    """

    def __init__(self, latency: LatencyModel, running: Collection[Ticket], batch_tokens: int) -> None:
        self._latency = latency
        self._running = running
        self.batch_tokens = batch_tokens

    def limit(self) -> float:
        """Prompt tokens that may be in the engine's hands together; inf while no stream has a bound, or the
        engine's own steps are small enough."""
        latency = self._latency
        bounds = [one.tier.itl_bound_ms for one in self._running if one.first_token and one.tier.itl_bound_ms]
        if not bounds or not latency.decode_ready or not latency.prefill_s:
            return math.inf
        tokens = (min(bounds) / 1e3 * _SAFETY - latency.gap(latency.streams)) / latency.prefill_s
        return math.inf if tokens >= self.batch_tokens else tokens

    def room(self) -> float:
        """Tokens of a prompt that may be handed over now; inf when nothing else prefills: one that exceeds
        the limit alone would never go otherwise."""
        pending = self._latency.pending
        return self.limit() - pending if pending else math.inf

    def allows(self, uncached: int) -> bool:
        """Whether a prompt may be handed over now."""
        return uncached <= self.room()
