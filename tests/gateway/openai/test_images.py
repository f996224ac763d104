"""Classifications of pictures in data URLs."""

from __future__ import annotations

import base64

import httpx
import pytest

from tests.gateway.conftest import Serve, fake_triton
from trimodal.errors import InvalidArgument

URL = "data:image/png;base64," + base64.b64encode(b"a picture").decode()


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


@pytest.mark.parametrize(
    "given",
    [
        "https://example.com/a.png",
        "file:///etc/passwd",
        "data:image/png;base64,***",
        "",
        "data:image/png,abc",
        [],
    ],
    ids=str,
)
def test_other_addresses_are_not_fetched(serve: Serve, given: object) -> None:
    served = serve()
    answer = classify(served.url, input=given)
    assert (answer.status_code, answer.json()["error"]["type"]) == (400, "invalid_request_error")
    assert served.triton.requests == []
