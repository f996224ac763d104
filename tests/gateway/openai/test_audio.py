"""Transcriptions, called with OpenAI's own package; the recordings are made here."""

from __future__ import annotations

import io
import json
import random
import re
import tempfile
from pathlib import Path
from typing import NoReturn

import httpx
import numpy as np
import openai
import pytest
import soundfile
from starlette.requests import Request

from tests.gateway.conftest import Serve
from trimodal.audio.values import HeardWindow, Word
from trimodal.gateway.app import _form
from trimodal.gateway.openai.audio import probabilities, segments
from trimodal.speech.settings import ListeningSettings

TEXT = "what is this? Well."


def wav(seconds: float = 3.0, rate: int = 16_000, kind: str = "WAV") -> io.BytesIO:
    file = io.BytesIO()
    noise = np.random.default_rng(0).normal(0, 0.1, round(seconds * rate))
    soundfile.write(file, noise, rate, format=kind)
    file.seek(0)
    file.name = f"talk.{kind.lower()}"
    return file


@pytest.mark.parametrize("kind", ["WAV", "FLAC", "OGG", "MP3"])
@pytest.mark.parametrize("rate", [8_000, 44_100])
def test_any_file_gives_its_words(serve: Serve, kind: str, rate: int) -> None:
    served = serve()
    answer = served.openai().audio.transcriptions.create(model="speech", file=wav(3, rate, kind))
    assert answer.text == TEXT
    assert answer.usage.seconds == 3
    sent = sum(array.size for request in served.triton.requests for array in request.inputs.values())
    assert sent == pytest.approx(3 * 16_000, rel=0.03)
    assert served.triton.functions["speech"].streams == {}, "no stream is left"


@pytest.mark.parametrize("container", ["m4a", "webm"])
def test_what_soundfile_does_not_know_pyav_reads(serve: Serve, container: str) -> None:
    av = pytest.importorskip("av")
    file = io.BytesIO()
    codec = {"m4a": "aac", "webm": "libopus"}[container]
    with av.open(file, "w", format={"m4a": "mp4"}.get(container, container)) as out:
        stream = out.add_stream(codec, rate=48_000, layout="mono")
        samples = np.random.default_rng(0).normal(0, 0.1, (1, 3 * 48_000)).astype(np.float32)
        for at in range(0, samples.shape[1], 960):
            frame = av.AudioFrame.from_ndarray(samples[:, at : at + 960], format="fltp", layout="mono")
            frame.sample_rate = 48_000
            out.mux(stream.encode(frame))
        out.mux(stream.encode(None))
    file.seek(0)
    file.name = f"talk.{container}"
    assert serve().openai().audio.transcriptions.create(model="speech", file=file).text == TEXT


def test_every_format(serve: Serve) -> None:
    create = serve().openai(_strict_response_validation=True).audio.transcriptions.create

    def told(name: str) -> str:
        return str(create(model="speech", file=wav(), response_format=name))  # type: ignore[call-overload]

    assert told("text") == f"{TEXT}\n"
    assert told("srt") == (
        "1\n00:00:00,100 --> 00:00:01,100\nwhat is this?\n\n2\n00:00:02,400 --> 00:00:03,000\nWell.\n"
    )
    assert told("vtt") == (
        "WEBVTT\n\n00:00:00.100 --> 00:00:01.100\nwhat is this?\n\n00:00:02.400 --> 00:00:03.000\nWell.\n"
    )
    verbose = create(
        model="speech",
        file=wav(),
        response_format="verbose_json",
        timestamp_granularities=["word", "segment"],
    )  # fmt: skip
    assert (verbose.text, verbose.duration, verbose.task) == (TEXT, 3.0, "transcribe")
    assert [(word.word, word.start, word.end) for word in verbose.words][:2] == [
        ("what", 0.1, 0.3),
        ("is", 0.4, 0.6),
    ]
    assert [(one.start, one.end, one.text) for one in verbose.segments] == [
        (0.1, 1.1, "what is this?"), (2.4, 3.0, "Well."),
    ]  # fmt: skip
    for one in verbose.segments:
        assert (one.temperature, one.avg_logprob) == (0.2, -0.25)
        assert (one.compression_ratio, one.no_speech_prob) == (1.5, 0.125)
    assert [one.tokens for one in verbose.segments] == [[0, 1, 2], [3]]
    assert (verbose.language, verbose.language_probability) == ("en", 0.9)
    assert verbose.language_probabilities == {"en": 0.9, "de": 0.1}
    assert verbose.words[0].probability == 0.9


