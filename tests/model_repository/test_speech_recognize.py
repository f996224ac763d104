"""The glue of speech_recognize on a fake stub: optional inputs, refusals, outputs as configured."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tritonclient.grpc import model_config_pb2
from tritonclient.utils import triton_to_np_dtype

from tests.doubles import pb_utils
from tests.doubles.pb_utils import InferenceRequest, TritonError
from trimodal.errors import SettingsError
from trimodal.speech.engines.fake import speak

MODEL = Path(__file__).parents[2] / "model_repository" / "speech_recognize"
CONFIG, PARAMETERS = pb_utils.config_of(MODEL, "configs/cpu.pbtxt")
FAKE = {"engine": "fake", "fake_batch_ms": "0", "fake_window_ms": "0"}
WORDS, _ = speak(["what", "is", "a", "lambda"])


@pytest.fixture
def module() -> Iterator[Any]:
    with pb_utils.glue(MODEL / "1" / "model.py") as module:
        yield module


def loaded(module: Any, **parameters: str) -> Any:
    """The model, initialized as its cpu.pbtxt says but for `parameters`."""
    return pb_utils.initialized(module, MODEL, PARAMETERS | FAKE | parameters)


@pytest.fixture
def model(module: Any) -> Iterator[Any]:
    model = loaded(module)
    yield model
    model.finalize()


def request(samples: np.ndarray, **texts: bytes) -> InferenceRequest:
    inputs = {"window": samples[None]} | {name: np.array([[text]], object) for name, text in texts.items()}
    return InferenceRequest(inputs)


def test_windows_of_any_length_with_and_without_the_optional_inputs(model):
    responses = model.execute(
        [request(WORDS), request(WORDS[:9600], prompt=b"hello"), request(WORDS, prompt=b"", language=b"en")]
    )
    assert [one.outputs["text"].tolist() for one in responses] == [
        [[b" what is a lambda"]],
        [[b" what"]],
        [[b" what is a lambda"]],
    ]
    assert [one.outputs["batch_size"].tolist() for one in responses] == [[[3]]] * 3


def test_outputs_are_those_of_the_configuration(model):
    (response,) = model.execute([request(WORDS)])
    assert list(response.outputs) == [one.name for one in CONFIG.output]
    for one in CONFIG.output:
        values = response.outputs[one.name]
        kind = model_config_pb2.DataType.Name(one.data_type).removeprefix("TYPE_").replace("STRING", "BYTES")
        assert values.dtype == triton_to_np_dtype(kind), one.name
        assert values.shape == (1, 4 if list(one.dims) == [-1] else 1), one.name


def test_a_refusal_names_its_field_and_leaves_the_others_alone(model):
    quiet = np.zeros(1600, np.float32)
    good, loud, foreign = model.execute([request(WORDS), request(quiet + 99), request(quiet, language=b"fr")])
    assert good.error is None
    assert (loud.error.code, foreign.error.code) == (TritonError.INVALID_ARG,) * 2
    assert loud.error.message() == "window: a sample of 99; FP32 samples lie within [-1, 1]"
    assert foreign.error.message() == "language: 'fr' is not known (known: en)"


def test_metrics_are_carried_over_at_the_end(module):
    model = loaded(module)
    model.execute([request(WORDS), request(np.zeros(1600, np.float32))])
    model.finalize()
    families = {family.name: family for family in pb_utils.MetricFamily.families}
    outcomes = {
        metric.labels["outcome"]: sum(metric.values("increment"))
        for metric in families["trimodal_speech_windows_total"].metrics
    }
    assert {name: count for name, count in outcomes.items() if count} == {"heard": 1, "empty": 1}
    assert families["trimodal_speech_batch_size"].metrics[0].values("observe") == [2]


@pytest.mark.parametrize(
    ("parameters", "told"),
    [
        ({"colour": "red"}, "speech_recognize/configs/cpu.pbtxt .*: unknown parameter 'colour'"),
        ({"language": "fr"}, "parameter 'language' = 'fr': the model knows en"),
    ],
)
def test_a_bad_setting_stops_loading_and_names_itself(module, parameters, told):
    with pytest.raises(SettingsError, match=told):
        loaded(module, **parameters)
