"""Embeddings, called with OpenAI's package, which asks for base64 by itself; classifications of pictures."""

from __future__ import annotations

import asyncio
import base64
import itertools
import time
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import openai
import pytest

from tests.doubles.waiting import wait_until
from tests.gateway.conftest import LIMIT_S, Serve, fake_triton, vectors
from tests.gateway.openai.test_conversation import PICTURE
from trimodal import trace
from trimodal.client.transports.fake import labelled
from trimodal.errors import InvalidArgument, ModelNotFound
from trimodal.gateway.keys import Key, add_key
from trimodal.gateway.openai.generation import timing_headers


def test_vectors_of_texts(serve: Serve) -> None:
    client = serve().openai()
    answer = client.embeddings.create(model="embedding", input=["a", "abc"])
    told = np.array([one.embedding for one in answer.data])
    assert [one.index for one in answer.data] == [0, 1]
    assert told.shape == (2, 4)
    np.testing.assert_allclose(told[1], np.array([3, 1, 2, 3]) / np.linalg.norm([3, 1, 2, 3]), rtol=1e-6)
    floats = client.embeddings.create(model="embedding", input="abc", encoding_format="float")
    np.testing.assert_allclose(floats.data[0].embedding, told[1], rtol=1e-6)


def durations(answer: httpx.Response) -> dict[str, float]:
    """Part → milliseconds of a header Server-Timing."""
    parts = (part.split(";dur=") for part in answer.headers["server-timing"].split(", "))
    return {name: float(took) for name, took in parts}


def test_the_parts_of_an_answers_time_are_its_total(serve: Serve) -> None:
    def told(model: Any, *names: str) -> Any:
        async def answer(request: Any) -> Any:
            assert request.parameters["trace"] is True
            clock = 3600 * next(machines)  # each piece was another machine's
            began = clock + time.monotonic()
            await asyncio.sleep(0.02)
            spans = [trace.span(name, began, clock + time.monotonic()) for name in names]
            rows = len(next(iter(request.inputs.values())))
            return {**model(request), **{"trace": trace.column(spans, rows)["trace"].reshape(-1, 1)}}

        return answer

    machines = itertools.count()
    fake = fake_triton(
        embedding=told(vectors, "embed"), vision=told(labelled(("a", 1.0)), "decode", "classify")
    )
    with httpx.Client(base_url=serve(fake).url, timeout=LIMIT_S) as http:
        body: dict[str, Any] = {"model": "embedding", "input": ["a" * 2000] * 4}
        embedded = durations(http.post("/v1/embeddings", json=body))
        body = {"model": "vision", "input": PICTURE}
        seen = durations(http.post("/v1/images/classifications", json=body))
    assert list(embedded) == ["queue", "embed", "total"]
    assert list(seen) == ["queue", "decode", "classify", "total"]
    for parts in (embedded, seen):
        assert sum(parts.values()) - parts["total"] == pytest.approx(parts["total"], abs=0.3), "as rounded"


def test_times_of_pieces_side_by_side_count_once() -> None:
    spans = [
        trace.span("take audio in", 10.0, 10.2),
        trace.span("window waits", 10.2, 10.3),
        trace.span("window", 10.3, 11.3),
        trace.span("window", 10.5, 11.5),
    ]
    told = timing_headers(2.0, spans)["server-timing"]
    assert told == "queue;dur=600.0, take-audio-in;dur=200.0, window;dur=1200.0, total;dur=2000.0"
    assert timing_headers(0.25, [])["server-timing"] == "queue;dur=250.0, total;dur=250.0"


def test_fewer_dimensions_are_of_unit_length_again(serve: Serve) -> None:
    answer = serve().openai().embeddings.create(model="embedding", input="abc", dimensions=2)
    np.testing.assert_allclose(answer.data[0].embedding, np.array([3, 1]) / np.linalg.norm([3, 1]), rtol=1e-6)


async def counted(request):  # type: ignore[no-untyped-def]
    """As the model: a token a character, and two around each text; it reads 8."""
    lengths = [len(text) for (text,) in request.inputs["text_input"]]
    if request.parameters.get("truncate") is False and max(lengths) > 8:
        index = lengths.index(max(lengths))
        raise InvalidArgument(f"text_input[{index}] has {max(lengths)} tokens: this model reads 8")
    tokens = np.array([[min(length, 8) + 2] for length in lengths], np.int32)
    return {**vectors(request), "tokens": tokens}


def test_tokens_are_counted_and_charged(serve: Serve, file: Path) -> None:
    key = add_key(file, Key(name="a", tokens_per_minute=10))
    client = serve(fake_triton(embedding=counted), keys=file).openai(key)
    answer = client.embeddings.create(model="embedding", input=["abc", "abcdef"])
    assert (answer.usage.prompt_tokens, answer.usage.total_tokens) == (13, 13)
    with pytest.raises(openai.RateLimitError, match="10 tokens a minute"):
        client.embeddings.create(model="embedding", input="a")


