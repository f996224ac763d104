import pytest

from trimodal.errors import SettingsError
from trimodal.llm.settings import LlmSettings
from trimodal.settings import parse_parameters


def parse(**parameters: str) -> LlmSettings:
    return parse_parameters(LlmSettings, parameters, source="llm/config.pbtxt")


def test_text_becomes_typed_values() -> None:
    settings = parse(num_kv_blocks="64", enable_prefix_caching="false", speculation="draft")
    assert (settings.num_kv_blocks, settings.enable_prefix_caching, settings.speculation) == (
        64,
        False,
        "draft",
    )


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("num_kv_block", "64", "unknown parameter 'num_kv_block'"),
        ("num_kv_blocks", "many", "'num_kv_blocks' = 'many'"),
        ("num_kv_blocks", "0", "greater than or equal to 4"),
        ("engine", "sglang", "'engine' = 'sglang'"),
        ("enable_prefix_caching", "maybe", "'enable_prefix_caching' = 'maybe'"),
        ("default_max_tokens", "5000", "exceeds max_output_tokens"),
    ],
)
def test_a_bad_parameter_names_file_and_key(key: str, value: str, message: str) -> None:
    with pytest.raises(SettingsError, match=message) as raised:
        parse(**{key: value})
    assert str(raised.value).startswith("llm/config.pbtxt: ")


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        (
            {"speculation": "prompt_lookup", "max_num_batched_tokens": "1"},
            "max_num_batched_tokens of at least 2",
        ),
        ({"numerics": "fast", "kv_cache_precision": "f32"}, "'f32' needs numerics 'reproducible'"),
    ],
)
def test_what_the_engine_cannot_combine_is_refused(parameters: dict[str, str], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        parse(**parameters)
