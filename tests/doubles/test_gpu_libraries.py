"""The doubles themselves: what a stub declares works and is recorded, anything else is refused."""

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
