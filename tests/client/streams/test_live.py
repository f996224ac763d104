"""Live streams against the fake speech model."""

import asyncio

import numpy as np
import pytest

from tests.doubles.virtual_clock import run_virtually
from tests.doubles.waiting import until
from trimodal.audio.values import Correction
from trimodal.client import (
    Client,
    ConnectError,
    ConnectionLost,
    FakeTransport,
    LiveUpdate,
    ProtocolError,
    Timeout,
    Timeouts,
    Word,
)
from trimodal.client.streams import live as listening
from trimodal.client.transports.fake import FakeSpeech, speech_outputs
from trimodal.errors import InternalError, InvalidArgument, ModelNotFound, Unavailable

RATE = 16_000
WORDS = [("what", 0.1, 0.3), ("is", 0.4, 0.6), ("a", 1.0, 1.1), ("lambda", 1.2, 1.8)]


def seconds(duration, dtype=np.float32):
    return (np.arange(round(duration * RATE)) % 100).astype(dtype)


@pytest.fixture
def speech():
    return FakeSpeech(*WORDS)


@pytest.fixture
def transport(speech):
    return FakeTransport(speech=speech)


def sent(transport):
    """All samples that went out, as one array."""
    return np.concatenate([array[0] for request in transport.requests for array in request.inputs.values()])


def controls(transport):
    return [
        (request.parameters["sequence_start"], request.parameters["sequence_end"])
        for request in transport.requests
    ]


