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
import openai
import pytest
import soundfile
import soxr

from tests.e2e.gateway.calls.demo import DEMO, TRUTH, Demo, said, user

pytestmark = [pytest.mark.e2e, pytest.mark.build, pytest.mark.slow]

SAMPLES = DEMO / "speech" / "samples"
QUESTIONS = DEMO / "speech" / "questions"
RATE = 16_000
SAID = "what is a lambda"
NUMBERS = "14-numbers.wav"
PAUSE_S = 2
TALK = ("02-while.wav", "05-json.wav", "10-pickle.wav")
deprecated = pytest.mark.filterwarnings("ignore:deprecated:DeprecationWarning")  # openai 3.54: translations


def picture(name: str) -> dict[str, Any]:
    data = base64.b64encode((DEMO / "vision" / "samples" / name).read_bytes()).decode()
    kind = "jpeg" if name.endswith("jpg") else "png"
    return {"type": "image_url", "image_url": {"url": f"data:image/{kind};base64,{data}"}}


def sound(data: bytes, format: str = "wav") -> dict[str, Any]:
    return {"type": "input_audio", "input_audio": {"data": base64.b64encode(data).decode(), "format": format}}


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def shown(*parts: dict[str, Any]) -> list[Any]:
    return [{"role": "user", "content": list(parts)}]


@cache
def recording(kind: str, rate: int = RATE, channels: int = 1) -> tuple[str, bytes]:
    """A file that says SAID, with its name: any kind that soundfile or PyAV writes."""
    samples, _ = soundfile.read(SAMPLES / "01-lambda.wav", dtype="float32")
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
    parts = [soundfile.read(SAMPLES / name, dtype="float32")[0] for name in TALK]
    file = io.BytesIO()
    soundfile.write(
        file, np.concatenate([part for one in parts for part in (one, pause)]), RATE, format="WAV"
    )
    return "talk.wav", file.getvalue()


def spoken(name: str) -> dict[str, Any]:
    """What samples.json tells of a recording: text, seconds, words with their times."""
    return next(one for one in json.loads((SAMPLES / "samples.json").read_text()) if one["file"] == name)


def talks_text() -> str:
    return " ".join(spoken(name)["text"] for name in TALK)


def test_a_picture(demo: Demo) -> None:
    messages = shown(text("What digit is this?"), picture("digit-7-a.png"))
    answer = demo.client.chat.completions.create(model="llm", messages=messages)
    assert said(answer) == "The picture shows the digit 7."


def test_a_picture_streamed_with_its_labels(demo: Demo) -> None:
    messages = shown(text("Is it a two?"), picture("digit-2-a.jpg"))
    chunks = list(demo.client.chat.completions.create(model="assistant", messages=messages, stream=True))
    labels = chunks[0].trimodal["labels"]
    assert labels[0]["label"] == "2"
    answer = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    assert answer == "A 2? The picture shows the digit 2, so yes."


def test_a_spoken_question(demo: Demo) -> None:
    messages = shown(sound((SAMPLES / "01-lambda.wav").read_bytes()))
    answer = demo.client.chat.completions.create(model="llm", messages=messages)
    assert (answer.trimodal["heard"], said(answer)) == (SAID, TRUTH)


def test_a_spoken_question_of_other_formats(demo: Demo) -> None:
    for kind in ("mp3", "flac", "ogg"):
        messages = shown(sound(recording(kind)[1], kind))
        answer = demo.client.chat.completions.create(model="llm", messages=messages)
        assert (answer.trimodal["heard"], said(answer)) == (SAID, TRUTH), kind


def test_a_picture_and_a_voice(demo: Demo) -> None:
    voice = sound((QUESTIONS / "03-is-it-seven.wav").read_bytes())
    messages = shown(picture("digit-7-b.jpg"), voice)
    answer = demo.client.chat.completions.create(model="llm", messages=messages)
    assert said(answer) == "A 7? The picture shows the digit 7, so yes."


async def test_a_picture_and_a_voice_streamed_async(demo: Demo) -> None:
    voice = sound((QUESTIONS / "04-how-sure.wav").read_bytes())
    messages = shown(picture("digit-3-a.png"), voice)
    async with demo.asynchronous() as client:
        chunks = await client.chat.completions.create(model="llm", messages=messages, stream=True)
        answer = "".join([chunk.choices[0].delta.content or "" async for chunk in chunks])
    assert re.fullmatch(r"The picture shows the digit 3, and I am \d+ % sure\.", answer)


def test_a_talk_about_a_picture(demo: Demo) -> None:
    messages = shown(text("What digit is this?"), picture("digit-5-a.png"))
    first = demo.client.chat.completions.create(model="llm", messages=messages)
    messages += [first.choices[0].message, *user("are you sure?")]
    second = demo.client.chat.completions.create(model="llm", messages=messages)
    assert re.fullmatch(r"The picture shows the digit 5, and I am \d+ % sure\.", said(second))


def test_a_picture_that_is_none(demo: Demo) -> None:
    data = base64.b64encode(b"no picture").decode()
    url = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}
    with pytest.raises(openai.BadRequestError) as caught:
        demo.client.chat.completions.create(model="llm", messages=shown(text("What is this?"), url))
    assert caught.value.param == "messages"


