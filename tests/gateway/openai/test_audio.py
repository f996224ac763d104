"""Transcriptions, called with OpenAI's own package; the recordings are made here."""

from __future__ import annotations

import io
import math

import numpy as np
import pytest
import soundfile

from tests.gateway.conftest import Serve

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
        "1\n00:00:00,100 --> 00:00:01,100\nwhat is this?\n\n2\n00:00:02,400 --> 00:00:03,400\nWell.\n"
    )
    assert told("vtt") == (
        "WEBVTT\n\n00:00:00.100 --> 00:00:01.100\nwhat is this?\n\n00:00:02.400 --> 00:00:03.400\nWell.\n"
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
        (0.1, 1.1, "what is this?"), (2.4, 3.4, "Well."),
    ]  # fmt: skip
    assert [(one.avg_logprob, one.compression_ratio) for one in verbose.segments] == [
        (pytest.approx(math.log(0.9), abs=1e-3), pytest.approx(13 / 21, abs=1e-3)),
        (pytest.approx(math.log(0.9), abs=1e-3), pytest.approx(5 / 13, abs=1e-3)),
    ]


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
        assert (answer.task, answer.language, answer.segments[0].id) == ("translate", "en", 0)
    first, *_ = (one for one in served.triton.requests if one.parameters["sequence_start"])
    assert (first.parameters["task"], first.parameters["prompt"]) == ("translate", "a talk")
    assert served.triton.functions["speech"].streams == {}, "no stream is left"


def test_a_transcription_names_no_task(serve: Serve) -> None:
    served = serve()
    served.openai().audio.transcriptions.create(model="speech", file=wav(3))
    assert all("task" not in one.parameters for one in served.triton.requests)
