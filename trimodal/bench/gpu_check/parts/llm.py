"""Measures the language model: our engine on vLLM beside vLLM alone, and the bound that memory sets."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trimodal.bench.gpu_check.load import DecodeSteps
from trimodal.bench.gpu_check.networks import BUILD
from trimodal.bench.gpu_check.steps import Run, Step
from trimodal.bench.gpu_check.timing import timed

if TYPE_CHECKING:
    from trimodal.llm.engines.protocol import Engine

STREAMS = (1, 8, 64, 256)
MEMORY = 0.9  # vLLM's share of the GPU
LONG = 16_384  # tokens of the prompt that others wait for
CONFIG_8B: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096,
    "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
    "head_dim": 128, "vocab_size": 128256, "max_position_embeddings": 32768, "rms_norm_eps": 1e-5,
    "rope_theta": 500000.0, "hidden_act": "silu", "tie_word_embeddings": False, "torch_dtype": "bfloat16",
    "bos_token_id": 128000, "eos_token_id": 128001,
}  # fmt: skip
SPECIAL = 256  # ids at the end of the vocabulary


def decode_bound(run: Run) -> Mapping[str, Any]:
    """All matrices of an 8B model, multiplied once a step in torch: no engine decodes faster in BF16."""
    import torch

    found: dict[str, Any] = {}
    with torch.inference_mode():
        steps = DecodeSteps(run)
        found["layers"], found["gigabytes_read"] = steps.shape.layers, steps.bytes / 1e9
        for batch in STREAMS if run.full else (1, 2):
            figures = timed(steps.step(batch), items=batch, seconds=run.seconds, rounds=run.rounds)
            found[f"streams_{batch}"] = {**figures, "gb_s": steps.bytes / 1e6 / figures["p50"]}
    return found


def fake(run: Run) -> Mapping[str, Any]:
    """The same measurements on the fake engine: a rehearsal of what is asked of vLLM."""
    from trimodal.llm.engines.fake import FakeEngine
    from trimodal.llm.settings import LlmSettings

    engine = FakeEngine(LlmSettings(engine="fake", fake_step_ms=1.0, num_kv_blocks=256, max_num_seqs=8))
    return _figures(engine, (1, 4), prompt_tokens=40, max_tokens=8, vocabulary=256, long=400)


def _figures(
    engine: Engine,
    counts: tuple[int, ...],
    *,
    prompt_tokens: int,
    max_tokens: int,
    vocabulary: int,
    long: int,
) -> dict[str, Any]:
    from trimodal.bench.gpu_check import streams

    found: dict[str, Any] = {}
    for index, count in enumerate(counts):
        streams.together(engine, count, prompt_tokens, 4, vocabulary, seed=100 + index)  # warms up
        found[f"ours_{count}"] = streams.together(
            engine, count, prompt_tokens, max_tokens, vocabulary, seed=index
        )
    found["abort"] = streams.abort(engine, prompt_tokens, vocabulary)
    found["prefix"] = streams.prefix(engine, max(64, 4 * prompt_tokens), vocabulary)
    found["stall"] = streams.stall(engine, long, vocabulary)
    return found


def checkpoint(directory: Path, config: Mapping[str, Any] = CONFIG_8B) -> Path:
    """Writes an 8B model without weights (vLLM makes some up): configuration, tokenizer, manifest."""
    from trimodal.manifest import MANIFEST, Manifest, atomic_directory, write_manifest

    if (directory / MANIFEST).is_file():
        return directory
    sys.path.insert(0, str(BUILD))
    from steps.random.checkpoint import byte_level_tokenizer, save_tokenizer

    with atomic_directory(directory) as work:
        (work / "config.json").write_text(json.dumps(config, indent=2) + "\n")
        words = config["vocab_size"] - SPECIAL
        tokenizer = byte_level_tokenizer(words, tuple(f"<|reserved_{index}|>" for index in range(SPECIAL)))
        save_tokenizer(tokenizer, work, bos_token="<|reserved_0|>", eos_token="<|reserved_1|>")
        made = Manifest(
            task="llm", runtime="checkpoint", runtime_version="", precision="bf16", source="random 8B",
            source_sha256="none", command="scripts/ci/gpu_check --parts llm",
            shapes={"max_position_embeddings": config["max_position_embeddings"]},
        )  # fmt: skip
        write_manifest(work, made)
    return directory


@contextmanager
def opened(run: Run, *, step_tokens: int, quantization: str = "") -> Iterator[Engine]:
    """Our engine on vLLM with random weights: 256 sequences at once, `step_tokens` in a step."""
    import vllm

    from trimodal.llm.engines.vllm import open_vllm
    from trimodal.llm.settings import LlmSettings

    given: dict[str, Any] = {
        "engine": "vllm",
        "artefact": str(checkpoint(run.engines.resolve() / "llm" / "random-8b")),
        "max_num_seqs": 256,
        "max_num_batched_tokens": step_tokens,
        "max_model_len": 32768,
        "gpu_memory_utilization": MEMORY,
    }
    more: dict[str, Any] = {"load_format": "dummy"}
    if quantization and "quantization" in LlmSettings.model_fields:
        given["quantization"] = quantization
    elif quantization:
        more["quantization"] = quantization
    real = vllm.AsyncEngineArgs
    # The adapter imports the name when it opens: 16 GB of weights need not be written to be random.
    vllm.AsyncEngineArgs = partial(real, **more)  # type: ignore[assignment,misc]
    try:
        engine = open_vllm(LlmSettings.model_validate(given))
    finally:
        vllm.AsyncEngineArgs = real  # type: ignore[misc]
    try:
        yield engine
    finally:
        engine.close()


def bare(
    engine: Any, count: int, prompt_tokens: int, max_tokens: int, vocabulary: int, seed: int
) -> dict[str, Any]:
    """The same streams through vLLM's own generate(), on the very engine that ours drives, in its loop."""
    from trimodal.bench.gpu_check.streams import IDS, Stream, figures, prompts

    library, loop = engine._runtime._engine, engine._loop  # a second one would not fit the GPU

    async def follow(stream: Stream, prompt: list[int]) -> None:
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        chosen = SamplingParams(
            max_tokens=max_tokens, temperature=0.0, detokenize=False, output_kind=RequestOutputKind.DELTA
        )
        async for update in library.generate({"prompt_token_ids": prompt}, chosen, f"bare-{stream.id}"):
            stream.times.append(time.perf_counter())
            stream.tokens += len(update.outputs[0].token_ids)

    async def together() -> dict[str, Any]:
        asked = prompts(count, prompt_tokens, vocabulary, seed)
        streams = [Stream(next(IDS), time.perf_counter()) for _ in asked]
        await asyncio.gather(*map(follow, streams, asked))
        return figures(streams)

    result: dict[str, Any] = loop.run(together())
    return result


