"""Answers POST /v1/embeddings and /v1/images/classifications: a row for each text or picture.

OpenAI has no endpoint for classifications; its shape is that of embeddings.
"""

from __future__ import annotations

import asyncio
import base64
import re
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, field_validator

from trimodal.client.batches import in_parts
from trimodal.client.client import Client
from trimodal.client.values import Prediction
from trimodal.errors import InvalidArgument, ModelNotFound
from trimodal.gateway.answering import encoded
from trimodal.gateway.errors import ApiError, as_api_error, invalid
from trimodal.gateway.media import decode_data_url
from trimodal.gateway.openai.fields import ModelBody, Refusal, Whole
from trimodal.gateway.openai.generation import timing_headers
from trimodal.gateway.quota import KeyUsage
from trimodal.trace import Span

MAX_TEXTS = 2048
MAX_IMAGES = 64
_TEXT = re.compile(r"^text_input(?:\[(\d+)\])?")
# Characters of a text that the embedder reads, about; of the texts in a piece; of a request that never waits.
_READ, _PIECE, _SHORT = 1024, 2048, 512
# Of one key's longer requests at the embedder, and of one of them. It takes what comes first: whoever sends a
# thousand pages would go before everybody's next word.
PIECES_AT_ONCE, _PIECES_OF_ONE = 4, 2
Vectors = NDArray[np.float32]


class EmbeddingRequest(ModelBody):
    """POST /v1/embeddings."""

    refused = {"normalize": Refusal("is not supported: vectors have length 1", (True,))}  # noqa: RUF012
    input: (
        Annotated[str, Field(min_length=1)] | Annotated[list[str], Field(min_length=1, max_length=MAX_TEXTS)]
    )
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: Whole | None = Field(default=None, ge=1)
    truncate: bool = False
    truncate_prompt_tokens: Literal[-1] | None = None

    @field_validator("input", mode="before")
    @classmethod
    def _no_token_ids(cls, value: Any) -> Any:
        if isinstance(value, list) and any(isinstance(one, int | list) for one in value):
            raise ValueError(
                "token ids are another model's: send texts (LangChain: check_embedding_ctx_length=False)"
            )
        return value


class ClassificationRequest(ModelBody):
    """POST /v1/images/classifications: data URLs of pictures."""

    model: Annotated[str, Field(min_length=1, max_length=256)] = "vision"
    input: str | Annotated[list[str], Field(min_length=1, max_length=MAX_IMAGES)]
    top_k: Whole | None = Field(default=None, ge=1)

    @property
    def pictures(self) -> list[str]:
        return _listed(self.input)


async def embeddings(
    request: EmbeddingRequest, client: Client, usage: KeyUsage, turn: asyncio.Semaphore
) -> tuple[bytes, Mapping[str, str]]:
    """Vectors of unit length. With `dimensions` their first numbers, scaled to unit length again.

    A text beyond the model's length is refused, unless it is to be cut: `truncate` is TEI's word for it,
    `truncate_prompt_tokens` -1 is vLLM's. Pieces of a longer request are sent within its key's `turn`, and
    written as they come: 2,048 vectors at once would keep all others waiting for half a second.
    """
    texts = _listed(request.input)
    for index, text in enumerate(texts):
        if not text:
            raise ApiError(400, f"input[{index}] is empty: at least one character is needed", param="input")
    truncate = request.truncate or request.truncate_prompt_tokens is not None
    is_short = sum(map(len, texts)) <= _SHORT
    began, spans = time.monotonic(), list[Span]()

    async def ask(part: Sequence[int]) -> list[bytes]:
        given = [texts[index] for index in part]
        try:
            async with nullcontext() if is_short else turn:
                made = await client.embeddings(given, truncate=truncate, model=request.model, spans=spans)
        except ModelNotFound:
            raise
        except InvalidArgument as error:

            def named(found: re.Match[str]) -> str:
                return f"input[{part[int(found[1] or 0)]}]" if len(texts) > 1 else "input"

            raise InvalidArgument(_TEXT.sub(named, str(error))) from None
        usage.tokens += made.tokens
        vectors = _cut(made.vectors, request.dimensions)
        numbers: Sequence[Any] = (
            vectors.astype(float).tolist()
            if request.encoding_format == "float"
            else [base64.b64encode(row.astype("<f4").tobytes()).decode() for row in vectors]
        )
        told = zip(part, numbers, strict=True)
        return [encoded({"object": "embedding", "index": at, "embedding": row}) for at, row in told]

    pieces = _pieces(texts, await client.max_batch_size(request.model))
    rows: list[bytes] = await in_parts(pieces, ask, _PIECES_OF_ONE)
    more = {"model": request.model, "usage": dict.fromkeys(("prompt_tokens", "total_tokens"), usage.tokens)}
    body = b'{"object":"list","data":[' + b",".join(rows) + b"]," + encoded(more)[1:]
    return body, timing_headers(time.monotonic() - began, spans)


def _pieces(texts: Sequence[str], most: int) -> list[list[int]]:
    """The numbers of the texts, in pieces that the embedder has done within little time."""
    pieces: list[list[int]] = []
    size = 0
    for index, text in enumerate(texts):
        cost = min(len(text), _READ)
        if not pieces or len(pieces[-1]) >= most or size + cost > _PIECE:
            pieces.append([])
            size = 0
        pieces[-1].append(index)
        size += cost
    return pieces


def _cut(vectors: Vectors, dimensions: int | None) -> Vectors:
    if dimensions is None:
        return vectors
    if dimensions > vectors.shape[1]:
        raise invalid(f"dimensions is {dimensions}: this model has {vectors.shape[1]}")
    cut = vectors[:, :dimensions]
    scaled: Vectors = cut / np.maximum(np.linalg.norm(cut, axis=1, keepdims=True), 1e-12)
    return scaled


async def classifications(
    request: ClassificationRequest, client: Client
) -> tuple[dict[str, Any], Mapping[str, str]]:
    """Labels of each picture, best first; one that is refused gets its error and harms no other.

    A lone picture that is refused is an error of the request.
    """
    images: dict[int, bytes] = {}
    rows: dict[int, list[Prediction] | Exception] = {}
    for index, url in enumerate(request.pictures):
        try:
            images[index] = decode_data_url(url, f"input[{index}]")
        except ApiError as error:
            rows[index] = error
    began, spans = time.monotonic(), list[Span]()
    found = await client.classify(
        list(images.values()), top_k=request.top_k, return_exceptions=True, model=request.model, spans=spans
    )
    rows.update(zip(images, found, strict=True))
    data = []
    for index in range(len(rows)):
        row = rows[index]
        one: dict[str, Any] = {"object": "classification", "index": index}
        if isinstance(row, Exception):
            refusal = as_api_error(row)
            if len(rows) == 1:
                param = refusal.param if isinstance(row, ApiError) else "input"
                raise ApiError(refusal.status, str(refusal), param=param, code=refusal.code)
            one |= refusal.body
        else:
            one["labels"] = [{"label": label.label, "score": round(label.score, 6)} for label in row]
        data.append(one)
    headers = timing_headers(time.monotonic() - began, spans)
    return {"object": "list", "data": data, "model": request.model}, headers


def _listed(given: str | list[str]) -> list[str]:
    return [given] if isinstance(given, str) else given
