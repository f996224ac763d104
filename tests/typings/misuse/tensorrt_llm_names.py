"""Uses of TensorRT-LLM, right ones and wrong ones: mypy reports a wrong one that it lets pass.

Never run: scripts/ci/gpu_types checks it with `warn_unused_ignores`.
"""

from tensorrt_llm import LLM as PyTorchLLM
from tensorrt_llm import SamplingParams
from tensorrt_llm._tensorrt_engine import LLM
from tensorrt_llm.llmapi import (
    BuildConfig,
    CapacitySchedulerPolicy,
    CudaGraphConfig,
    ExtendedRuntimePerfKnobConfig,
    KvCacheConfig,
    QuantAlgo,
    QuantConfig,
)
from tensorrt_llm.plugin.plugin import PluginConfig


def build(model: str) -> None:
    # At run time both classes drop a misspelt name in silence: the engine would be built for 2048.
    build = BuildConfig(max_batch_size=8, plugin_config=PluginConfig(tokens_per_block=32))
    BuildConfig(max_batchsize=8)  # type: ignore[call-arg]
    PluginConfig(use_paged_context_fhma=True)  # type: ignore[call-arg]
    quantised = QuantConfig(quant_algo=QuantAlgo.FP8, kv_cache_quant_algo=QuantAlgo.FP8)
    QuantConfig(quant_algo=QuantAlgo.FP9)  # type: ignore[attr-defined]
    QuantConfig(quant_algo="FP8")  # type: ignore[arg-type]
    llm = LLM(model, build_config=build, quant_config=quantised)
    PyTorchLLM(model, build_config=build)  # type: ignore[call-arg]
    PyTorchLLM(model, cuda_graph_config=CudaGraphConfig(enable_padding=True, max_batch_size=8))
    LLM(model, cuda_graph_config=CudaGraphConfig())  # type: ignore[call-arg]
    CudaGraphConfig(padding=True)  # type: ignore[call-arg]
    LLM(model, extended_runtime_perf_knob_config=ExtendedRuntimePerfKnobConfig(cuda_graph_mode=True))
    ExtendedRuntimePerfKnobConfig(cuda_graphs=True)  # type: ignore[call-arg]
    PluginConfig(low_latency_gemm_plugin="fp8")
    PluginConfig(low_latency_gemm_plugin="fp16")  # type: ignore[arg-type]
    llm.save("engine")
    llm.stop()  # type: ignore[attr-defined]


async def serve(llm: LLM) -> str:
    KvCacheConfig(enable_block_reuse=True, free_gpu_memory_fraction=0.9)
    KvCacheConfig(free_gpu_memory=0.9)  # type: ignore[call-arg]
    print(CapacitySchedulerPolicy.MAX_UTILIZATION, CapacitySchedulerPolicy.GREEDY)  # type: ignore[attr-defined]
    llm.get_stat()  # type: ignore[attr-defined]
    llm.generate_async([1], SamplingParams(max_new_tokens=4))  # type: ignore[call-arg]
    request = llm.generate_async([1], SamplingParams(max_tokens=4), streaming=True)
    request.cancel()  # type: ignore[attr-defined]
    request.abort()
    async for step in request:
        print(step.outputs[0].text_diff)
        print(step.outputs[0].delta)  # type: ignore[attr-defined]
    return request.outputs[0].text
