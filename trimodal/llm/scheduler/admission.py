"""Refuses requests that can never fit, bounds the queue, and reserves batch slots and KV blocks.

A sequence is handed to the engine only when blocks for its prompt and its whole
answer are free, so the engine never has to evict one request for another.
"""

from __future__ import annotations

from collections.abc import Mapping

from trimodal.errors import InvalidArgument, Unavailable
from trimodal.llm.engines.protocol import EngineInfo
from trimodal.llm.scheduler.ticket import Ticket
from trimodal.llm.settings import LlmSettings


class Admission:
    """What is taken of one engine's capacity, in all and by tier. Not thread-safe: its owner locks."""

    def __init__(self, settings: LlmSettings, info: EngineInfo) -> None:
        self._settings = settings
        self._info = info
        self._shares = settings.scheduler == "deadline"
        self._reserved: dict[int, Ticket] = {}
        self._used = 0
        self._by_tier: dict[str, int] = {}

    @property
    def reserved(self) -> int:
        """Batch slots that are taken."""
        return len(self._reserved)

    @property
    def reserved_blocks(self) -> int:
        return self._used

    @property
    def reserved_by_tier(self) -> Mapping[str, int]:
        """KV blocks by tier, of those that hold any."""
        return self._by_tier

    @property
    def max_num_seqs(self) -> int:
        return self._info.max_num_seqs

    @property
    def num_kv_blocks(self) -> int:
        return self._info.num_kv_blocks

    def room(self, prompt_tokens: int) -> int:
        """Tokens of an answer that fit after this prompt, in the model's length and in the whole KV pool."""
        info = self._info
        pool = info.num_kv_blocks * info.block_tokens - info.lookahead
        return min(info.max_model_len, pool) - prompt_tokens

    def blocks(self, prompt_tokens: int, max_tokens: int) -> int:
        """KV blocks of a whole request, and of what speculation may add."""
        tokens = prompt_tokens + max_tokens + self._info.lookahead
        return -(-tokens // self._info.block_tokens)

    def check_size(self, prompt_tokens: int, max_tokens: int) -> None:
        """Refuses a request that could never run on this engine.

        Raises:
            InvalidArgument: no prompt token, or beyond a budget, the model's length or the KV pool.
        """
        settings, info = self._settings, self._info
        if prompt_tokens == 0:
            raise InvalidArgument("the prompt has no tokens: at least 1 is needed")
        if prompt_tokens > settings.max_prompt_tokens:
            raise InvalidArgument(
                f"the prompt has {prompt_tokens} tokens: max_prompt_tokens is {settings.max_prompt_tokens}"
            )
        total = prompt_tokens + max_tokens
        if total > info.max_model_len:
            raise InvalidArgument(
                f"prompt ({prompt_tokens}) and max_tokens ({max_tokens}) make {total} tokens: "
                f"this model takes {info.max_model_len} together"
            )
        if self.blocks(prompt_tokens, max_tokens) > info.num_kv_blocks:
            raise InvalidArgument(
                f"prompt ({prompt_tokens}) and max_tokens ({max_tokens}) make {total} tokens: "
                f"the KV pool holds {info.num_kv_blocks * info.block_tokens - info.lookahead}"
            )

    def check_queue(self, waiting: int) -> None:
        """Refuses one more request when as many wait as may.

        Raises:
            Unavailable: the queue is full.
        """
        if waiting >= self._settings.max_queue:
            raise Unavailable(f"{waiting} requests wait already: max_queue is {self._settings.max_queue}")

    def fits(self, ticket: Ticket) -> bool:
        """Whether a batch slot and KV blocks for a whole request are free now, within its tier's share."""
        if len(self._reserved) >= self._info.max_num_seqs:
            return False
        return self._used + ticket.blocks <= self._info.num_kv_blocks and self.in_share(ticket)

    def in_share(self, ticket: Ticket, used: Mapping[str, int] | None = None) -> bool:
        """Whether its tier may hold its blocks on top of those in `used` (default: now).

        A request bigger than its tier's whole share runs when nothing else of the tier does.
        """
        share = ticket.tier.kv_share
        if share >= 1 or not self._shares:
            return True
        held = (self._by_tier if used is None else used).get(ticket.tier_name, 0)
        return not held or held + ticket.blocks <= share * self._info.num_kv_blocks

    def share(self, ticket: Ticket) -> float:
        """Which part of the engine it takes, 0 to 1: of the slots or of the KV blocks, whichever is more."""
        return max(1 / self._info.max_num_seqs, ticket.blocks / self._info.num_kv_blocks)

    def reserve(self, ticket: Ticket) -> bool:
        """Takes a batch slot and KV blocks for a whole request; False when either is short now."""
        if not self.fits(ticket):
            return False
        self._reserved[ticket.id] = ticket
        self._used += ticket.blocks
        self._by_tier[ticket.tier_name] = self._by_tier.get(ticket.tier_name, 0) + ticket.blocks
        return True

    def release(self, ticket: Ticket) -> None:
        """Gives the slot and blocks back; one that has none is ignored."""
        if self._reserved.pop(ticket.id, None):
            self._used -= ticket.blocks
            self._by_tier[ticket.tier_name] -= ticket.blocks
            if not self._by_tier[ticket.tier_name]:
                del self._by_tier[ticket.tier_name]