def sizing(directory: Path, engine: Engine, step_tokens: int) -> dict[str, Any]:
    """Tokens of the KV pool, as vLLM made it and as `trimodal plan` calculates it for this card."""
    from trimodal.plan.architecture import read_architecture
    from trimodal.plan.cards import UNSEEN, Card
    from trimodal.plan.memory import Deployment, Precision, Runtime, size
    from trimodal.runtimes.gpu_device import visible_gpus

    gpu = visible_gpus()[0]
    card = Card(gpu.name, gpu.memory, gpu.memory - UNSEEN, 1.0, gpu.sm)
    plan = Deployment(
        card, Precision.bf16, runtime=Runtime.vllm, memory_fraction=MEMORY,
        max_seq_len=32768, max_batch_size=256, max_num_tokens=step_tokens,
    )  # fmt: skip
    found = engine.info.num_kv_blocks * engine.info.block_tokens
    planned = size(read_architecture(directory), plan).tokens
    return {"pool_tokens": found, "planned_tokens": planned, "ratio_to_planned": found / planned}


def vllm_streams(run: Run) -> Mapping[str, Any]:
    """1 to 256 streams in steps of 2,048 tokens, ours and vLLM alone in turn; aborts, prefixes, stall."""
    from trimodal.bench.gpu_check import streams

    vocabulary = CONFIG_8B["vocab_size"] - SPECIAL
    with opened(run, step_tokens=2048) as engine:
        found: dict[str, Any] = {"sizing": sizing(run.engines.resolve() / "llm" / "random-8b", engine, 2048)}
        for count in STREAMS:
            for turn in range(2):  # the first warms up
                given = count, 128, 128 if turn else 16, vocabulary
                ours = streams.together(engine, *given, seed=count * 4 + turn)
                theirs = bare(engine, *given, seed=count * 4 + 2 + turn)
            ratio = ours["tokens_s"] / theirs["tokens_s"]
            found |= {f"ours_{count}": ours, f"vllm_{count}": theirs, f"ratio_{count}": ratio}
        found["abort"] = streams.abort(engine, 1024, vocabulary)
        found["prefix"] = streams.prefix(engine, 4096, vocabulary)
        found["stall"] = streams.stall(engine, LONG, vocabulary)
    return found


def vllm_fp8(run: Run) -> Mapping[str, Any]:
    """The same model quantised to FP8 while it loads: 1 to 256 streams."""
    from trimodal.bench.gpu_check import streams

    vocabulary = CONFIG_8B["vocab_size"] - SPECIAL
    found: dict[str, Any] = {}
    with opened(run, step_tokens=2048, quantization="fp8") as engine:
        for count in STREAMS:
            streams.together(engine, count, 128, 16, vocabulary, seed=count)
            found[f"ours_{count}"] = streams.together(engine, count, 128, 128, vocabulary, seed=count + 1)
    return found


def vllm_large_steps(run: Run) -> Mapping[str, Any]:
    """Steps of 8,192 tokens: how long streams stall behind a long prompt, and the rate of 64 streams."""
    from trimodal.bench.gpu_check import streams

    vocabulary = CONFIG_8B["vocab_size"] - SPECIAL
    with opened(run, step_tokens=8192) as engine:
        streams.together(engine, 64, 128, 16, vocabulary, seed=1)
        return {
            "stall": streams.stall(engine, LONG, vocabulary),
            "ours_64": streams.together(engine, 64, 128, 128, vocabulary, seed=2),
        }


VLLM = ("torch", "pydantic", "tokenizers", "rich", "vllm")

STEPS = (
    Step("decode_bound", decode_bound, ("torch",)),
    Step("fake", fake, ("pydantic",)),
    Step("vllm", vllm_streams, VLLM, gpu=True),
    Step("vllm_fp8", vllm_fp8, VLLM, gpu=True),
    Step("vllm_large_steps", vllm_large_steps, VLLM, gpu=True),
)
