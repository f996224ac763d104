"""The sizing formula against figures that others published; each test names its source."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from tests.plan.model_shapes import LLAMA_2_7B, LLAMA_8B, LLAMA_70B, QWEN_235B, architecture
from trimodal.errors import SettingsError
from trimodal.plan.cards import Card, find_card
from trimodal.plan.memory import (
    BLOCK_TOKENS,
    Deployment,
    kv_bytes_per_token,
    pool_blocks,
    reserve_bytes,
    size,
    weight_bytes,
)

GIB = 2**30
H100 = find_card("H100")


@pytest.fixture
def blocks_of_64(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(BLOCK_TOKENS, "tensorrt_llm", 64)


def cuda_card(gib: float) -> Card:
    """A card of which CUDA sees so much, as logs of the runtimes tell."""
    return dataclasses.replace(H100, cuda=int(gib * GIB))


def test_kv_bytes_a_token_of_llama_70b(tmp_path: Path) -> None:
    # https://frankdenneman.nl/2026/01/12/the-dynamic-world-of-llm-runtime-memory: 327,680
    # https://fcalabri.github.io/bmwg-ai-fabric-inference-bench/Acronyms/draft-calabria-bmwg-ai-fabric-inference-bench.html
    model = architecture(tmp_path, LLAMA_70B)
    assert kv_bytes_per_token(model, "auto") == 327_680
    assert kv_bytes_per_token(model, "auto") * 4096 == 1_342_177_280
    assert kv_bytes_per_token(model, "fp8") == 163_840


def test_kv_shard_of_qwen_235b_with_as_many_gpus_as_heads(tmp_path: Path) -> None:
    # https://github.com/vllm-project/vllm/issues/21348: SGLang on 4 GPUs, "#tokens: 367404,
    # K size: 8.23 GB, V size: 8.23 GB" (GiB, on each GPU)
    shard = kv_bytes_per_token(architecture(tmp_path, QWEN_235B), "auto", tp=4)
    assert 367404 * shard / 2 / GIB == pytest.approx(8.23, abs=0.005)


def test_llama_8b_in_vllm_blocks_and_concurrency(tmp_path: Path) -> None:
    # https://github.com/vllm-project/vllm/issues/10517: on 24 GB "Loading model weights took 14.9888 GB",
    # "kv_cache_size=3.81GiB", "GPU blocks: 1952", "Maximum concurrency for 20000 tokens per request: 1.56x";
    # with 29000 tokens a step 2.89 GiB, 1478 blocks, 23648 tokens.
    model = architecture(tmp_path, LLAMA_8B)
    token = kv_bytes_per_token(model, "auto")
    assert token == 131_072
    plan = Deployment(card=H100, runtime="vllm")
    assert pool_blocks(plan, 3.8135 * GIB, token) == 1952  # 3.81 with the digits that the log cuts off.
    assert pool_blocks(plan, 2.888 * GIB, token) * 16 == 23648
    assert pytest.approx(1.56, abs=0.005) == 1952 * 16 / 20000
    assert weight_bytes(model, "bf16") / GIB == pytest.approx(14.9888, rel=0.003)


@pytest.mark.parametrize(("tp", "weights", "pool"), [(1, 14.96, 53.29), (2, 7.48, None)])
def test_llama_3_8b_on_an_80_gb_gpu_in_vllm(
    tmp_path: Path, tp: int, weights: float, pool: float | None
) -> None:
    # https://github.com/vllm-project/vllm/pull/10511: "total_gpu_memory 79.22GiB", utilization 0.90,
    # "model weights take 14.96GiB", "PyTorch activation peak memory 1.26GiB", "available_kv_cache_memory
    # 53.29GiB"; with -tp 2 weights take 7.48 GiB and the activation peak stays.
    model = architecture(tmp_path, LLAMA_8B)
    plan = Deployment(card=cuda_card(79.22), runtime="vllm", tp=tp)
    sizing = size(model, plan)
    assert sizing.weights / GIB == pytest.approx(weights, abs=0.01)
    assert sizing.reserve == size(model, dataclasses.replace(plan, tp=1)).reserve
    if pool:
        assert sizing.pool / GIB == pytest.approx(pool, rel=0.03)


def test_cuda_graphs_take_memory_for_each_layer_and_batch_size(tmp_path: Path) -> None:
    # https://github.com/vllm-project/vllm/pull/11349: Llama 3.2 1B, 35 sizes, "Graph capturing finished in 14
    # secs, took 0.21 GiB"
    model = architecture(tmp_path, LLAMA_8B)
    small, large = (
        reserve_bytes(model, Deployment(card=H100, runtime="vllm", max_batch_size=size, max_num_tokens=20000))
        for size in (64, 256)
    )
    # The logits lie in the memory of the largest step, so 24 graphs of 32 layers are all that is more.
    assert (large - small) / GIB == pytest.approx(0.21 * 24 / 35 * 32 / 16, rel=0.01)
    both = Deployment(card=H100, max_batch_size=256), Deployment(card=H100, max_batch_size=256, pp=2)
    assert reserve_bytes(model, both[0]) == reserve_bytes(model, both[1]), "TensorRT-LLM's pool leaves room"


@pytest.mark.usefixtures("blocks_of_64")
def test_llama_2_7b_in_fp8_in_tensorrt_llm(tmp_path: Path) -> None:
    # https://nvidia.github.io/TensorRT-LLM/reference/memory.html: engine 6695 MiB, context memory 1134.01
    # MiB, "total: 79.10 GiB, available: 70.48 GiB", 4060 blocks of 64 tokens, 63.44 GiB for 259840 tokens
    model = architecture(tmp_path, LLAMA_2_7B)
    plan = Deployment(
        card=cuda_card(79.10),
        precision="fp8",
        kv_precision="fp8",
        max_seq_len=2048,
    )
    sizing = size(model, plan)
    assert sizing.weights / 2**20 == pytest.approx(6695, rel=0.005)
    assert pool_blocks(plan, 0.9 * 70.48 * GIB, sizing.kv_token) == 4060
    assert sizing.blocks == pytest.approx(4060, rel=0.01)
    assert sizing.tokens == pytest.approx(259840, rel=0.01)


def test_bits_and_stages_and_copies_of_heads(tmp_path: Path) -> None:
    model = architecture(tmp_path, LLAMA_8B)
    sizes = [weight_bytes(model, each) for each in ("fp16", "int8", "fp8")]
    assert sizes == sorted(sizes, reverse=True)
    assert weight_bytes(model, "int4-awq") < 0.65 * weight_bytes(model, "fp8")
    half = weight_bytes(model, "fp16", pp=2)
    # A stage has half of the layers and one of the two token tables.
    assert half == pytest.approx(weight_bytes(model, "fp16") / 2, rel=0.001)
    assert kv_bytes_per_token(model, "auto", tp=8) == 16_384
    assert kv_bytes_per_token(model, "auto", tp=16) == 16_384  # A head is never split.


def test_what_does_not_fit_says_why(tmp_path: Path) -> None:
    model = architecture(tmp_path, LLAMA_70B)
    (sentence,) = size(model, Deployment(card=H100)).problems
    assert sentence == "weights and activations take 135.7 GiB of a GPU, and H100 has 79.1"
    tight = Deployment(card=H100, precision="fp8", max_seq_len=131072, max_num_tokens=2048)
    (sentence,) = size(model, tight).problems
    assert sentence.startswith("the KV pool holds ")
    assert sentence.endswith("less than one sequence of 131072")
    old = Deployment(card=find_card("A100 80GB"), precision="fp8", kv_precision="fp8")
    assert "A100 80GB (SM 8.0) has no FP8: it begins with SM 8.9" in size(model, old).problems
    long = dataclasses.replace(old, max_seq_len=200_000)
    assert "the model knows 131072 positions, less than 200000" in size(model, long).problems


@pytest.mark.parametrize(
    ("tp", "pp", "sentence"),
    [
        (3, 1, "--tp 3 does not divide the 32 attention heads of the model"),
        (1, 5, "--pp 5 does not divide the 32 layers of the model"),
        (12, 1, "--tp 12 and the 8 key/value heads of the model: one must divide the other"),
    ],
)
def test_parallel_sizes_must_divide_the_model(tmp_path: Path, tp: int, pp: int, sentence: str) -> None:
    config = LLAMA_8B | ({"num_attention_heads": 48, "head_dim": 128} if tp == 12 else {})
    model = architecture(tmp_path, config)
    with pytest.raises(SettingsError, match=sentence):
        size(model, Deployment(card=H100, tp=tp, pp=pp))


def test_a_token_of_a_mixture_of_experts_reads_only_its_experts(tmp_path: Path) -> None:
    model = architecture(tmp_path, QWEN_235B)
    assert model.parameters == pytest.approx(235e9, rel=0.003)  # https://huggingface.co/Qwen/Qwen3-235B-A22B
    active = model.active_linear + model.embedding + model.lm_head
    assert active == pytest.approx(22e9, rel=0.02)
    plan = Deployment(card=find_card("H200"), precision="fp8", tp=4)
    dense = dataclasses.replace(model, active_linear=model.linear)
    assert size(model, plan).stream_bound > 5 * size(dense, plan).stream_bound
