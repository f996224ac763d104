"""Pictures, recordings and both in a chat; transcriptions and translations."""

from __future__ import annotations

import base64
import io
import json
import re
from functools import cache
from typing import Any

import av
import numpy as np
import pytest
import soundfile
import soxr

from tests.e2e.gateway.calls.starter import SAMPLES, Starter, said, same, user
from trimodal.audio.word_errors import normalise

pytestmark = [pytest.mark.e2e, pytest.mark.build, pytest.mark.slow]

SPEECH = SAMPLES / "speech"
HIMSELF, SELFISH, BUSY = "austen-5-himself.wav", "austen-3-selfish.wav", "telephone-2-busy.flac"
RATE = 16_000
PAUSE_S = 2
TALK = (HIMSELF, BUSY, SELFISH)
deprecated = pytest.mark.filterwarnings("ignore:deprecated:DeprecationWarning")  # openai 3.54: translations


def picture(name: str) -> dict[str, Any]:
    data = base64.b64encode((SAMPLES / "photos" / name).read_bytes()).decode()
    return {"type": "image_url", "image_url": {"url": f"data:image/jpeg;base64,{data}"}}


def sound(data: bytes, format: str = "wav") -> dict[str, Any]:
    return {"type": "input_audio", "input_audio": {"data": base64.b64encode(data).decode(), "format": format}}


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def shown(*parts: dict[str, Any]) -> list[Any]:
    return [{"role": "user", "content": list(parts)}]


def is_himself(heard: str) -> bool:
    return same(heard, spoken(HIMSELF)["text"])


@cache
def recording(kind: str, rate: int = RATE, channels: int = 1) -> tuple[str, bytes]:
    """A file of HIMSELF, with its name: any kind that soundfile or PyAV writes."""
    samples, _ = soundfile.read(SPEECH / HIMSELF, dtype="float32")
    samples = soxr.resample(samples, RATE, rate)
    file = io.BytesIO()
    if kind in ("wav", "flac", "ogg", "mp3"):
        soundfile.write(file, np.stack([samples] * channels, 1), rate, format=kind.upper())
        return f"said.{kind}", file.getvalue()
    codec = "libopus" if kind == "webm" else "aac"
    with av.open(file, "w", format="webm" if kind == "webm" else "mp4") as out:
        stream = out.add_stream(codec, rate=rate, layout="mono")
        for at in range(0, len(samples), 960):
            block = np.ascontiguousarray(samples[None, at : at + 960])
            frame = av.AudioFrame.from_ndarray(block, format="fltp", layout="mono")
            frame.sample_rate = rate
            out.mux(stream.encode(frame))
        out.mux(stream.encode(None))
    return f"said.{kind}", file.getvalue()


@cache
def talk() -> tuple[str, bytes]:
    """Three recordings with pauses between them."""
    pause = np.zeros(PAUSE_S * RATE, np.float32)
    parts = [soundfile.read(SPEECH / name, dtype="float32")[0] for name in TALK]
    file = io.BytesIO()
    soundfile.write(
        file, np.concatenate([part for one in parts for part in (one, pause)]), RATE, format="WAV"
    )
    return "talk.wav", file.getvalue()


def spoken(name: str) -> dict[str, Any]:
    """What samples.json tells of a recording: text, seconds, words with their times."""
    return next(one for one in json.loads((SPEECH / "samples.json").read_text()) if one["file"] == name)


def talks_text() -> str:
    return " ".join(spoken(name)["text"] for name in TALK)


def test_a_picture_streamed_with_its_labels(starter: Starter) -> None:
    asked = {"messages": shown(text("What is this?"), picture("macaw.jpg")), "max_tokens": 32}
    chunks = list(starter.client.chat.completions.create(model="assistant", **asked, stream=True))
    assert "macaw" in chunks[0].trimodal["labels"][0]["label"]
    assert "macaw" in "".join(chunk.choices[0].delta.content or "" for chunk in chunks).lower()


def test_a_picture_and_a_voice(starter: Starter) -> None:
    messages = shown(picture("koala.jpg"), sound((SPEECH / HIMSELF).read_bytes()))
    answer = starter.client.chat.completions.create(model="llm", messages=messages, max_tokens=16)
    assert is_himself(answer.trimodal["heard"])
    assert "koala" in answer.trimodal["labels"][0]["label"]
    assert said(answer)


