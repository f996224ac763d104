"""Fixtures of the builds' tests: a tiny language model, and those of plans."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest

from tests.builders.engine_builds import command
from tests.builders.gpu_machine import artefact, graph, plans, trt  # noqa: F401  fixtures of plans
from tests.builders.scripts import importable


@pytest.fixture(scope="module", autouse=True)
def _scripts(one_torch_thread: None) -> Iterator[None]:
    with mock.patch.dict(os.environ), importable():
        yield


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of a tiny Llama with random weights."""
    directory = tmp_path_factory.mktemp("checkpoints") / "tiny"
    result = command("random_checkpoint")("llama-tiny", "--out", directory)
    assert result.exit_code == 0, result.output
    return directory
