"""The torch engine on the CPU: words, times and figures of the engine onnxruntime on the same weights."""

from __future__ import annotations

import sys

import pytest
import torch

from tests.speech.engines.test_onnxruntime import WINDOWS, opened, same
from tests.speech.engines.torch.artefacts import write_torch
from tests.speech.whisper.checkpoints import LANGUAGES, edit_manifest
from trimodal.errors import ArtefactError, ServerError, SettingsError
from trimodal.speech.values import Window

pytestmark = [pytest.mark.build, pytest.mark.filterwarnings("ignore")]
TEXTS = ["", "hello", "hello world what is a lambda"]
MIXED = [
    Window(window.samples, ("", *LANGUAGES)[index % 4], TEXTS[index % 3], index // 4 % 2 == 1)
    for index, window in enumerate(WINDOWS)
]
NAMED = [Window(one.samples, one.language or "en", one.prompt, one.translate) for one in MIXED]


@pytest.fixture(scope="module")
def engine(torch_artefact):
    engine = opened(torch_artefact, "torch")
    yield engine
    engine.close()


@pytest.mark.parametrize(
    ("windows", "temperature"), [(MIXED, 0.0), (NAMED, 0.0), (MIXED, 1.0)], ids=["mixed", "named", "drawn"]
)
def test_words_times_and_figures_are_those_of_onnx_runtime(engine, reference, windows, temperature):
    expected = reference.recognise(windows, temperature)
    assert len({one.text for one in expected}) > 5, "or nothing is shown"
    for found, one in zip(engine.recognise(windows, temperature), expected, strict=True):
        same(found, one)
    same(engine.recognise(windows[:1], temperature)[0], expected[0])


def test_a_named_language_needs_no_run_of_its_own(engine, monkeypatch):
    runs, decode = [], type(engine._graphs._forward).decode

    def counted(self, inputs, outputs):
        runs.append(tuple(inputs["tokens"].shape))
        decode(self, inputs, outputs)

    monkeypatch.setattr(type(engine._graphs._forward), "decode", counted)
    for windows, opening in ((NAMED[3:4], [(1, 4)]), (MIXED[:1], [(1, 1), (1, 3)])):
        runs.clear()
        assert not windows[0].prompt
        engine.recognise(windows)
        assert runs[: len(opening)] == opening
        assert set(runs[len(opening) :]) == {(1, 1)}


def damage(directory, change):
    weights = torch.load(directory / "weights.pt")
    change(weights)
    torch.save(weights, directory / "weights.pt")


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda directory: (directory / "weights.pt").write_bytes(b"damaged"), "cannot be opened"),
        (lambda directory: (directory / "weights.pt").unlink(), "lacks weights.pt"),
        (
            lambda directory: damage(directory, lambda each: each.pop("decoder.layers.1.fc2.bias")),
            r"the weight decoder\.layers\.1\.fc2\.bias has shape None, not \(32,\)",
        ),
        (
            lambda directory: damage(directory, lambda each: each.update(more=torch.zeros(1))),
            r"the weight more has shape \(1,\), not None",
        ),
        (lambda directory: damage(directory, dict.clear), "the weights are no Whisper's"),
        (lambda directory: edit_manifest(directory, extra={"multilingual": True}), r"extra\.network"),
        (
            lambda directory: edit_manifest(directory, shapes={"positions": 900}),
            "448 places, the manifest says 900",
        ),
    ],
)
def test_a_bad_artefact_is_refused_in_one_sentence(graphs, tmp_path, change, sentence):
    directory = write_torch(graphs.parent / "checkpoint", tmp_path / "torch")
    change(directory)
    with pytest.raises(ArtefactError, match=f"{sentence}.*make it again") as caught:
        opened(directory, "torch")
    assert "\n" not in str(caught.value)


def test_fp16_weights_hear_the_same_on_the_processor(graphs, reference, tmp_path):
    engine = opened(write_torch(graphs.parent / "checkpoint", tmp_path / "half", "fp16"), "torch")
    found, expected = (each.recognise(NAMED) for each in (engine, reference))
    alike = [one.text == other.text for one, other in zip(found, expected, strict=True)]
    assert sum(alike) >= len(alike) // 2
    engine.close()


def test_what_is_missing_is_said(torch_artefact, monkeypatch):
    with pytest.raises(SettingsError, match="parameter 'beam_size'.*1 only"):
        opened(torch_artefact, "torch", beam_size=5)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ServerError, match="the engine torch finds no GPU"):
        opened(torch_artefact, "torch", device="cuda")
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ServerError, match="the engine torch needs the Python package torch"):
        opened(torch_artefact, "torch")
