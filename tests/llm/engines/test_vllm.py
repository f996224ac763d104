"""vLLM as an engine, on a double of its wheel's signatures: what it is asked for, played, cancelled, lost."""

from __future__ import annotations

import dataclasses
import os
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from tests.llm.doubles.sinks import eventually
from tests.llm.engine_core.rig import Loop
from tests.llm.engines.tensorrt_llm.rig import H100, artefact
from tests.llm.engines.vllm_rig import PlayedVllm
from tests.server.artefacts import L4
from trimodal.errors import OperatorError, ServerError
from trimodal.llm.engines import artefact as gpu_artefact
from trimodal.llm.engines import vllm as vllm_module
from trimodal.llm.engines.protocol import Engine, EngineRequest, Logprobs, Sampling, open_engine
from trimodal.llm.engines.vllm import free_share
from trimodal.llm.settings import LlmSettings
from trimodal.runtimes.gpu_device import Gpu
from trimodal.runtimes.jit_tools import JitTools

NO_ADAPTERS = {"lora_name": "max_loras is 0"}


@pytest.fixture
def vllm(monkeypatch: pytest.MonkeyPatch) -> Iterator[PlayedVllm]:
    monkeypatch.setattr(gpu_artefact, "visible_gpus", lambda: [H100] * 2)
    monkeypatch.setattr(vllm_module, "visible_gpus", lambda: [H100] * 2)
    with mock.patch.dict(os.environ):  # opening sets what vLLM reads when it is imported
        yield PlayedVllm(monkeypatch)


def opened(vllm: PlayedVllm, directory: Path, **changes: Any) -> Engine:
    made = artefact(directory / "checkpoint", "checkpoint", precision="bf16")
    engine = open_engine(LlmSettings.model_validate({"engine": "vllm", "artefact": str(made)} | changes))
    vllm.make_loggers()
    return engine


def ask(id: int, **sampling: Any) -> EngineRequest:
    return EngineRequest(id, [7] * 10, Sampling(**({"max_tokens": 20} | sampling)))


def test_it_is_opened_with_the_settings(vllm: PlayedVllm, tmp_path: Path) -> None:
    engine = opened(
        vllm,
        tmp_path,
        max_model_len=2000,
        num_kv_blocks=300,
        max_num_seqs=7,
        max_num_batched_tokens=2048,
        gpu_memory_utilization=0.5,
        tensor_parallel_size=2,
        kv_cache_dtype="fp8",
        enable_prefix_caching=False,
        enable_chunked_prefill=False,
        quantization="fp8",
    )
    assert vllm.opened() == {
        "model": str(tmp_path / "checkpoint"),
        "skip_tokenizer_init": False,
        "max_model_len": 2000,
        "kv_cache_dtype": "fp8",
        "tensor_parallel_size": 2,
        "pipeline_parallel_size": 1,
        "gpu_memory_utilization": 0.5,
        "num_gpu_blocks_override": 300,
        "enable_prefix_caching": False,
        "enable_chunked_prefill": False,
        "max_num_seqs": 7,
        "max_num_batched_tokens": 2048,
        "quantization": "fp8",
        "speculative_config": None,
        "enforce_eager": False,
        "disable_log_stats": True,
        "enable_log_requests": False,
    }
    assert os.environ["VLLM_WORKER_MULTIPROC_METHOD"] == "spawn"
    engine.close()
    assert len(vllm.recorder.named("AsyncLLM.shutdown")) == 1


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (
            {"speculation": "prompt_lookup", "num_assistant_tokens": 5, "max_ngram_size": 4},
            {"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_max": 4, "prompt_lookup_min": 2},
        ),
        (
            {"speculation": "prompt_lookup", "num_assistant_tokens": 5, "max_ngram_size": 1},
            {"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_max": 1, "prompt_lookup_min": 1},
        ),
        (
            {"speculation": "eagle3", "num_assistant_tokens": 5},
            {"method": "eagle3", "num_speculative_tokens": 5, "model": "HEADS"},
        ),
    ],
)
def test_speculation_in_its_words(
    vllm: PlayedVllm, tmp_path: Path, changes: dict[str, Any], expected: dict[str, Any]
) -> None:
    heads = artefact(tmp_path / "heads", "checkpoint")
    engine = opened(vllm, tmp_path, draft_artefact=str(heads), **changes)
    given: Any = vllm.opened()["speculative_config"]
    assert given == expected | ({"model": str(heads)} if "model" in expected else {})
    # It holds blocks for what it drafts, and refuses min_p itself, with an error of its own.
    assert (engine.info.lookahead, engine.info.unsupported["min_p"]) == (5, "it speculates")
    assert ("grammar" in engine.info.unsupported, engine.stats().speculating) == (False, True)
    engine.close()


