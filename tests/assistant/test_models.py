"""Calls of the other models through a fake Triton: pieces of audio, typed errors, and what stops them."""

from __future__ import annotations

import contextlib
import json

import numpy as np
import pytest

from tests.assistant.doubles import labelled
from tests.doubles import pb_utils
from tests.doubles.pb_utils import TritonError
from trimodal import trace
from trimodal.assistant.models import Models
from trimodal.assistant.settings import AssistantSettings
from trimodal.assistant.values import Stopped
from trimodal.errors import InternalError

START, END = (getattr(pb_utils, f"TRITONSERVER_REQUEST_FLAG_SEQUENCE_{name}") for name in ("START", "END"))
SECOND = 16_000


def never():
    pass


class Speech:
    """Says how many samples came; keeps each call."""

    def __init__(self):
        self.calls = []
        self.errors = {}  # number of the call → error

    def __call__(self, inputs):
        call = inputs.call
        samples = inputs.get("audio")
        count = 0 if samples is None else samples.size
        self.calls.append((call.correlation_id(), count, call.flags(), call.parameters()))
        assert samples is None or (samples.dtype == np.float32 and samples.shape[0] == 1)
        error = self.errors.get(len(self.calls))
        return error or {"committed": np.array([[f" {count}é".encode()]], object)}


@pytest.fixture
def speech(monkeypatch):
    speech = Speech()
    monkeypatch.setitem(pb_utils.MODELS, "speech", speech)
    return speech


@pytest.fixture
def models():
    return Models(pb_utils, AssistantSettings(chunk_s=5))


def seconds(count):
    return np.zeros(round(count * SECOND), np.float32)


def test_audio_goes_in_pieces_of_one_stream(speech, models):
    assert models.hear(seconds(12), 77, never) == "80000é 80000é 32000é 0é"
    streams, counts, flags, parameters = zip(*speech.calls, strict=True)
    assert set(streams) == {77}
    assert counts == (80_000, 80_000, 32_000, 0)
    assert flags == (START, 0, 0, END)
    assert parameters[0] == '{"policy": "file", "max_pending_s": 0}'
    assert set(parameters[1:]) == {""}


@pytest.mark.parametrize("count", [1, 100, 5 * SECOND])
def test_a_short_recording_is_one_request(speech, models, count):
    models.hear(np.zeros(count, np.float32), 1, never)
    assert [(call[1], call[2]) for call in speech.calls] == [(count, START | END)]


def test_a_rest_too_short_to_stand_alone_stays_with_the_one_before_it(speech, models):
    models.hear(seconds(10.01), 1, never)
    assert [call[1] for call in speech.calls] == [80_000, 80_160, 0]


def test_it_stops_between_pieces_and_frees_the_stream(speech, models):
    def check():
        if len(speech.calls) == 2:
            raise Stopped

    with pytest.raises(Stopped):
        models.hear(seconds(30), 5, check)
    assert [call[:3] for call in speech.calls[2:]] == [(5, 0, START | END)]


def test_a_refused_piece_frees_the_stream_and_is_told(speech, models):
    speech.errors = {2: TritonError("speech_recognize: broken", TritonError.INTERNAL), 3: TritonError("x")}
    with pytest.raises(InternalError, match="speech_recognize: broken"):
        models.hear(seconds(30), 5, never)
    assert [call[:3] for call in speech.calls[2:]] == [(5, 0, START | END)]


def test_seeing(monkeypatch, models):
    def vision(inputs):
        assert inputs["image"].tolist() == [[b"a file"]]
        return {
            "labels": np.array([[b"7", "é".encode()]], object),
            "scores": np.array([[0.75, 0.25]], np.float32),
        }

    monkeypatch.setitem(pb_utils.MODELS, "vision", vision)
    saw = models.see(b"a file", never)
    assert saw == labelled(("7", 0.75), ("é", 0.25))


def test_the_versions_that_a_request_names_are_asked(speech, models, monkeypatch):
    asked = []

    def vision(inputs):
        asked.append(inputs.call.version())
        return {"labels": np.array([[b"7"]], object), "scores": np.array([[1.0]], np.float32)}

    def heard(inputs):
        asked.append(inputs.call.version())
        return speech(inputs)

    monkeypatch.setitem(pb_utils.MODELS, "vision", vision)
    monkeypatch.setitem(pb_utils.MODELS, "speech", heard)
    speech.errors = {2: TritonError("broken", TritonError.INTERNAL)}
    for versions in ({"speech": "7", "vision": "3", "llm": "2"}, {}):
        models.see(b"a file", never, versions)
        with contextlib.suppress(InternalError):
            models.hear(seconds(10), 1, never, None, versions)
    assert asked == [3, 7, 7, 7, -1, -1, -1, -1], "a stream is freed in the version that has it"


def test_a_traced_stream_asks_for_its_trace_with_its_end_only(speech, models, monkeypatch):
    spans = [{"name": "window", "begin": 1, "end": 2}]

    def call(inputs):
        return speech(inputs) | {name: array[None] for name, array in trace.column(spans).items()}

    monkeypatch.setitem(pb_utils.MODELS, "speech", call)
    told = []
    models.hear(seconds(12), 77, never, told)
    assert told == [{**spans[0], "of": "heard"}]
    parameters = [json.loads(call[3] or "{}") for call in speech.calls]
    assert [one.get("trace") for one in parameters] == [True, None, None, None]
