"""Answers POST /v1/embeddings."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np

from trimodal.client.client import Client
from trimodal.gateway.errors import ApiError
from trimodal.gateway.openai.schemas import EmbeddingRequest


async def embeddings(request: EmbeddingRequest, client: Client) -> dict[str, Any]:
    """Vectors of unit length. With `dimensions` their first numbers, scaled to unit length again."""
    for index, text in enumerate(request.texts):
        if not text:
            raise ApiError(400, f"input[{index}] is empty: at least one character is needed", param="input")
    found = await client.embed(request.texts, model=request.model)
    if request.dimensions is not None:
        most = found.shape[1]
        if request.dimensions > most:
            raise ApiError(
                400, f"dimensions is {request.dimensions}: this model has {most}", param="dimensions"
            )
        found = found[:, : request.dimensions]
        found = found / np.maximum(np.linalg.norm(found, axis=1, keepdims=True), 1e-12)
    vectors: list[Any]
    if request.encoding_format == "base64":
        vectors = [base64.b64encode(row.astype("<f4").tobytes()).decode() for row in found]
    else:
        vectors = found.astype(float).tolist()
    data = [{"object": "embedding", "index": index, "embedding": row} for index, row in enumerate(vectors)]
    # The embedding model does not tell its tokens.
    return {
        "object": "list",
        "data": data,
        "model": request.model,
        "usage": {"prompt_tokens": 0, "total_tokens": 0},
    }
