import json
import random
import re
import threading
from pathlib import Path

import pytest

from tests.llm.doubles.sinks import Collector, FakeServer, counts, eventually
from trimodal.errors import Cancelled, InvalidArgument, Unavailable
from trimodal.llm.engines.protocol import Sampling
from trimodal.llm.request.outputs import Delta
from trimodal.llm.request.request import GenerationRequest
from trimodal.llm.request.terms import ProbeRequest


def test_a_probe_is_told_how_long_a_request_may_be() -> None:
    with FakeServer(num_kv_blocks=64) as server:
        probe = server.submit(ProbeRequest())
        assert json.loads(probe.wait().text) == {"max_model_len": 2048, "created": 0}


def test_text_piles_up_for_a_slow_client_and_holds_up_no_other() -> None:
    go_on = threading.Event()

    class Slow(Collector):
        def send(self, delta: Delta) -> None:
            assert go_on.wait(20)
            super().send(delta)

    with FakeServer() as server:
        slow = Slow()
        server.service.submit(GenerationRequest("hello", None, Sampling(60)), slow)
        fast = server.ask(max_tokens=60).wait()
        eventually(lambda: counts(server.service)[0] == 0)
        go_on.set()
        assert slow.wait().text == fast.text
        assert len(slow.deltas) <= 2, "what the first one did not hold is one delta"


def test_too_much_is_refused_up_front_and_harms_nobody() -> None:
    with FakeServer(num_kv_blocks=8, max_prompt_tokens=2000) as server:
        running = server.ask(max_tokens=100)
        with pytest.raises(InvalidArgument, match="KV pool holds 256"):
            server.ask("x" * 300)
        assert running.wait().deltas[-1].finish_reason == "length"
        assert server.value("requests_total", outcome="invalid_arg") == 1


def test_a_full_queue_is_unavailable_and_the_rest_is_answered() -> None:
    with FakeServer(max_num_seqs=1, max_queue=2) as server:
        answers = [server.ask(max_tokens=200) for _ in range(3)]
        with pytest.raises(Unavailable, match="max_queue is 2"):
            server.ask()
        for answer in answers:
            assert answer.wait().deltas[-1].finish_reason == "length"


def test_fifty_cancellations_leave_eight_others_unharmed() -> None:
    rng = random.Random(0)
    with FakeServer(max_num_seqs=16, max_num_batched_tokens=64, num_kv_blocks=1024) as server:
        prompts = [f"stays {index}" for index in range(8)]
        solo = [server.ask(prompt, max_tokens=150).wait().text for prompt in prompts]
        staying = [server.ask(prompt, max_tokens=150) for prompt in prompts]
        leaving = []
        for index in range(50):
            answer = server.ask(f"leaves {index} " * rng.randint(1, 30), max_tokens=900)
            leaving.append(answer)
            threading.Timer(rng.random() * 0.1, setattr, (answer, "cancelled", True)).start()
        assert all(isinstance(answer.wait().error, Cancelled) for answer in leaving)
        assert [answer.wait().text for answer in staying] == solo
        assert not any(answer.after_end for answer in [*staying, *leaving]), "nothing may follow the end"
        server.nothing_left()
        assert server.value("requests_total", outcome="cancelled") == 50


def test_counts_and_times_are_kept() -> None:
    with FakeServer() as server:
        server.ask(max_tokens=10).wait()
        eventually(lambda: server.value("requests_total", outcome="length") == 1)
        eventually(lambda: server.value("tokens_total", kind="completion") == 10)
        series = {name for name, _ in server.metrics.series}
        assert {f"trimodal_llm_{name}_seconds" for name in ("ttft", "itl", "queue", "e2e")} <= series
        for name in ("ttft", "queue", "e2e"):
            assert server.metrics.get(f"trimodal_llm_{name}_seconds", {"model": "llm"}).observations
        itl = server.metrics.get("trimodal_llm_itl_seconds", {"model": "llm"})
        # Tokens that pile up go as one piece, and no time lies between pieces then.
        eventually(lambda: bool(server.ask(max_tokens=10).wait() and itl.observations))


def test_a_drain_at_its_limit_ends_what_runs(tmp_path: Path) -> None:
    stop = tmp_path / "stop"
    with FakeServer(stop_file=str(stop)) as server:
        answers = [server.ask(max_tokens=1000) for _ in range(3)]
        eventually(lambda: bool(answers[0].deltas))
        stop.touch()
        assert {str(answer.wait().error) for answer in answers} == {"the server is shutting down"}


def test_a_request_is_followed_by_its_id_into_the_engine(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("DEBUG", logger="trimodal"), FakeServer() as server:
        sink = Collector()
        server.service.submit(GenerationRequest("hello", None, Sampling(3)), sink, "req_1")
        sink.wait()
    (handed,) = [one for one in caplog.records if getattr(one, "request_id", "") == "req_1"]
    found = re.fullmatch(r"goes to the engine as (sequence \d+)", handed.getMessage())
    assert found
    assert f"{found[1]} begins" in caplog.messages
