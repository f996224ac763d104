"""Engines that do not open, die, stand still or end: nobody waits, nothing is left, the next one answers."""

from __future__ import annotations

import contextlib
import os
import signal

import pytest

from tests.doubles.processes import running
from tests.llm.contract.conftest import settings
from tests.llm.contract.served import SECONDS, Client, Served, stopped
from tests.llm.doubles.sinks import eventually
from trimodal.errors import OperatorError, Unavailable
from trimodal.llm.engine_core.client import start_process
from trimodal.llm.settings import LlmSettings

# Changes that do not fit → what is said of them.
UNFIT: dict[str, list[tuple[dict[str, object], str]]] = {
    "fake": [({"num_kv_blocks": 2}, "num_kv_blocks")],
    "openvino": [({"artefact": "/nowhere"}, "/nowhere")],
    "vllm": [
        ({"max_num_batched_tokens": 2}, "'max_num_batched_tokens' = 2"),
        ({"engine_args": "--enable-sleep-mode"}, "Sleep mode is not supported on current platform"),
    ],
}


def streaming(served: Served, count: int = 2) -> list[Client]:
    """Clients that have begun to get long answers."""
    clients = [served.ask("Tell me a story.", max_tokens=900, ignore_eos=True) for _ in range(count)]
    eventually(lambda: all(client.deltas for client in clients), SECONDS)
    return clients


def test_bad_settings(engine: str) -> None:
    for changes, words in UNFIT[engine]:
        with pytest.raises((OperatorError, ValueError), match=words) as raised:
            start_process(LlmSettings.model_validate(settings(engine) | changes))
        assert "Traceback" not in str(raised.value)


def replaced(served: Served, clients: list[Client], old: list[int]) -> None:
    """All are told, the next engine answers, and nothing of the old one is left."""
    for client in clients:
        assert isinstance(client.refusal(), Unavailable)
    served.answers_again()
    assert not [pid for pid in old if running(pid)]


def test_killed_core(served: Served) -> None:
    clients, old = streaming(served), served.processes()
    os.kill(served.core(), signal.SIGKILL)
    replaced(served, clients, old)
    served.nothing_left()


def test_killed_worker(served: Served) -> None:
    clients, old = streaming(served), served.processes()
    os.kill(served.worker(), signal.SIGKILL)
    replaced(served, clients, old)


@pytest.mark.slow
def test_stopped_core(served: Served) -> None:
    clients, old = streaming(served), served.processes()
    with stopped(served.core()):
        replaced(served, clients, old)


def test_drain(served: Served) -> None:
    clients, old = streaming(served), served.processes()
    served.close()
    for client in clients:
        assert isinstance(client.refusal(), Unavailable)
    with contextlib.suppress(Unavailable):
        served.ask("Hello").refusal()
        pytest.fail("it takes requests after its end")
    assert not [pid for pid in old if running(pid)]
