"""Options of one model's answer cache, and where its answers lie by default.

Limits are not checked here: `LlmSettings` has checked them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from trimodal.paths import cache_directory


@dataclass(frozen=True)
class CacheOptions:
    """Options of an `AnswerCache`.

    Attributes:
        mode: each layer includes the one before; "off" and "coalesce" store nothing.
        store: a file's path or a URL, see `open_store`.
        budget_s: how long a request waits for the store, seconds; then it goes past it.
        embedding_budget_s: how long it waits for its embedding, before the store is asked for what is near.
        judge_budget_s: how long it then waits for the judge.
        ttls: namespace → seconds that its answers live; the first is that of requests which name none.
        max_entries: answers in the store; the least recently used go first.
        max_answer_bytes: a longer answer, in UTF-8, is not kept.
        max_false_hit: upper bound of wrong answers among near-identical questions, 0 to 1.
    """

    mode: Literal["off", "coalesce", "exact", "semantic"]
    store: str
    budget_s: float = 0.02
    embedding_budget_s: float = 0.05
    judge_budget_s: float = 0.05
    ttls: Mapping[str, float] | None = None
    max_entries: int = 20_000
    max_answer_bytes: int = 65_536
    max_false_hit: float = 0.01

    def ttl(self, namespace: str) -> float:
        """Seconds that answers of `namespace` live; an unknown one counts as the default."""
        ttls = self.ttls or {"default": 900.0}
        return ttls.get(namespace, next(iter(ttls.values())))


def is_file(store: str) -> bool:
    """Whether `store` is a file's path and no URL, as `open_store` reads it."""
    return ":" not in store or Path(store).is_absolute()


def default_store(model: str) -> Path:
    """Returns the file of the model's answers in this user's cache, beside the logs; it need not exist."""
    return cache_directory() / "answers" / f"{model}.sqlite"
