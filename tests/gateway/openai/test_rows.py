"""Embeddings, called with OpenAI's package, which asks for base64 by itself; classifications of pictures."""

from __future__ import annotations

import base64

import httpx
import numpy as np

from tests.gateway.conftest import Serve, fake_triton
from trimodal.errors import InvalidArgument

URL = "data:image/png;base64," + base64.b64encode(b"a picture").decode()


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


def classify(url: str, **body: object) -> httpx.Response:
    return httpx.post(f"{url}/v1/images/classifications", json={"model": "vision", **body})


def test_labels(serve: Serve) -> None:
    served = serve()
    answer = classify(served.url, input=[URL, URL], top_k=1).json()
    assert [one["labels"] for one in answer["data"]] == [[{"label": "seven", "score": 0.9}]] * 2
    assert served.triton.requests[0].inputs["image"].tolist() == [[b"a picture"], [b"a picture"]]


def test_a_refused_picture_harms_no_other(serve: Serve) -> None:
    def choosy(request):  # type: ignore[no-untyped-def]
        if any(b"bad" in one for one in request.inputs["image"].reshape(-1)):
            raise InvalidArgument("image: not a JPEG, PNG or WebP file")
        return good(request)

    good = fake_triton().functions["vision"]
    served = serve(fake_triton(vision=choosy))
    bad = "data:;base64," + base64.b64encode(b"bad").decode()
    found = classify(served.url, input=[URL, bad]).json()["data"]
    assert found[0]["labels"][0]["label"] == "seven"
    assert "not a JPEG" in found[1]["error"]["message"]
    alone = classify(served.url, input=bad)
    assert (alone.status_code, alone.json()["error"]["param"]) == (400, "input")
