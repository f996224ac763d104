"""The doubles themselves: what a stub declares works and is recorded, anything else is refused."""

import enum
import importlib
import importlib.util
import inspect
import sys
from pathlib import Path

import pytest

from tests.doubles.gpu_libraries import Recorder, install, make
from tests.doubles.gpu_libraries.kinds import Double, EnumMember

FOLDERS = ["tensorrt-10.14", "tensorrt-11.4", "tensorrt_llm-1.2", "vllm-0.33"]


@pytest.fixture
def built(tensorrt_double):
    """A builder, its network and its configuration."""
    tensorrt = tensorrt_double.module
    builder = tensorrt.Builder(tensorrt.Logger())
    flags = 1 << int(tensorrt.NetworkDefinitionCreationFlag.STRONGLY_TYPED)
    return builder, builder.create_network(flags), builder.create_builder_config()


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_class_and_signature_of_the_stubs_can_be_read(folder, monkeypatch):
    recorder = Recorder()
    install(monkeypatch, folder, recorder)
    root = folder.partition("-")[0]
    names = [name for name in sys.modules if name.split(".")[0] == root]
    used = set()
    for name in names:
        for value in vars(importlib.import_module(name)).values():
            if not isinstance(value, type) or not issubclass(value, Double) or value in used:
                continue
            used.add(value)
            if issubclass(value, EnumMember):
                assert len({int(member) for member in value.__members__.values()}) == len(value.__members__)
                continue
            instance = make(value)
            for member in dir(value):
                function = vars(value).get(member)
                if member.startswith("_") or not inspect.isroutine(function):
                    continue
                if inspect.iscoroutinefunction(function):
                    continue
                with pytest.raises(TypeError, match=rf"{member}\(\)"):
                    getattr(instance, member)(*range(40), no_such=1)
    assert len(used) > 5
    assert recorder.calls == []


def test_calls_are_recorded_in_order_with_the_arguments_that_were_given(tensorrt_double, built):
    builder, network, config = built
    profile = builder.create_optimization_profile()
    profile.set_shape("input", (1, 3), max=(8, 3), opt=[4, 3])
    config.add_optimization_profile(profile)
    builder.build_serialized_network(network, config)
    assert [call.name for call in tensorrt_double.recorder.calls] == [
        "tensorrt.Logger",
        "tensorrt.Builder",
        "tensorrt.Builder.create_network",
        "tensorrt.Builder.create_builder_config",
        "tensorrt.Builder.create_optimization_profile",
        "tensorrt.IOptimizationProfile.set_shape",
        "tensorrt.IBuilderConfig.add_optimization_profile",
        "tensorrt.Builder.build_serialized_network",
    ]
    (shape,) = tensorrt_double.recorder.named("set_shape")
    assert shape.instance is profile
    assert shape.arguments == {"input": "input", "min": (1, 3), "opt": [4, 3], "max": (8, 3)}
    (build,) = tensorrt_double.recorder.named("Builder.build_serialized_network")
    assert build.arguments == {"network": network, "config": config}
    assert tensorrt_double.recorder.named("uild_serialized_network") == []


