"""Quantises and compiles a TensorRT-LLM engine through its LLM class, asks it greedily, and saves it.

It takes a plan that engine_plan.py has checked; agreement.py compares the answers.
TensorRT-LLM drops names that it does not know without a word, so every name here is checked by mypy
and by tests against its signatures.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from steps.llm.engine_plan import TOKENS_PER_BLOCK, EnginePlan

from trimodal.build_support import progress
from trimodal.errors import ArtefactError
from trimodal.plan.memory import KvPrecision, Precision

if TYPE_CHECKING:
    from tensorrt_llm._tensorrt_engine import LLM
    from tensorrt_llm.llmapi import BuildConfig, CalibConfig, QuantConfig

# Names of QuantAlgo. INT8 SmoothQuant is ModelOpt's, whose calibration reads local data sets.
ALGORITHMS = {
    Precision.fp8: "FP8",
    Precision.int8_sq: "W8A8_SQ_PER_CHANNEL",
    Precision.int8_wo: "W8A16",
    Precision.int4_awq: "W4A16_AWQ",
}
KV_ALGORITHMS = {KvPrecision.fp8: "FP8", KvPrecision.int8: "INT8"}
DTYPES = {Precision.fp16: "float16", Precision.bf16: "bfloat16"}  # "auto" is the checkpoint's own.
CALIBRATION_TOKENS = 512  # of each text
HOPPER = 9.0  # compute capability


def build_config(plan: EnginePlan, sm: str) -> BuildConfig:
    """Limits and plugins: paged KV cache and paged context attention, which prefix reuse and chunked
    prefill need.

    Args:
        sm: compute capability that is built for, as 9.0.
    """
    from tensorrt_llm.llmapi import BuildConfig
    from tensorrt_llm.llmapi.kv_cache_type import KVCacheType
    from tensorrt_llm.plugin import PluginConfig

    fp8 = plan.precision is Precision.fp8
    gemm: Literal["auto"] | None = None if fp8 else "auto"  # TensorRT's own FP8 GEMMs are the faster ones.
    fp8_kv = plan.kv_precision is KvPrecision.fp8
    # Where NVIDIA's own trtllm-bench takes it (bench/build/dataclasses.py): FP8 throughout, from Hopper on.
    low_latency: Literal["fp8"] | None = "fp8" if fp8 and fp8_kv and float(sm) >= HOPPER else None
    return BuildConfig(
        max_input_len=plan.max_seq_len - 1,
        max_seq_len=plan.max_seq_len,
        max_batch_size=plan.max_batch_size,
        max_num_tokens=plan.max_num_tokens,
        max_beam_width=1,
        kv_cache_type=KVCacheType.PAGED,
        plugin_config=PluginConfig(
            gemm_plugin=gemm,
            low_latency_gemm_plugin=low_latency,
            tokens_per_block=TOKENS_PER_BLOCK,
            use_paged_context_fmha=True,
            use_fp8_context_fmha=fp8 and fp8_kv,
            multiple_profiles=plan.multiple_profiles,
            reduce_fusion=plan.tp > 1,
        ),
    )


def quant_config(plan: EnginePlan) -> QuantConfig | None:
    """None: the checkpoint's numbers as they are."""
    from tensorrt_llm.llmapi import QuantAlgo, QuantConfig

    algorithm, kv = ALGORITHMS.get(plan.precision), KV_ALGORITHMS.get(plan.kv_precision)
    if algorithm is None and kv is None:
        return None
    return QuantConfig(
        quant_algo=QuantAlgo(algorithm) if algorithm else None,
        kv_cache_quant_algo=QuantAlgo(kv) if kv else None,
    )


def calib_config(plan: EnginePlan, dataset: Path | None) -> CalibConfig | None:
    """One text a batch, so that none is padded."""
    from tensorrt_llm.llmapi import CalibConfig

    if plan.calibration is None or dataset is None:
        return None
    return CalibConfig(
        calib_dataset=str(dataset),
        calib_batches=len(plan.calibration.texts),
        calib_batch_size=1,
        calib_max_seq_length=CALIBRATION_TOKENS,
    )


