import pytest

from tests.explain.recorded import text_outputs
from trimodal.client import FakeTransport
from trimodal.client.transports.base import Request, Timeouts
from trimodal.errors import InternalError, Unavailable
from trimodal.explain.exchange import Exchange, Response, exchange, on_one_clock


def llm(*pieces):
    async def model(request):
        for one in pieces:
            if isinstance(one, Exception):
                raise one
            yield one

    return model


async def test_each_response_has_its_time_and_the_empty_last_one_is_none() -> None:
    transport = FakeTransport(llm=llm(text_outputs("a", 1), text_outputs("b", 2), {}))
    done = await exchange(transport, Request("llm", {}), Timeouts(), streamed=True)
    assert [one.outputs["text_output"][0] for one in done.responses] == [b"a", b"b"]
    times = [done.sent, *(one.received for one in done.responses)]
    assert times == sorted(times)
    assert done.received == times[-1]


async def test_a_request_that_is_refused_or_never_answered() -> None:
    for model, kind in ((llm(Unavailable("full")), Unavailable), (llm({}), InternalError)):
        with pytest.raises(kind):
            await exchange(FakeTransport(llm=model), Request("llm", {}), Timeouts(), streamed=True)


async def test_one_response_of_a_model_that_does_not_stream() -> None:
    transport = FakeTransport(vision=lambda request: text_outputs("a", 1))
    done = await exchange(transport, Request("vision", {}), Timeouts(), streamed=False)
    assert len(done.responses) == 1
    assert done.received > done.sent


AHEAD = 7_000_000_000


@pytest.mark.parametrize(
    ("begin", "end", "moved"),
    [
        (2_000, 9_000, 0),
        # Taken a moment before and after by different processes, they may seem to be out of order.
        (-40_000, 50_000, 0),
        (AHEAD + 1_000, AHEAD + 9_000, 1_000 - AHEAD),
        (-AHEAD, -AHEAD + 9_000, 1_000 + AHEAD),
    ],
)
def test_times_of_another_machine_s_clock_are_moved_to_end_with_the_answer(begin, end, moved):
    done = Exchange(0, [Response(10_000, {})])
    spans = [{"name": "a", "begin": begin, "end": end}]
    (found,) = on_one_clock(done, spans)
    assert (found["begin"], found["end"]) == (begin + moved, end + moved)
