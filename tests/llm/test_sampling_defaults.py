"""generation_config.json: what of it counts, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from trimodal.errors import ArtefactError
from trimodal.llm.sampling_defaults import SamplingDefaults, read_defaults


def read(directory: Path, config: Any) -> SamplingDefaults:
    (directory / "generation_config.json").write_text(json.dumps(config))
    return read_defaults(directory)


def test_a_checkpoint_that_says_nothing_is_greedy(tmp_path: Path) -> None:
    assert read_defaults(tmp_path) == SamplingDefaults()
    assert read(tmp_path, {"eos_token_id": [2], "use_cache": True}) == SamplingDefaults()


@pytest.mark.parametrize(
    ("config", "temperature"),
    [
        ({"temperature": 0.6}, 0.6),
        ({"temperature": 0.6, "do_sample": False}, 0),
        ({"do_sample": True}, 1),
        ({"do_sample": False}, 0),
        ({"temperature": None, "top_p": None}, 0),
    ],
)
def test_do_sample_decides_where_no_temperature_is_named(
    tmp_path: Path, config: dict[str, Any], temperature: float
) -> None:
    assert read(tmp_path, config).temperature == temperature


def test_filters_that_are_off(tmp_path: Path) -> None:
    assert read(tmp_path, {"top_k": -1, "top_p": 0}) == SamplingDefaults()


@pytest.mark.parametrize(
    "config",
    [
        [],
        "x",
        {"temperature": -1},
        {"temperature": -1, "do_sample": False},
        {"top_p": 2},
        {"top_k": 0.5},
        {"repetition_penalty": 0},
        {"min_p": True},
    ],
    ids=str,
)
def test_what_sampling_cannot_have_is_refused_with_the_way_round(tmp_path: Path, config: Any) -> None:
    with pytest.raises(ArtefactError, match="generation_config=none"):
        read(tmp_path, config)
