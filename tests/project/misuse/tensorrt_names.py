"""Uses of TensorRT, right ones and wrong ones.

Never run: test_types.py compares mypy's errors with the marks.
"""

import tensorrt


def build(logger: tensorrt.ILogger, graph: str) -> tensorrt.IHostMemory:
    builder = tensorrt.Builder(logger)
    network = builder.create_network(1 << int(tensorrt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
    parser = tensorrt.OnnxParser(network, logger)
    parser.parse_from_file(graph)
    parser.parse_from_path(graph)  # expect: attr-defined
    config = builder.create_builder_config()
    config.set_flag(tensorrt.BuilderFlag.TF32)
    config.set_flag(tensorrt.BuilderFlag.FP16)  # expect on 11.4: attr-defined
    config.set_flag(tensorrt.TacticSource.JIT_CONVOLUTIONS)  # expect: arg-type
    config.builder_optimisation_level = 5  # expect: attr-defined
    config.builder_optimization_level = "high"  # expect: assignment
    config.set_memory_pool_limit(tensorrt.MemoryPoolType.WORKSPACE, size=1 << 30)  # expect: call-arg
    config.set_memory_pool_limit(tensorrt.MemoryPoolType.WORKSPACE, 1 << 30)
    builder.build_engine(network, config)  # expect: attr-defined
    return builder.build_serialized_network(network, config)


class Calibrator(tensorrt.IInt8Calibrator):  # expect on 11.4: name-defined, misc
    pass


def run(context: tensorrt.IExecutionContext, stream: int) -> None:
    context.set_tensor_address("input", 0)
    context.execute_async_v2([0], stream)  # expect: attr-defined
    context.execute_async_v3(stream)
