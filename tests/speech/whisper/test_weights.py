"""Weights of a CTranslate2 model: what its own converter wrote, by name, in FP32."""

from __future__ import annotations

import numpy as np
import pytest

from tests.speech.whisper.checkpoints import write_checkpoint
from trimodal.speech.whisper.weights import ModelFile

pytestmark = [pytest.mark.build, pytest.mark.filterwarnings("ignore")]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    directory = tmp_path_factory.mktemp("checkpoint")
    write_checkpoint(directory)
    return directory


@pytest.mark.parametrize(("quantization", "error"), [("float32", 0), ("float16", 1e-3), ("int8", 1e-2)])
def test_they_are_the_checkpoints(checkpoint, tmp_path, quantization, error):
    from ctranslate2.converters import TransformersConverter
    from safetensors.numpy import load_file

    written = tmp_path / quantization
    TransformersConverter(str(checkpoint)).convert(str(written), quantization=quantization)
    model, torch = ModelFile(written / "model.bin"), load_file(checkpoint / "model.safetensors")
    assert model.spec == "WhisperSpec"
    pairs = {
        "encoder/conv2/weight": "encoder.conv2.weight",
        "encoder/layer_1/ffn/linear_1/weight": "encoder.layers.1.fc2.weight",
        "encoder/layer_0/ffn/layer_norm/gamma": "encoder.layers.0.final_layer_norm.weight",
        "decoder/projection/weight": "decoder.embed_tokens.weight",
    }
    for name, theirs in pairs.items():
        expected = torch[f"model.{theirs}"]
        np.testing.assert_allclose(model.floats(name), expected, atol=error * np.abs(expected).max())


def test_what_stands_for_another_is_found_by_its_own_name(checkpoint, tmp_path):
    from ctranslate2.converters import TransformersConverter

    TransformersConverter(str(checkpoint)).convert(str(tmp_path / "written"))
    model = ModelFile(tmp_path / "written" / "model.bin")
    # Equal ones are written once: all biases of a network that was just made are zeros.
    alike = [name for name in model.others if name.endswith("linear_1/bias")]
    assert alike
    assert all(name in model and name not in model.variables for name in alike)
    assert not any(model.floats(alike[0]))
    with pytest.raises(KeyError):
        model.floats("encoder/none")
