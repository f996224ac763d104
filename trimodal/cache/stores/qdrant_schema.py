"""Defines how answers lie in Qdrant: collections, payloads, filters, and clients whose calls are bounded.

    <name>               one point an answer, without a vector: its owner, times, size, the packed answer
    <name>_vectors_<d>   one point a vector float32[d] under the same id: its owner, scope (as `place`), key,
                         end of life

An answer's vector may outlive it: what has no point in the first collection is not found. Owners
are digests, so nothing that a client wrote is a field of a filter.
"""

from __future__ import annotations

import base64
import binascii
import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import httpx
from qdrant_client import QdrantClient, models
from qdrant_client.http.exceptions import ResponseHandlingException, UnexpectedResponse

from trimodal.cache.stores.base import Owner, StoreError
from trimodal.cache.stores.codec import digest
from trimodal.cache.values import CacheScope
from trimodal.errors import OperatorError

FORM = "qdrant+https://api_key@host:6333/collection is the form; api_key, port and collection may be left out"


class Bounded(httpx.HTTPTransport):
    """Each request ends after `timeout_s`: the client itself rounds its limits up to whole seconds."""

    def __init__(self, timeout_s: float) -> None:
        super().__init__(limits=httpx.Limits(max_connections=64, max_keepalive_connections=16))
        self._timeout = httpx.Timeout(timeout_s).as_dict()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        request.extensions["timeout"] = self._timeout
        return super().handle_request(request)


def connect(url: str, timeouts: tuple[float, ...]) -> tuple[list[Any], str]:
    """Clients for one server, one a limit in seconds, and the collection's name. Raises OperatorError."""
    try:
        parts = urlsplit(url)
        port = parts.port or 6333
    except ValueError:
        raise OperatorError(f"cache_store: {FORM}") from None
    name = parts.path.strip("/") or "trimodal"
    if not parts.hostname or parts.query or not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}", name):
        raise OperatorError(f"cache_store: {FORM}")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    key = parts.password or parts.username
    clients = [
        QdrantClient(
            url=f"{parts.scheme.removeprefix('qdrant+')}://{host}:{port}",
            headers={"api-key": key} if key else None,
            check_compatibility=False,  # it would call a server that may be down
            transport=Bounded(timeout_s),
        )
        for timeout_s in timeouts
    ]
    return clients, name


def point_id(scope: str, key: str) -> str:
    """Returns the UUID of a scope's name and key; the packed answer says whether it is of these very two."""
    return str(uuid.UUID(digest(scope, key)[:32]))


def owner_of(scope: CacheScope) -> dict[str, str]:
    return {name: digest(getattr(scope, name)) for name in Owner._fields}


def owned_by(owner: Owner) -> Any:
    """Returns a filter by fingerprint, tenant and namespace, each where it is given."""
    must = [_equal(name, digest(value)) for name, value in owner._asdict().items() if value is not None]
    # A filter without a condition is not sent: a slip would drop all.
    must.append(models.FieldCondition(key="expires_at", range=models.Range(gte=0)))
    return models.Filter(must=must)


def expired(now: float) -> Any:
    return models.Filter(must=[models.FieldCondition(key="expires_at", range=models.Range(lte=now))])


def unexpired(now: float, scope: str | None = None) -> Any:
    must = [models.FieldCondition(key="expires_at", range=models.Range(gt=now))]
    return models.Filter(must=must + ([] if scope is None else [_equal("place", scope)]))


def create(client: Any, collection: str, dimension: int) -> None:
    """The collection with its indexes; 0: of answers. Another server may be making it at the same time."""
    vectors: Any = {}
    if dimension:
        vectors = models.VectorParams(size=dimension, distance=models.Distance.COSINE)
    try:
        # A graph a scope instead of one over all: each search is within one scope.
        graph = models.HnswConfigDiff(m=0, payload_m=16)
        client.create_collection(collection, vectors_config=vectors, hnsw_config=graph)
    except Exception:
        if not client.collection_exists(collection):
            raise
    keyword = models.PayloadSchemaType.KEYWORD
    fields: dict[str, Any] = dict.fromkeys(Owner._fields, keyword)
    fields["expires_at"] = models.PayloadSchemaType.FLOAT
    if dimension:
        fields["place"] = models.KeywordIndexParams(type=models.KeywordIndexType.KEYWORD, is_tenant=True)
    else:
        fields["used_at"] = models.PayloadSchemaType.FLOAT
    for name, kind in fields.items():
        client.create_payload_index(collection, name, kind)


@contextmanager
def told() -> Iterator[None]:
    """Errors of the client as StoreError, without what the server sent."""
    try:
        yield
    except UnexpectedResponse as error:
        raise StoreError(f"Qdrant: {error.status_code} {error.reason_phrase}") from None
    except StoreError:
        raise
    except Exception as error:
        # The client wraps what httpx raised, asserts what a server must have sent, and unpacks it unchecked.
        source = error.source if isinstance(error, ResponseHandlingException) else error
        said = " ".join(str(source).split())[:200]
        raise StoreError(f"Qdrant: {type(source).__name__} {said}".rstrip()) from None


@contextmanager
def missing() -> Iterator[None]:
    """Lets it pass that a collection is not there: a server's answer, or the local mode's."""
    try:
        yield
    except (UnexpectedResponse, ValueError) as error:
        if getattr(error, "status_code", None) != 404 and "not found" not in str(error):
            raise


def field(point: Any, name: str) -> object:
    return (point.payload or {}).get(name)


def decoded(value: object) -> bytes:
    try:
        return base64.b64decode(value, validate=True) if isinstance(value, str) else b""
    except (binascii.Error, ValueError):
        return b""


def _equal(name: str, value: str) -> Any:
    return models.FieldCondition(key=name, match=models.MatchValue(value=value))
