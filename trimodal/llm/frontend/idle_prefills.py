"""Fills the prefix cache of a new engine while the server has nothing else to do.

What it computes is what the operator calls public, and after an engine was lost the prefixes that prompts
had found in its cache. As an audit it is no request: it ends at once when one comes, whose client waits for
the piece under way at most.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from trimodal.llm.engine_core.supervisor import EngineSupervisor
from trimodal.llm.engines.protocol import EngineRequest, Output, Sampling

logger = logging.getLogger(__name__)

MAX_PREFIXES = 64


@dataclass(frozen=True)
class _Prefix:
    """The beginning of a prompt, found by those of the same salt."""

    ids: tuple[int, ...]
    salt: str = ""
    public_tokens: int = 0

    def begins_with(self, other: _Prefix) -> bool:
        length, last = len(other.ids), other.ids[-1]
        if self.salt != other.salt or length > len(self.ids) or self.ids[length - 1] != last:
            return False
        return self.ids[:length] == other.ids


class IdlePrefills:
    """Prefixes that wait to be computed, and the one that is. In memory alone; guarded by the service's lock.

    Args:
        share: of the KV pool that the prefixes of a lost engine may take; 0: they are not remembered.
        ids: numbers of sequences. public: prefixes for everybody.
    """

    def __init__(
        self, share: float, engine: EngineSupervisor, ids: Iterator[int], public: Iterable[list[int]] = ()
    ) -> None:
        self._share, self._engine, self._ids = share, engine, ids
        self._public = [_Prefix(tuple(one)) for one in public]
        self._found: dict[_Prefix, None] = {}  # the last is the one that was found last
        self._due = list(self._public)
        self._running: tuple[int, _Prefix] | None = None

    def found(self, request: EngineRequest, cached_tokens: int) -> None:
        """Remembers what a prompt found in the cache."""
        info = self._engine.client.info
        budget = self._share * info.num_kv_blocks * info.block_tokens
        tokens = cached_tokens // info.block_tokens * info.block_tokens
        # An adapter has another number in the next engine, and so other blocks.
        if request.adapter or not request.public_tokens < tokens <= budget:
            return
        new = _Prefix(tuple(request.prompt_ids[:tokens]), request.cache_salt, request.public_tokens)
        self._found = dict.fromkeys([*(one for one in self._found if not new.begins_with(one)), new])
        held: Counter[str] = Counter()
        for one in self._found:
            held[one.salt] += len(one.ids)
        while len(self._found) > MAX_PREFIXES or held.total() > budget:
            most = max(held, key=held.__getitem__)  # so that nobody's many displace another's few
            oldest = next(one for one in self._found if one.salt == most)
            held[most] -= len(oldest.ids)
            del self._found[oldest]

    def interrupt(self) -> None:
        """Ends what runs: a request is there. What is computed of it stays."""
        if self._running:
            id, prefix = self._running
            self._engine.client.cancel(id)
            self._due.insert(0, prefix)
            self._running = None

    def begin(self) -> bool:
        """Begins the next one while the server is idle; True: one is under way."""
        if not self._running and self._due:
            id, prefix = next(self._ids), self._due.pop(0)
            self._running = id, prefix
            self._engine.client.add(
                EngineRequest(
                    id, list(prefix.ids), Sampling(1), prefix.salt, public_tokens=prefix.public_tokens
                )
            )
        return self._running is not None

    def take(self, outputs: Iterable[Output]) -> None:
        """Takes what a step gave to the one that runs."""
        for output in outputs:
            if self._running and output.id == self._running[0] and output.finish_reason:
                if output.error:
                    logger.warning("a prefix was not computed: %s", output.error)
                self._running = None

    def lost(self) -> None:
        """The cache is gone: what it had is due again, the last first."""
        self._due = [*self._public, *reversed(self._found)]
        if self._running:  # perhaps by it; the next engine is not to die as well
            logger.error("the engine died while it computed a prefix: none is computed again")
            self._due, self._running = [], None
            self._public.clear()
            self._found.clear()
