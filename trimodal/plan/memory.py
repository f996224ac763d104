"""Calculates the memory of a language model on given GPUs: weights, activations and the KV pool.

Weights and KV bytes follow from the shapes. The reserve for activations and the runtime is an
estimate: its constants are fitted to the published logs that are named with them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from trimodal.errors import SettingsError
from trimodal.plan.architecture import Architecture
from trimodal.plan.cards import Card

# Of the layers' matrices; embeddings, norms and the head stay in 16 bits in all of them.
Precision = Literal["fp16", "bf16", "fp8", "int8", "int4-awq"]
KvPrecision = Literal["auto", "fp8"]  # auto: that of the activations, 16 bits
Runtime = Literal["tensorrt_llm", "vllm"]  # whose rules for the KV pool apply
AWQ_GROUP = 128  # weights that share an FP16 scale
# CUDA context, kernels, cuBLAS: what nothing else explains in the log of TensorRT-LLM's memory.md.
RUNTIME_RESERVE = 0.8 * 2**30
# Bytes a token of the largest step: so many rows of intermediate and hidden size in 16 bits.
# TensorRT-LLM: 1134 MiB for 8192 tokens of Llama 2 7B (memory.md). vLLM: 0.92 GiB more for 9000 tokens
# more of Llama 3.1 8B (issue 10517).
ACTIVATION_ROWS = {"tensorrt_llm": 5, "vllm": 3}
# Bytes an entry of the logits [sequences, vocabulary]. TensorRT-LLM: 180 MB of decoder buffers in
# memory.md, taken for 256 sequences of 32000 entries. vLLM: the sampler's peak in pull 10511, 1.26 GiB
# for 256 sequences of 128256.
LOGITS_BYTES = {"tensorrt_llm": 22, "vllm": 41}
# Bytes of a CUDA graph, a layer: vLLM captures one for every eighth batch size, and three more; its pull
# 11349 has 0.21 GiB for 35 graphs of Llama 3.2 1B. TensorRT-LLM's are in the share that its pool leaves.
GRAPH_LAYER_BYTES = {"tensorrt_llm": 0, "vllm": 0.21 * 2**30 / 35 / 16}
BLOCK_TOKENS = {"tensorrt_llm": 32, "vllm": 16}


@dataclass(frozen=True)
class Deployment:
    """What is to run, and within which limits. `memory_fraction`: of the free memory (TensorRT-LLM's
    free_gpu_memory_fraction) or of all memory (vLLM's gpu_memory_utilization)."""

    card: Card
    precision: Precision = "fp16"
    kv_precision: KvPrecision = "auto"
    tp: int = 1
    pp: int = 1
    max_seq_len: int = 8192
    max_batch_size: int = 256
    max_num_tokens: int = 8192
    runtime: Runtime = "tensorrt_llm"
    memory_fraction: float = 0.9

    @property
    def gpus(self) -> int:
        return self.tp * self.pp


@dataclass(frozen=True)
class Sizing:
    """Figures of one deployment. Bytes are of the fullest GPU, except those of a token.

    Attributes:
        weights: all that is loaded from the engine or checkpoint.
        kv_token: bytes a token in the KV cache, on all GPUs together.
        reserve: activations, buffers and the runtime: an estimate.
        pool: for the KV cache; 0 where nothing is left.
        blocks, tokens: of the pool.
        sequences: of max_seq_len that are held at once.
        left: memory of the GPU that nothing uses once the pool is there.
        stream_bound: tokens a second of one stream at max_seq_len if memory traffic were all.
        problems: what does not fit, a sentence each; empty where it runs.
    """

    weights: int
    kv_token: int
    reserve: int
    pool: int
    blocks: int
    tokens: int
    sequences: int
    left: int
    stream_bound: float
    problems: tuple[str, ...]


def kv_bytes_per_token(model: Architecture, kv_precision: KvPrecision, *, tp: int = 1, pp: int = 1) -> int:
    """On one GPU: keys and values of its share of layers and heads; a head is never split, so with more
    GPUs than KV heads each holds a copy. Layers with a sliding window count as if they had none."""
    heads = max(1, model.kv_heads // tp)
    width = 2 if kv_precision == "auto" else 1
    return 2 * math.ceil(model.layers / pp) * heads * model.head_dim * width


def weight_bytes(model: Architecture, precision: Precision, *, tp: int = 1, pp: int = 1) -> int:
    """On the fullest GPU. Matrices, embeddings and head are split by tp, layers by pp, norms not at all."""
    share = math.ceil(model.layers / pp) / model.layers
    layers = _matrix_bytes(model, precision, model.linear) * share / tp + 2 * model.kept * share
    ends = (model.embedding, model.lm_head + model.hidden_size)
    tables = sum(ends) if pp == 1 else max(model.embedding, (model.lm_head or model.embedding))
    return math.ceil(layers + 2 * tables / tp)


def _matrix_bytes(model: Architecture, precision: Precision, parameters: int) -> float:
    if precision == "int4-awq":
        return parameters * (0.5 + 2 / AWQ_GROUP)
    if precision == "int8":
        return parameters * (1 + 4 * model.channels / model.linear)  # A scale in FP32 for each row.
    return parameters * (1 if precision == "fp8" else 2)


def reserve_bytes(model: Architecture, deployment: Deployment) -> int:
    """Activations of the largest step, logits and decoder, CUDA graphs and the runtime, on one GPU."""
    rows = ACTIVATION_ROWS[deployment.runtime]
    step = (
        2 * deployment.max_num_tokens * rows * (model.intermediate_size / deployment.tp + model.hidden_size)
    )
    logits = LOGITS_BYTES[deployment.runtime] * deployment.max_batch_size * model.vocab_size
    # vLLM's memory pool serves one after the other; TensorRT-LLM allocates each for good.
    both = max(step, logits) if deployment.runtime == "vllm" else step + logits
    graphs = (
        GRAPH_LAYER_BYTES[deployment.runtime]
        * (deployment.max_batch_size // 8 + 3)
        * model.layers
        / deployment.pp
    )
    return math.ceil(both + graphs + RUNTIME_RESERVE)


def pool_blocks(deployment: Deployment, pool: float, kv_token_gpu: int) -> int:
    """Blocks of a pool: TensorRT-LLM rounds the last one up, vLLM down."""
    exact = pool / (BLOCK_TOKENS[deployment.runtime] * kv_token_gpu)
    return math.ceil(exact) if deployment.runtime == "tensorrt_llm" else math.floor(exact)


def size(model: Architecture, deployment: Deployment) -> Sizing:
    """All figures of `deployment`. Raises: SettingsError when the parallel sizes do not divide the model."""
    check_parallel(model, deployment.tp, deployment.pp)
    weights = weight_bytes(model, deployment.precision, tp=deployment.tp, pp=deployment.pp)
    reserve = reserve_bytes(model, deployment)
    total = deployment.card.cuda
    if deployment.runtime == "vllm":
        pool = max(0.0, total * deployment.memory_fraction - weights - reserve)
    else:
        pool = max(0.0, (total - weights - reserve) * deployment.memory_fraction)
    kv_gpu = kv_bytes_per_token(model, deployment.kv_precision, tp=deployment.tp, pp=deployment.pp)
    blocks = pool_blocks(deployment, pool, kv_gpu)
    block_tokens = BLOCK_TOKENS[deployment.runtime]
    tokens = blocks * block_tokens
    return Sizing(
        weights=weights,
        kv_token=kv_gpu * deployment.gpus,
        reserve=reserve,
        pool=math.floor(pool),
        blocks=blocks,
        tokens=tokens,
        sequences=blocks // math.ceil(deployment.max_seq_len / block_tokens),
        left=math.floor(total - weights - reserve - pool),
        stream_bound=_stream_bound(model, deployment, kv_gpu),
        problems=tuple(_problems(model, deployment, weights + reserve, total, tokens)),
    )


def longest(sizing: Sizing, model: Architecture) -> int:
    """Tokens of the longest single sequence that the pool and the model take."""
    return min(sizing.tokens, model.max_positions or sizing.tokens)


def check_parallel(model: Architecture, tp: int, pp: int) -> None:
    """Raises: SettingsError when the heads cannot be shared out over tp GPUs, or the layers over pp."""
    if tp < 1 or model.heads % tp:
        raise SettingsError(f"--tp {tp} does not divide the {model.heads} attention heads of the model")
    if model.kv_heads % tp and tp % model.kv_heads:
        raise SettingsError(
            f"--tp {tp} and the {model.kv_heads} key/value heads of the model: one must divide the other"
        )
    if pp < 1 or model.layers % pp:
        raise SettingsError(f"--pp {pp} does not divide the {model.layers} layers of the model")


def _stream_bound(model: Architecture, deployment: Deployment, kv_gpu: int) -> float:
    """Stages of a pipeline work one after the other on a token, so only tp shortens the reading."""
    read = _matrix_bytes(model, deployment.precision, model.active_linear) + 2 * model.kept
    read += 2 * (model.lm_head or model.embedding)
    return deployment.card.bandwidth / (
        read / deployment.tp + kv_gpu * deployment.pp * deployment.max_seq_len
    )


def _problems(
    model: Architecture, deployment: Deployment, loaded: int, total: float, tokens: int
) -> list[str]:
    problems = []
    if not deployment.card.has_fp8 and "fp8" in (deployment.precision, deployment.kv_precision):
        problems.append(f"{deployment.card.name} (SM {deployment.card.sm}) has no FP8: it begins with SM 8.9")
    if loaded > total:
        problems.append(
            f"weights and activations take {loaded / 2**30:.1f} GiB of a GPU, "
            f"and {deployment.card.name} has {total / 2**30:.1f}"
        )
    elif tokens < deployment.max_seq_len:
        problems.append(
            f"the KV pool holds {tokens} tokens, less than one sequence of {deployment.max_seq_len}"
        )
    if model.max_positions and deployment.max_seq_len > model.max_positions:
        problems.append(
            f"the model knows {model.max_positions} positions, less than {deployment.max_seq_len}"
        )
    return problems