@pytest.mark.parametrize("cut", [{"truncate": True}, {"truncate_prompt_tokens": -1}], ids=str)
def test_what_is_too_long_is_refused_unless_it_is_to_be_cut(serve: Serve, cut: dict[str, object]) -> None:
    client = serve(fake_triton(embedding=counted)).openai()
    texts = ["a"] * 40 + ["a" * 9]
    with pytest.raises(
        openai.BadRequestError, match=r"input\[40\] has 9 tokens: this model reads 8"
    ) as caught:
        client.embeddings.create(model="embedding", input=texts)
    assert caught.value.param == "input[40]"
    with pytest.raises(openai.BadRequestError, match="^.*input has 9 tokens"):
        client.embeddings.create(model="embedding", input=texts[-1])
    answer = client.embeddings.create(model="embedding", input=texts, extra_body=cut)
    assert answer.usage.prompt_tokens == 40 * 3 + 10


async def test_a_long_request_keeps_no_other_waiting_and_ends_with_its_client(
    serve: Serve, file: Path
) -> None:
    """1,024 texts of 8 kB delayed a word of another client by 26 s, and went on when theirs had left."""
    sent: list[int] = []

    async def slow(request):  # type: ignore[no-untyped-def]
        if request.inputs["text_input"][0, 0] != b"word":
            sent.append(len(request.inputs["text_input"]))
            await asyncio.sleep(60)
        return vectors(request)

    def ended() -> int:
        return len(served.triton.cancelled)

    async def asked(key: str, texts: list[str]) -> int:
        body = {"model": "embedding", "input": texts}
        headers = {"authorization": f"Bearer {key}"}
        return (await client.post("/v1/embeddings", json=body, headers=headers)).status_code

    one, other = (add_key(file, Key(name=name)) for name in ("one", "other"))
    served = serve(fake_triton(embedding=slow), keys=file)
    async with httpx.AsyncClient(base_url=served.url, timeout=LIMIT_S) as client:
        floods = [asyncio.ensure_future(asked(one, ["page " * 1600] * 100)) for _ in range(4)]
        await asyncio.to_thread(wait_until, lambda: len(sent) >= 4, "the first pieces")
        assert await asked(one, ["word"]) == await asked(other, ["word"]) == 200
        assert sent == [2] * 4, "small pieces, four of a key"
        other_flood = asyncio.ensure_future(asked(other, ["page " * 1600] * 100))
        await asyncio.to_thread(wait_until, lambda: len(sent) == 6, "the other key's pieces")
        for flood in (*floods, other_flood):
            flood.cancel()
        # Where one flood ends, a piece of another may begin before that one is seen to have left.
        await asyncio.to_thread(wait_until, lambda: ended() == len(sent), "the end of what ran")
    assert ended() == len(sent) < 6 + 2 * 5, "nothing is sent any more: two pieces at most of a request"


def test_what_was_embedded_is_charged_where_the_rest_is_refused(serve: Serve, file: Path) -> None:
    key = add_key(file, Key(name="a", tokens_per_minute=20))
    client = serve(fake_triton(embedding=counted), keys=file).openai(key)
    with pytest.raises(openai.BadRequestError):
        client.embeddings.create(model="embedding", input=["abcdef"] * 16 + ["a" * 9])
    with pytest.raises(openai.RateLimitError, match="20 tokens a minute"):
        client.embeddings.create(model="embedding", input="a")


def classify(url: str, **body: object) -> httpx.Response:
    return httpx.post(f"{url}/v1/images/classifications", json={"model": "vision", **body})


def test_labels(serve: Serve) -> None:
    served = serve()
    answer = classify(served.url, input=[PICTURE, PICTURE], top_k=1).json()
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
    found = classify(served.url, input=[PICTURE, bad]).json()["data"]
    assert found[0]["labels"][0]["label"] == "seven"
    assert "not a JPEG" in found[1]["error"]["message"]
    alone = classify(served.url, input=bad)
    assert (alone.status_code, alone.json()["error"]["param"]) == (400, "input")


@pytest.mark.parametrize(
    ("bad", "told"),
    [
        ("https://example.com/cat.jpg", "must be a data URL with base64: this server fetches nothing"),
        ("data:;base64,///", "is not valid base64"),
    ],
)
def test_a_picture_that_is_none_harms_no_other(serve: Serve, bad: str, told: str) -> None:
    served = serve()
    found = classify(served.url, input=[bad, PICTURE, bad, PICTURE], top_k=1).json()["data"]
    assert [one["index"] for one in found] == [0, 1, 2, 3]
    assert [one["error"]["message"] for one in found[::2]] == [f"input[0] {told}", f"input[2] {told}"]
    assert [one["labels"] for one in found[1::2]] == [[{"label": "seven", "score": 0.9}]] * 2
    assert all("error" in one for one in classify(served.url, input=[bad, bad]).json()["data"])
    alone = classify(served.url, input=bad)
    assert (alone.status_code, alone.json()["error"]["message"]) == (400, f"input[0] {told}")


def test_a_version_that_is_not_there_is_no_rows_fault(serve: Serve) -> None:
    def missing(request: Any) -> Any:
        raise ModelNotFound(f"the server has no model '{request.model}'")

    fake = fake_triton(embedding=missing, vision=missing)
    served = serve(fake)
    with pytest.raises(openai.NotFoundError, match="no model 'embedding@2'"):
        served.openai().embeddings.create(model="embedding@2", input="a")
    answer = classify(served.url, model="vision@2", input=[PICTURE] * 3)
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "model_not_found")
    assert sum(one.model == "vision@2" for one in fake.requests) == 1, "the pictures are not sent again"
