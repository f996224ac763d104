from pathlib import Path

import pytest

from trimodal.errors import SettingsError
from trimodal.llm.settings import LlmSettings
from trimodal.settings import parse_parameters


def parse(**parameters: str) -> LlmSettings:
    return parse_parameters(LlmSettings, parameters, source="llm/config.pbtxt")


EAGLE = {"engine": "tensorrt_llm_pytorch", "speculation": "eagle3", "pipeline_parallel_size": "2"}


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"num_kv_block": "64"}, "unknown parameter 'num_kv_block'"),
        ({"num_kv_blocks": "many"}, "'num_kv_blocks' = 'many'"),
        ({"num_kv_blocks": "3"}, "num_kv_blocks 3 should be 0 or at least 4"),
        ({"engine": "sglang"}, "'engine' = 'sglang'"),
        ({"enable_prefix_caching": "maybe"}, "'enable_prefix_caching' = 'maybe'"),
        ({"default_max_tokens": "5000", "max_output_tokens": "9"}, "5000 exceeds max_output_tokens 9"),
        *(({"engine": "fake", "ageing_s": value}, "'ageing_s'") for value in ("nan", "-1", "x", "")),
        (
            {"speculation": "prompt_lookup", "max_num_batched_tokens": "1"},
            "max_num_batched_tokens of at least",
        ),
        ({"numerics": "fast", "kv_cache_precision": "f32"}, "'f32' needs numerics 'reproducible'"),
        ({"speculation": "draft"}, "'speculation' = 'draft'"),
        ({"speculation": "eagle3"}, "'eagle3' is of tensorrt_llm_pytorch and vllm, not of engine 'openvino'"),
        (EAGLE, "'eagle3' of TensorRT-LLM needs pipeline_parallel_size 1"),
        ({"max_num_seqs": "0"}, r"max_num_seqs 0 should be .* \(0, by the card, with tensorrt_llm_pytorch, "),
        *(
            ({"cache_ttl_s": namespaces}, "names a namespace twice")
            for namespaces in ("default=9 default=5", "a=1 b=2 a=1")
        ),
        *(
            ({"cache_ttl_s": namespaces}, "cache_ttl_s")
            for namespaces in ("default", "default=-1", "default=nan", "default=1.5", "default=\u0663", "")
        ),
    ],
)
def test_a_bad_parameter_names_file_and_key(parameters: dict[str, str], message: str) -> None:
    with pytest.raises(SettingsError, match=message) as raised:
        parse(**parameters)
    assert str(raised.value).startswith("llm/config.pbtxt: ")


def test_builds_check_what_the_repository_ships() -> None:
    """A build opens its engine with the defaults, as one that serves has the values of the config."""
    shipped = Path(__file__).parents[2] / "model_repository" / "llm" / "configs" / "cpu.pbtxt"
    for name in ("numerics", "kv_cache_precision", "enable_prefix_caching"):
        default = str(LlmSettings.model_fields[name].default)
        line = f'key: "{name}" value {{ string_value: "{default.lower()}" }}'
        assert line in shipped.read_text(encoding="utf-8")


def test_namespaces_keep_their_order() -> None:
    assert parse(cache_ttl_s="b=1 a=2").cache_ttls == {"b": 1.0, "a": 2.0}


@pytest.mark.parametrize(
    ("engine", "values"),
    [
        ("openvino", ("openvino-int8", 0, 16, 256)),
        ("tensorrt_llm_pytorch", ("checkpoint", 0, 0, 0)),
        ("vllm", ("checkpoint", 0, 0, 0)),
    ],
)
def test_defaults_are_those_of_the_engine(engine: str, values: tuple[object, ...]) -> None:
    one = parse(engine=engine)
    assert (one.artefact, one.num_kv_blocks, one.max_num_seqs, one.max_num_batched_tokens) == values
    assert parse(engine=engine, num_kv_blocks="99").num_kv_blocks == 99


@pytest.mark.parametrize(
    ("engine", "key", "value", "readers"),
    [
        ("tensorrt_llm_pytorch", "numerics", "reproducible", "openvino"),
        ("openvino", "kv_cache_dtype", "fp8", "tensorrt_llm_pytorch and vllm"),
        ("openvino", "tensor_parallel_size", "2", "tensorrt_llm_pytorch and vllm"),
        ("tensorrt_llm_pytorch", "gpu_memory_utilization", "0.5", "vllm"),
        ("vllm", "kv_cache_free_gpu_memory_fraction", "0.5", "tensorrt_llm_pytorch"),
        ("vllm", "host_cache_bytes", "1", "tensorrt_llm_pytorch"),
        ("tensorrt_llm_pytorch", "quantization", "fp8", "vllm"),
        ("openvino", "quantization", "fp8", "vllm"),
        ("openvino", "draft_artefact", "b", "tensorrt_llm_pytorch and vllm"),
        ("openvino", "max_model_len", "100", "tensorrt_llm_pytorch and vllm"),
        ("openvino", "checkpoint_sha256", "ab", "tensorrt_llm_pytorch and vllm"),
    ],
)
def test_a_parameter_that_the_engine_does_not_read_is_refused(
    engine: str, key: str, value: str, readers: str
) -> None:
    with pytest.raises(SettingsError) as raised:
        parse(engine=engine, **{key: value})
    assert f"engine '{engine}' does not read '{key}' (read by {readers}): take it out" in str(raised.value)


def test_a_profiles_own_defaults_are_taken_by_another_engine() -> None:
    """`--set llm.engine=vllm` on profile cpu, whose file names what OpenVINO reads."""
    settings = parse(engine="vllm", device="cpu", numerics="fast", kv_cache_precision="u8", threads="2")
    assert (settings.device, settings.threads, settings.artefact) == ("cpu", 2, "checkpoint")
    assert parse(engine="vllm").device == "cuda"


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"engine": "openvino", "device": "cuda"}, "engine 'openvino' runs on device 'cpu', not on 'cuda'"),
        (
            {"engine": "tensorrt_llm_pytorch", "device": "cpu"},
            "'tensorrt_llm_pytorch' runs on device 'cuda', not on 'cpu'",
        ),
        ({"engine": "vllm", "threads": "2"}, "'threads' is read on device 'cpu': take it out"),
    ],
)
def test_a_device_that_the_engine_does_not_have(values: dict[str, str], sentence: str) -> None:
    with pytest.raises(SettingsError, match=sentence):
        parse(**values)


def test_the_fake_engine_stands_in_for_any() -> None:
    one = parse(engine="fake", threads="2", gpu_memory_utilization="0.5", num_kv_blocks="8")
    assert (one.threads, one.num_kv_blocks) == (2, 8)