def test_what_the_stub_lacks_is_refused(tensorrt_double, built):
    tensorrt, (builder, network, config) = tensorrt_double.module, built
    context = make(tensorrt.IExecutionContext)
    for attribute, error in {
        "builder.build_engine": AttributeError,
        "tensorrt.BuilderFlag.FP23": AttributeError,
        "tensorrt.volume": AttributeError,
        "tensorrt.INetworkDefinition()": TypeError,
        "tensorrt.Builder(None)": TypeError,
        "tensorrt.DataType(1000)": TypeError,
        "builder.create_network(flag=1)": TypeError,
        "builder.create_network('1')": TypeError,
        "builder.build_serialized_network(config, network)": TypeError,
        "config.set_flag(1)": TypeError,
        "setattr(config, 'builder_optimisation_level', 5)": AttributeError,
        "setattr(config, 'num_optimization_profiles', 5)": AttributeError,
        "setattr(config, 'set_flag', 5)": AttributeError,
        "setattr(config, 'progress_monitor', print)": TypeError,
        "setattr(tensorrt, 'fast', True)": AttributeError,
        "tensorrt.OnnxParser(network, tensorrt.Logger()).parse_from_file(Path('m.onnx'))": TypeError,
        "context.set_input_shape('x', 3)": TypeError,
        "context.execute_async_v2([], 0)": AttributeError,
        "make(tensorrt.IHostMemory, b'x').decode()": AttributeError,
        "len(make(tensorrt.IHostMemory, b'x'))": TypeError,
        "make(tensorrt.ITensor, nam='x')": AttributeError,
    }.items():
        with pytest.raises(error):
            eval(attribute, {**globals(), **locals()})
        assert tensorrt_double.recorder.named("set_flag") == []


def test_the_versions_differ_as_the_libraries_do(tensorrt_double):
    tensorrt, old = tensorrt_double.module, tensorrt_double.version == "10.14"
    assert tensorrt.__version__ == tensorrt_double.version
    assert hasattr(tensorrt.BuilderFlag, "FP16") is old
    assert hasattr(tensorrt, "IInt8Calibrator") is old
    tensorrt.__version__ = "9.0"
    assert importlib.import_module("tensorrt").__version__ == "9.0"
    assert importlib.util.find_spec("tensorrt") is not None


def test_results_follow_the_annotations(tensorrt_double, built):
    tensorrt, (builder, network, config) = tensorrt_double.module, built
    parser = tensorrt.OnnxParser(network, tensorrt.Logger())
    assert (parser.parse(b"graph"), parser.num_errors, network.name) == (True, 0, "")
    assert isinstance(builder.build_serialized_network(network, config), tensorrt.IHostMemory)
    assert make(tensorrt.IExecutionContext).infer_shapes() == []
    assert config.reset() is None
    config.builder_optimization_level = 4
    assert config.builder_optimization_level == 4
    assert config.progress_monitor is config.progress_monitor
    with builder as entered:
        assert entered is builder


def test_scripts_decide_results_errors_and_attributes(tensorrt_double, built):
    tensorrt, recorder, (builder, network, config) = tensorrt_double.module, tensorrt_double.recorder, built
    recorder.returns("Builder.build_serialized_network", b"plan")
    plan = builder.build_serialized_network(network, config)
    assert (bytes(plan), plan.nbytes, memoryview(plan).nbytes) == (b"plan", 4, 4)
    recorder.returns("Builder.build_serialized_network", None)
    assert builder.build_serialized_network(network, config) is None
    assert recorder.calls[-1].result is None
    recorder.returns("get_tensor_shape", lambda instance, name: (len(name), 3))
    shape = make(tensorrt.IExecutionContext).get_tensor_shape("input")
    assert isinstance(shape, tensorrt.Dims)
    assert (list(shape), shape[0], shape == (5, 3)) == ([5, 3], 5, True)
    recorder.returns("OnnxParser.num_errors", 2)
    assert tensorrt.OnnxParser(network, tensorrt.Logger()).num_errors == 2
    for name in ("Runtime", "tensorrt.Builder.create_network"):
        recorder.raises(name, MemoryError("out of memory"))
    with pytest.raises(MemoryError):
        tensorrt.Runtime(tensorrt.Logger())
    with pytest.raises(MemoryError):
        builder.create_network()


