"""Packs answers as bytes and unpacks them, and names scopes, for every store that leaves the process.

Bytes that come back may be damaged, poisoned or another version's: they are then a miss, never an error.
JSON, never pickle.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import cast

import numpy as np
from pydantic import TypeAdapter

from trimodal.cache.stores.base import StoreError
from trimodal.cache.values import CacheScope, Entry, Vector

CHECK = 8  # bytes of the digest in front of each packed entry
UNIT = 1e-2  # how far the square of an embedding's length may be from 1

_ENTRY = TypeAdapter(Entry)


def digest(*parts: str) -> str:
    """SHA-256 in hex over the parts, each with its length in front: no two lists of parts are alike.

    Answers that are stored are found by it: another encoding loses them, and what clears a tenant's.
    """
    encoded = [part.encode("utf-8", "surrogatepass") for part in parts]
    return hashlib.sha256(b"".join(len(part).to_bytes(8, "big") + part for part in encoded)).hexdigest()


def scope_name(scope: CacheScope) -> str:
    """64 hex digits that only this very scope has. All four fields count, whatever the digest was made of."""
    return digest(scope.fingerprint, scope.tenant, scope.namespace, scope.digest)


def pack(scope: str, key: str, entry: Entry) -> bytes:
    """`entry` as bytes that `unpack` takes for this scope's name and key alone.

    Raises:
        StoreError: the entry holds what JSON or UTF-8 has no form for, as a lone surrogate.
    """
    try:
        body = json.dumps(asdict(entry), ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    except (ValueError, TypeError):
        raise StoreError("an answer that has no form in UTF-8 JSON is not stored") from None
    return _check(scope, key, body) + body


def unpack(scope: str, key: str, packed: object) -> Entry | None:
    """The entry, or nothing where these are not the bytes that `pack` made for this scope's name and key."""
    if not isinstance(packed, bytes):
        return None
    check, body = packed[:CHECK], packed[CHECK:]
    if check != _check(scope, key, body):
        return None
    try:
        return _ENTRY.validate_json(body)
    except ValueError:
        return None


def checked_vector(vector: Vector) -> Vector:
    """Returns the vector as contiguous float32[d]. Raises StoreError if it is not of unit length."""
    array = np.ascontiguousarray(vector, np.float32)
    # NaN compares as false, so a vector that holds one is none.
    if array.ndim != 1 or not abs(float(array @ array) - 1) <= UNIT:
        raise StoreError(f"an embedding of unit length is needed, not of shape {list(array.shape)}")
    return array


def read_vectors(packed: Sequence[object], dimension: int) -> tuple[list[int], Vector]:
    """Which of these are the bytes of a unit vector of this length, and they: float32[n, dimension]."""
    rows = [row for row, one in enumerate(packed) if isinstance(one, bytes) and len(one) == 4 * dimension]
    joined = b"".join(cast(bytes, packed[row]) for row in rows)
    vectors = np.frombuffer(joined, "<f4").reshape(-1, dimension)
    with np.errstate(all="ignore"):  # of noise that is read as numbers
        good = np.abs(np.einsum("ij,ij->i", vectors, vectors) - 1) <= UNIT
    return [row for row, fine in zip(rows, good, strict=True) if fine], vectors[good]


def _check(scope: str, key: str, body: bytes) -> bytes:
    state = hashlib.blake2b(body, digest_size=CHECK)
    state.update(digest(scope, key).encode())
    return state.digest()
