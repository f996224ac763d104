"""Fills the prefix cache of a new engine while the server has nothing else to do.

What it computes is what the operator calls public, and after an engine was lost, or its cache, the prefixes
that prompts had found there. As an audit it is no request: it ends at once when one comes, whose client waits
for the piece under way at most.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from trimodal.llm.engine_core.supervisor import EngineSupervisor
from trimodal.llm.engines.prefix_mirror import block_keys
from trimodal.llm.engines.protocol import EngineRequest, Output, Sampling

logger = logging.getLogger(__name__)

MAX_PREFIXES = 64


@dataclass(frozen=True, eq=False)
class _Prefix:
    """The beginning of a prompt, at least a block of the engine's, found by those of the same salt.

    `keys` has one for each whole block: the last stands for all.
    """

    ids: list[int]
    keys: list[int]
    tenant: str = ""
    salt: str = ""
    public_tokens: int = 0

    @classmethod
    def of(
        cls, ids: list[int], block_tokens: int, tenant: str = "", salt: str = "", public_tokens: int = 0
    ) -> _Prefix:
        keys = block_keys(ids, block_tokens, hash((tenant, salt)))
        return cls(ids, keys, tenant, salt, public_tokens)

    @property
    def key(self) -> int:
        return self.keys[-1]

    def begins_with(self, other: _Prefix) -> bool:
        last = len(other.keys) - 1
        return last < len(self.keys) and self.keys[last] == other.key


class IdlePrefills:
    """Prefixes that wait to be computed, and the one that is. In memory alone; guarded by the service's lock.

    Args:
        share: of the KV pool that the prefixes of a lost engine may take; 0: they are not remembered.
        ids: numbers of sequences. public: tells the prefixes for everybody, which may be others every day.
    """

    def __init__(
        self,
        share: float,
        engine: EngineSupervisor,
        ids: Iterator[int],
        public: Callable[[], Iterable[list[int]]] = tuple,
    ) -> None:
        self._share, self._engine, self._ids, self._public = share, engine, ids, public
        self._found: dict[int, _Prefix] = {}  # by key; the last is the one that was found last
        self._blocks: dict[str, Counter[int]] = {}  # tenant → key of a block → how many in `_found` have it
        self._blamed: set[int] = set()  # keys of those that an engine died of
        self._public_due = True  # they go before these, as they are when the first begins
        self._due: list[_Prefix] = []
        self._running: tuple[int, _Prefix] | None = None
        self._suspect: _Prefix | None = None  # cancelled, and the engine may still be in its step

    def found(self, request: EngineRequest, tenant: str, cached_tokens: int) -> None:
        """Remembers what a tenant's prompt found in the cache."""
        info = self._engine.client.info
        budget, block = self._share * info.num_kv_blocks, info.block_tokens
        tokens = cached_tokens // block * block
        # An adapter has another number in the next engine, and so other blocks.
        if request.adapter or not request.public_tokens < tokens <= budget * block:
            return
        ids, salt = request.prompt_ids[:tokens], request.cache_salt
        new = _Prefix.of(ids, block, tenant, salt, request.public_tokens)
        if new.key in self._blamed:
            return
        longer = next((one for one in reversed(self._found.values()) if one.begins_with(new)), None)
        if longer:
            self._found[longer.key] = self._found.pop(longer.key)
            return
        for key in new.keys:
            self._forget(key)
        self._found[new.key] = new
        self._blocks.setdefault(tenant, Counter()).update(new.keys)
        while True:  # so that nobody's many displace another's few
            held: Mapping[str, int] = {tenant: len(blocks) for tenant, blocks in self._blocks.items()}
            if len(self._found) > MAX_PREFIXES:
                held = Counter(one.tenant for one in self._found.values())
            elif sum(held.values()) <= budget:
                return
            most = max(held, key=held.__getitem__)
            self._forget(next(key for key, one in self._found.items() if one.tenant == most))

    def _forget(self, key: int) -> None:
        if not (prefix := self._found.pop(key, None)):
            return
        blocks = self._blocks[prefix.tenant]
        blocks.subtract(prefix.keys)
        for one in prefix.keys:
            if not blocks[one]:
                del blocks[one]
        if not blocks:
            del self._blocks[prefix.tenant]

    def interrupt(self) -> None:
        """Ends what runs: a request is there. What is computed of it stays."""
        if self._running:
            id, self._suspect = self._running
            self._engine.client.cancel(id)
            self._due.insert(0, self._suspect)
            self._running = None

    def begin(self) -> bool:
        """Begins the next one while the server is idle; True: one is under way."""
        if self._public_due:
            self._public_due = False
            block = self._engine.client.info.block_tokens  # of less an engine's cache keeps nothing
            public = [_Prefix.of(one, block) for one in self._public() if len(one) >= block]
            self._due[:0] = [one for one in public if one.key not in self._blamed]
        if not self._running and self._due:
            id, prefix = next(self._ids), self._due.pop(0)
            self._running = id, prefix
            self._engine.client.add(
                EngineRequest(id, prefix.ids, Sampling(1), prefix.salt, public_tokens=prefix.public_tokens)
            )
        return self._running is not None

    def take(self, outputs: Iterable[Output]) -> None:
        """Takes what a step gave to the one that runs."""
        self._suspect = None
        for output in outputs:
            if self._running and output.id == self._running[0] and output.finish_reason:
                if output.error:
                    logger.warning("a prefix was not computed: %s", output.error)
                self._running = None

    def emptied(self) -> None:
        """The cache is gone: what it had is due again, the last first."""
        self._running, self._public_due = None, True
        self._due = [*reversed(self._found.values())]

    def lost(self) -> None:
        """The engine is gone, perhaps by the one in it: the next engine is not to die of it as well."""
        if blamed := self._running[1] if self._running else self._suspect:
            logger.error(
                "the engine died while it computed a prefix of %d tokens, which is not computed again",
                len(blamed.ids),
            )
            self._blamed.add(blamed.key)
            self._forget(blamed.key)
        self._suspect = None
        self.emptied()
