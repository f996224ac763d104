import pytest

from tests.explain.recorded import text_outputs
from trimodal.client import FakeTransport
from trimodal.client.transports.base import Request, Timeouts
from trimodal.errors import InternalError, Unavailable
from trimodal.explain.exchange import clock_offset, exchange


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
    ("sent", "events", "arrivals", "found"),
    [
        (1_000, [2_000, 5_000], [(6_000, 7_000)], None),
        # Taken a moment before and after by different processes, they may seem to be out of order.
        (1_000_000, [990_000], [(2_010_000, 2_000_000)], None),
        # 1 ms there and 2 ms back: the offset is known to half of the sum.
        (0, [AHEAD + 1_000_000], [(AHEAD + 9_000_000, 11_000_000)], (AHEAD - 500_000, 1_500_000)),
        (5_000_000_000, [1_000_000], [(2_000_000, 5_002_000_000)], (-4_999_500_000, 500_000)),
        # The tightest of many arrivals counts.
        (0, [AHEAD + 100_000], [(AHEAD + 2, 9_000_000), (AHEAD + 8_000_000, 8_100_000)], (AHEAD, 100_000)),
    ],
)
def test_the_offset_of_another_machine_s_clock_is_the_middle_of_its_bounds(sent, events, arrivals, found):
    assert clock_offset(sent, events, arrivals) == found