def test_a_talk_about_a_picture(starter: Starter) -> None:
    """The picture is not looked at again, and still known."""
    messages = shown(text("What is in this picture?"), picture("koala.jpg"))
    create = starter.client.chat.completions.create
    first = create(model="llm", messages=messages, max_tokens=32)
    assert "koala" in said(first).lower()
    messages += [first.choices[0].message, *user("What do you see?")]
    second = create(model="llm", messages=messages, max_tokens=32)
    assert second.trimodal["stages_ms"]["saw"] is None
    assert "koala" in said(second).lower()


@pytest.mark.parametrize(
    ("kind", "more"),
    [
        *(("flac", {}), ("ogg", {}), ("mp3", {})),
        *(("m4a", {"rate": 48_000}), ("mp4", {"rate": 44_100}), ("webm", {"rate": 48_000})),
        ("wav", {"rate": 44_100, "channels": 2}),
    ],
)
def test_a_file_of_each_kind(starter: Starter, kind: str, more: dict[str, int]) -> None:
    file = recording(kind, **more)
    assert is_himself(starter.client.audio.transcriptions.create(model="speech", file=file).text)


@pytest.mark.parametrize(("form", "head", "mark"), [("srt", "1\n", ","), ("vtt", "WEBVTT\n\n", ".")])
def test_a_transcription_as_captions(starter: Starter, form: str, head: str, mark: str) -> None:
    create = starter.client.audio.transcriptions.create
    answer = create(model="speech", file=talk(), response_format=form)
    time = rf"00:00:\d\d\{mark}\d{{3}}"
    assert re.match(rf"{head}{time} --> {time}\n\w", answer)
    lines = [line for line in answer.removeprefix("WEBVTT").splitlines() if not re.match(r"\d+$|\d\d:", line)]
    assert same(" ".join(lines), talks_text())
    assert len(re.findall("-->", answer)) >= len(TALK), "a pause parts them"


def test_times_of_words(starter: Starter) -> None:
    one = spoken(HIMSELF)
    answer = starter.client.audio.transcriptions.create(
        model="speech", file=SPEECH / HIMSELF, response_format="verbose_json",
        timestamp_granularities=["word"],
    )  # fmt: skip
    assert normalise(" ".join(word.word for word in answer.words)) == normalise(one["text"])
    late = [abs(word.start - start) for word, (_, start, _) in zip(answer.words, one["words"], strict=True)]
    assert np.median(late) < 0.2
    assert answer.segments is None


def test_times_of_segments(starter: Starter) -> None:
    answer = starter.client.audio.transcriptions.create(
        model="speech", file=talk(), response_format="verbose_json"
    )
    assert same(" ".join(segment.text for segment in answer.segments), talks_text())
    seconds = [spoken(name)["seconds"] + PAUSE_S for name in TALK]
    assert answer.duration == pytest.approx(sum(seconds), abs=0.01)
    ends = [time for segment in answer.segments for time in (segment.start, segment.end)]
    assert ends == sorted(ends)
    for begin in (0, seconds[0], seconds[0] + seconds[1]):
        assert min(abs(segment.start - begin) for segment in answer.segments) < 0.6


def test_a_transcription_streamed(starter: Starter) -> None:
    *deltas, done = starter.client.audio.transcriptions.create(model="speech", file=talk(), stream=True)
    assert {event.type for event in deltas} == {"transcript.text.delta"}
    assert "".join(event.delta for event in deltas).strip() == done.text
    assert same(done.text, talks_text())


@deprecated
def test_a_translation_in_all_formats(starter: Starter) -> None:
    """English is taken as it is: the translation of it is what was said."""
    create = starter.client.audio.translations.create
    file = recording("wav")
    assert is_himself(create(model="speech", file=file).text)
    verbose = create(model="speech", file=file, response_format="verbose_json")
    assert verbose.language == "en"
    assert is_himself(verbose.text)
    assert is_himself(create(model="speech", file=file, response_format="text"))
    assert "amiable himself" in create(model="speech", file=file, response_format="srt")
    assert create(model="speech", file=file, response_format="vtt").startswith("WEBVTT")
