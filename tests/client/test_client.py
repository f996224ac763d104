import asyncio

import numpy as np
import pytest

from trimodal.client import (
    Client,
    FakeTransport,
    ModelNotFound,
    Prediction,
    ProtocolError,
)
from trimodal.client.batches import BATCHES_AT_ONCE, in_batches
from trimodal.client.transports.fake import labelled, scripted
from trimodal.errors import InvalidArgument


def vision(request):
    images = request.inputs["image"][:, 0]
    if b"bad" in images:
        raise InvalidArgument("image is not an image")
    names = np.array([[image, b"other"] for image in images], dtype=object)
    return {"labels": names, "scores": np.full((len(images), 2), 0.5, np.float32)}


def embedding(request):
    return {"embedding": np.array([[len(text[0]), 1] for text in request.inputs["text_input"]], np.float32)}


async def test_images_go_in_batches_and_come_back_in_order():
    transport = FakeTransport(vision=vision, batch_sizes={"vision": 3})
    images = [str(number).encode() for number in range(8)]
    async with Client(transport=transport) as client:
        rows = await client.classify(images)
        assert [row[0].label for row in rows] == [str(number) for number in range(8)]
        assert rows[0][1] == Prediction("other", 0.5)
        assert sorted(len(request.inputs["image"]) for request in transport.requests) == [2, 3, 3]
        assert await client.classify([]) == []
    assert transport.closed


async def test_a_model_that_is_loaded_again_with_smaller_batches_is_asked_for_their_size_again():
    """A gateway that ran on sent it the old size, which was refused, until it was started again."""
    sizes = {"embedding": 4}

    def loaded(request):
        if len(request.inputs["text_input"]) > sizes["embedding"]:
            raise InvalidArgument("[request id: <id_unknown>] inference request batch-size must be <= 2")
        return embedding(request)

    client = Client(transport=FakeTransport(embedding=loaded, batch_sizes=sizes))
    texts = ["a", "b", "c", "d"]
    assert (await client.embed(texts)).shape == (4, 2)
    sizes["embedding"] = 2
    with pytest.raises(InvalidArgument, match="batch-size"):
        await client.embed(texts)
    assert (await client.embed(texts)).shape == (4, 2)


async def test_a_timeout_bounds_the_question_for_the_size_of_batches_too():
    """Of a server that hung it was waited for through the client's silence, a minute."""
    asked = []

    class Transport(FakeTransport):
        async def max_batch_size(self, model, timeouts):
            asked.append(timeouts.total)
            return 4

    transport = Transport(vision=vision, embedding=embedding)
    await Client(transport=transport).classify([b"a"], timeout=2)
    await Client(transport=transport).embed(["a"], timeout=3)
    assert asked == [2, 3]


async def test_a_wrong_timeout_is_no_images_fault():
    client = Client(transport=FakeTransport(vision=vision))
    await client.classify([b"a"])
    with pytest.raises(InvalidArgument, match=r"^timeout is 0: it must be above 0 seconds$"):
        await client.classify([b"a", b"b"], timeout=0, return_exceptions=True)


async def test_arrays_are_lists():
    transport = FakeTransport(embedding=embedding, llm=scripted("a"))
    client = Client(transport=transport)
    assert (await client.embed(np.array(["a", "b"]))).shape == (2, 2)
    await client.complete(np.array([5, 6]), stop=np.array(["end"]), stop_token_ids=np.array([7, 8]))
    inputs = transport.requests[-1].inputs
    assert inputs["prompt_token_ids"].tolist() == [5, 6]
    assert (inputs["stop"].tolist(), inputs["stop_token_ids"].tolist()) == ([b"end"], [7, 8])


async def test_top_k():
    client = Client(transport=FakeTransport(vision=labelled(("a", 0.7), ("b", 0.2))))
    assert await client.classify([b"x"], top_k=1) == [[Prediction("a", pytest.approx(0.7))]]
    with pytest.raises(InvalidArgument, match="top_k"):
        await client.classify([b"x"], top_k=0)


async def test_a_bad_image_harms_no_other_when_asked_so():
    client = Client(transport=FakeTransport(vision=vision))
    with pytest.raises(InvalidArgument, match="not an image"):
        await client.classify([b"1", b"bad", b"2"])
    one, bad, two = await client.classify([b"1", b"bad", b"2"], return_exceptions=True)
    assert (one[0].label, two[0].label) == ("1", "2")
    assert isinstance(bad, InvalidArgument)


async def test_vectors():
    client = Client(transport=FakeTransport(embedding=embedding, batch_sizes={"embedding": 2}))
    vectors = await client.embed(["a", "bé", "ccc"])
    assert vectors.dtype == np.float32
    assert vectors.tolist() == [[1, 1], [3, 1], [3, 1]]
    with pytest.raises(InvalidArgument, match="texts"):
        await client.embed([])


@pytest.mark.parametrize("outputs", [{}, {"embedding": np.zeros(2, np.float32)}])
async def test_outputs_that_are_not_the_contract(outputs):
    client = Client(
        transport=FakeTransport(embedding=lambda request: outputs, vision=lambda request: outputs)
    )
    with pytest.raises(ProtocolError, match="embedding"):
        await client.embed(["a", "b", "c"])
    with pytest.raises(ProtocolError, match="vision"):
        await client.classify([b"a"])


async def test_ready_and_models():
    client = Client(transport=FakeTransport(llm=scripted("x"), vision=vision))
    assert await client.ready()
    assert await client.ready("llm")
    assert not await client.ready("nope")
    await client.complete("x")
    assert [(model.name, model.inferences) for model in await client.models()] == [("llm", 1), ("vision", 0)]
    with pytest.raises(ModelNotFound, match="nope"):
        await client.complete("x", model="nope")


def test_made_outside_an_event_loop():
    assert asyncio.run(Client(transport=FakeTransport(llm=scripted("a b"))).complete("x")).text == "a b"


async def test_batches_run_side_by_side_and_the_first_error_ends_all():
    running, most, cancelled = 0, 0, 0

    async def ask(part):
        nonlocal running, most, cancelled
        running += 1
        most = max(most, running)
        try:
            await asyncio.sleep(0.01 if part[0] else 0.02)
            if part[0] == 0:
                raise InvalidArgument("zero")
            await asyncio.sleep(30 if part[0] > 20 else 0)
        except asyncio.CancelledError:
            cancelled += 1
            raise
        finally:
            running -= 1
        return [number * 2 for number in part]

    assert await in_batches(list(range(1, 11)), 2, ask) == [number * 2 for number in range(1, 11)]
    assert most == BATCHES_AT_ONCE
    with pytest.raises(InvalidArgument):
        await in_batches([0, 21, 22], 1, ask)
    await asyncio.sleep(0)
    assert cancelled == 2
    assert running == 0


async def test_vectors_of_two_lengths_are_told_as_what_the_server_did():
    """A model that was loaded anew between two batches: numpy's ValueError came."""
    sizes = iter((3, 4))

    def embedding(request):
        return {"embedding": np.ones((1, next(sizes)), np.float32)}

    client = Client(transport=FakeTransport(batch_sizes={"embedding": 1}, embedding=embedding))
    with pytest.raises(ProtocolError, match="the answer of model 'embedding' cannot be read"):
        await client.embed(["a", "b"])
