import asyncio

import pytest

from trimodal.client import Client, ConnectionLost, Delta, FakeTransport, ProtocolError, Usage
from trimodal.client.transports.fake import llm_outputs, scripted
from trimodal.errors import InternalError, InvalidArgument


def client_of(model, **more):
    transport = FakeTransport(llm=model, **more)
    return Client(transport=transport), transport


async def test_deltas_usage_and_timing():
    client, transport = client_of(scripted("one two  three"))
    stream = client.generate("count")
    deltas = [delta async for delta in stream]
    assert deltas == [Delta("one", 1), Delta(" two", 1), Delta("  three", 1, "stop")]
    assert (stream.text, stream.finish_reason) == ("one two  three", "stop")
    assert stream.usage == Usage(prompt=8, cached=0, completion=3)
    assert stream.timing.ttft is not None
    assert len(stream.timing.itl) == 2
    assert stream.timing.latency >= stream.timing.ttft + sum(stream.timing.itl)
    assert transport.cancelled == []
    assert [delta async for delta in stream] == []


async def test_tokens_of_a_delta_are_what_its_count_grew_by():
    async def model(request):
        yield llm_outputs("ab", completion_tokens=4, prompt_tokens=9, cached_tokens=6)
        yield llm_outputs("", completion_tokens=5)
        yield llm_outputs("", "length", completion_tokens=6, prompt_tokens=9, cached_tokens=6)

    client, _ = client_of(model)
    stream = client.generate("x")
    assert [delta async for delta in stream] == [Delta("ab", 4), Delta("", 1, "length")]
    assert stream.usage == Usage(9, 6, 6)
    assert stream.timing.itl == ()


async def test_nothing_is_sent_before_iteration():
    client, transport = client_of(scripted("a"))
    stream = client.generate("x")
    assert transport.requests == []
    await stream.answer()
    assert len(transport.requests) == 1


async def test_what_the_client_itself_refuses_is_refused_at_the_call():
    client, transport = client_of(scripted("a"))
    with pytest.raises(InvalidArgument, match="max_tokens"):
        client.generate("x", max_tokens=1 << 31)
    assert transport.requests == []


async def test_cancel_while_a_delta_is_awaited_ends_the_iteration():
    client, transport = client_of(scripted("one two", step=30))
    stream = client.generate("x")
    asyncio.get_running_loop().call_later(0.02, stream.cancel)
    assert [delta async for delta in stream] == []
    assert stream.finish_reason == "cancelled"
    assert len(transport.cancelled) == 1
    stream.cancel()
    assert len(transport.cancelled) == 1


class SlowToSend(FakeTransport):
    """Takes a while to send a request, as one that connects first; notes what became of that."""

    def __init__(self, seconds: float, **models) -> None:
        super().__init__(**models)
        self.seconds, self.broken_off, self.sending = seconds, False, asyncio.Event()

    async def stream(self, request, timeouts):
        self.sending.set()
        try:
            await asyncio.sleep(self.seconds)
        except asyncio.CancelledError:
            self.broken_off = True
            raise
        return await super().stream(request, timeouts)


async def test_cancel_while_the_request_is_sent_ends_that_too():
    """The client once went on to read the whole answer, and the server to generate it."""
    transport = SlowToSend(30, llm=scripted("one two three"))
    stream = Client(transport=transport).generate("x")
    reading = asyncio.create_task(stream.answer())
    await transport.sending.wait()
    stream.cancel()
    answer = await asyncio.wait_for(reading, 5)
    assert (answer.text, answer.finish_reason) == ("", "cancelled")
    assert transport.broken_off
    assert transport.requests == []


@pytest.mark.parametrize("turns", range(12))
async def test_cancel_at_each_turn_of_the_loop_ends_the_request(turns):
    transport = SlowToSend(0, llm=scripted("one two three", step=30))
    stream = Client(transport=transport).generate("x")
    reading = asyncio.create_task(stream.answer())
    for _ in range(turns):
        await asyncio.sleep(0)
    stream.cancel()
    answer = await asyncio.wait_for(reading, 5)
    assert (answer.text, answer.finish_reason) == ("", "cancelled")
    assert len(transport.cancelled) == len(transport.requests)


async def test_a_task_cancelled_while_the_request_is_sent_is_cancelled():
    transport = SlowToSend(30, llm=scripted("one two three"))
    task = asyncio.create_task(Client(transport=transport).generate("x").answer())
    await transport.sending.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert transport.broken_off


async def test_an_error_keeps_its_type_and_the_text_before_it():
    async def model(request):
        yield llm_outputs("half")
        raise InternalError("the engine stopped")

    client, _ = client_of(model)
    stream = client.generate("x")
    with pytest.raises(InternalError, match="the engine stopped"):
        await stream.answer()
    assert (stream.text, stream.finish_reason) == ("half", "error")
    assert [delta async for delta in stream] == []


async def test_a_stream_that_just_ends_is_an_error():
    async def model(request):
        yield llm_outputs("half")

    client, _ = client_of(model)
    with pytest.raises(ConnectionLost, match="finish_reason"):
        await client.complete("x")


async def test_outputs_that_are_not_the_contract():
    async def model(request):
        outputs = llm_outputs("x")
        del outputs["finish_reason"]
        yield outputs

    client, transport = client_of(model)
    with pytest.raises(ProtocolError, match="finish_reason"):
        await client.complete("x")
    assert len(transport.cancelled) == 1


@pytest.mark.parametrize("steps", range(8))
async def test_a_task_that_is_cancelled_at_any_step_leaves_no_request_running(steps):
    async def endless(request):
        yield llm_outputs("word")
        await asyncio.sleep(30)

    transport = FakeTransport(llm=endless)
    task = asyncio.ensure_future(Client(transport=transport).complete("hi"))
    for _ in range(steps):
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert transport.cancelled == transport.requests
