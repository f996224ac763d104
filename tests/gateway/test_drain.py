"""What clients are told when the gateway ends before their answers do."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading

import httpx
import pytest

from tests.gateway.conftest import CHAT, LIMIT_S, fake_triton
from trimodal.client.transports.fake import llm_outputs, scripted
from trimodal.gateway.server import GatewayServer
from trimodal.gateway.settings import GatewaySettings


def ask(url: str, stream: bool) -> tuple[int, str]:
    body = {"model": "llm", "messages": CHAT, "stream": stream}
    answer = httpx.post(f"{url}/v1/chat/completions", json=body, timeout=LIMIT_S)
    return answer.status_code, answer.text


@pytest.mark.parametrize(
    ("stream", "words", "status"), [(True, ["word"], 200), (True, [], 503), (False, ["word"], 503)]
)
def test_what_outlasts_the_drain_is_told_so(stream: bool, words: list[str], status: int) -> None:
    begun = threading.Event()

    async def endless(request):  # type: ignore[no-untyped-def]
        for word in words:
            yield llm_outputs(word)
        begun.set()
        await asyncio.sleep(LIMIT_S)
        yield llm_outputs("", "stop")

    triton = fake_triton(llm=endless)
    server = GatewayServer(GatewaySettings(port=0, drain_timeout_s=0.0), lambda address: triton)
    url = server.listen()
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        with server.serving():
            asked = pool.submit(ask, url, stream)
            assert begun.wait(LIMIT_S)
        found, text = asked.result(LIMIT_S)
    assert found == status
    assert '"code":"shutting_down"' in text
    assert "[DONE]" not in text
    assert len(triton.cancelled) == 1


def test_what_ends_in_time_is_whole() -> None:
    triton = fake_triton(llm=scripted("word " * 20, step=0.01))
    server = GatewayServer(GatewaySettings(port=0, drain_timeout_s=LIMIT_S), lambda address: triton)
    url = server.listen()
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        with server.serving():
            asked = pool.submit(ask, url, True)
            while not triton.requests:
                assert not asked.done()
        status, text = asked.result(LIMIT_S)
    assert status == 200
    assert "[DONE]" in text
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{url}/ready")
