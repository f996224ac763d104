"""Answers POST /v1/images/classifications: labels of pictures. OpenAI has no such endpoint; its shape is."""

from __future__ import annotations

from typing import Any

from trimodal.client.client import Client
from trimodal.gateway.errors import ApiError, as_api_error
from trimodal.gateway.media import decode_data_url
from trimodal.gateway.openai.schemas import ClassificationRequest


async def classifications(request: ClassificationRequest, client: Client) -> dict[str, Any]:
    """Labels of each picture, best first; one that is refused gets its error and harms no other.

    A lone picture that is refused is an error of the request.
    """
    urls = [request.input] if isinstance(request.input, str) else request.input
    images = [decode_data_url(url, f"input[{index}]") for index, url in enumerate(urls)]
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
    return {"object": "list", "data": data, "model": request.model}
