"""What tests of stores share: scopes, entries, vectors, a clock that is moved by hand."""

import numpy as np

from trimodal.cache.values import CacheScope, Entry, Vector

START = 1_700_000_000.0
DIMENSION = 16


class Clock:
    """Seconds of the epoch; they pass only when told."""

    def __init__(self, now: float = START) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def scope(
    fingerprint: str = "f" * 16, tenant: str = "", namespace: str = "default", digest: str = ""
) -> CacheScope:
    return CacheScope(fingerprint, tenant, namespace, digest or "5" * 64)


def entry(answer: str = "an answer", now: float = START, ttl: float = 600.0, **changes: object) -> Entry:
    values = {
        "text": "a question",
        "answer": answer,
        "finish_reason": "stop",
        "completion_tokens": 7,
        "max_tokens": 64,
        "stored_at": now,
        "expires_at": now + ttl,
    }
    return Entry(**{**values, **changes})  # type: ignore[arg-type]


def axis(number: int, dimension: int = DIMENSION) -> Vector:
    """A unit vector; two of different numbers are at right angles."""
    vector = np.zeros(dimension, np.float32)
    vector[number] = 1
    return vector


def between(first: int, second: int, cosine: float) -> Vector:
    """A unit vector whose cosine with axis `first` is `cosine`; the rest points along `second`."""
    return (cosine * axis(first) + np.sqrt(1 - cosine**2) * axis(second)).astype(np.float32)


def random_vectors(count: int, dimension: int = DIMENSION, seed: int = 0) -> np.ndarray:
    vectors = np.random.default_rng(seed).standard_normal((count, dimension)).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
