"""Checkpoints of image classifiers for the tests of their builds: random weights, a few thousand of them."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.builders.scripts import importable

Checkpoint = Callable[[str], Path]


@pytest.fixture(scope="session")
def random_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    """`random_checkpoint(name)`: the directory of build/random_checkpoint.py's NAME, made once; not to be
    changed."""
    made: dict[str, Path] = {}

    def checkpoint(name: str) -> Path:
        if name not in made:
            made[name] = tmp_path_factory.mktemp("classifiers") / name
            made[name].mkdir()
            with importable():
                importlib.import_module("steps.random.classifier").write_classifier(name, made[name])
        return made[name]

    return checkpoint
