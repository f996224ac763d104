"""Fixtures of the TensorRT-LLM build's tests: a tiny model, a machine, the double; and those of plans."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import pytest

from tests.builders.engine_builds import Build, command, gpu, outputs, prompts, save
from tests.builders.gpu_machine import artefact, graph, plans, trt  # noqa: F401  fixtures of plans
from tests.builders.scripts import BUILD, importable
from tests.doubles.gpu_libraries import Recorder
from trimodal.runtimes.gpu_device import Gpu


@pytest.fixture(scope="module", autouse=True)
def _scripts() -> Iterator[None]:
    with importable():
        yield


@pytest.fixture(scope="module")
def scripts() -> Iterator[None]:
    """build/ on the path for a module of tests; torch on one thread."""
    torch = pytest.importorskip("torch")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # The tiny model's steps are too small to share.
    with mock.patch.dict(os.environ), mock.patch.object(sys, "path", [str(BUILD), *sys.path]):
        yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def llama(scripts: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of a tiny Llama with random weights."""
    directory = tmp_path_factory.mktemp("checkpoints") / "tiny"
    result = command("random_checkpoint")("llama-tiny", "--out", directory)
    assert result.exit_code == 0, result.output
    return directory


@pytest.fixture(scope="module")
def torch_answers(llama: Path) -> list[list[int]]:
    """What a faultless engine answers to the check prompts."""
    check, checkpoints = (
        importlib.import_module("steps.llm.check"),
        importlib.import_module("steps.llm.checkpoint"),
    )
    model = checkpoints.Checkpoint(llama, load=False)
    model.load("auto")
    samples = check.greedy_samples(model, [model.encode_prompt(each) for each in prompts()])
    return [sample.ids[sample.start :] for sample in samples]


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """600 lines to calibrate on."""
    path = tmp_path_factory.mktemp("texts") / "texts.txt"
    path.write_text("\n".join(f"sample {index} of a text" for index in range(600)))
    return path


@pytest.fixture
def machine(scripts: None, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """What the checks see: `gpus` (or an error) and TensorRT-LLM's installed `version`."""
    state = SimpleNamespace(gpus=[gpu(0), gpu(1)], version="1.2.1")

    def visible() -> list[Gpu]:
        if isinstance(state.gpus, Exception):
            raise state.gpus
        return list(state.gpus)

    plan = importlib.import_module("steps.llm.engine_plan")
    monkeypatch.setattr(plan, "visible_gpus", visible)
    monkeypatch.setattr(plan, "installed", lambda names: state.version)
    return state


@pytest.fixture
def recorder(tensorrt_llm_double: SimpleNamespace, torch_answers: list[list[int]]) -> Recorder:
    """A TensorRT-LLM that saves two files and answers as torch does."""
    script: Recorder = tensorrt_llm_double.recorder
    tensorrt_llm_double.module.__version__ = "1.2.1"
    script.returns("_tensorrt_engine.LLM.generate", lambda instance, **_: outputs(torch_answers))
    script.returns("_tensorrt_engine.LLM.save", save)
    return script


@pytest.fixture
def build_engine(
    machine: SimpleNamespace, recorder: Recorder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Build:
    """The script, with few check prompts, and artefacts under tmp_path/engines unless told otherwise."""
    monkeypatch.setenv("TRIMODAL_ENGINES", str(tmp_path / "engines"))
    monkeypatch.setattr(importlib.import_module("llm_tensorrt_llm"), "PROMPTS", prompts())
    return command("llm_tensorrt_llm")
