"""Chunks that are taken, and the sentence for each that is refused."""

from __future__ import annotations

import numpy as np
import pytest

from trimodal.errors import InvalidArgument
from trimodal.speech.live.request import Chunk, StreamOptions, read_chunk
from trimodal.speech.settings import SpeechSettings

GOOD = np.linspace(-0.5, 0.5, 1600, dtype=np.float32)[None]


def read(*, start: bool = True, end: bool = False, parameters: dict | None = None, **inputs) -> Chunk:
    return read_chunk(7, start, end, inputs, parameters or {})


@pytest.mark.parametrize("samples", [320, 480_000])
def test_chunks_of_20_ms_and_30_s_are_taken(samples):
    assert len(read(audio=np.zeros((1, samples), np.float32)).samples) == samples


@pytest.mark.parametrize(
    "inputs",
    [{}, {"audio": np.zeros((1, 0), np.float32)}, {"audio": GOOD[:, :5]}],
    ids=["none", "empty", "short"],
)
def test_the_end_may_be_short_or_come_without_audio(inputs):
    assert len(read(start=False, end=True, **inputs).samples) < 320


WITH_NAN, AS_INTEGERS = GOOD.copy(), GOOD * 32768
WITH_NAN[0, 700] = np.nan


@pytest.mark.parametrize(
    ("inputs", "sentence"),
    [
        ({}, "audio: missing; a chunk holds 320 to 480000 samples"),
        ({"audio": GOOD[:, :0]}, "audio: 0 samples; a chunk holds 320"),
        ({"audio": GOOD[:, :319]}, "audio: 319 samples"),
        ({"audio": np.zeros((1, 480_001), np.float32)}, "audio: 480001 samples"),
        ({"audio_int16": np.zeros((1, 9_600_000), np.int16)}, "audio_int16: 9600000 samples"),
        ({"audio": np.zeros((2, 1600), np.float32)}, r"audio: shape \[2, 1600\]; one channel"),
        ({"audio": WITH_NAN}, "audio: sample 700 is nan; FP32 samples are finite"),
        ({"audio": AS_INTEGERS}, r"audio: a sample of 16384; .* integers go into audio_int16"),
    ],
)
def test_bad_audio_is_refused_by_name_and_limit(inputs, sentence):
    with pytest.raises(InvalidArgument, match=sentence):
        read(**inputs)


def test_options_are_read_at_the_start():
    parameters = {"policy": "vad", "language": "en", "prompt": "names", "step_s": "2", "triton_x": 1}
    options = read(audio=GOOD, parameters=parameters).options
    assert (options.policy, options.language, options.prompt, options.step_s) == ("vad", "en", "names", 2.0)
    assert read(audio=GOOD).options.policy is None


def test_a_stream_chooses_what_is_speech_for_itself():
    options = read(
        audio=GOOD, parameters={"threshold": "0.5", "max_speech_duration_s": 20, "step_s": 6}
    ).options
    settings = SpeechSettings(threshold=0.4, min_silence_duration_ms=300)
    own = options.on(settings)
    assert (own.threshold, own.max_speech_duration_s, own.file_window_s) == (0.5, 20, 20)
    assert (own.min_silence_duration_ms, own.step_s, own.max_step_s) == (300, 6, 6)
    assert read(audio=GOOD).options.on(settings) == settings


def test_options_after_the_start_are_not_looked_at():
    assert read(start=False, audio=GOOD, parameters={"policy": "nonsense"}).options.policy is None