COMPILED = {"kernels": "0.6.12"}
TOOLS = {"nvcc": "/usr/local/cuda/bin/nvcc", "ninja": "/opt/vllm/bin/ninja"}


@pytest.mark.parametrize(
    ("tools", "chosen", "variable"),
    [
        (COMPILED, None, None),
        (TOOLS, None, None),
        ({}, None, "0"),
        ({"nvcc": TOOLS["nvcc"]}, None, "0"),
        ({"ninja": TOOLS["ninja"]}, None, "0"),
        ({}, "1", "1"),  # an operator's own choice stays
    ],
)
def test_flashinfer_samples_only_where_its_kernels_are_or_can_be_compiled(
    vllm: PlayedVllm,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    tools: dict[str, str],
    chosen: str | None,
    variable: str | None,
) -> None:
    """Without nvcc vLLM 0.33.0 does not open: the sampler is compiled in its warm-up."""
    there = JitTools(**({"compiler": "", "nvcc": "", "ninja": "", "kernels": ""} | tools))
    monkeypatch.setattr(vllm_module, "find_jit_tools", lambda: there)
    monkeypatch.delenv("VLLM_USE_FLASHINFER_SAMPLER", raising=False)
    if chosen:
        monkeypatch.setenv("VLLM_USE_FLASHINFER_SAMPLER", chosen)
    opened(vllm, tmp_path).close()
    assert os.environ.get("VLLM_USE_FLASHINFER_SAMPLER") == variable


