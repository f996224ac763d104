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


def test_one_clock_needs_no_offset() -> None:
    assert clock_offset(1_000, [2_000, 5_000], [(6_000, 7_000)]) is None
    # Taken a moment before and after by different processes, they may seem to be out of order.
    assert clock_offset(1_000_000, [990_000], [(2_010_000, 2_000_000)]) is None


def test_another_machine_s_offset_is_the_middle_of_its_bounds() -> None:
    ahead = 7_000_000_000
    sent, arrived, made, received = 0, 1_000_000, 9_000_000, 11_000_000
    found = clock_offset(sent, [arrived + ahead, made + ahead], [(made + ahead, received)])
    # 1 ms there and 2 ms back: the offset is known to half of the sum.
    assert found == (ahead - 500_000, 1_500_000)


def test_a_clock_that_is_behind() -> None:
    offset = clock_offset(5_000_000_000, [1_000_000], [(2_000_000, 5_002_000_000)])
    assert offset == (-4_999_500_000, 500_000)


def test_the_tightest_of_many_arrivals_counts() -> None:
    ahead = 10**12
    arrivals = [(ahead + 2_000_000, 9_000_000), (ahead + 8_000_000, 8_100_000)]
    assert clock_offset(0, [ahead + 100_000], arrivals) == (ahead, 100_000)