@contextmanager
def built_engine(
    plan: EnginePlan, checkpoint: Path, dataset: Path | None, workspace: Path, sm: str
) -> Iterator[LLM]:
    """Quantises and compiles; yields the running engine, and shuts it down at the end.

    Raises:
        ArtefactError: whatever TensorRT-LLM raises, its last line in one sentence.
    """
    os.environ.setdefault("TLLM_LOG_LEVEL", "WARNING")
    what = "Quantising and compiling" if plan.calibration else "Compiling"
    with progress(what), library_errors():
        from tensorrt_llm._tensorrt_engine import LLM
        from tensorrt_llm.llmapi import KvCacheConfig

        llm = LLM(
            model=checkpoint,
            skip_tokenizer_init=True,  # It is asked with token ids, and serving has its own tokenizer.
            dtype=DTYPES.get(plan.precision, "auto"),
            tensor_parallel_size=plan.tp,
            pipeline_parallel_size=plan.pp,
            # The same again for its executor: its default for the last one is 8192, whatever was built.
            max_batch_size=plan.max_batch_size,
            max_seq_len=plan.max_seq_len,
            max_num_tokens=plan.max_num_tokens,
            build_config=build_config(plan, sm),
            quant_config=quant_config(plan),
            calib_config=calib_config(plan, dataset),
            speculative_config=plan.lookahead.config() if plan.lookahead else None,
            kv_cache_config=KvCacheConfig(enable_block_reuse=True),
            workspace=str(workspace),
        )
    try:
        yield llm
    except BaseException:
        with suppress(Exception):  # What went wrong first is what is told.
            llm.shutdown()
        raise
    with library_errors():
        llm.shutdown()


def greedy_answers(
    llm: LLM, prompts: Sequence[list[int]], ends: Sequence[int], max_tokens: int
) -> list[list[int]]:
    """The most probable tokens after each prompt, all prompts in one batch; they stop at any of `ends`."""
    from tensorrt_llm.llmapi import RequestOutput, SamplingParams

    sampling = SamplingParams(
        max_tokens=max_tokens,
        top_k=1,
        end_id=ends[0] if ends else -1,
        pad_id=ends[0] if ends else 0,
        stop_token_ids=list(ends[1:]) or None,
        detokenize=False,
        add_special_tokens=False,
    )
    with library_errors():
        outputs = llm.generate([list(prompt) for prompt in prompts], sampling, use_tqdm=False)
    rows = [outputs] if isinstance(outputs, RequestOutput) else outputs
    return [list(row.outputs[0].token_ids or []) for row in rows]


def save_engine(llm: LLM, directory: Path) -> None:
    """Its files into `directory`. Raises: ArtefactError when none looks like an engine."""
    with library_errors():
        llm.save(str(directory))
    if not list(directory.glob("*.engine")) or not (directory / "config.json").is_file():
        raise ArtefactError("TensorRT-LLM saved no engine (*.engine and config.json): nothing was replaced")


@contextmanager
def library_errors() -> Iterator[None]:
    """Whatever the library raises as one sentence. Its log, above it on the screen, has the rest."""
    try:
        yield
    except ArtefactError:
        raise
    except Exception as error:  # Its classes are pydantic's, torch's, MPI's and plain RuntimeErrors.
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        reason = f"{type(error).__name__}: {lines[-1][:300]}" if lines else type(error).__name__
        if isinstance(error, MemoryError) or "out of memory" in str(error).lower():
            raise ArtefactError(
                f"TensorRT-LLM ran out of memory ({reason}): build with a lower --max-num-tokens or "
                "--max-batch-size, more GPUs (--tp), or on a GPU that nothing else uses"
            ) from error
        raise ArtefactError(f"TensorRT-LLM failed ({reason}): nothing was replaced") from error
