import httpx
import pytest

from trimodal.bench.peers.client import Peer, events
from trimodal.errors import ServerError


def peer(answer):
    return Peer("peer", "http://peer", lambda: "its last words", httpx.MockTransport(answer))


def stream(text):
    return lambda request: httpx.Response(200, text=text)


async def parsed(text):
    async def lines():
        for line in text.split("\n"):
            yield line

    return [event async for event in events(lines())]


async def test_events_are_read_up_to_the_end():
    text = ': comment\n\ndata: {"text": "a"}\n\nevent: x\ndata:{"tokens": 2}\n\n'
    text += 'data: [DONE]\n\ndata: {"text": "b"}\n'
    assert await parsed(text) == [{"text": "a"}, {"tokens": 2}]


async def test_times_are_those_of_deltas_with_text():
    text = "".join(f'data: {{"text": "{part}"}}\n\n' for part in ("", "a", "", "b", "c"))
    async with peer(stream(text + 'data: {"tokens": 9}\n\ndata: [DONE]\n\n')) as one:
        timing = await one.generate([1, 2], 9)
    assert timing.ttft is not None
    assert len(timing.itl) == 2
    assert timing.tpot is not None


async def test_the_prompt_and_the_length_are_sent():
    seen = []

    def answer(request):
        seen.append((request.url.path, request.read()))
        return httpx.Response(200, text='data: {"tokens": 4}\n\ndata: [DONE]\n\n')

    async with peer(answer) as one:
        await one.generate([7, 8], 4)
    assert seen == [("/generate", b'{"token_ids":[7,8],"max_tokens":4}')]


@pytest.mark.parametrize("text", ['data: {"tokens": 3}\n\ndata: [DONE]\n\n', 'data: {"text": "cut"}\n\n', ""])
async def test_an_answer_of_another_length_is_refused(text):
    async with peer(stream(text)) as one:
        with pytest.raises(ServerError, match="the peer made (3|None) of 4 tokens: its last words"):
            await one.generate([1], 4)


async def test_failures_are_one_sentence():
    def die(request):
        raise httpx.ConnectError("refused")

    async with peer(lambda request: httpx.Response(422)) as one:
        for asking in (one.post("/classify", b""), one.generate([1], 1)):
            with pytest.raises(ServerError, match="HTTP status 422: its last words"):
                await asking
    async with peer(die) as one:
        for asking in (one.post("/classify", b""), one.generate([1], 1)):
            with pytest.raises(ServerError, match=r"does not answer \(ConnectError\): its last words"):
                await asking