@pytest.mark.parametrize(
    ("parameters", "sentence"),
    [
        ({"policy": "fast"}, "policy: 'fast'; known are edge, vad, file"),
        ({"policy": 3}, "policy: 3; known are"),
        ({"delay": "soon"}, "'delay' = 'soon'"),
        ({"sample_rate": 44100}, "sample_rate: 44100; only 16000 Hz"),
        ({"sample_rate": "16k"}, "'sample_rate' = '16k'"),
        ({"channels": 2}, "channels: 2; one channel"),
        ({"step_s": 0}, "'step_s' = 0.0"),
        ({"step_s": "soon"}, "step_s: 'soon' is not a number"),
        ({"step_s": True}, "'step_s' = True"),
        ({"step_s": "nan"}, "'step_s' = nan"),
        ({"max_pending_s": -1}, "'max_pending_s' = -1.0"),
        ({"threshold": 1.5}, "'threshold' = 1.5: .* less than or equal to 1"),
        ({"neg_threshold": "low"}, "neg_threshold: 'low' is not a number"),
        (
            {"min_silence_duration_ms": 20},
            "'min_silence_duration_ms' = 20.0: .* greater than or equal to 100",
        ),
        ({"speech_pad_ms": 6000}, "'speech_pad_ms' = 6000.0: .* less than or equal to 5000"),
        ({"max_speech_duration_s": 31}, "'max_speech_duration_s' = 31.0: .* less than or equal to 30"),
        ({"vad_threshold": 0.5}, "unknown parameter 'vad_threshold'"),
        ({"max_pending_s": 10**400}, "max_pending_s: 1"),
        ({"prompt": "x" * 1001}, "'prompt'"),
        ({"language": "x" * 17}, "'language'"),
        ({"polcy": "vad"}, "unknown parameter 'polcy' .known are policy, "),
    ],
)
def test_bad_options_are_refused_by_name_and_limit(parameters, sentence):
    with pytest.raises(InvalidArgument, match=sentence):
        read(audio=GOOD, parameters=parameters)


def test_a_request_for_news_brings_no_audio():
    chunk = read_chunk(7, False, False, {}, {"after_s": 1.5})
    assert (chunk.after, len(chunk.samples)) == (24_000, 0)
    assert read_chunk(7, False, False, {}, {"after_s": 0}).after == 0
    assert read_chunk(7, False, True, {}, {"after_s": 1.5}).after is None  # the end is told everything


@pytest.mark.parametrize("after_s", ["soon", -1.0, float("nan"), float("inf"), None, [1]])
def test_a_wrong_request_for_news_names_the_field(after_s):
    with pytest.raises(InvalidArgument, match="^after_s: "):
        read_chunk(7, False, False, {}, {"after_s": after_s})


def test_news_and_audio_are_two_requests():
    audio = np.zeros((1, 1600), np.float32)
    with pytest.raises(InvalidArgument, match="^after_s: a request for news brings no audio"):
        read_chunk(7, False, False, {"audio": audio}, {"after_s": 1.5})
    with pytest.raises(InvalidArgument, match="a request with after_s come without"):
        read_chunk(7, False, False, {}, {})


def test_a_request_without_an_id_is_a_recording_of_its_own():
    chunks = [read_chunk(0, False, False, {"audio": GOOD}, {"language": "en"}) for _ in range(2)]
    assert [(one.start, one.end, one.options.language) for one in chunks] == [(True, True, "en")] * 2
    assert all(one.stream >= 1 << 63 for one in chunks)
    assert len({one.stream for one in chunks}) == 2


@pytest.mark.parametrize(
    ("start", "end", "parameters"), [(True, False, {}), (False, True, {}), (False, False, {"after_s": 1})]
)
def test_a_stream_needs_an_id(start, end, parameters):
    with pytest.raises(InvalidArgument, match="sequence_id: missing, or 0; a stream's id is a number"):
        read_chunk(0, start, end, {"audio": GOOD}, parameters)


def test_of_a_recording_the_next_windows_are_here_while_others_are_heard():
    settings = SpeechSettings()
    assert StreamOptions(recording=True).on(settings).max_pending_s == 2.5 * settings.file_window_s
    assert StreamOptions(recording=True, max_speech_duration_s=10).on(settings).max_pending_s == 60
    assert StreamOptions(recording=True, max_pending_s=0).on(settings).max_pending_s == 0
    assert StreamOptions(recording=True).on(SpeechSettings(max_pending_s=90)).max_pending_s == 90
