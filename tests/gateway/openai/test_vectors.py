"""Embeddings, called with OpenAI's own package, which asks for base64 by itself."""

from __future__ import annotations

import httpx
import numpy as np
import pytest

from tests.gateway.conftest import Serve


def test_vectors_of_texts(serve: Serve) -> None:
    client = serve().openai()
    answer = client.embeddings.create(model="embedding", input=["a", "abc"])
    vectors = np.array([one.embedding for one in answer.data])
    assert [one.index for one in answer.data] == [0, 1]
    assert vectors.shape == (2, 4)
    np.testing.assert_allclose(vectors[1], np.array([3, 1, 2, 3]) / np.linalg.norm([3, 1, 2, 3]), rtol=1e-6)
    floats = client.embeddings.create(model="embedding", input="abc", encoding_format="float")
    np.testing.assert_allclose(floats.data[0].embedding, vectors[1], rtol=1e-6)


def test_fewer_dimensions_are_of_unit_length_again(serve: Serve) -> None:
    answer = serve().openai().embeddings.create(model="embedding", input="abc", dimensions=2)
    np.testing.assert_allclose(answer.data[0].embedding, np.array([3, 1]) / np.linalg.norm([3, 1]), rtol=1e-6)


@pytest.mark.parametrize(
    "change",
    [
        {"input": ""}, {"input": []}, {"input": ["a", ""]}, {"input": [[1, 2]]}, {"dimensions": 0},
        {"dimensions": 5}, {"encoding_format": "int8"},
    ],
    ids=str,
)  # fmt: skip
def test_a_wrong_field_is_named(serve: Serve, change: dict[str, object]) -> None:
    body = {"model": "embedding", "input": "a", **change}
    answer = httpx.post(f"{serve().url}/v1/embeddings", json=body)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"].startswith(next(iter(change)))
