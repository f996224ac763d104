"""TensorRT-LLM's two runtimes as engines, against doubles of its stubs: asked, played, cancelled, lost."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.llm.core_rig import Loop
from tests.llm.sinks import eventually
from tests.llm.tensorrt_llm_rig import H100, WARM_UP, PlayedLlm, artefact
from trimodal.errors import OperatorError
from trimodal.llm import gpu_artefact, tensorrt_llm_runtime
from trimodal.llm.engine import Engine, EngineRequest, Sampling, open_engine
from trimodal.llm.settings import LlmSettings


@pytest.fixture
def llm(tensorrt_llm_double: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> PlayedLlm:
    monkeypatch.setattr(gpu_artefact, "visible_gpus", lambda: [H100])
    return PlayedLlm(tensorrt_llm_double)


def settings(directory: Path, engine: str = "tensorrt_llm", **changes: Any) -> LlmSettings:
    runtime = "tensorrt_llm" if engine == "tensorrt_llm" else "checkpoint"
    values = {"engine": engine, "artefact": str(artefact(directory / runtime, runtime)), "max_num_seqs": 4}
    return LlmSettings.model_validate(values | changes)


@pytest.fixture(params=["tensorrt_llm", "tensorrt_llm_pytorch"])
def engine(request: pytest.FixtureRequest, llm: PlayedLlm, tmp_path: Path) -> Iterator[Engine]:
    opened = open_engine(settings(tmp_path, request.param))
    yield opened
    opened.close()
    assert len(llm.recorder.named("BaseLLM.shutdown")) == 1


def ask(id: int, first: int, **sampling: Any) -> EngineRequest:
    return EngineRequest(id, [first, 7, 7], Sampling(**({"max_tokens": 20} | sampling)))


def opened_with(llm: PlayedLlm) -> dict[str, Any]:
    """The arguments of the LLM that was opened."""
    (call,) = llm.recorder.named("LLM")
    return dict(call.arguments)


def test_a_compiled_engine_is_opened_with_the_settings(llm: PlayedLlm, tmp_path: Path) -> None:
    chosen = settings(
        tmp_path,
        max_num_batched_tokens=1024,
        max_model_len=1500,
        num_kv_blocks=100,
        host_cache_bytes=1 << 30,
        kv_cache_free_gpu_memory_fraction=0.5,
        enable_chunked_prefill=False,
        capacity_scheduler_policy="MAX_UTILIZATION",
    )
    engine = open_engine(chosen)
    (call,) = llm.recorder.named("_tensorrt_engine.LLM")
    given: Any = dict(call.arguments)
    kv, scheduler = given.pop("kv_cache_config"), given.pop("scheduler_config")
    assert given == {
        "model": str(chosen.artefact_directory),
        "skip_tokenizer_init": True,
        "enable_chunked_prefill": False,
        "speculative_config": None,
        "max_batch_size": 4,
        "max_num_tokens": 1024,
        "max_seq_len": 1500,
    }
    assert (kv.enable_block_reuse, kv.free_gpu_memory_fraction, kv.max_tokens) == (True, 0.5, 3200)
    assert (kv.host_cache_size, kv.dtype) == (1 << 30, "auto")
    assert scheduler.capacity_scheduler_policy.name == "MAX_UTILIZATION"
    # With host blocks the reported maximum is not the GPU's: what is free while nothing runs is.
    info = engine.info
    assert (info.name, info.precision, info.num_kv_blocks, info.block_tokens) == (
        "tensorrt_llm",
        "fp8",
        750,
        32,
    )
    assert (info.max_num_seqs, info.max_model_len, info.lookahead) == (4, 1500, 0)
    assert info.extra == {"source": "tiny", "tensorrt_llm": llm.recorder.calls and "1.2.1"}
    engine.close()


def test_a_checkpoint_is_opened_by_the_pytorch_runtime(
    llm: PlayedLlm, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setattr(gpu_artefact, "visible_gpus", lambda: [H100] * 4)
    chosen = settings(
        tmp_path,
        "tensorrt_llm_pytorch",
        tensor_parallel_size=2,
        pipeline_parallel_size=2,
        kv_cache_dtype="fp8",
        enable_prefix_caching=False,
    )
    engine = open_engine(chosen)
    assert llm.recorder.named("_tensorrt_engine.LLM") == []
    given = opened_with(llm)
    assert (given["tensor_parallel_size"], given["pipeline_parallel_size"]) == (2, 2)
    assert (given["max_seq_len"], given["max_num_tokens"], given["enable_iter_perf_stats"]) == (
        4096,
        8192,
        True,
    )
    assert (given["kv_cache_config"].dtype, given["kv_cache_config"].enable_block_reuse) == ("fp8", False)
    assert given["kv_cache_config"].max_tokens is None
    assert engine.info.num_kv_blocks == 1000
    engine.close()


def test_a_short_request_comes_before_all_figures_and_clients(llm: PlayedLlm, engine: Engine) -> None:
    names = [call.name.rpartition(".")[2] for call in llm.recorder.calls]
    assert names.index("generate_async") < names.index("get_stats_async")
    (warm,) = llm.recorder.named("BaseLLM.generate_async")
    assert warm.arguments["inputs"] == WARM_UP
    assert llm.aborted() == []
    assert not engine.has_work()
    assert (engine.stats().running, engine.stats().kv_usage) == (0, 0.0)


@pytest.mark.parametrize(
    ("sampling", "expected"),
    [
        ({}, {"top_k": 1, "temperature": None, "top_p": None, "seed": None, "max_tokens": 20}),
        (
            {"temperature": 0.7, "top_p": 0.9, "top_k": 40, "seed": 5, "max_tokens": 3},
            {"top_k": 40, "temperature": 0.7, "top_p": 0.9, "seed": 5, "max_tokens": 3},
        ),
        ({"temperature": 1.0}, {"top_k": 0, "temperature": 1.0, "top_p": 1.0}),
    ],
)
def test_sampling_in_the_librarys_words(
    llm: PlayedLlm, engine: Engine, sampling: dict[str, Any], expected: dict[str, Any]
) -> None:
    engine.add(ask(1, 101, **sampling))
    eventually(lambda: llm.prompts() == [[101, 7, 7]])
    call = llm.recorder.named("BaseLLM.generate_async")[-1]
    given: Any = call.arguments["sampling_params"]
    assert {name: getattr(given, name) for name in expected} == expected
    assert (given.end_id, given.stop_token_ids, given.detokenize) == (2, [3], False)
    assert call.arguments["streaming"] is True
    if "seed" not in expected:
        assert isinstance(given.seed, int)  # its own default is one fixed seed


def test_streams_interleave_cancel_and_end(llm: PlayedLlm, engine: Engine) -> None:
    loop = Loop(engine)
    for id in (1, 2, 3):
        loop.link.add(ask(id, 100 + id))
    eventually(lambda: len(llm.prompts()) == 3)
    llm.say(101, [11])
    llm.say(102, [21, 22])
    eventually(lambda: loop.tokens(1) == [11] and loop.tokens(2) == [21, 22])
    eventually(lambda: loop.steps[-1].stats.kv_usage == 0.25)
    loop.link.cancel(2)
    eventually(lambda: llm.aborted() == [102])
    llm.say(102, [23], "cancelled")
    llm.say(101, [12], "stop", cached_tokens=2)
    llm.say(103, [31, 32], "length")
    assert (loop.end(1).finish_reason, loop.end(1).cached_tokens) == ("stop", 2)
    assert loop.end(3).finish_reason == "length"
    assert (loop.tokens(1), loop.tokens(2), loop.tokens(3)) == ([11, 12], [21, 22], [31, 32])
    eventually(lambda: loop.steps[-1].stats.running == 0)
    assert loop.steps[-1].stats.kv_usage == 0.0
    assert llm.aborted() == [102]
    assert len(llm.threads) == 1, "all requests live on one loop"
    loop.link.close()


def test_a_stop_token_that_the_library_takes_back_is_no_token(llm: PlayedLlm, engine: Engine) -> None:
    loop = Loop(engine)
    loop.link.add(ask(1, 101))
    eventually(lambda: len(llm.prompts()) == 1)
    llm.say(101, [11])
    eventually(lambda: loop.tokens(1) == [11])
    llm.say(101, [], "stop", token_ids=[])
    assert loop.end(1).token_ids == []
    loop.link.close()


@pytest.mark.parametrize("reason", ["timeout", "cancelled"])
def test_an_end_that_nobody_asked_for_is_an_error(llm: PlayedLlm, engine: Engine, reason: str) -> None:
    loop = Loop(engine)
    loop.link.add(ask(1, 101))
    eventually(lambda: len(llm.prompts()) == 1)
    llm.say(101, [11], reason)
    assert (loop.end(1).finish_reason, loop.end(1).error) == ("error", "the engine failed on this request")
    loop.link.close()


def test_a_request_that_the_library_refuses_fails_alone(
    llm: PlayedLlm, engine: Engine, capsys: pytest.CaptureFixture[str]
) -> None:
    from tensorrt_llm.executor import RequestError

    loop = Loop(engine)
    loop.link.add(ask(1, 101))
    loop.link.add(ask(2, 102))
    eventually(lambda: len(llm.prompts()) == 2)
    llm.say(101, RequestError("prompt length exceeds something"))
    assert loop.end(1).finish_reason == "error"
    llm.say(102, [21], "stop")
    assert loop.end(2).finish_reason == "stop"
    assert not loop.died.is_set()
    assert llm.aborted() == [101], "what did not end is given back"
    assert "exceeds something" in capsys.readouterr().err
    loop.link.close()


def test_a_library_that_shut_itself_down_is_a_lost_engine(
    llm: PlayedLlm, engine: Engine, capsys: pytest.CaptureFixture[str]
) -> None:
    loop = Loop(engine)
    loop.link.add(ask(1, 101))
    eventually(lambda: len(llm.prompts()) == 1)
    llm.healthy = False
    llm.recorder.raises("RequestOutput.abort", RuntimeError("no executor"))
    llm.say(101, RuntimeError("MPI rank 0 died"))
    assert loop.died.wait(10)
    assert f"{engine.info.name} ended during a request: MPI rank 0 died" in capsys.readouterr().err
    assert len(llm.recorder.named("BaseLLM.shutdown")) == 1
    loop.link.close()


def test_a_compiled_engine_tells_cached_tokens_by_its_blocks(llm: PlayedLlm, tmp_path: Path) -> None:
    from tensorrt_llm.bindings.executor import RequestPerfMetrics

    class Metrics(RequestPerfMetrics):  # type: ignore[misc]
        kv_cache_metrics = SimpleNamespace(num_reused_blocks=2)

    loop = Loop(open_engine(settings(tmp_path)))
    loop.link.add(EngineRequest(1, [101] * 70, Sampling(20)))
    loop.link.add(EngineRequest(2, [102] * 40, Sampling(20)))
    eventually(lambda: len(llm.prompts()) == 2)
    for first in (101, 102):
        llm.say(first, [5])
        llm.say(first, [6], "stop", request_perf_metrics=Metrics())
    assert loop.end(1).cached_tokens == 64
    assert loop.end(2).cached_tokens == 40, "no more than the prompt has"
    given: Any = llm.recorder.named("BaseLLM.generate_async")[-1].arguments["sampling_params"]
    assert given.return_perf_metrics is True
    loop.link.close()


def test_without_figures_the_pool_must_be_set(
    llm: PlayedLlm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tensorrt_llm_runtime, "_FIRST_STATS_SECONDS", 0.05)
    llm.kv = None
    with pytest.raises(OperatorError, match="does not tell how many KV blocks it has: set num_kv_blocks"):
        open_engine(settings(tmp_path))
    assert len(llm.recorder.named("BaseLLM.shutdown")) == 1
    engine = open_engine(settings(tmp_path, num_kv_blocks=77))
    assert (engine.info.num_kv_blocks, engine.info.block_tokens) == (77, 32)
    engine.close()


def test_a_library_that_answers_nothing_is_not_opened(llm: PlayedLlm, tmp_path: Path) -> None:
    def nothing(instance: object) -> Any:
        raise RuntimeError("CUDA out of memory")

    llm.recorder.returns("RequestOutput.__aiter__", nothing)
    threads = threading.active_count()
    with pytest.raises(RuntimeError, match="out of memory"):
        open_engine(settings(tmp_path))
    assert len(llm.recorder.named("BaseLLM.shutdown")) == 1
    eventually(lambda: threading.active_count() == threads)
