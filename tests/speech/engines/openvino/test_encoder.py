"""The encoder in OpenVINO: the hidden states of CTranslate2's own, from the same weights."""

from __future__ import annotations

import numpy as np
import pytest

from tests.speech.whisper.checkpoints import CONTEXTS_S, sound
from trimodal.speech.engines.openvino import encoder
from trimodal.speech.engines.openvino.encoder import Encoder, has_tiles
from trimodal.speech.whisper.features import log_mel_batch
from trimodal.speech.whisper.weights import ModelFile

pytestmark = [pytest.mark.build, pytest.mark.filterwarnings("ignore")]
SPEECH = [sound(seconds, seed) for seed, seconds in enumerate([1.5, 1, 4, 3])]


@pytest.mark.parametrize("context_s", CONTEXTS_S)
def test_its_hidden_states_are_those_of_ctranslate2(engines, context_s):
    features = log_mel_batch([one[: round(context_s * 12_000)] for one in SPEECH], context_s, 80, "silence")
    own, other = (np.array(engine.encode(features)) for engine in engines)
    assert own.shape == other.shape == (4, round(context_s * 50), 32)
    np.testing.assert_allclose(other, own, atol=2e-4 * np.abs(own).max())


def test_a_window_does_not_depend_on_its_neighbours(artefact):
    one = Encoder(ModelFile(artefact / "model.bin"), threads=1, precision="int8")
    features = log_mel_batch(SPEECH, 5.0, 80, "silence")
    alone = [one.encode(row[None]) for row in features]
    np.testing.assert_array_equal(one.encode(features), np.concatenate(alone))


@pytest.mark.parametrize(
    ("told", "tiles"),
    [("flags\t\t: fpu amx_bf16 amx_tile\nbugs\t\t:\n", True), ("flags\t\t: fpu avx512_bf16\n", False)],
)
def test_amx_is_told_from_other_bf16(tmp_path, monkeypatch, told, tiles):
    (tmp_path / "cpuinfo").write_text(f"processor\t: 0\n{told}")
    monkeypatch.setattr(encoder, "CPU_INFO", tmp_path / "cpuinfo")
    assert has_tiles() is tiles


def test_a_system_that_does_not_tell_its_processor_has_no_tiles(tmp_path, monkeypatch):
    monkeypatch.setattr(encoder, "CPU_INFO", tmp_path / "none")
    assert not has_tiles()