async def test_words_come_while_audio_goes_in(transport, speech):
    audio = seconds(2.0)
    updates = []
    async with Client(transport=transport).listen() as stream:
        for at in range(0, len(audio), RATE // 2):
            updates.append(await stream.send(audio[at : at + RATE // 2]))
        assert stream.latest == updates[-1]
        updates.append(await stream.end())
    assert [update.text for update in updates] == ["", " what", " is", " a", " lambda"]
    assert [update.tentative for update in updates] == [" what", " is", " a", " lambda", ""]
    assert [update.final for update in updates] == [False] * 4 + [True]
    assert updates[1].committed == (Word(" what", 0.1, 0.3, pytest.approx(0.9), (0,)),)
    assert (updates[1].received_s, updates[1].lag_s) == (1.0, pytest.approx(0.7))
    assert stream.text == "what is a lambda"
    assert [word.text for word in stream.words] == [" what", " is", " a", " lambda"]
    np.testing.assert_array_equal(sent(transport), audio)
    assert controls(transport) == [(True, False), *[(False, False)] * 3, (False, True)]
    assert transport.requests[-1].inputs == {}
    assert not speech.streams


async def test_words_are_corrected_once_their_speaker_pauses(transport):
    one, two = Word(" howdy", 0.1, 0.3, 0.9, (1,)), Word(" mary", 0.4, 0.6, 0.9)
    heard = (Word(" had", 0.1, 0.2, 0.5, (7, 8)), Word(" he", 0.2, 0.3, 0.5), Word(" married", 0.4, 0.6, 0.5))
    answers = [speech_outputs(one, two), speech_outputs(corrections=[Correction(0, 2, heard)], final=True)]
    transport.functions["speech"] = lambda request: answers.pop(0)
    async with Client(transport=transport).listen() as stream:
        assert (await stream.send(seconds(0.5))).corrections == ()
        assert stream.text == "howdy mary"
        assert (await stream.end()).corrections == (Correction(0, 2, heard),)
    assert (stream.text, stream.words) == ("had he married", heard)


async def test_a_stream_of_days_keeps_nothing_that_it_is_told_to_forget(transport):
    async with Client(transport=transport).listen() as stream:
        await stream.send(seconds(1.5))
        assert stream.text == "what is"
        stream.forget()
        assert (stream.text, stream.words) == ("", ())
        await stream.end(seconds(0.5))
    assert stream.text == "a lambda"


async def test_options_go_with_the_first_chunk_only(transport):
    async with Client(transport=transport).listen(
        policy="vad", language="en", prompt="é", step_s=0.5, model="speech"
    ) as stream:
        await stream.send(seconds(0.1))
        await stream.send(seconds(0.1))
        await stream.end()
    first, *others = ({**request.parameters} for request in transport.requests)
    identity = first.pop("sequence_id")
    assert identity == stream.id
    assert 0 < identity < 1 << 63
    assert first == {
        "sequence_start": True,
        "sequence_end": False,
        "policy": "vad",
        "language": "en",
        "prompt": "é",
        "step_s": 0.5,
    }
    assert [set(other) for other in others] == [{"sequence_id", "sequence_start", "sequence_end"}] * 2


async def test_int16_travels_as_it_is(transport):
    audio = seconds(0.2, np.int16)
    async with Client(transport=transport).listen() as stream:
        await stream.send(audio[:1600])
        await stream.end(audio[1600:])
        assert [list(request.inputs) for request in transport.requests] == [["audio_int16"]] * 2
    assert sent(transport).dtype == np.int16
    np.testing.assert_array_equal(sent(transport), audio)


async def test_short_chunks_are_gathered_and_long_ones_split(transport):
    audio = seconds(75.013)
    reused = np.empty(80, np.float32)
    async with Client(transport=transport).listen() as stream:
        for at in range(0, 480, 80):  # 5 ms each, in one buffer that is used again
            reused[:] = audio[at : at + 80]
            nothing = await stream.send(reused)
            assert nothing.committed == ()
        assert [request.inputs["audio"].shape for request in transport.requests] == [(1, 320)]
        assert nothing.received_s == 0.02
        update = await stream.send(audio[480:])
        assert update.text == " what is a lambda"
        assert update.received_s == pytest.approx(75.013)
        await stream.end()
    lengths = [request.inputs["audio"].shape[1] for request in transport.requests[:-1]]
    assert lengths == [320, 480_000, 480_000, len(audio) - 320 - 960_000]
    np.testing.assert_array_equal(sent(transport), audio)


async def test_end_takes_the_rest_of_any_length(transport, speech):
    audio = seconds(61.0)
    client = Client(transport=transport)
    async with client.listen() as stream:
        update = await stream.end(audio)
    assert (update.final, update.text, update.received_s) == (True, " what is a lambda", 61.0)
    assert controls(transport) == [(True, False), (False, False), (False, True)]
    transport.requests.clear()
    async with client.listen() as stream:
        await stream.send(audio[:10])
        assert transport.requests == []
        assert (await stream.end()).received_s == 10 / RATE
    assert controls(transport) == [(True, True)]
    assert not speech.streams


async def test_a_stream_without_audio_asks_nothing(transport):
    async with Client(transport=transport).listen() as stream:
        assert await stream.send(np.zeros(0, np.float32)) == LiveUpdate()
        assert await stream.end() == LiveUpdate(final=True)
    async with Client(transport=transport).listen():
        pass
    assert transport.requests == []


@pytest.mark.parametrize(
    ("samples", "kind", "words"),
    [
        (np.zeros(400, np.int32), TypeError, "int32"),
        (np.zeros(400, ">i2"), TypeError, ">i2"),
        ([0.0] * 400, TypeError, "list: a numpy array"),
        (np.zeros((400, 2), np.int16), ValueError, r"\(400, 2\)"),
        (np.array(1, np.float32), ValueError, r"\(n,\)"),
    ],
)
async def test_other_forms_of_audio_are_refused_and_the_stream_goes_on(
    transport, speech, samples, kind, words
):
    async with Client(transport=transport).listen() as stream:
        await stream.send(seconds(1.0))
        with pytest.raises(kind, match=words):
            await stream.send(samples)
        with pytest.raises(TypeError, match="int16: the stream began with float32"):
            await stream.send(seconds(1.0, np.int16))
        assert (await stream.end(seconds(1.0))).received_s == 2.0
    assert not speech.streams


async def test_leaving_without_end_frees_the_stream(transport, speech):
    client = Client(transport=transport)
    stream = client.listen()

    async def fail():
        async with stream:
            await stream.send(seconds(1.0))
            raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match="mine"):
        await fail()
    assert not speech.streams
    assert controls(transport)[-1] == (False, True)
    with pytest.raises(InvalidArgument, match="closed: open another one"):
        await stream.send(seconds(1.0))
    count = len(transport.requests)
    await stream.aclose()
    assert len(transport.requests) == count


async def test_a_cancelled_task_frees_the_stream(speech):
    asked = asyncio.Event()

    async def slow(request):
        outputs = speech(request)
        if len(transport.requests) == 2:
            asked.set()
            await asyncio.sleep(30)
        return outputs

    transport = FakeTransport(speech=slow)

    async def talk():
        async with Client(transport=transport).listen() as stream:
            await stream.send(seconds(1.0))
            await stream.send(seconds(1.0))

    task = asyncio.create_task(talk())
    await asyncio.wait_for(asked.wait(), 5)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not speech.streams
    assert controls(transport) == [(True, False), (False, False), (False, True)]


async def test_abandoning_does_not_wait_for_the_last_words(speech, monkeypatch):
    monkeypatch.setattr(listening, "ABANDON_S", 0.05)

    async def busy_at_the_end(request):
        outputs = speech(request)
        if request.parameters["sequence_end"]:
            await asyncio.sleep(30)
        return outputs

    transport = FakeTransport(speech=busy_at_the_end)

    async def talk():
        async with Client(transport=transport).listen() as stream:
            await stream.send(seconds(1.0))

    await asyncio.wait_for(talk(), 5)
    assert not speech.streams


async def test_a_refused_chunk_adds_nothing_and_the_stream_goes_on(speech):
    def picky(request):
        if any(np.isnan(array).any() for array in request.inputs.values()):
            raise InvalidArgument("audio: sample 3 is NaN")
        return speech(request)

    transport = FakeTransport(speech=picky)
    bad = seconds(40.0)
    bad[35 * RATE] = np.nan
    async with Client(transport=transport).listen() as stream:
        with pytest.raises(InvalidArgument, match="NaN"):
            await stream.send(bad[35 * RATE :])  # a refused START makes no stream
        await stream.send(seconds(1.0))
        with pytest.raises(InvalidArgument, match="NaN"):
            await stream.send(bad)
        assert stream.text == "what is a lambda"  # of the 30 s before the refused piece
        assert (await stream.send(seconds(1.0))).received_s == 32.0
        with pytest.raises(InvalidArgument, match="NaN"):
            await stream.end(bad[35 * RATE :])
        with pytest.raises(InvalidArgument, match="has ended"):
            await stream.send(seconds(1.0))
    assert [start for start, _ in controls(transport)] == [True, True, False, False, False, False]


@pytest.mark.parametrize(
    "error", [Unavailable("no room"), InternalError("it broke"), ModelNotFound("no version 2")]
)
async def test_a_stream_that_fails_on_the_server_is_over(speech, error):
    def fails(request):
        if transport.requests[1:]:
            raise error
        return speech(request)

    transport = FakeTransport(speech=fails)
    async with Client(transport=transport).listen() as stream:
        await stream.send(seconds(1.0))
        with pytest.raises(type(error), match=str(error)):
            await stream.send(seconds(1.0))
        with pytest.raises(InvalidArgument, match="the stream has failed: open another one"):
            await stream.send(seconds(1.0))
        assert stream.text == "what"
    assert len(transport.requests) == 2


async def test_a_lost_stream_says_that_it_cannot_be_taken_up_again(transport, speech):
    client = Client(transport=transport)
    transport.reachable = False
    async with client.listen() as stream:
        with pytest.raises(ConnectError, match="no server at nowhere$"):
            await stream.send(seconds(1.0))
    transport.reachable = True
    async with client.listen() as stream:
        await stream.send(seconds(1.0))
        transport.reachable = False
        with pytest.raises(ConnectError, match="the stream is lost: open another one"):
            await stream.send(seconds(1.0))
        transport.reachable = True
        with pytest.raises(ConnectionLost, match="open another one"):
            await stream.send(seconds(1.0))
        assert stream.text == "what"


def test_a_silent_server(speech):
    run_virtually(hear_nothing(speech))


async def hear_nothing(speech):
    async def silent(request):
        speech(request)
        await asyncio.sleep(0 if request.parameters["sequence_end"] else 30)
        return speech_outputs(final=True)

    client = Client(transport=FakeTransport(speech=silent), timeouts=Timeouts(silence=0.05))
    async with client.listen() as stream:
        with pytest.raises(Timeout):
            await stream.send(seconds(1.0))
        with pytest.raises(ConnectionLost):
            await stream.end()
    assert not speech.streams
    with pytest.raises(Timeout, match=r"0\.03 s"):
        await client.listen(timeout=0.03).send(seconds(1.0))


def test_the_last_words_may_take_longer_than_any_other_answer(speech):
    run_virtually(hear_last_words(speech))


async def hear_last_words(speech):
    async def slow(request):
        await asyncio.sleep(0.3 if request.parameters["sequence_end"] else 0)
        return speech(request)

    client = Client(transport=FakeTransport(speech=slow), timeouts=Timeouts(silence=0.1))
    async with client.listen() as stream:
        await stream.send(seconds(2.0))
        assert (await stream.end()).final
    async with client.listen(timeout=0.1) as stream:
        await stream.send(seconds(2.0))
        with pytest.raises(Timeout):  # who sets a deadline gets it
            await stream.end()


@pytest.mark.parametrize(
    "change", [{"words": None}, {"word_starts": np.zeros(2)}, {"final": np.zeros(0)}, {"committed": None}]
)
async def test_answers_that_are_not_the_contract(change):
    outputs = {**speech_outputs(Word(" a", 0.0, 0.1, 0.5)), **change}
    outputs = {name: array for name, array in outputs.items() if array is not None}
    with pytest.raises(ProtocolError, match="speech model"):
        await Client(transport=FakeTransport(speech=lambda request: outputs)).listen().send(seconds(1.0))


async def test_chunks_of_two_tasks_do_not_overtake_each_other(speech):
    async def slow(request):
        await asyncio.sleep(0.02 if request.parameters["sequence_start"] else 0)
        return speech(request)

    transport = FakeTransport(speech=slow)
    stream = Client(transport=transport).listen()
    await asyncio.gather(*(stream.send(np.full(320, number, np.float32)) for number in range(5)))
    await stream.end()
    assert sent(transport)[::320].tolist() == [0, 1, 2, 3, 4]


async def test_samples_are_transcribed_whole(transport):
    updates = []
    audio = seconds(25.0)
    transcript = await Client(transport=transport).transcribe(audio, on_update=updates.append, language="en")
    assert (transcript.text, transcript.seconds) == ("what is a lambda", 25.0)
    assert [word.start for word in transcript.words] == [0.1, 0.4, 1.0, 1.2]
    assert [update.received_s for update in updates] == [10, 20, 25, 25]
    assert transport.requests[0].parameters["policy"] == "file"
    assert transport.requests[0].parameters["language"] == "en"
    np.testing.assert_array_equal(sent(transport), audio)
    transport.requests.clear()
    await Client(transport=transport).transcribe(audio, policy="vad")
    assert transport.requests[0].parameters["policy"] == "vad"
    with pytest.raises(TypeError, match="int32"):
        await Client(transport=transport).transcribe(audio.astype(np.int32))


def heard(*words, received_s, final=False):
    return speech_outputs(
        *(Word(f" {word}", 0.1, 0.2, 0.9) for word in words), received_s=received_s, final=final
    )


class Scripted:
    """A speech model whose answers come in the order of a script, whatever that of the requests is."""

    def __init__(self, order, holds_news=True):
        self.holds_news = holds_news
        self.order, self.came = list(order), asyncio.Condition()
        self.kinds = []

    async def __call__(self, request):
        news = "after_s" in request.parameters
        kind = "news" if news else "end" if request.parameters["sequence_end"] else "chunk"
        self.kinds.append(kind)
        held = news and self.holds_news  # until the next request
        async with self.came:
            self.came.notify_all()
            await self.came.wait_for(
                lambda: self.order[0][0] == kind and not (held and self.kinds[-1] == kind)
            )
            _, answer = self.order.pop(0)
            self.came.notify_all()
        if isinstance(answer, Exception):
            raise answer
        return answer


async def test_words_come_while_nothing_is_sent(transport):
    stream = Client(transport=transport).listen()
    async with stream:
        await stream.send(seconds(0.9))
        assert stream.text == "what"
        update = await stream.news(asyncio.Event())
        assert (update.text, stream.text) == (" is", "what is")
        assert transport.requests[-1].parameters["after_s"] == 0.9
        assert not transport.requests[-1].inputs
        until = asyncio.Event()
        until.set()
        assert await stream.news(until) is None
        await stream.send(seconds(1.2))
        await stream.end()
    assert stream.text == "what is a lambda"


@pytest.mark.parametrize(
    "order",
    [
        [("news", heard("b", received_s=1)), ("chunk", heard("c", received_s=2))],
        [("chunk", heard("b", received_s=2)), ("news", heard("c", received_s=2))],  # it overtook on the way
    ],
)
async def test_the_answers_of_a_chunk_and_of_the_wait_that_it_ends_are_taken_in_order(order):
    speech = Scripted(
        [("chunk", heard("a", received_s=1)), *order, ("end", heard("d", received_s=2, final=True))]
    )
    stream = Client(transport=FakeTransport(speech=speech)).listen()
    async with stream:
        await stream.send(seconds(1.0))
        more = asyncio.Event()
        asyncio.get_running_loop().call_later(0.02, more.set)
        assert await stream.news(more) is None
        assert (await stream.send(seconds(1.0))).text == " b c"
        await stream.end()
    assert stream.text == "a b c d"
    assert speech.kinds == ["chunk", "news", "chunk", "end"]


@pytest.mark.parametrize("told", [heard("b", received_s=1), InvalidArgument("stream 1 is not open")])
async def test_an_end_may_end_the_wait_or_overtake_it(told):
    last = ("end", heard("c", received_s=1, final=True))
    order = [last, ("news", told)] if isinstance(told, Exception) else [("news", told), last]
    speech = Scripted([("chunk", heard("a", received_s=1)), *order])
    stream = Client(transport=FakeTransport(speech=speech)).listen()
    async with stream:
        await stream.send(seconds(1.0))
        more = asyncio.Event()
        asyncio.get_running_loop().call_later(0.02, more.set)
        await stream.news(more)
        assert (await stream.end()).final
    assert stream.text == ("a c" if isinstance(told, Exception) else "a b c")


async def test_a_stream_that_fails_while_nothing_is_sent():
    speech = Scripted([("chunk", heard("a", received_s=1)), ("news", Unavailable("no recogniser"))], False)
    stream = Client(transport=FakeTransport(speech=speech)).listen()
    await stream.send(seconds(1.0))
    with pytest.raises(Unavailable, match="no recogniser"):
        await stream.news(asyncio.Event())
    with pytest.raises(InvalidArgument, match="failed"):
        await stream.send(seconds(1.0))


async def test_a_stream_that_is_left_while_it_waits_for_news(transport):
    async with Client(transport=transport).listen() as stream:
        await stream.send(seconds(2.0))
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(stream.news(asyncio.Event()), 0.02)
    await until(lambda: transport.cancelled)
    assert transport.cancelled[0].parameters["after_s"] == 2.0
    assert transport.requests[-1].parameters["sequence_end"]


async def test_a_stream_that_another_task_closes_while_one_waits_for_news(transport):
    """It was told that it was cancelled itself."""
    stream = Client(transport=transport).listen()
    await stream.send(seconds(2.0))
    waiting = asyncio.ensure_future(stream.news(asyncio.Event()))
    await until(lambda: "after_s" in transport.requests[-1].parameters)
    await stream.aclose()
    assert await waiting is None


async def test_a_stream_is_closed_after_its_client(speech):
    """A request for news that the client had cancelled cancelled the task that closed the stream."""

    async def leaving(request):
        if "after_s" in request.parameters:
            await asyncio.sleep(0.01)
            raise asyncio.CancelledError
        return speech(request)

    stream = Client(transport=FakeTransport(speech=leaving)).listen()
    await stream.send(seconds(1.0))
    until = asyncio.Event()
    until.set()
    assert await stream.news(until) is None
    await asyncio.sleep(0.05)
    await stream.aclose()
    assert not speech.streams