def test_it_takes_what_the_other_models_left_free(
    vllm: PlayedVllm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    busy = dataclasses.replace(H100, index=1, free=41 << 30)
    monkeypatch.setattr(vllm_module, "visible_gpus", lambda: [H100, busy])
    shares = []
    for gpus in (1, 2):
        opened(vllm, tmp_path / str(gpus), tensor_parallel_size=gpus).close()
        shares.append(vllm.opened()["gpu_memory_utilization"])
        vllm.recorder.calls.clear()
    assert shares == pytest.approx([(79 - 1.5) / 80, (41 - 1.5) / 80], abs=1e-3)


def test_its_pool_and_length_are_read_from_it(vllm: PlayedVllm, tmp_path: Path) -> None:
    engine = opened(vllm, tmp_path)
    assert vllm.opened()["num_gpu_blocks_override"] is None
    info = engine.info
    assert (info.name, info.num_kv_blocks, info.block_tokens) == ("vllm", 500, 16)
    assert info.max_model_len == 4096
    engine.close()
    vllm.cache.kv_cache_size_tokens = 4800  # layers with sliding windows share the blocks
    vllm.recorder.calls.clear()
    engine = opened(vllm, tmp_path)
    assert engine.info.num_kv_blocks == 300
    engine.close()


@pytest.mark.parametrize(
    ("sampling", "expected"),
    [
        ({}, {"temperature": 0.0, "top_p": 1.0, "top_k": 0, "seed": None, "max_tokens": 20}),
        (
            {"temperature": 0.7, "top_p": 0.9, "top_k": 40, "seed": 5},
            {"temperature": 0.7, "top_p": 0.9, "top_k": 40, "seed": 5},
        ),
        (
            {"presence_penalty": 0.5, "frequency_penalty": -1.0, "repetition_penalty": 1.5, "min_p": 0.25},
            {"presence_penalty": 0.5, "frequency_penalty": -1.0, "repetition_penalty": 1.5, "min_p": 0.25},
        ),
        ({"grammar": 'root ::= "a"'}, {}),
        (
            {"min_tokens": 4, "stop_token_ids": (9,), "logit_bias": {5: -100.0}},
            {"min_tokens": 4, "stop_token_ids": [9, 2, 3], "logit_bias": {5: -100.0}},
        ),
        ({"ignore_eos": True}, {"ignore_eos": True, "stop_token_ids": []}),
        # It keeps seeds in int64: 2**64-1 ended its core.
        ({"temperature": 0.7, "seed": (1 << 64) - 1}, {"seed": (1 << 63) - 1}),
        ({"temperature": 0.7, "seed": (1 << 63) - 1}, {"seed": (1 << 63) - 1}),
    ],
)
def test_a_request_in_its_words(
    vllm: PlayedVllm, tmp_path: Path, sampling: dict[str, Any], expected: dict[str, Any]
) -> None:
    engine = opened(vllm, tmp_path)
    engine.add(replace(ask(3, **sampling), cache_salt="anna"))
    eventually(lambda: len(vllm.requests()) == 1)
    (request,) = vllm.requests()
    prompt = {"prompt_token_ids": [7] * 10, "cache_salt": "anna"}
    assert (request["prompt"], request["request_id"]) == (prompt, "3")
    given = request["sampling_params"]
    assert {name: getattr(given, name) for name in expected} == expected
    assert given.stop_token_ids == expected.get("stop_token_ids", [2, 3])
    assert (given.detokenize, given.output_kind.name) == (False, "DELTA")
    held = given.structured_outputs
    assert (held and held.grammar, engine.info.unsupported) == (sampling.get("grammar"), NO_ADAPTERS)
    engine.close()
    assert vllm.aborted == ["3"]


def test_requests_of_every_kind_come_before_clients(vllm: PlayedVllm, tmp_path: Path) -> None:
    """First log probabilities, penalties or grammar of 0.32 stopped all streams for up to 5 s."""
    opened(vllm, tmp_path).close()
    asked: list[Any] = [call.arguments["sampling_params"] for call in vllm.recorder.named("generate")]
    assert not asked[0].logprobs
    assert any(one.logprobs == one.prompt_logprobs == 20 for one in asked)
    assert any(one.repetition_penalty != 1 and one.presence_penalty for one in asked)
    assert any(one.temperature and one.top_k and one.seed for one in asked)
    assert any(one.logit_bias for one in asked)
    assert any(one.structured_outputs for one in asked)
    speculating = tmp_path / "speculating"
    vllm.recorder.calls.clear()
    opened(vllm, speculating, speculation="prompt_lookup").close()
    asked = [call.arguments["sampling_params"] for call in vllm.recorder.named("generate")]
    assert not any(one.min_p or one.logit_bias or one.min_tokens for one in asked)


def test_acceptance_is_read_from_its_statistics(vllm: PlayedVllm, tmp_path: Path) -> None:
    engine = opened(vllm, tmp_path, speculation="prompt_lookup")
    vllm.report(0.1, drafted=4, accepted=1)
    vllm.report(0.1, drafted=4, accepted=3)
    vllm.report(0.1)
    assert (engine.stats().drafted_tokens, engine.stats().accepted_tokens) == (8, 4)
    engine.close()


def test_what_it_refuses_is_told_in_its_own_words(vllm: PlayedVllm, tmp_path: Path) -> None:
    from vllm.exceptions import VLLMValidationError

    loop = Loop(opened(vllm, tmp_path))
    loop.link.add(ask(1))
    eventually(lambda: len(vllm.requests()) == 1)
    vllm.say(1, VLLMValidationError("Token id 60000 is out of vocabulary"))
    assert loop.end(1).finish_reason == "refused"
    assert loop.end(1).error == "the engine refused this request: Token id 60000 is out of vocabulary"
    loop.link.close()


def test_more_ends_than_min_tokens_can_keep_off_are_refused(vllm: PlayedVllm, tmp_path: Path) -> None:
    """Its runner for GPUs has room for 128, the model's own among them: one more ended its core."""
    loop = Loop(opened(vllm, tmp_path))
    for id, ignore in ((90, False), (91, True)):
        loop.link.add(ask(id, min_tokens=1, stop_token_ids=tuple(range(10, 137)), ignore_eos=ignore))
        assert loop.end(id).finish_reason == "refused"
        assert "own ends are 129 tokens: beside min_tokens at most 128 are taken" in loop.end(id).error
    taken = [{"min_tokens": 1, "stop_token_ids": tuple(range(2, 130))}, {"stop_token_ids": tuple(range(128))}]
    for id, sampling in enumerate(taken, 2):
        loop.link.add(ask(id, **sampling))
    eventually(lambda: len(vllm.requests()) == len(taken))
    loop.link.close()


def test_what_its_parameters_refuse_is_no_failure(vllm: PlayedVllm, tmp_path: Path) -> None:
    """They were made before anything was caught: temperature 3 was an internal error."""
    from vllm.exceptions import VLLMValidationError

    loop = Loop(opened(vllm, tmp_path))
    vllm.recorder.raises("SamplingParams", VLLMValidationError("temperature must be in [0, 2], got 3.0."))
    loop.link.add(ask(1, temperature=3.0))
    assert loop.end(1).finish_reason == "refused"
    assert loop.end(1).error == "the engine refused this request: temperature must be in [0, 2], got 3.0."
    loop.link.close()


def test_on_a_cpu_it_asks_for_no_gpu(
    vllm: PlayedVllm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none() -> list[Gpu]:
        raise ServerError("no NVIDIA driver answers")

    monkeypatch.setattr(gpu_artefact, "visible_gpus", none)
    monkeypatch.setattr(vllm_module, "visible_gpus", none)
    monkeypatch.delenv("VLLM_USE_FLASHINFER_SAMPLER", raising=False)
    opened(vllm, tmp_path, device="cpu", threads=3, enforce_eager=True).close()
    given = vllm.opened()
    assert "gpu_memory_utilization" not in given
    assert (given["max_num_seqs"], given["max_num_batched_tokens"]) == (16, 512)
    assert (given["enforce_eager"], given["kv_cache_memory_bytes"] > 0) == (True, True)  # type: ignore[operator]
    told = {name: os.environ.get(name) for name in ("VLLM_TARGET_DEVICE", "OMP_NUM_THREADS")}
    assert told == {"VLLM_TARGET_DEVICE": "cpu", "OMP_NUM_THREADS": "3"}
    assert "VLLM_USE_FLASHINFER_SAMPLER" not in os.environ


def test_streams_interleave_cancel_and_end(vllm: PlayedVllm, tmp_path: Path) -> None:
    loop = Loop(opened(vllm, tmp_path))
    for id in (1, 2, 3):
        loop.link.add(ask(id))
    eventually(lambda: len(vllm.requests()) == 3)
    vllm.report(0.125)
    vllm.say(1, [11], cached=8)
    vllm.say(2, [21, 22])
    eventually(lambda: loop.tokens(1) == [11] and loop.tokens(2) == [21, 22])
    assert loop.steps[-1].stats.kv_usage == 0.125
    loop.link.cancel(2)
    eventually(lambda: vllm.aborted == ["2"])
    vllm.say(1, [12, 2], "stop", cached=8)
    vllm.say(3, [31], "length")
    assert (loop.end(1).finish_reason, loop.end(1).cached_tokens) == ("stop", 8)
    assert loop.end(3).finish_reason == "length"
    assert (loop.tokens(1), loop.tokens(2), loop.tokens(3)) == ([11, 12, 2], [21, 22], [31])
    eventually(lambda: (loop.steps[-1].working, loop.steps[-1].stats.kv_usage) == (False, 0.0))
    assert vllm.threads == {"llm-loop"}
    loop.link.close()
    assert vllm.aborted == ["2"]


def test_a_recoverable_failure_is_one_requests_affair_a_dead_core_everyones(
    vllm: PlayedVllm, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    loop = Loop(opened(vllm, tmp_path))
    loop.link.add(ask(1))
    loop.link.add(ask(2))
    eventually(lambda: len(vllm.requests()) == 2)
    vllm.say(1, RuntimeError("EngineGenerateError"))
    assert loop.end(1).finish_reason == "error"
    vllm.say(2, [21])
    eventually(lambda: loop.tokens(2) == [21])
    assert not loop.died.is_set()
    vllm.dead = True
    vllm.say(2, RuntimeError("EngineCore encountered an issue"))
    assert loop.died.wait(10)
    assert "vllm ended during a request: EngineCore encountered an issue" in caplog.text
    loop.link.close()
    eventually(lambda: len(vllm.recorder.named("AsyncLLM.shutdown")) == 1)


def test_an_engine_that_does_not_open_leaves_no_loop(vllm: PlayedVllm, tmp_path: Path) -> None:
    threads = set(threading.enumerate())
    vllm.recorder.raises("AsyncLLM.from_engine_args", ValueError("No available memory for the cache blocks"))
    with pytest.raises(ValueError, match="No available memory"):
        opened(vllm, tmp_path)
    eventually(lambda: set(threading.enumerate()) <= threads)


def test_log_probabilities_in_its_words_and_back(vllm: PlayedVllm, tmp_path: Path) -> None:
    from vllm.logprobs import Logprob

    loop = Loop(opened(vllm, tmp_path))
    assert (loop.link.info.unsupported, loop.link.info.max_top_logprobs) == (NO_ADAPTERS, 20)
    loop.link.add(ask(1))
    loop.link.add(ask(2, logprobs=2))
    eventually(lambda: len(vllm.requests()) == 2)
    assert [request["sampling_params"].logprobs for request in vllm.requests()] == [None, 2]
    # The chosen one comes first, whatever its rank.
    first = {7: Logprob(-3.0, 9), 5: Logprob(-0.5, 1), 6: Logprob(-1.5, 2)}
    second = {8: Logprob(-0.25, 1), 9: Logprob(-2.0, 2)}
    vllm.say(2, [7, 8], "length", logprobs=[first, second])
    assert loop.end(2).logprobs == (
        Logprobs(-3.0, ((5, -0.5), (6, -1.5))),
        Logprobs(-0.25, ((8, -0.25), (9, -2.0))),
    )
    vllm.say(1, [7], "length")
    assert loop.end(1).logprobs == ()
    loop.link.close()


@pytest.mark.parametrize(
    ("gpus", "sentence"),
    [
        (
            [L4, dataclasses.replace(L4, index=1, free=2 << 30)],
            r"GPU 1 has 2\.0 of 24\.0 GiB free, less",
        ),
        ([], "no GPU can be seen"),
    ],
)
def test_a_full_gpu_is_named_before_a_library_is_imported(
    monkeypatch: pytest.MonkeyPatch, gpus: list[Gpu], sentence: str
) -> None:
    monkeypatch.setattr(vllm_module, "visible_gpus", lambda: gpus)
    with pytest.raises(OperatorError, match=sentence):
        free_share(2)
