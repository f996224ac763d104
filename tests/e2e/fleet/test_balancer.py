"""Three real servers behind HAProxy: who gets what, restarts under load, a kill."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import tritonclient.grpc as grpcclient

from tests.e2e.conftest import wait_until
from tests.e2e.fleet.load import BEARER, clients, kill_one, listen, restart_all, speech
from tests.e2e.fleet.proxy import SERVERS, Proxy, running
from tests.e2e.fleet.servers import Fleet, fleet
from trimodal.client.decoding import read
from trimodal.errors import TrimodalError, Unavailable

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


@pytest.fixture(scope="module")
def started(_environment: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with fleet(tmp_path_factory.mktemp("fleet"), fake_step_ms="20") as servers:
        yield servers


@pytest.fixture
def proxy(started: Fleet, tmp_path: Path) -> Iterator[Proxy]:
    with running(tmp_path, started.addresses()) as balancer:
        balancer.settle(len(SERVERS))
        yield balancer


async def test_one_prefix_is_one_server_whose_cache_has_it(proxy: Proxy) -> None:
    prompt = "a text that is long enough for several blocks of the cache " * 4
    async with clients(proxy.grpc) as at:
        for _ in range(4):
            answer = await at.marked(prefix="one").complete(prompt, max_tokens=2)
            # The client has its answer a moment before HAProxy counts the request as ended, and past one that
            # has 1.5 times the mean the next server is asked.
            await asyncio.to_thread(
                wait_until, lambda: not any(proxy.counted("scur", "grpc_by_prefix").values()), "the end"
            )
    assert answer.usage.cached > 100
    assert sorted(proxy.counted("stot", "grpc_by_prefix").values()) == [0, 0, 4]


def test_one_grpc_stream_of_speech_stays_where_it_began(proxy: Proxy) -> None:
    samples, said = speech(seed=5, words=8)
    updates, failed = [], []

    def take(result: grpcclient.InferResult | None, error: object) -> None:
        if error or result is None:
            failed.append(error)
            return
        names = [one.name for one in result.get_response().outputs]
        updates.append(read({name: result.as_numpy(name) for name in names}))

    with grpcclient.InferenceServerClient(proxy.grpc) as client:
        client.start_stream(take, headers=dict(BEARER))
        pieces = np.array_split(samples, 20)
        for index, piece in enumerate(pieces):
            audio = grpcclient.InferInput("audio", [1, len(piece)], "FP32")
            audio.set_data_from_numpy(piece.reshape(1, -1))
            first, last = index == 0, index == len(pieces) - 1
            client.async_stream_infer(
                "speech", [audio], sequence_id=4711, sequence_start=first, sequence_end=last
            )
        wait_until(lambda: failed or len(updates) == len(pieces), "an answer to each chunk")
        client.stop_stream()
    assert not failed
    assert [word.text for update in updates for word in update.committed] == said


async def test_chunks_in_single_requests_find_their_stream(proxy: Proxy) -> None:
    """By x-trimodal-session; without it all streams of this address are on one server."""
    async with clients(proxy.grpc) as at:
        spoken = [speech(seed, words=6) for seed in range(6)]
        heard = await asyncio.gather(*(listen(at, samples, resume=False) for samples, _ in spoken))
        assert [one.texts for one in heard] == [said for _, said in spoken]
        assert set(proxy.counted("stot", "grpc_stream_new").values()) == {2}
        samples, said = spoken[0]
        async with at.marked().listen() as stream:
            for start in range(0, len(samples), 3200):
                await stream.send(samples[start : start + 3200])
            await stream.end()
        assert [word.text for word in stream.words] == said
    assert sorted(proxy.counted("stot", "grpc_by_client").values())[:2] == [0, 0]


async def test_where_no_server_is_left_the_error_is_typed(proxy: Proxy) -> None:
    async with clients(proxy.grpc) as at:
        for name in SERVERS:
            assert proxy.drain(name) == (0, "")
        try:
            with pytest.raises(Unavailable, match="no server takes this request now") as refused:
                await at.look()
            assert refused.value.retry_after_s == 1
        finally:
            for name in SERVERS:
                assert proxy.drain(name, "--resume") == (0, "")
        await at.look()


async def test_each_server_is_restarted_under_load_and_nothing_is_lost(started: Fleet, proxy: Proxy) -> None:
    before = [server.pid for server in started.servers]
    async with clients(proxy.grpc) as at:
        found = await restart_all(at, proxy, started)
    assert not set(before) & {server.pid for server in started.servers}
    assert (found.tally.failed, found.tally.lost) == ({}, 0), found.tally.sentences
    assert min(found.tally.done[kind] for kind in ("text", "picture", "speech")) > 10


async def test_a_live_stream_that_outlasts_the_drain_is_begun_again_and_loses_no_word(
    started: Fleet, proxy: Proxy
) -> None:
    """What is not final yet is said again to another server."""
    samples, said = speech(seed=9, words=24)
    async with clients(proxy.grpc) as at:
        speaking = asyncio.ensure_future(listen(at, samples))
        await asyncio.sleep(4.0)
        counted = proxy.counted("stot", "grpc_stream_new")
        place = [name for name, count in counted.items() if count].pop()
        number = SERVERS.index(place)
        metrics = started.servers[number].metrics_url
        code, told = await asyncio.to_thread(proxy.drain, place, "--metrics", metrics, "--timeout", "1")
        assert (code, told) == (1, f"drain: after 1 s 1 still run on {place}\n")
        try:
            await asyncio.to_thread(started.servers[number].stop, 1.0)
            heard = await speaking
        finally:
            await asyncio.to_thread(started.again, number)
            assert proxy.drain(place, "--resume") == (0, "")
    assert heard.begun_again == 1
    assert heard.texts == said


async def test_a_killed_server_costs_what_was_in_it_and_nothing_else(started: Fleet, proxy: Proxy) -> None:
    async with clients(proxy.grpc) as at:
        found = await kill_one(at, proxy, started)
    failed = found.tally.failed
    assert found.at_the_server > 0
    assert sum(failed.values()) <= found.at_the_server, found.tally.sentences
    # What had told nothing yet was asked again; a text that had begun ends with an error that says so.
    assert {name.split()[1] for name in failed} <= {"ConnectionLost", "Unavailable"}
    assert found.tally.lost == 0
    assert min(found.tally.done[kind] for kind in ("text", "picture", "speech")) > 5


async def test_a_lost_stream_s_error_says_begin_another(started: Fleet, proxy: Proxy) -> None:
    samples, _ = speech(seed=3, words=12)
    async with clients(proxy.grpc) as at:
        speaking = asyncio.ensure_future(listen(at, samples, resume=False))
        await asyncio.sleep(2.0)
        place = [name for name, count in proxy.counted("stot", "grpc_stream_new").items() if count].pop()
        number = SERVERS.index(place)
        try:
            await asyncio.to_thread(started.servers[number].kill)
            with pytest.raises(TrimodalError, match=r"no server takes|was lost|went away|begin it again"):
                await speaking
        finally:
            await asyncio.to_thread(started.again, number)
