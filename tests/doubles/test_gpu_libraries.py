"""The doubles themselves: what a stub declares works and is recorded, anything else is refused."""

import importlib
import importlib.util
import inspect
import sys

import pytest

from tests.doubles.gpu_libraries import Recorder, install, make


@pytest.fixture
def built(tensorrt_double):
    """A builder, its network and its configuration."""
    tensorrt = tensorrt_double.module
    builder = tensorrt.Builder(tensorrt.Logger())
    flags = 1 << int(tensorrt.NetworkDefinitionCreationFlag.STRONGLY_TYPED)
    return builder, builder.create_network(flags), builder.create_builder_config()


@pytest.mark.parametrize("folder", ["tensorrt-10.14", "tensorrt-11.4", "tensorrt_llm-1.2", "vllm-0.33"])
def test_every_method_of_the_stubs_refuses_an_argument_that_it_lacks(folder, monkeypatch):
    recorder = Recorder()
    install(monkeypatch, folder, recorder)
    modules = [name for name in sys.modules if name.split(".")[0] == folder.partition("-")[0]]
    classes = {one for name in modules for one in vars(sys.modules[name]).values() if hasattr(one, "_owner")}
    assert len(classes) > 5
    for cls in classes:
        for name, function in inspect.getmembers(cls, inspect.isfunction):
            own = not name.startswith("_") and function.__module__ != "argparse"
            if own and not inspect.iscoroutinefunction(function):
                with pytest.raises(TypeError):
                    getattr(make(cls), name)(*range(40), no_such=1)
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
    assert tensorrt_double.recorder.named("uild_serialized_network") == []


@pytest.mark.parametrize(
    ("expression", "error"),
    [
        ("tensorrt.Bilder", AttributeError),
        ("tensorrt.BuilderFlag.REFITT", AttributeError),
        ("tensorrt.BuilderFlag.REFIT | tensorrt.BuilderFlag.TF32", TypeError),
        ("builder.build_engine(network, config)", AttributeError),
        ("builder.build_serialized_network(network)", TypeError),
        ("config.set_memory_pool_limit(tensorrt.MemoryPoolType.WORKSPACE, size=1)", TypeError),
        ("setattr(config, 'builder_optimisation_level', 5)", AttributeError),
        ("setattr(config, 'num_optimization_profiles', 5)", AttributeError),
        ("setattr(config, 'set_flag', 5)", AttributeError),
        ("setattr(tensorrt, 'fast', True)", AttributeError),
        ("make(tensorrt.ITensor, nam='x')", AttributeError),
        ("len(make(tensorrt.IHostMemory, b'x'))", TypeError),
    ],
)
def test_what_the_stub_lacks_is_refused(tensorrt_double, built, expression, error):
    names = dict(zip(("builder", "network", "config"), built, strict=True))
    with pytest.raises(error):
        eval(expression, {"make": make, "tensorrt": tensorrt_double.module} | names)


def test_the_versions_differ_as_the_libraries_do(tensorrt_double):
    tensorrt, old = tensorrt_double.module, tensorrt_double.version == "10.14"
    assert tensorrt.__version__ == tensorrt_double.version
    assert hasattr(tensorrt.BuilderFlag, "FP16") is old
    tensorrt.__version__ = "9.0"
    assert importlib.import_module("tensorrt").__version__ == "9.0"
    assert importlib.util.find_spec("tensorrt") is not None


def test_results_follow_the_annotations_unless_a_script_decides(tensorrt_double, built):
    tensorrt, recorder, (builder, network, config) = tensorrt_double.module, tensorrt_double.recorder, built
    parser = tensorrt.OnnxParser(network, tensorrt.Logger())
    assert (parser.parse(b"graph"), parser.num_errors, network.name) == (True, 0, "")
    assert isinstance(builder.build_serialized_network(network, config), tensorrt.IHostMemory)
    assert make(tensorrt.IExecutionContext).infer_shapes() == []
    config.builder_optimization_level = 4
    assert config.builder_optimization_level == 4
    assert tensorrt.Logger(tensorrt.Logger.WARNING).min_severity is tensorrt.ILogger.Severity.WARNING
    recorder.returns("get_tensor_shape", lambda instance, name: (len(name), 3))
    assert make(tensorrt.IExecutionContext).get_tensor_shape("input") == (5, 3)
    recorder.returns("OnnxParser.num_errors", 2)
    assert parser.num_errors == 2
    for name in ("Runtime", "tensorrt.Builder.create_network"):
        recorder.raises(name, MemoryError("out of memory"))
    with pytest.raises(MemoryError):
        tensorrt.Runtime(tensorrt.Logger())
    with pytest.raises(MemoryError):
        builder.create_network()


def test_configurations_keep_arguments_and_the_stubs_defaults(tensorrt_llm_double):
    api = tensorrt_llm_double.module.llmapi
    cache = api.KvCacheConfig(free_gpu_memory_fraction=0.5)
    assert (cache.free_gpu_memory_fraction, cache.dtype, cache.tokens_per_block) == (0.5, "auto", 32)
    build = api.BuildConfig(max_batch_size=4)
    assert (build.max_batch_size, build.max_num_tokens, build.plugin_config.tokens_per_block) == (4, 8192, 32)
    assert api.QuantConfig(api.QuantAlgo.FP8).quant_algo.value == "FP8"
    with pytest.raises(TypeError):
        api.BuildConfig(max_batchsize=4)
    with pytest.raises(AttributeError):
        cache.enable_reuse = True


async def test_requests_are_streamed_by_a_script(tensorrt_llm_double):
    from tensorrt_llm._tensorrt_engine import LLM
    from tensorrt_llm.llmapi import CompletionOutput, SamplingParams

    async def two_steps(instance):
        for token in (5, 6):
            yield make(type(instance), outputs=[make(CompletionOutput, token_ids_diff=[token])])

    recorder = tensorrt_llm_double.recorder
    with LLM("/engine", tensor_parallel_size=2) as llm:
        assert [item async for item in llm.generate_async("x")] == []
        recorder.returns("RequestOutput.__aiter__", two_steps)
        request = llm.generate_async([1, 2], SamplingParams(max_tokens=2), streaming=True)
        assert [step.outputs[0].token_ids_diff async for step in request] == [[5], [6]]
        assert await request.aresult() is request
        recorder.returns("IterationResult.__anext__", lambda instance: {"numActiveRequests": 1})
        assert await anext(llm.get_stats_async(timeout=2)) == {"numActiveRequests": 1}
    _, call = recorder.named("_tensorrt_engine.LLM.generate_async")
    assert call.arguments["inputs"] == [1, 2]
    assert recorder.named("BaseLLM.generate_async")[1] is call
    assert recorder.named("tensorrt_llm._tensorrt_engine.LLM")[0].arguments["tensor_parallel_size"] == 2