@pytest.mark.parametrize("name", ["whisper-1", "gpt-4o-transcribe", "gpt-realtime-whisper"])
def test_openais_names_of_models_are_the_speech_models(serve: Serve, name: str) -> None:
    served = serve()
    assert served.openai().audio.transcriptions.create(model=name, file=wav()).text == TEXT
    assert {request.model for request in served.triton.requests} == {"speech"}


SILERO = {"threshold": 0.6, "min_silence_duration_ms": 900}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"chunking_strategy": "auto"}, {}),
        (
            {
                "chunking_strategy": {
                    "type": "server_vad", "threshold": 0.6, "prefix_padding_ms": 0,
                    "silence_duration_ms": 900,
                }
            },
            SILERO | {"speech_pad_ms": 0},
        ),
        ({"extra_body": {"vad_filter": True, "vad_parameters": json.dumps(SILERO)}}, SILERO),
        ({"extra_body": {"chunking_strategy": '{"type": "server_vad"}'}}, {}),
        ({"extra_body": {"vad_filter": False}}, {"threshold": 0}),
        (
            {"extra_body": {"hallucination_silence_threshold": 2, "condition_on_previous_text": True}},
            {"hallucination_silence_threshold": 2, "condition_on_previous_text": True},
        ),
        (
            {"extra_body": {"language_detection_segments": 4, "language_detection_threshold": 0.7}},
            {"language_detection_segments": 4, "language_detection_threshold": 0.7},
        ),
        (
            {
                "temperature": 0.4, "language": "en-US", "prompt": "A\ntalk.",
                "keywords": ["Ada", " ", "Grace Hopper"], "extra_body": {"hotwords": "Triton"},
            },
            {"temperature": 0.4, "language": "en-US", "prompt": "Ada, Grace Hopper, Triton\nA talk."},
        ),
    ],
)  # fmt: skip
def test_what_is_asked_reaches_the_server_by_its_own_names(serve: Serve, options, expected) -> None:
    served = serve()
    served.openai().audio.transcriptions.create(model="speech", file=wav(), **options)
    first = next(one for one in served.triton.requests if one.parameters["sequence_start"])
    names = {*ListeningSettings.model_fields, "temperature", "language", "prompt", "task"}
    assert {name: value for name, value in first.parameters.items() if name in names} == expected


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"chunking_strategy": "fast"}, "chunking_strategy: a JSON object is needed"),
        ({"chunking_strategy": "{}", "chunking_strategy[threshold]": "1"},
         "chunking_strategy: auto or an object of type server_vad is needed"),
        ({"chunking_strategy": '{"type": "server_vad", "silence_duration_ms": 1}'},
         "chunking_strategy.silence_duration_ms: Input should be greater than or equal to 100"),
        ({"vad_parameters": '{"treshold": 1}'}, "vad_parameters.treshold: unknown field"),
        ({"vad_parameters": '{"threshold": "loud"}'}, "vad_parameters.threshold: Input should be a valid"),
        ({"vad_parameters": "[1]"}, "vad_parameters: a JSON object is needed"),
        ({"vad_parameters": "[" * 50_000}, "vad_parameters: a JSON object is needed"),
        ({"vad_filter": "maybe"}, "vad_filter: true or false is needed"),
        ({"hallucination_silence_threshold": "-1"}, "hallucination_silence_threshold: Input"),
        ({"language_detection_segments": "101"}, "language_detection_segments: Input"),
        *(
            ({"temperature": value}, "temperature: a number from 0 to 1 is needed")
            for value in ("1.5", "-1", "hot", "nan")
        ),
        *(
            (
                {field: "x" * 600, "prompt": "y"},
                f"{field}: 1 of them, with the prompt 602 characters; at most 600 are taken",
            )
            for field in ("keywords[]", "hotwords")
        ),
        *(
            (
                {"response_format": value, "stream": "true"},
                f"response_format '{value}' is not supported with stream: json and text are",
            )
            for value in ("srt", "vtt", "verbose_json")
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused(serve: Serve, fields, sentence: str) -> None:
    answer = httpx.post(
        f"{serve().url}/v1/audio/transcriptions", files={"file": wav()}, data={"model": "speech", **fields}
    )
    assert answer.status_code == 400
    assert answer.json()["error"]["message"].startswith(sentence)
    assert answer.json()["error"]["param"].startswith(re.split(":| ", sentence)[0])


def test_a_large_recording_needs_no_temporary_file(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/nowhere")
    recording = wav(100.0)
    assert len(recording.getvalue()) > 3 << 20
    form = {"model": "speech"}
    answer = httpx.post(f"{serve().url}/v1/audio/transcriptions", files={"file": recording}, data=form)
    assert answer.status_code == 200


def test_what_is_not_known_is_ignored_and_named(serve: Serve) -> None:
    form = {"model": "speech", "user": "me", "seed": "1", "response_format": "verbose_json"}
    form |= {"timestamp_granularities": "word", "keywords": "Ada"}  # as many write them, without the brackets
    form |= {f"x{index}": "" for index in range(100)}
    answer = httpx.post(f"{serve().url}/v1/audio/transcriptions", files={"file": wav()}, data=form)
    assert answer.status_code == 200
    assert answer.json()["words"]
    assert "segments" not in answer.json()
    assert answer.headers["x-ignored-fields"].startswith("seed, user, x0")


@pytest.mark.parametrize(
    "disposition",
    [
        'form-data; name="file"',
        "form-data; name=\"file\"; filename*=UTF-8''t%C3%A4lk.wav",
        "form-data; name=file",
    ],
)
@pytest.mark.parametrize("seconds", [1.0, 60.0])
def test_a_file_without_a_file_name_is_taken(serve: Serve, disposition: str, seconds: float) -> None:
    parts = [
        b'--b\r\nContent-Disposition: form-data; name="model"\r\n\r\nspeech\r\n',
        f"--b\r\nContent-Disposition: {disposition}\r\nContent-Type: audio/wav\r\n\r\n".encode(),
        wav(seconds).getvalue(),
        b"\r\n--b--\r\n",
    ]
    answer = httpx.post(
        f"{serve().url}/v1/audio/transcriptions",
        content=b"".join(parts),
        headers={"content-type": "Multipart/Form-Data; boundary=b"},
    )
    assert answer.status_code == 200, answer.text
    assert answer.json()["usage"]["seconds"] == seconds


class _Watched(bytes):
    """A body that is not looked at as a whole."""

    def _whole(self, *_: object) -> NoReturn:
        raise AssertionError("a pass over the whole body")

    rstrip = endswith = find = lower = split = _whole  # type: ignore[assignment]


async def test_nothing_looks_at_the_whole_of_a_form_at_once() -> None:
    """Its lines and its end were looked for in all of it: 32 MB stopped everybody for 175 ms."""
    line = b"\r\nContent-Disposition: form-data"
    parts = [b"--b", line, b'; name="file"\r\n\r\n', line * 40_000, b"\r\n--b--\r\n", b" " * 1_000]
    request = Request({"type": "http", "headers": [(b"content-type", b"multipart/form-data; boundary=b")]})
    request._body = _Watched(b"".join(parts))
    assert await _form(request) == ({}, line * 40_000, "recording")


def test_a_megabyte_of_names_is_read_once(serve: Serve) -> None:
    """It took minutes where each name looked for a file name in all that follows."""
    names = b"--b\r\nContent-Disposition: form-data" + b'; name="file"' * 80_000 + b"\r\n\r\n\r\n--b--"
    headers = {"content-type": "multipart/form-data; boundary=b"}
    url = f"{serve().url}/v1/audio/transcriptions"
    assert httpx.post(url, content=names, headers=headers).status_code == 400


def test_raw_audio_is_taken_where_its_name_says_so(serve: Serve) -> None:
    file = io.BytesIO(np.zeros(32_000, "<i2").tobytes())
    file.name = "talk.pcm"
    answer = serve().openai().audio.transcriptions.create(model="speech", file=file)
    assert answer.usage.seconds == 2


def test_a_recording_that_names_a_file_of_the_server_is_refused(serve: Serve, tmp_path: Path) -> None:
    secret = tmp_path / "secret.wav"
    secret.write_bytes(wav().getvalue())
    file = io.BytesIO(f"ffconcat version 1.0\nfile {secret}\n".encode())
    file.name = "talk.m4a"
    with pytest.raises(openai.BadRequestError, match="file: cannot be read as audio"):
        serve().openai().audio.transcriptions.create(model="speech", file=file)


def test_a_stream_of_text(serve: Serve) -> None:
    events = list(serve().openai().audio.transcriptions.create(model="speech", file=wav(25), stream=True))
    *deltas, done = events
    assert {one.type for one in deltas} == {"transcript.text.delta"}
    assert "".join(one.delta for one in deltas).strip() == done.text == TEXT
    assert done.type == "transcript.text.done"


# OpenAI's package calls it deprecated since 3.x; the endpoint is there all the same.
@pytest.mark.filterwarnings("ignore:deprecated:DeprecationWarning")
@pytest.mark.parametrize("response_format", ["json", "text", "srt", "vtt", "verbose_json"])
def test_a_translation(serve: Serve, response_format: str) -> None:
    served = serve()
    answer = served.openai().audio.translations.create(
        model="speech", file=wav(3), response_format=response_format, prompt="a talk"
    )
    text = answer if isinstance(answer, str) else answer.text
    assert "what is this?" in text
    if response_format == "verbose_json":
        assert (answer.task, answer.language, answer.detected_language) == ("translate", "en", "en")
    first, *_ = (one for one in served.triton.requests if one.parameters["sequence_start"])
    assert (first.parameters["task"], first.parameters["prompt"]) == ("translate", "a talk")
    assert served.triton.functions["speech"].streams == {}, "no stream is left"


def test_a_segment_has_the_figures_of_the_last_window_that_heard_it() -> None:
    rng = random.Random(0)
    for _ in range(30):
        starts = sorted(rng.uniform(0, 60) for _ in range(60))
        words = [Word(f" {n}", start, start + rng.uniform(0.1, 1), 1.0) for n, start in enumerate(starts)]
        begins = [rng.randint(0, 60) for _ in range(rng.randint(0, 20))]
        windows = [
            HeardWindow(start, start + rng.randint(1, 9), "en", 1.0, 0.0, 0.0, float(n), 0.0)
            for n, start in enumerate(begins, 1)
        ]
        for one in segments(words, windows, 61.0):
            middle = round(1000 * (one["start"] + one["end"])) / 2000
            last = [n for n, each in enumerate(windows, 1) if each.start <= middle <= each.end][-1:]
            assert one["compression_ratio"] == sum(last)


def test_a_language_has_its_mean_probability() -> None:
    told = [{"de": 0.25, "nl": 0.75}, {"de": 1.0}, {}]
    windows = [HeardWindow(0, 1, "de", 1.0, 0, 0, 0, 0, language_probabilities=one) for one in told]
    assert list(probabilities(windows).items()) == [("de", 0.625), ("nl", 0.375)]
