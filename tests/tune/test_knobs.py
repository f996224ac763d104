"""Which knobs a pipeline has comes from its configuration and its settings classes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tune.doubles import parsed
from trimodal.errors import SettingsError
from trimodal.repository import Model, select_models
from trimodal.tune.knobs import Pipeline

REPOSITORY = Path(__file__).parents[2] / "model_repository"


def pipeline(name: str, profile: str = "cpu") -> Pipeline:
    return Pipeline(name, select_models(REPOSITORY, [name], profile))


def foreign(text: str, tmp_path: Path) -> Pipeline:
    """Somebody's model, without settings of ours."""
    config = parsed(text)
    return Pipeline(
        config.name, {config.name: Model(config.name, tmp_path, tmp_path / "config.pbtxt", config)}
    )


@pytest.mark.parametrize("profile", ["cpu", "cuda", "tensorrt"])
@pytest.mark.parametrize("name", ["vision", "llm", "speech", "embedding", "assistant"])
def test_every_default_is_one_that_the_model_takes(name: str, profile: str) -> None:
    one = pipeline(name, profile)
    knobs = one.defaults(4)
    assert knobs
    for knob in knobs:
        assert one.present(knob.model, knob.name) in knob.choices
        for choice in knob.choices:
            assert not one.refusal({knob.label: choice}, alone=True), (knob.label, choice)


def test_defaults_come_from_the_configuration() -> None:
    labels = {knob.label: knob.choices for knob in pipeline("llm").defaults(4)}
    assert labels["llm.threads"] == ("0", "1", "2", "4")
    assert "llm.max_num_batched_tokens" in labels
    assert "llm.instance_count" not in labels  # decoupled: it keeps its requests
    assert "llm.max_batch_size" not in labels
    gpu = {knob.label for knob in pipeline("llm", "cuda").defaults(4)}
    assert "llm.threads" not in gpu  # vLLM does not read it


@pytest.mark.parametrize(("blocks", "choices"), [("0", None), ("4096", ("4096", "8192"))])
def test_a_kv_pool_is_never_made_smaller(blocks: str, choices: tuple[str, ...] | None) -> None:
    """256, 512 and 1024 were tried whatever there was: longer prompts than that would be refused."""
    one = pipeline("llm")
    one.models["llm"].config.parameters["num_kv_blocks"].string_value = blocks
    assert {knob.name: knob.choices for knob in one.defaults(4)}.get("num_kv_blocks") == choices


def test_a_step_never_takes_less_than_its_ensemble_gives() -> None:
    one = pipeline("vision", "tensorrt")
    step = one.models["vision"].steps[0]
    assert "below that of vision" in one.refusal({f"{step}.max_batch_size": "2"})


def test_values_that_do_not_go_together_are_refused_before_the_server_is_asked() -> None:
    one = pipeline("llm")
    assert one.refusal({"llm.speculation": "prompt_lookup", "llm.max_num_batched_tokens": "64"}) == ""
    assert "max_num_batched_tokens" in one.refusal(
        {"llm.speculation": "prompt_lookup", "llm.max_num_batched_tokens": "1"}
    )


@pytest.mark.parametrize(
    ("text", "choices"),
    [
        ("llm.max_num_seqs=1,4,16", ("1", "4", "16")),
        ("max_num_seqs=4,4", ("4",)),
        ("llm.speculation=none,prompt_lookup", ("none", "prompt_lookup")),
        ("kv_cache_precision=u8,f16", ("u8", "f16")),
    ],
)
def test_reads_choices(text: str, choices: tuple[str, ...]) -> None:
    assert pipeline("llm").parse(text).choices == choices


@pytest.mark.parametrize(
    ("model", "text", "why"),
    [
        ("llm", "llm.max_num_seqs", "write it as"),
        ("llm", "=3", "which ''"),
        ("llm", "llm.nothing=3", "has no knob 'nothing'"),
        ("llm", "other.threads=3", "no model 'other'"),
        ("llm", "nothing=3", "which 'nothing'"),
        ("llm", "threads=a", "'a'"),
        ("llm", "engine=fake", "which 'engine'"),
        ("vision", "max_queue_delay_microseconds=0,1", "is meant: .* and "),  # two models have it
    ],
)
def test_refuses_what_is_no_knob(model: str, text: str, why: str) -> None:
    with pytest.raises(SettingsError, match=why):
        pipeline(model, "tensorrt" if model == "vision" else "cpu").parse(text)


def test_somebodys_model_has_tritons_knobs_and_its_parameters(tmp_path: Path) -> None:
    text = (
        "name: 'theirs' platform: 'onnxruntime_onnx' max_batch_size: 8 dynamic_batching { } "
        "instance_group [ { count: 3 } ] parameters { key: 'p' value { string_value: '1' } }"
    )
    one = foreign(text, tmp_path)
    assert {knob.name: knob.choices for knob in one.defaults(4)} == {
        "max_queue_delay_microseconds": ("0", "200", "1000", "3000"),
        "max_batch_size": ("8", "16"),
        "instance_count": ("1", "2", "3"),
    }
    config = one.configs(
        {"theirs.p": "2", "theirs.max_queue_delay_microseconds": "77", "theirs.instance_count": "2"}
    )
    assert config["theirs"].parameters["p"].string_value == "2"
    assert config["theirs"].dynamic_batching.max_queue_delay_microseconds == 77
    assert config["theirs"].instance_group[0].count == 2
    assert one.models["theirs"].config == parsed(text)


def test_preferred_sizes_never_exceed_the_batch(tmp_path: Path) -> None:
    one = foreign("name: 'm' max_batch_size: 8 dynamic_batching { preferred_batch_size: [ 4, 8 ] }", tmp_path)
    sizes = one.configs({"m.max_batch_size": "4"})["m"].dynamic_batching.preferred_batch_size
    assert list(sizes) == [4]
