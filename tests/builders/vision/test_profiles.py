"""build/steps/vision/profiles.py: batches that arguments ask for."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

from tests.builders.scripts import importable
from trimodal.errors import ArtefactError
from trimodal.vision.artefact import InputSpec

SPEC = InputSpec(height=32, width=48, resize="exact")


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
