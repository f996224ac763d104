"""Uses of TensorRT of both versions, right ones and wrong ones: mypy reports a wrong one that it lets pass.

Never run: scripts/ci/gpu_types checks it with `warn_unused_ignores`.
"""

import tensorrt


def build(logger: tensorrt.ILogger, graph: str) -> tensorrt.IHostMemory:
    builder = tensorrt.Builder(logger)
    network = builder.create_network(1 << int(tensorrt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
    parser = tensorrt.OnnxParser(network, logger)
    parser.parse_from_file(graph)
    parser.parse_from_path(graph)  # type: ignore[attr-defined]
    config = builder.create_builder_config()
    config.set_flag(tensorrt.BuilderFlag.TF32)
    config.set_flag(tensorrt.TacticSource.JIT_CONVOLUTIONS)  # type: ignore[arg-type]
    config.builder_optimisation_level = 5  # type: ignore[attr-defined]
    config.builder_optimization_level = "high"  # type: ignore[assignment]
    config.set_memory_pool_limit(tensorrt.MemoryPoolType.WORKSPACE, size=1 << 30)  # type: ignore[call-arg]
    config.set_memory_pool_limit(tensorrt.MemoryPoolType.WORKSPACE, 1 << 30)
    builder.build_engine(network, config)  # type: ignore[attr-defined]
    return builder.build_serialized_network(network, config)


def run(context: tensorrt.IExecutionContext, stream: int) -> None:
    context.set_tensor_address("input", 0)
    context.execute_async_v2([0], stream)  # type: ignore[attr-defined]
    context.execute_async_v3(stream)
