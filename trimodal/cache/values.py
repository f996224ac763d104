"""Values of the cache: a scope, a question, a stored answer, a hit.

Whatever changes an answer is part of the scope or of the question, so two requests that differ in any of it
never meet. `keys` makes both of a request.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import ConfigDict, NonNegativeInt

Vector = NDArray[np.float32]
"""A question's embedding, float32[d] of unit length."""
# Both are called from several threads at once, and raise any exception where there is no answer.
Embed = Callable[[str], Vector]
Same = Callable[[Sequence[tuple[str, str]]], Sequence[float]]
"""P(same) of pairs, whichever is named first."""


@dataclass(frozen=True)
class CacheScope:
    """Where a question may be answered from. Nothing is ever found across two scopes.

    Attributes:
        fingerprint: of the model and its engine (manifest, numerics, template); 16 hex digits.
        tenant: whose answers these are; "" is the tenant of those who name none.
        namespace: how long its answers live (see `cache_ttl`).
        digest: SHA-256 in hex over the three above and all else that changes the answer but the last user
            message and max_tokens: system prompt, earlier turns, sampling, stop strings.
    """

    fingerprint: str
    tenant: str
    namespace: str
    digest: str


@dataclass(frozen=True)
class Question:
    """One request as the cache sees it. `text` is the normalised last user message (or raw prompt).

    `sampled`: asked again, it may get another answer. `verbatim`: it is continued as it stands, so no other
    text means the same; it has no semantic layer.
    """

    scope: CacheScope
    text: str
    max_tokens: int
    sampled: bool = False
    verbatim: bool = False

    @cached_property
    def key(self) -> str:
        """Of the exact layer: SHA-256 in hex of the scope's digest and the text."""
        # The digest has a fixed length, so no text can pass for another scope's.
        text = self.text.encode(errors="surrogatepass")
        return hashlib.sha256(self.scope.digest.encode() + text).hexdigest()


@dataclass(frozen=True)
class Entry:
    """A stored answer. Times are seconds of the Unix epoch; `max_tokens` is what its request allowed."""

    text: str
    answer: str
    finish_reason: str
    completion_tokens: NonNegativeInt
    max_tokens: NonNegativeInt
    stored_at: float
    expires_at: float
    # What a store gives back is checked by these, see stores/codec.py.
    __pydantic_config__ = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    def fits(self, max_tokens: int) -> bool:
        """Whether a request with `max_tokens` would have got this very answer."""
        if self.finish_reason == "stop":
            return self.completion_tokens <= max_tokens
        return self.max_tokens == max_tokens


@dataclass(frozen=True)
class Hit:
    """An answer that was found; `similarity` is the cosine of the questions, 1 for an exact hit."""

    entry: Entry
    kind: Literal["exact", "semantic"]
    similarity: float = 1.0


@dataclass(frozen=True)
class StoreStats:
    """Counts of what a store holds now."""

    entries: int
    tenants: int
