"""Who may enter: refuses up front what can never fit, bounds the queue, and reserves KV blocks.

A sequence is handed to the engine only when blocks for its prompt and its whole
answer are free, so the engine never has to evict one request for another.
It does not order the queue by anything but arrival.
"""

from __future__ import annotations

from trimodal.errors import InvalidArgument, Unavailable
from trimodal.llm.engine import EngineInfo
from trimodal.llm.settings import LlmSettings


class Admission:
    """Books of one engine's capacity. Not thread-safe: its owner locks."""

    def __init__(self, settings: LlmSettings, info: EngineInfo) -> None:
        self._settings = settings
        self._info = info
        self._reserved: dict[int, int] = {}
        self._used = 0

    @property
    def reserved_blocks(self) -> int:
        return self._used

    def room(self, prompt_tokens: int) -> int:
        """Tokens of an answer that fit beside this prompt, in the model's length and in the whole KV pool."""
        info = self._info
        pool = info.num_kv_blocks * info.block_tokens - info.lookahead
        return min(info.max_model_len, pool) - prompt_tokens

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
        if self._blocks(prompt_tokens, max_tokens) > info.num_kv_blocks:
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
            raise Unavailable(
                f"{waiting} requests wait already: max_queue is {self._settings.max_queue}; try again later"
            )

    def fits(self, prompt_tokens: int, max_tokens: int) -> bool:
        """Whether a batch slot and KV blocks for a whole request are free now."""
        if len(self._reserved) >= self._info.max_num_seqs:
            return False
        return self._used + self._blocks(prompt_tokens, max_tokens) <= self._info.num_kv_blocks

    def reserve(self, id: int, prompt_tokens: int, max_tokens: int) -> bool:
        """Takes a batch slot and KV blocks for a whole request; False when either is short now."""
        if not self.fits(prompt_tokens, max_tokens):
            return False
        blocks = self._blocks(prompt_tokens, max_tokens)
        self._reserved[id] = blocks
        self._used += blocks
        return True

    def release(self, id: int) -> None:
        """Gives the slot and blocks back; an unknown id is ignored."""
        self._used -= self._reserved.pop(id, 0)

    def _blocks(self, prompt_tokens: int, max_tokens: int) -> int:
        tokens = prompt_tokens + max_tokens + self._info.lookahead
        return -(-tokens // self._info.block_tokens)
