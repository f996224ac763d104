"""Refuses requests that can never fit, and reserves batch slots and KV blocks.

A sequence is handed to the engine only when blocks for its prompt and its answer are free, so the engine
hardly ever has to evict one request for another. Of an answer that may become long only a part is reserved at
first, as most end long before their max_tokens: the rest as it grows, and while all together hold more than
there is nobody else is let in.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from trimodal.errors import InvalidArgument
from trimodal.llm.engines.protocol import EngineInfo, Sampling
from trimodal.llm.scheduler.ticket import Ticket
from trimodal.llm.settings import LlmSettings

_LEAST_ANSWER, _GROWTH = 256, 128  # tokens that are reserved at first, and then at a time
_SAID = {"grammar": "response_format and tools", "prompt_logprobs": "prompt_logprobs (echo with logprobs)"}
"""Field of Sampling → what a client sends, where that has another name."""


class Admission:
    """Counts what is taken of one engine's capacity, in all and by tier. Not thread-safe: its owner locks.

    Attributes:
        reserved: ids of those that have a batch slot.
        reserved_blocks: KV blocks. reserved_by_tier: of the tiers that hold any.
    """

    def __init__(self, settings: LlmSettings, info: EngineInfo) -> None:
        self._settings = settings
        self.info = info
        self._shares = settings.scheduler == "deadline"
        self.reserved: set[int] = set()
        self.reserved_blocks = 0
        self.reserved_by_tier: dict[str, int] = {}

    def room(self, prompt_tokens: int) -> int:
        """Tokens of an answer that fit after this prompt, in the model's length and in the whole KV pool."""
        info = self.info
        pool = info.num_kv_blocks * info.block_tokens - info.lookahead
        return min(info.max_model_len, pool) - prompt_tokens

    def blocks(self, prompt_tokens: int, max_tokens: int) -> int:
        """KV blocks of a whole request, and of what speculation may add."""
        tokens = prompt_tokens + max_tokens + self.info.lookahead
        return -(-tokens // self.info.block_tokens)

    def first_blocks(self, ticket: Ticket) -> int:
        """KV blocks that a ticket reserves at first: of its answer one slot's part of the pool at most."""
        info = self.info
        part = max(_LEAST_ANSWER, info.num_kv_blocks // info.max_num_seqs * info.block_tokens)
        return self.blocks(ticket.prompt_tokens, min(ticket.max_tokens, part))

    def check_size(self, prompt_tokens: int, max_tokens: int) -> None:
        """Refuses a request that could never run on this engine.

        Raises:
            InvalidArgument: no prompt token, or beyond a budget, the model's length or the KV pool.
        """
        most, info = self._settings.max_prompt_tokens, self.info
        if prompt_tokens == 0:
            raise InvalidArgument("the prompt has no tokens: at least 1 is needed")
        if prompt_tokens > most:
            raise InvalidArgument(f"the prompt has {prompt_tokens} tokens: max_prompt_tokens is {most}")
        total = prompt_tokens + max_tokens
        both = f"prompt ({prompt_tokens}) and max_tokens ({max_tokens}) make {total} tokens"
        if total > info.max_model_len:
            raise InvalidArgument(f"{both}: this model takes {info.max_model_len} together")
        if self.blocks(prompt_tokens, max_tokens) > info.num_kv_blocks:
            pool = info.num_kv_blocks * info.block_tokens - info.lookahead
            raise InvalidArgument(f"{both}: the KV pool holds {pool}")

    def check_sampling(self, sampling: Sampling) -> None:
        """Raises InvalidArgument: this engine does not honour a field of it that is set, or not so far."""
        info, plain = self.info, Sampling(sampling.max_tokens)
        for name, why in info.unsupported.items():
            if getattr(sampling, name) != getattr(plain, name):
                said = _SAID.get(name, name)
                raise InvalidArgument(f"engine '{info.name}' as it runs here does not support {said}: {why}")
        for name, top in (("top_logprobs", sampling.logprobs), ("prompt_logprobs", sampling.prompt_logprobs)):
            if (top or 0) > info.max_top_logprobs:
                most = info.max_top_logprobs
                raise InvalidArgument(f"{name} is {top}: engine '{info.name}' tells {most} at most")
        if sampling.min_tokens > sampling.max_tokens:
            most = sampling.max_tokens
            raise InvalidArgument(f"min_tokens is {sampling.min_tokens}: the answer has {most} at most")
        for name in ("stop_token_ids", "logit_bias"):
            self.check_tokens(name, getattr(sampling, name))

    def check_tokens(self, name: str, ids: Iterable[int]) -> None:
        """Raises InvalidArgument: the model has no such token."""
        most = self.info.vocab_size - 1
        if most >= 0 and (highest := max(ids, default=0)) > most:
            raise InvalidArgument(f"{name} has token {highest}: those of this model are 0 to {most}")

    @property
    def has_slot(self) -> bool:
        """Whether there is a free place in the batch."""
        return len(self.reserved) < self.info.max_num_seqs

    def fits(self, ticket: Ticket) -> bool:
        """Whether a batch slot and KV blocks for a whole request are free now, within its tier's share."""
        if not self.has_slot:
            return False
        free = self.info.num_kv_blocks - self.reserved_blocks
        return ticket.blocks <= free and self.holds(ticket) and self.in_share(ticket)

    def in_share(self, ticket: Ticket, used: Mapping[str, int] | None = None) -> bool:
        """Whether its tier may hold its blocks on top of those in `used` (default: now).

        A request bigger than its tier's whole share runs when nothing else of the tier does.
        """
        share = ticket.tier.kv_share
        if share >= 1 or not self._shares:
            return True
        held = (self.reserved_by_tier if used is None else used).get(ticket.tier_name, 0)
        return not held or held + ticket.blocks <= share * self.info.num_kv_blocks

    def share(self, ticket: Ticket) -> float:
        """Which part of the engine it takes, 0 to 1: of the slots or of the KV blocks, whichever is more."""
        return max(1 / self.info.max_num_seqs, ticket.blocks / self.info.num_kv_blocks)

    def reserve(self, ticket: Ticket) -> bool:
        """Takes a batch slot and KV blocks for a whole request; False when either is short now."""
        if not self.fits(ticket):
            return False
        self.reserved.add(ticket.id)
        self._hold(ticket, ticket.blocks)
        return True

    def holds(self, ticket: Ticket) -> bool:
        """Whether the engine can hold it, alone and at its longest."""
        return self.blocks(ticket.prompt_tokens, ticket.max_tokens) <= self.info.num_kv_blocks

    def grow(self, ticket: Ticket) -> None:
        """Reserves more for an answer that outgrows what it has."""
        if self.blocks(ticket.prompt_tokens, ticket.completion_tokens + 1) <= ticket.blocks:
            return
        tokens = min(ticket.completion_tokens + _GROWTH, ticket.max_tokens)
        more = self.blocks(ticket.prompt_tokens, tokens) - ticket.blocks
        if more > 0:
            ticket.blocks += more
            self._hold(ticket, more)

    def release(self, ticket: Ticket) -> None:
        """Gives the slot and blocks back; one that has none is ignored."""
        if ticket.id in self.reserved:
            self.reserved.remove(ticket.id)
            self._hold(ticket, -ticket.blocks)

    def _hold(self, ticket: Ticket, blocks: int) -> None:
        self.reserved_blocks += blocks
        held = self.reserved_by_tier.pop(ticket.tier_name, 0) + blocks
        if held:
            self.reserved_by_tier[ticket.tier_name] = held
