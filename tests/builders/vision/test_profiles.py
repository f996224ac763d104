"""build/steps/vision/profiles.py: batches that arguments ask for, against what a config.pbtxt will run."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.builders.scripts import BUILD, importable
from trimodal.errors import ArtefactError
from trimodal.vision.artefact import InputSpec

CONFIG = BUILD.parent / "model_repository" / "vision_classify" / "config.pbtxt"
SPEC = InputSpec(height=32, width=48, resize="exact")
GRAPH_INPUT = 'input { key: "pixels" value { dim: [ 3, 224, 224 ] } }'
WARMUP_INPUT = 'inputs { key: "pixels" value { data_type: TYPE_UINT8 dims: [ 3, 32, 48 ] zero_data: true } }'


@pytest.fixture
def profiles() -> Iterator[ModuleType]:
    with importable():
        yield importlib.import_module("steps.vision.profiles")


def read(profiles: ModuleType, *arguments: str) -> Any:
    parser = argparse.ArgumentParser()
    profiles.add_arguments(parser)
    return profiles.read_profiles(parser.parse_args(arguments), SPEC)


def batches(found: Any) -> list[tuple[int, int, int]]:
    for one in found:
        for shape in (one["pixels"].min, one["pixels"].opt, one["pixels"].max):
            assert shape[1:] == (3, 32, 48)
    return [(one["pixels"].min[0], one["pixels"].opt[0], one["pixels"].max[0]) for one in found]


def config(tmp_path: Path, *changes: tuple[str, str]) -> Path:
    text = CONFIG.read_text()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    path = tmp_path / "config.pbtxt"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], [(1, 8, 16)]),
        (["--max-batch", "64"], [(1, 32, 64)]),
        (["--max-batch", "1"], [(1, 1, 1)]),
        (["--max-batch", "32", "--opt-batch", "4"], [(1, 4, 32)]),
        (["--profile", "1:1:16", "--profile", "2:16:32"], [(1, 1, 16), (2, 16, 32)]),
    ],
)
def test_batches_as_asked_for(profiles, arguments, expected):
    assert batches(read(profiles, *arguments)) == expected


@pytest.mark.parametrize("text", ["8", "1:8", "0:1:2", "4:2:8", "1:16:8", "a:b:c", "1:8:16:32", "-1:8:16"])
def test_profiles_are_written_in_one_way(profiles, text):
    with pytest.raises(ArtefactError, match=f"profile {text}: MIN:OPT:MAX wanted"):
        read(profiles, f"--profile={text}")


@pytest.mark.parametrize("arguments", [["--max-batch", "0"], ["--opt-batch", "17"], ["--opt-batch", "0"]])
def test_batches_are_in_order(profiles, arguments):
    with pytest.raises(ArtefactError, match="from 1 on and in order"):
        read(profiles, *arguments)


@pytest.mark.parametrize(
    ("changes", "arguments"),
    [
        ([], []),
        ([], ["--max-batch", "64"]),
        ([('profile: [ "0" ]', "")], []),
        ([('profile: [ "0" ]', 'profile: [ "1" ]')], ["--profile", "1:1:1", "--profile", "1:8:16"]),
        ([('profile: [ "0" ]', 'profile: [ "0", "1" ]')], ["--profile", "1:1:8", "--profile", "9:9:16"]),
        ([("graphs: true", "graphs: true graph_spec { batch_size: 16 }")], []),
        ([("# Clients", f'model_warmup {{ name: "w" batch_size: 16 {WARMUP_INPUT} }}\n# Clients')], []),
    ],
)
def test_a_config_that_the_plan_covers(profiles, tmp_path, changes, arguments):
    profiles.check_config(config(tmp_path, *changes), read(profiles, *arguments), SPEC)


@pytest.mark.parametrize(
    ("changes", "arguments", "told"),
    [
        ([("max_batch_size: 16 ", "max_batch_size: 64 ")], [], "max_batch_size is 64, and no profile"),
        ([("[ 2, 4, 8, 16 ]", "[ 2, 4, 32 ]")], [], "a preferred_batch_size is 32"),
        (
            [],
            ["--max-batch", "8"],
            "max_batch_size is 16, and no profile that it serves with takes it (1 to 8)",
        ),
        ([], ["--profile", "2:8:16"], "the smallest batch is 1"),
        ([('profile: [ "0" ]', 'profile: [ "0", "1" ]')], [], "names profile 1 in instance_group"),
        # Without a name Triton takes profile 0 alone.
        ([('profile: [ "0" ]', "")], ["--profile", "1:4:8", "--profile", "1:8:16"], "max_batch_size is 16"),
        (
            [("graphs: true", f"graphs: true graph_spec {{ batch_size: 4 {GRAPH_INPUT} }}")],
            [],
            "the batch_size of a graph_spec is for pixels 3×224×224, and this classifier takes 3×32×48",
        ),
        (
            [("graphs: true", "graphs: true graph_spec { batch_size: 17 }")],
            [],
            "the batch_size of a graph_spec is 17",
        ),
        (
            [("# Clients", f'model_warmup {{ name: "w" batch_size: 20 {WARMUP_INPUT} }}\n# Clients')],
            [],
            "the model_warmup 'w' is 20",
        ),
        ([("graphs: true", "graphs: perhaps")], [], "cannot be read as a model configuration"),
    ],
)
def test_a_config_that_asks_for_more_is_refused(profiles, tmp_path, changes, arguments, told):
    file = config(tmp_path, *changes)
    with pytest.raises(ArtefactError) as caught:
        profiles.check_config(file, read(profiles, *arguments), SPEC)
    assert str(caught.value).startswith(f"{file}")
    assert told in str(caught.value)


def test_a_config_that_is_not_there_is_named(profiles, tmp_path):
    with pytest.raises(ArtefactError, match="nowhere.pbtxt cannot be read as a model configuration"):
        profiles.check_config(tmp_path / "nowhere.pbtxt", read(profiles), SPEC)
