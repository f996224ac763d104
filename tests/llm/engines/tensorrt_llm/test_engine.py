"""Opens TensorRT-LLM on doubles of its stubs: what the library is asked for."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.llm.doubles.sinks import eventually
from tests.llm.engines.tensorrt_llm.rig import H100, WARM_UP, PlayedLlm, ask, settings
from tests.llm.engines.tensorrt_llm.rig import artefact as played_artefact
from trimodal.errors import InvalidArgument
from trimodal.llm.engines import artefact
from trimodal.llm.engines.protocol import Engine, Sampling, open_engine
from trimodal.llm.scheduler.admission import Admission
from trimodal.llm.settings import LlmSettings


def opened_with(llm: PlayedLlm) -> dict[str, Any]:
    """The arguments of the LLM that was opened."""
    (call,) = llm.recorder.named("LLM")
    return dict(call.arguments)


def test_a_checkpoint_is_opened_by_the_pytorch_runtime(
    llm: PlayedLlm, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setattr(artefact, "visible_gpus", lambda: [H100] * 4)
    chosen = settings(
        tmp_path,
        tensor_parallel_size=2,
        pipeline_parallel_size=2,
        kv_cache_dtype="fp8",
        enable_prefix_caching=False,
    )
    engine = open_engine(chosen)
    given = opened_with(llm)
    assert (given["model"], given["max_batch_size"]) == (str(chosen.artefact_directory), 4)
    assert (given["skip_tokenizer_init"], given["guided_decoding_backend"]) == (False, "xgrammar")
    assert os.environ["TLLM_LOG_LEVEL"] == "WARNING"
    assert (given["tensor_parallel_size"], given["pipeline_parallel_size"]) == (2, 2)
    assert (given["max_seq_len"], given["max_num_tokens"], given["enable_iter_perf_stats"]) == (
        4096,
        8192,
        True,
    )
    assert (given["kv_cache_config"].dtype, given["kv_cache_config"].enable_block_reuse) == ("fp8", False)
    assert given["kv_cache_config"].max_tokens is None
    assert engine.info.num_kv_blocks == 1000
    graphs = given["cuda_graph_config"]
    assert (graphs.enable_padding, graphs.max_batch_size) == (True, 4)
    assert given["speculative_config"] is None
    engine.close()


@pytest.mark.parametrize(("gpus", "chosen", "variable"), [(1, None, "1"), (2, None, None), (1, "0", "0")])
def test_one_gpu_needs_no_process_of_mpi_unless_the_operator_wants_it(
    llm: PlayedLlm,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    gpus: int,
    chosen: str | None,
    variable: str | None,
) -> None:
    monkeypatch.setattr(artefact, "visible_gpus", lambda: [H100] * 2)
    monkeypatch.delenv("TLLM_WORKER_USE_SINGLE_PROCESS", raising=False)
    if chosen:
        monkeypatch.setenv("TLLM_WORKER_USE_SINGLE_PROCESS", chosen)
    open_engine(settings(tmp_path, tensor_parallel_size=gpus)).close()
    assert os.environ.get("TLLM_WORKER_USE_SINGLE_PROCESS") == variable


def test_a_checkpoint_is_drafted_for(llm: PlayedLlm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(artefact, "visible_gpus", lambda: [H100])
    heads = played_artefact(tmp_path / "heads")
    chosen = settings(
        tmp_path,
        speculation="eagle3",
        draft_artefact=str(heads),
        num_assistant_tokens=3,
    )
    engine = open_engine(chosen)
    given = opened_with(llm)
    eagle = given["speculative_config"]
    assert (eagle.speculative_model, eagle.max_draft_len) == (str(heads), 3)
    assert eagle.eagle3_one_model is False  # one model would answer sampled requests greedily
    assert given["guided_decoding_backend"] is None
    info = engine.info
    assert info.lookahead == 3
    for name in ("grammar", "logprobs"):
        assert info.unsupported[name] == "it speculates"
    assert engine.stats().speculating
    engine.close()


def test_a_prompt_is_drafted_from_for_its_own_request_alone(
    llm: PlayedLlm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(artefact, "visible_gpus", lambda: [H100])
    open_engine(settings(tmp_path, speculation="prompt_lookup", max_ngram_size=5)).close()
    ngram = opened_with(llm)["speculative_config"]
    assert (ngram.max_draft_len, ngram.max_matching_ngram_size, ngram.is_public_pool) == (4, 5, False)


def test_a_short_request_comes_before_all_figures_and_clients(llm: PlayedLlm, engine: Engine) -> None:
    names = [call.name.rpartition(".")[2] for call in llm.recorder.calls]
    assert names.index("generate_async") < names.index("get_stats_async")
    warm = llm.recorder.named("BaseLLM.generate_async")
    assert all(call.arguments["inputs"] == WARM_UP for call in warm)
    # What it can be asked for at all is asked for once, so that no client pays for first use.
    asked: list[Any] = [call.arguments["sampling_params"] for call in warm]
    assert any(one.guided_decoding for one in asked) == ("grammar" not in engine.info.unsupported)
    assert any(one.logprobs for one in asked) == ("logprobs" not in engine.info.unsupported)
    assert llm.aborted() == []
    assert not engine.has_work()
    assert engine.stats().kv_usage == 0.0


@pytest.mark.parametrize(
    ("sampling", "expected"),
    [
        ({}, {"top_k": 1, "temperature": None, "top_p": None, "seed": None, "max_tokens": 20}),
        (
            {"temperature": 0.7, "top_p": 0.9, "top_k": 40, "seed": 5, "max_tokens": 3},
            {"top_k": 40, "temperature": 0.7, "top_p": 0.9, "seed": 5, "max_tokens": 3},
        ),
        ({"temperature": 1.0}, {"top_k": 0, "temperature": 1.0, "top_p": 1.0}),
        ({"logprobs": 0}, {"logprobs": 20, "seed": None}),
        ({"logprobs": 3}, {"logprobs": 20, "seed": None}),
        ({"temperature": 1.0, "logprobs": 3}, {"logprobs": 20}),  # what is drawn is to be among them
        ({"grammar": 'root ::= "a"'}, {"seed": None}),
        ({"stop_token_ids": (9,)}, {"stop_token_ids": [9, 3], "seed": None}),
        ({"ignore_eos": True}, {"ignore_eos": True, "stop_token_ids": None, "seed": None}),
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
    assert (given.end_id, given.detokenize) == (2, False)
    assert given.stop_token_ids == expected.get("stop_token_ids", [3])
    assert (call.arguments["streaming"], call.arguments["cache_salt"]) == (True, None)
    held = given.guided_decoding
    assert (held and held.grammar, "grammar" in engine.info.unsupported) == (sampling.get("grammar"), False)
    if "seed" not in expected:
        assert isinstance(given.seed, int)  # its own default is one fixed seed


def test_what_its_sampler_does_not_look_at_is_refused_by_name(engine: Engine) -> None:
    """It took them, and the answer was as without."""
    admission = Admission(LlmSettings(engine="fake"), engine.info)
    admission.check_sampling(Sampling(5, temperature=0.5, top_k=3, top_p=0.5, logprobs=2, grammar="root"))
    asked = {"min_p": 0.25, "min_tokens": 2, "logit_bias": {1: 1.0}}
    asked |= dict.fromkeys(("presence_penalty", "frequency_penalty", "repetition_penalty"), 0.5)
    for name, value in asked.items():
        with pytest.raises(InvalidArgument, match=f"does not support {name}: it"):
            admission.check_sampling(replace(Sampling(5), **{name: value}))


def test_figures_follow_what_is_free_where_host_memory_is_counted_too(llm: PlayedLlm, tmp_path: Path) -> None:
    """With host blocks the reported maximum is not the GPU's: what is free while nothing runs is."""
    chosen = settings(
        tmp_path,
        max_num_batched_tokens=1024,
        max_model_len=1500,
        num_kv_blocks=100,
        host_cache_bytes=1 << 30,
        kv_cache_free_gpu_memory_fraction=0.5,
        enable_chunked_prefill=False,
    )
    engine = open_engine(chosen)
    given = opened_with(llm)
    kv = given["kv_cache_config"]
    assert (kv.enable_block_reuse, kv.free_gpu_memory_fraction, kv.max_tokens) == (True, 0.5, 3200)
    assert (kv.host_cache_size, kv.dtype) == (1 << 30, "auto")
    assert (given["max_num_tokens"], given["max_seq_len"], given["enable_chunked_prefill"]) == (
        1024,
        1500,
        False,
    )
    info = engine.info
    assert (info.name, info.num_kv_blocks, info.block_tokens) == ("tensorrt_llm_pytorch", 750, 32)
    assert (info.max_num_seqs, info.max_model_len, info.max_num_batched_tokens) == (4, 1500, 1024)
    assert (info.lookahead, info.max_top_logprobs, "logprobs" in info.unsupported) == (0, 20, False)
    engine.close()
