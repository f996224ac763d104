"""The trace of one request: what it holds, and that the others have nothing of it."""

from __future__ import annotations

import pytest

from tests.llm.doubles.sinks import Collector, FakeServer
from trimodal.llm.engines.protocol import Sampling
from trimodal.llm.frontend import request_state
from trimodal.llm.request.outputs import columns
from trimodal.llm.request.request import GenerationRequest, read_request
from trimodal.llm.settings import LlmSettings
from trimodal.trace import read
from trimodal.triton.fields import Inputs


def ask(server: FakeServer, *, trace: bool) -> Collector:
    sink = Collector()
    request = GenerationRequest("hello", None, Sampling(12), trace=trace)
    server.service.submit(request, sink)
    return sink.wait()


def test_it_tells_every_step_in_order_and_each_text() -> None:
    with FakeServer() as server:
        sink = ask(server, trace=True)
    *before, last = map(columns, sink.deltas)
    assert not [one for one in before if "trace" in one], "only the last response has it"
    spans = read(last)
    steps = [one for one in spans if one["name"] != "text"]
    assert [one["name"] for one in steps] == ["tokenize", "admission", "queue", "first token", "next tokens"]
    for one, after in zip(steps, steps[1:], strict=False):
        assert one["begin"] <= one["end"] == after["begin"]
    texts = [one for one in spans if one["name"] == "text"]
    assert steps[3]["end"] == texts[0]["begin"]
    assert steps[4]["end"] == texts[-1]["begin"]
    assert texts[-1]["tokens"] == 12
    queued = sink.deltas[-1].note.queue_s * 1e9
    assert steps[2]["end"] - steps[0]["begin"] == pytest.approx(queued, abs=2)


def test_a_request_that_does_not_ask_pays_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[float] = []

    class Counted(request_state.RequestTrace):
        def __init__(self, arrived: float) -> None:
            made.append(arrived)
            super().__init__(arrived)

    monkeypatch.setattr(request_state, "RequestTrace", Counted)
    with FakeServer() as server:
        sink = ask(server, trace=False)
        assert not made
        assert not [delta for delta in sink.deltas if "trace" in columns(delta)]
        ask(server, trace=True)
    assert len(made) == 1


@pytest.mark.parametrize(("parameters", "wanted"), [({}, False), ({"trace": True}, True)])
def test_the_parameter_says_so(parameters: dict[str, bool], wanted: bool) -> None:
    import numpy as np

    inputs: Inputs = {"text_input": np.array([b"hello"], object)}
    request = read_request(inputs, parameters, LlmSettings(engine="fake"))
    assert isinstance(request, GenerationRequest)
    assert request.trace is wanted
