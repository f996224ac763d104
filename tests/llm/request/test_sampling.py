"""What a request leaves out of its sampling is as the checkpoint says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.llm.doubles.tensors import tensors
from trimodal.errors import InvalidArgument
from trimodal.llm.engines.protocol import Sampling
from trimodal.llm.request.sampling import read_sampling
from trimodal.llm.settings import LlmSettings

QWEN = {"do_sample": True, "temperature": 0.7, "top_p": 0.8, "top_k": 20, "repetition_penalty": 1.05}


def read(directory: Path, config: dict[str, Any], *, use: str = "auto", **given: float) -> Sampling:
    (directory / "generation_config.json").write_text(json.dumps(config))
    given_settings = {"version_directory": directory, "artefact": ".", "max_output_tokens": 200}
    settings = LlmSettings.model_validate({**given_settings, "generation_config": use})
    return read_sampling(tensors(**given), settings, "")


def shown(sampling: Sampling) -> tuple[float, ...]:
    values = sampling.temperature, sampling.top_p, sampling.top_k, sampling.repetition_penalty
    return tuple(round(value, 4) for value in values)


def test_a_checkpoint_says_how_it_is_sampled(tmp_path: Path) -> None:
    assert shown(read(tmp_path, QWEN)) == (0.7, 0.8, 20, 1.05)


def test_a_request_has_its_way_field_by_field(tmp_path: Path) -> None:
    assert shown(read(tmp_path, QWEN, temperature=0)) == (0, 0.8, 20, 1.05)
    assert shown(read(tmp_path, QWEN, top_k=-1, top_p=1, repetition_penalty=1)) == (0.7, 1, 0, 1)


def test_the_knob_turns_it_off(tmp_path: Path) -> None:
    assert shown(read(tmp_path, QWEN, use="none")) == (0, 1, 0, 1)


@pytest.mark.parametrize("given", [{"top_p": 0.9}, {"top_k": 5}, {"min_p": 0.1}, {"seed": 1}], ids=str)
def test_who_names_how_to_sample_gets_a_sample(tmp_path: Path, given: dict[str, float]) -> None:
    assert read(tmp_path, {}, **given).temperature == 1
    assert read(tmp_path, {}, temperature=0, **given).temperature == 0
    assert round(read(tmp_path, QWEN, **given).temperature, 4) == 0.7


def test_the_filters_of_a_greedy_checkpoint_ask_for_no_sample(tmp_path: Path) -> None:
    config = {**QWEN, "do_sample": False}
    assert read(tmp_path, config).temperature == 0
    assert read(tmp_path, {"top_k": 50}, repetition_penalty=1.2).temperature == 0
    assert read(tmp_path, config, top_k=5).temperature == 1


@pytest.mark.parametrize("field", ["min_tokens", "ignore_eos"])
def test_an_answer_in_a_form_ends_with_it(field: str) -> None:
    settings = LlmSettings(engine="fake")
    inputs = tensors(**{field: 1})
    assert read_sampling(inputs, settings, "").min_tokens in (0, 1)
    with pytest.raises(InvalidArgument, match=f"{field} goes with neither response_format nor tools"):
        read_sampling(inputs, settings, 'root ::= "yes"')
    read_sampling(tensors(**{field: 0}), settings, 'root ::= "yes"')


def test_what_filters_nothing_asks_for_nothing(tmp_path: Path) -> None:
    assert read(tmp_path, {}, top_p=1, top_k=0, min_p=0, repetition_penalty=1.2).temperature == 0
