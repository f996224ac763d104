"""Fixtures of the llm's tests: TensorRT-LLM's double as an engine's library."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import pytest

from tests.llm.engines.tensorrt_llm.rig import H100, PlayedLlm, settings
from trimodal.llm.engines import artefact
from trimodal.llm.engines.protocol import Engine, open_engine


@pytest.fixture
def llm(tensorrt_llm_double: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> Iterator[PlayedLlm]:
    """The library, on a machine with one GPU."""
    monkeypatch.setattr(artefact, "visible_gpus", lambda: [H100])
    with mock.patch.dict(os.environ):  # opening sets what the library reads when it is imported
        yield PlayedLlm(tensorrt_llm_double)


@pytest.fixture
def engine(llm: PlayedLlm, tmp_path: Path) -> Iterator[Engine]:
    """The library, opened; closed at the end, once."""
    opened = open_engine(settings(tmp_path))
    yield opened
    opened.close()
    assert len(llm.recorder.named("BaseLLM.shutdown")) == 1