def test_interfaces_are_subclassed_as_with_pybind11(tensorrt_double, built):
    tensorrt, config = tensorrt_double.module, built[2]

    class Monitor(tensorrt.IProgressMonitor):
        def __init__(self) -> None:
            super().__init__()
            self.steps = []

        def step_complete(self, phase_name, step):
            self.steps.append(step)
            return len(self.steps) < 2

    class Forgetful(tensorrt.ILogger):
        def __init__(self) -> None:
            self.lines = []

    class Misspelt(tensorrt.IProgressMonitor):
        def phase_started(self, phase_name, parent_phase, num_steps):
            pass

    config.progress_monitor = monitor = Monitor()
    assert [config.progress_monitor.step_complete("p", step) for step in (1, 2)] == [True, False]
    assert monitor.steps == [1, 2]
    with pytest.raises(TypeError, match="must be called"):
        Forgetful()
    with pytest.raises(RuntimeError, match="pure virtual function .*phase_start"):
        Misspelt().phase_start("p", "", 3)


def test_severities_are_one_enum_of_both_loggers(tensorrt_double):
    tensorrt = tensorrt_double.module
    assert tensorrt.Logger(tensorrt.Logger.WARNING).min_severity is tensorrt.ILogger.Severity.WARNING
    assert tensorrt.Logger.Severity is tensorrt.ILogger.Severity
    assert tensorrt.ILogger.Severity(int(tensorrt.Logger.ERROR)).name == "ERROR"
    with pytest.raises(TypeError):
        tensorrt.BuilderFlag.REFIT | tensorrt.BuilderFlag.TF32


def test_configurations_keep_arguments_and_the_stubs_defaults(tensorrt_llm_double):
    api = tensorrt_llm_double.module.llmapi
    cache = api.KvCacheConfig(free_gpu_memory_fraction=0.5)
    assert (cache.free_gpu_memory_fraction, cache.dtype, cache.tokens_per_block) == (0.5, "auto", 32)
    build = api.BuildConfig(max_batch_size=4)
    assert (build.max_batch_size, build.max_num_tokens, build.plugin_config.tokens_per_block) == (4, 8192, 32)
    assert api.QuantConfig(api.QuantAlgo.FP8).quant_algo.value == "FP8"
    assert issubclass(api.QuantAlgo, enum.Enum)
    for call in (
        lambda: api.BuildConfig(max_batchsize=4),
        lambda: api.KvCacheConfig(enable_block_reuse="yes"),
        lambda: api.QuantConfig(quant_algo="FP8"),
        lambda: api.CapacitySchedulerPolicy.GREEDY,
        lambda: tensorrt_llm_double.module.bindings.anything,
        lambda: setattr(cache, "enable_reuse", True),
    ):
        with pytest.raises((AttributeError, TypeError)):
            call()


async def test_requests_are_streamed_by_a_script(tensorrt_llm_double):
    from tensorrt_llm._tensorrt_engine import LLM
    from tensorrt_llm.llmapi import CompletionOutput, SamplingParams

    async def two_steps(instance):
        for token in (5, 6):
            yield make(type(instance), outputs=[make(CompletionOutput, token_ids_diff=[token])])

    recorder = tensorrt_llm_double.recorder
    with LLM(Path("/engine"), tensor_parallel_size=2) as llm:
        assert [item async for item in llm.generate_async("x")] == []
        recorder.returns("RequestOutput.__aiter__", two_steps)
        request = llm.generate_async([1, 2], SamplingParams(max_tokens=2), streaming=True)
        assert [step.outputs[0].token_ids_diff async for step in request] == [[5], [6]]
        assert await request.aresult() is request
        with pytest.raises(AttributeError):
            llm.get_stat()
        recorder.returns("IterationResult.__anext__", lambda instance: {"numActiveRequests": 1})
        assert await anext(llm.get_stats_async(timeout=2)) == {"numActiveRequests": 1}
    _, call = recorder.named("_tensorrt_engine.LLM.generate_async")
    assert call.arguments["inputs"] == [1, 2]
    assert recorder.named("BaseLLM.generate_async")[1] is call
    assert recorder.named("tensorrt_llm._tensorrt_engine.LLM")[0].arguments["tensor_parallel_size"] == 2
