"""Recordings as bytes, as an upload or a message of a chat brings them, and the audio of live events."""

from __future__ import annotations

import base64
import io

import numpy as np
import soundfile

from tests.fuzz.choices import Choices
from tests.fuzz.hostile import spoil_bytes, text
from tests.fuzz.targets.promise import Broken, promise
from trimodal.audio.captions import as_srt, as_text, as_vtt
from trimodal.audio.values import HeardWindow, Word
from trimodal.gateway.errors import ApiError
from trimodal.gateway.media import decode_data_url, recording
from trimodal.gateway.openai.audio import segments
from trimodal.gateway.realtime.hearing.decoder import PCM, PCMA, PCMU, Decoder, audio_bytes

MOST_S = 600.0  # of audio that an input of a few kilobytes may stand for


def _file(format: str, rate: int = 16_000, channels: int = 1, subtype: str | None = None) -> bytes:
    samples = np.sin(np.arange(400 * channels).reshape(-1, channels) / 7).astype(np.float32) / 2
    made = io.BytesIO()
    soundfile.write(made, samples, rate, subtype, format=format)
    return made.getvalue()


FILES = {
    "wav": _file("WAV"),
    "wav 8 kHz": _file("WAV", 8_000, 2, "ULAW"),
    "wav float": _file("WAV", 48_000, 1, "FLOAT"),
    "flac": _file("FLAC", 22_050, 2),
    "ogg": _file("OGG"),
    "mp3": _file("MP3"),
    "aiff": _file("AIFF"),
    "au": _file("AU"),
}
NAMES = tuple(FILES)


def run(data: bytes) -> None:
    choices = Choices(data)
    kind = choices.integer(0, 4)
    if kind == 0:
        _read(choices.rest())
    elif kind == 1:
        _read(spoil_bytes(choices, FILES[choices.pick(NAMES)]))
    elif kind == 2:
        _live(choices)
    elif kind == 3:
        with promise(ApiError):
            decode_data_url(choices.pick(("data:", "data:a/b;base64,", "")) + text(choices), "field")
    else:
        _captions(choices)


def _read(contents: bytes) -> None:
    seconds = 0.0
    with promise(ApiError):
        for block in recording(contents, 0.5, "file"):
            seconds += len(block) / 16_000
            if block.dtype != np.float32 or seconds > MOST_S or not np.isfinite(block).all():
                raise Broken(f"{len(contents)} bytes became {seconds:.0f} s of {block.dtype}")


def _live(choices: Choices) -> None:
    decoder = Decoder(choices.pick((PCM, PCMU, PCMA)), choices.pick((16_000, 24_000)))
    with promise(ApiError):
        while choices.left:
            piece = choices.bytes(choices.integer(0, 200))
            sent: object = base64.b64encode(piece).decode() if choices.chance(2) else text(choices)
            samples = decoder(audio_bytes(sent))
            if not np.isfinite(samples).all():
                raise Broken("samples that are no numbers")
        decoder.flush()


def _captions(choices: Choices) -> None:
    """Words as a recogniser tells them: in order, of any text."""
    words, at = [], 0.0
    for _ in range(choices.integer(0, 30)):
        start = at + choices.integer(0, 300) / 100
        at = start + choices.integer(0, 200) / 100
        words.append(Word(f" {text(choices)[:200]}", start, at, choices.integer(0, 100) / 100))
    for made in (as_srt(words), as_vtt(words), as_text(words)):
        if not isinstance(made, str):
            raise Broken("captions are a text")
    windows = [HeardWindow(0.0, at / 2, "en", 0.9, 0.0, -0.5, 1.2, 0.1)] if choices.chance(2) else []
    segments([word for word in words if word.text.isprintable()], windows, at)
