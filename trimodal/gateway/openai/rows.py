"""Answers POST /v1/embeddings and /v1/images/classifications: a row for each text or picture.

OpenAI has no endpoint for classifications; its shape is that of embeddings.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from trimodal.client.client import Client
from trimodal.errors import InvalidArgument
from trimodal.gateway.errors import ApiError, as_api_error, invalid
from trimodal.gateway.media import decode_data_url
from trimodal.gateway.openai.fields import ModelBody, Refusal, Whole
from trimodal.gateway.quota import KeyUsage

MAX_TEXTS = 2048
MAX_IMAGES = 64
_TEXT = re.compile(r"^text_input(\[\d+\])?")
Answer = tuple[dict[str, Any], Mapping[str, str]]
"""Body and headers."""


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


class ClassificationRequest(ModelBody):
    """POST /v1/images/classifications: data URLs of JPEG, PNG or WebP files."""

    model: Annotated[str, Field(min_length=1, max_length=256)] = "vision"
    input: str | Annotated[list[str], Field(min_length=1, max_length=MAX_IMAGES)]
    top_k: Whole | None = Field(default=None, ge=1)


async def embeddings(request: EmbeddingRequest, client: Client, usage: KeyUsage) -> Answer:
    """Vectors of unit length. With `dimensions` their first numbers, scaled to unit length again.

    A text beyond the model's length is refused, unless it is to be cut: `truncate` is TEI's word for it,
    `truncate_prompt_tokens` -1 is vLLM's.
    """
    texts = _listed(request.input)
    for index, text in enumerate(texts):
        if not text:
            raise ApiError(400, f"input[{index}] is empty: at least one character is needed", param="input")
    truncate = request.truncate or request.truncate_prompt_tokens is not None
    try:
        made = await client.embeddings(texts, truncate=truncate, model=request.model)
    except InvalidArgument as error:
        raise InvalidArgument(_TEXT.sub("input", str(error))) from None  # of a batch: its number is not ours
    vectors, usage.tokens = made.vectors, made.tokens
    if request.dimensions is not None:
        most = vectors.shape[1]
        if request.dimensions > most:
            raise invalid(f"dimensions is {request.dimensions}: this model has {most}")
        vectors = vectors[:, : request.dimensions]
        vectors = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    rows: list[Any] = vectors.astype(float).tolist()
    if request.encoding_format == "base64":
        rows = [base64.b64encode(row.astype("<f4").tobytes()).decode() for row in vectors]
    data = [{"object": "embedding", "index": index, "embedding": row} for index, row in enumerate(rows)]
    tokens = {"prompt_tokens": made.tokens, "total_tokens": made.tokens}
    return {"object": "list", "data": data, "model": request.model, "usage": tokens}, {}


async def classifications(request: ClassificationRequest, client: Client) -> Answer:
    """Labels of each picture, best first; one that is refused gets its error and harms no other.

    A lone picture that is refused is an error of the request.
    """
    images = [decode_data_url(url, f"input[{index}]") for index, url in enumerate(_listed(request.input))]
    rows = await client.classify(images, top_k=request.top_k, return_exceptions=True, model=request.model)
    data = []
    for index, row in enumerate(rows):
        one: dict[str, Any] = {"object": "classification", "index": index}
        if isinstance(row, Exception):
            error = as_api_error(row)
            if len(rows) == 1:
                raise ApiError(error.status, str(error), param="input", code=error.code)
            one |= error.body
        else:
            one["labels"] = [{"label": label.label, "score": round(label.score, 6)} for label in row]
        data.append(one)
    return {"object": "list", "data": data, "model": request.model}, {}


def _listed(given: str | list[str]) -> list[str]:
    return [given] if isinstance(given, str) else given
