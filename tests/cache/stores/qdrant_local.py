"""Qdrant's own stand-in for a server: the local mode of its client, one call at a time."""

from __future__ import annotations

import threading
import warnings
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from qdrant_client import QdrantClient


class OneAtATime:
    """The local mode is not made for threads; a server is."""

    def __init__(self, client: QdrantClient) -> None:
        self._client = client
        self._lock = threading.Lock()

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._client, name)

        def call(*arguments: Any, **options: Any) -> Any:
            with self._lock, warnings.catch_warnings():
                # That indexes do nothing here.
                warnings.simplefilter("ignore", UserWarning)
                return method(*arguments, **options)

        return call


def local_client() -> Any:
    from qdrant_client import QdrantClient

    return OneAtATime(QdrantClient(":memory:"))
