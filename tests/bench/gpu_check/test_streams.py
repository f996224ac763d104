"""What is asked of a language model's engine, on the fake one."""

import pytest

from trimodal.bench.gpu_check import streams
from trimodal.bench.gpu_check.load import LLAMA_8B, Shape, fitting
from trimodal.bench.gpu_check.timing import percentiles, timed
from trimodal.errors import ServerError
from trimodal.llm.engines.fake import FakeEngine
from trimodal.llm.engines.protocol import Output
from trimodal.llm.settings import LlmSettings


@pytest.fixture
def engine():
    return FakeEngine(LlmSettings(engine="fake", fake_step_ms=0.2, num_kv_blocks=512, max_num_seqs=8))


def test_streams_that_run_together_give_a_rate_and_times(engine):
    found = streams.together(engine, 3, 20, 5, vocabulary=256, seed=0)
    assert found["tokens_s"] > 0
    assert 0 < found["itl_p50"] <= found["itl_p99"]
    assert 0 < found["ttft_p50"] <= found["ttft_p99"]
    assert not engine.has_work()


def test_an_abort_that_frees_blocks_and_one_that_does_not(engine, monkeypatch):
    found = streams.abort(engine, 64, vocabulary=256)
    assert found["freed"] is True
    assert found["kv_usage_after"] < found["kv_usage_before"] / 2
    cancelled = []
    monkeypatch.setattr(engine, "cancel", cancelled.append)
    monkeypatch.setattr(streams, "FREED_S", 0.05)
    found = streams.abort(engine, 64, vocabulary=256)
    assert found["freed"] is False
    assert len(cancelled) == 8


@pytest.mark.parametrize("caching", [True, False])
def test_a_prompt_s_second_time_comes_from_the_cache_if_there_is_one(caching):
    settings = LlmSettings(engine="fake", fake_step_ms=0.2, enable_prefix_caching=caching)
    found = streams.prefix(FakeEngine(settings), 128, vocabulary=256)
    assert found["first_cached"] == 0
    assert (found["second_cached"] > 0) is caching


def test_a_long_prompt_in_one_step_stalls_the_others_for_it():
    settings = LlmSettings(engine="fake", fake_step_ms=0.2, fake_prefill_us=50, max_num_batched_tokens=2048)
    found = streams.stall(FakeEngine(settings), 1200, vocabulary=256)
    assert found["longest_ms"] >= 59  # 1,200 tokens of 50 µs
    assert found["prompt_ms"] >= 59


def test_a_sequence_that_fails_ends_the_measurement_with_its_reason(engine, monkeypatch):
    stream = streams.add(engine, [1, 2, 3], 4)
    monkeypatch.setattr(engine, "step", lambda: [Output(stream.id, [], "error", error="no memory")])
    with pytest.raises(ServerError, match="no memory"):
        list(streams.steps(engine, [stream]))
    monkeypatch.setattr(streams, "LIMIT_S", -1.0)
    monkeypatch.setattr(engine, "step", list)
    with pytest.raises(ServerError, match="not done after"):
        list(streams.steps(engine, [stream]))


def test_the_decoder_that_is_made_up_has_the_parameters_of_its_model_and_fits_the_card():
    assert LLAMA_8B.parameters == pytest.approx(7.5e9, rel=0.01)  # Llama 3.1 8B without its embeddings
    assert fitting(LLAMA_8B, 80 << 30) == LLAMA_8B
    small = fitting(LLAMA_8B, 24 << 30)
    assert 1 < small.layers < 32
    assert 2 * small.parameters <= 12 << 30
    assert fitting(Shape(64, 64, 64, 4, 64), 0).layers == 1


def test_times_are_of_calls_after_the_warm_up():
    calls = []
    found = timed(lambda: calls.append(1), items=4, seconds=0.01, rounds=3)
    assert found["calls"] == len(calls) - 2
    assert found["rate"] > 0
    assert percentiles([0.003, 0.001, 0.002]) == {"p50": 2.0, "p95": 3.0, "p99": 3.0}