@pytest.mark.parametrize(
    ("kind", "more"),
    [
        *(("flac", {}), ("ogg", {}), ("mp3", {})),
        *(("m4a", {"rate": 48_000}), ("mp4", {"rate": 44_100}), ("webm", {"rate": 48_000})),
        ("wav", {"rate": 44_100, "channels": 2}),
    ],
)
def test_a_file_of_each_kind(demo: Demo, kind: str, more: dict[str, int]) -> None:
    file = recording(kind, **more)
    assert demo.client.audio.transcriptions.create(model="speech", file=file).text == SAID


def test_a_transcription(demo: Demo) -> None:
    one = spoken(NUMBERS)
    answer = demo.client.audio.transcriptions.create(model="speech", file=SAMPLES / NUMBERS)
    assert answer.text == one["text"]
    assert answer.usage.seconds == round(one["seconds"])


def test_a_transcription_as_text(demo: Demo) -> None:
    answer = demo.client.audio.transcriptions.create(
        model="speech", file=recording("wav"), response_format="text"
    )
    assert answer == f"{SAID}\n"


def test_a_transcription_as_srt(demo: Demo) -> None:
    answer = demo.client.audio.transcriptions.create(model="speech", file=talk(), response_format="srt")
    times = r"00:00:\d\d,\d{3} --> 00:00:\d\d,\d{3}"
    assert re.match(rf"1\n{times}\nexplain the while statement\n\n2\n{times}\ntell me about", answer)
    words = [line for line in answer.splitlines() if line and not re.match(r"\d", line)]
    assert " ".join(words) == talks_text()


def test_a_transcription_as_vtt(demo: Demo) -> None:
    answer = demo.client.audio.transcriptions.create(model="speech", file=talk(), response_format="vtt")
    times = r"00:00:\d\d\.\d{3} --> 00:00:\d\d\.\d{3}"
    assert re.match(rf"WEBVTT\n\n{times}\nexplain the while statement\n\n{times}\n", answer)


def test_times_of_words(demo: Demo) -> None:
    one = spoken(NUMBERS)
    answer = demo.client.audio.transcriptions.create(
        model="speech", file=SAMPLES / NUMBERS, response_format="verbose_json",
        timestamp_granularities=["word"],
    )  # fmt: skip
    assert [word.word for word in answer.words] == one["text"].split()
    late = [abs(word.start - start) for word, (_, start, _) in zip(answer.words, one["words"], strict=True)]
    assert np.median(late) < 0.1
    assert answer.segments is None


def test_times_of_segments(demo: Demo) -> None:
    answer = demo.client.audio.transcriptions.create(
        model="speech", file=talk(), response_format="verbose_json"
    )
    assert [segment.text for segment in answer.segments] == [spoken(name)["text"] for name in TALK]
    seconds = sum(spoken(name)["seconds"] + PAUSE_S for name in TALK)
    assert answer.duration == pytest.approx(seconds, abs=0.01)
    ends = [time for segment in answer.segments for time in (segment.start, segment.end)]
    assert ends == sorted(ends)
    assert answer.segments[1].start == pytest.approx(spoken(TALK[0])["seconds"] + PAUSE_S, abs=0.6)


def test_a_transcription_streamed(demo: Demo) -> None:
    *deltas, done = demo.client.audio.transcriptions.create(model="speech", file=talk(), stream=True)
    assert {event.type for event in deltas} == {"transcript.text.delta"}
    assert "".join(event.delta for event in deltas).strip() == done.text == talks_text()


def test_a_language_and_a_prompt(demo: Demo) -> None:
    answer = demo.client.audio.transcriptions.create(
        model="speech", file=recording("wav"), language="en", prompt="python", temperature=0
    )
    assert answer.text == SAID


def test_a_language_that_is_not_known(demo: Demo) -> None:
    with pytest.raises(openai.BadRequestError, match="language") as caught:
        demo.client.audio.transcriptions.create(model="speech", file=recording("wav"), language="xx")
    assert caught.value.param == "language"


def test_a_file_that_is_no_recording(demo: Demo) -> None:
    with pytest.raises(openai.BadRequestError, match="file") as caught:
        demo.client.audio.transcriptions.create(model="speech", file=("said.wav", b"no recording"))
    assert (caught.value.param, caught.value.code) == ("file", "invalid_audio")


@deprecated
def test_a_translation(demo: Demo) -> None:
    answer = demo.client.audio.translations.create(model="speech", file=recording("wav"))
    assert answer.text == SAID


@deprecated
def test_a_translation_in_all_formats(demo: Demo) -> None:
    create = demo.client.audio.translations.create
    file = recording("wav")
    verbose = create(model="speech", file=file, response_format="verbose_json")
    assert (verbose.text, verbose.language) == (SAID, "en")
    assert create(model="speech", file=file, response_format="text") == f"{SAID}\n"
    assert SAID in create(model="speech", file=file, response_format="srt")
    assert create(model="speech", file=file, response_format="vtt").startswith("WEBVTT")
