"""Defines the contract of a store of answers, and opens one by its URL.

A store keeps an answer until it expires, is cleared or makes room. It may be slow or fail: its caller bounds
that.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import NamedTuple, Protocol
from urllib.parse import quote

from trimodal.cache.values import CacheScope, Entry, StoreStats, Vector
from trimodal.errors import OperatorError
from trimodal.paths import cache_directory


class Owner(NamedTuple):
    """Whose answers, all that match; None matches any."""

    fingerprint: str | None = None
    tenant: str | None = None
    namespace: str | None = None


class StoreError(Exception):
    """The store did not answer, or its answer cannot be read; the caller goes on without it."""


class Store(Protocol):
    """Answers by scope and key. Called from several threads at once."""

    def get(self, scope: CacheScope, key: str) -> Entry | None:
        """Returns the answer under `key`, unless it has expired. Raises StoreError."""

    def nearest(self, scope: CacheScope, vector: Vector, count: int) -> list[tuple[float, Entry]]:
        """At most `count` unexpired answers of this very scope by cosine, best first. Raises StoreError."""

    def put(self, scope: CacheScope, key: str, entry: Entry, vector: Vector | None) -> None:
        """Keeps an answer in place of what `key` held; no vector: for `get` alone. Raises StoreError."""

    def clear(self, owner: Owner) -> int:
        """Drops these answers and returns how many they were. Raises StoreError."""

    def count(self) -> int:
        """About how many answers it holds, in little time however many: for a gauge. Raises StoreError."""

    def stats(self) -> StoreStats:
        """What it holds, counted one by one where need be. Raises StoreError."""

    def close(self) -> None:
        """Closes files and connections."""


@dataclass(frozen=True)
class Limits:
    """How much a store may hold and how long one call may take.

    Where there is no room the tenant who has most loses his oldest: nobody pushes out what others keep.
    """

    max_entries: int = 20_000
    timeout_s: float = 0.02


# URL scheme → module with `open_store(url, limits)`, imported when opened; a path has none.
STORES = {
    "": "trimodal.cache.stores.sqlite",
    "redis": "trimodal.cache.stores.redis",
    "rediss": "trimodal.cache.stores.redis",
}


def is_file(store: str) -> bool:
    """Whether `store` is a file's path and no URL, as `open_store` reads it."""
    return "://" not in store


def default_store(model: str) -> Path:
    """Returns the file of the model's answers in this user's cache, beside the logs; it need not exist."""
    return cache_directory() / "answers" / f"{model}.sqlite"


def with_variables(url: str) -> str:
    """Puts variables of the environment for `${NAME}`: Triton shows everybody a model's parameters.

    Raises: OperatorError: a variable is not set.
    """

    def value(found: re.Match[str]) -> str:
        if found[1] not in os.environ:
            raise OperatorError(f"cache_store: the variable {found[1]} is not set")
        return quote(os.environ[found[1]], safe="")

    return re.sub(r"\$\{(\w+)\}", value, url)


def open_store(url: str, limits: Limits) -> Store:
    """Opens the store at `url`: a file's path, or `redis[s]://host:port/0`.

    A Redis need not be up: calls fail until it is. `${NAME}` in a URL is a variable of the environment.

    Raises:
        OperatorError: no such kind of store, a variable is not set, its client is not installed, or the
            file cannot be used.
    """
    scheme = "" if is_file(url) else url.partition(":")[0]
    if scheme not in STORES:
        # The scheme alone: the rest may hold a password.
        raise OperatorError(f"cache_store '{scheme}:…': a file's path or a URL of redis, rediss is needed")
    try:
        module = import_module(STORES[scheme])
    except ImportError as error:
        raise OperatorError(
            f"cache_store '{scheme}:…': {error.name} is not installed: pip install 'trimodal[stores]'"
        ) from None
    store: Store = module.open_store(with_variables(url) if scheme else url, limits)
    return store
