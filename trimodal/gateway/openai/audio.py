"""Answers POST /v1/audio/transcriptions and /translations, whole in five formats or as a stream of text."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import AsyncIterator, Generator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Literal, get_args

from trimodal.audio.captions import cues, render
from trimodal.audio.values import HeardWindow, Samples, Word
from trimodal.client.async_iteration import pumped
from trimodal.client.client import BLOCK_S, FILE_LISTENING, Client
from trimodal.client.streams.live import Listening, LiveStream
from trimodal.client.values import LiveUpdate
from trimodal.gateway.answering import event
from trimodal.gateway.errors import ApiError, invalid, unsupported
from trimodal.gateway.media import recording, with_keywords
from trimodal.gateway.quota import KeyUsage

Format = Literal["json", "text", "srt", "vtt", "verbose_json"]
Task = Literal["transcribe", "translate"]
CONTENT_TYPES = {
    "json": "application/json",
    "verbose_json": "application/json",
    "vtt": "text/vtt; charset=utf-8",
}


@dataclass
class TranscriptionRequest:
    """The form of an endpoint; `file` is the contents of the upload, `name` its file name."""

    file: bytes
    model: str
    name: str = ""
    language: str | None = None
    prompt: str | None = None
    response_format: Format = "json"
    granularities: tuple[str, ...] = ()
    stream: bool = False
    task: Task = "transcribe"
    temperature: float = 0.0

    @property
    def content_type(self) -> str:
        return CONTENT_TYPES.get(self.response_format, "text/plain; charset=utf-8")


# OpenAI's names for what the model `speech` does.
OPENAI_MODELS = frozenset(
    (
        *("whisper-1", "gpt-transcribe", "gpt-4o-transcribe"),
        *("gpt-4o-mini-transcribe", "gpt-4o-mini-transcribe-2025-12-15"),
    )
)
_FIELDS = {"model", "prompt", "hotwords", "response_format", "temperature"}
_OF_TRANSCRIPTIONS = {
    *("language", "keywords[]", "stream", "timestamp_granularities[]", "include[]", "chunking_strategy"),
}


def read_form(
    fields: Mapping[str, list[str]], file: bytes | None, task: Task = "transcribe", name: str = ""
) -> TranscriptionRequest:
    """Reads the form's fields. Raises: ApiError 400 naming the field."""
    known = _FIELDS | (_OF_TRANSCRIPTIONS if task == "transcribe" else set())
    if unknown := sorted(set(fields) - known):
        raise ApiError(400, f"{unknown[0]}: unknown field", param=unknown[0], code="unknown_parameter")
    if file is None:
        raise invalid("file: a recording is needed")
    if not file:
        raise invalid("file is empty")
    one = {name: values[-1] for name, values in fields.items()}
    if not one.get("model"):
        raise invalid("model: a name is needed")
    response_format = one.get("response_format", "json")
    if response_format not in get_args(Format):
        raise invalid(f"response_format: one of {', '.join(get_args(Format))} is needed")
    temperature = _temperature(one.get("temperature") or "0")
    if fields.get("include[]"):
        raise unsupported("include[]", "is not supported by this model")
    granularities = tuple(fields.get("timestamp_granularities[]", ()))
    if unknown := sorted(set(granularities) - {"word", "segment"}):
        raise invalid(f"timestamp_granularities[] has '{unknown[0]}': word and segment are known")
    if granularities and response_format != "verbose_json":
        raise invalid("timestamp_granularities[] needs response_format verbose_json")
    stream = one.get("stream", "false").lower()
    if stream not in ("true", "false", "1", "0"):
        raise invalid("stream: true or false is needed")
    try:
        keywords = [*fields.get("keywords[]", ()), one.get("hotwords", "")]
        prompt = with_keywords(keywords, one.get("prompt"))
    except ValueError as error:
        field = "keywords[]" if "keywords[]" in fields else "hotwords"
        raise invalid(f"{field}: {error}") from None
    return TranscriptionRequest(
        file,
        "speech" if one["model"] in OPENAI_MODELS else one["model"],
        name,
        one.get("language") or None,
        prompt,
        response_format,  # type: ignore[arg-type]
        granularities,
        stream in ("true", "1"),
        task,
        temperature,
    )


def _temperature(text: str) -> float:
    try:
        temperature = float(text)
    except ValueError:
        temperature = math.nan
    if not 0 <= temperature <= 1:
        raise invalid("temperature: a number from 0 to 1 is needed")
    return temperature


class Transcription:
    """One recording that is sent as fast as the server takes it."""

    def __init__(self, request: TranscriptionRequest, client: Client) -> None:
        self._request = request
        self._windows: list[HeardWindow] = []
        listening: Listening = {
            **FILE_LISTENING, "language": request.language, "prompt": request.prompt,
            "task": "translate" if request.task == "translate" else None,
            "temperature": request.temperature or None,
        }  # fmt: skip
        self._stream: LiveStream = client.listen(model=request.model, **listening)

    async def whole(self, usage: KeyUsage) -> tuple[Any, Mapping[str, str]]:
        """The transcript in the format that was asked for."""
        async with aclosing(self._updates()) as updates:
            async for _ in updates:
                pass
        stream, text = self._stream, self._stream.text.strip()
        seconds = stream.latest.received_s
        headers = {"x-trimodal-audio-seconds": f"{seconds:.3f}"}
        if self._request.response_format == "json":
            return {"text": text, "usage": _duration(seconds)}, headers
        if self._request.response_format == "verbose_json":
            return self._verbose(text, seconds), headers
        return render(stream.words, self._request.response_format, seconds=seconds).encode(), headers

    async def events(self, usage: KeyUsage) -> AsyncIterator[bytes]:
        """A delta for each part of the text that is final, then the whole of it."""
        async with aclosing(self._updates()) as updates:
            async for update in updates:
                if update.text:
                    yield event({"type": "transcript.text.delta", "delta": update.text})
        # Without usage: here OpenAI's type of it has tokens only, no seconds.
        yield event({"type": "transcript.text.done", "text": self._stream.text.strip()})

    async def _updates(self) -> Any:
        async with self._stream as stream:
            async with aclosing(pumped(self._recording())) as blocks:
                async for block in blocks:
                    update: LiveUpdate = await stream.send(block)
                    self._windows += update.windows
                    yield update
            update = await stream.end()
            self._windows += update.windows
            yield update

    def _recording(self) -> Generator[Samples, None, None]:
        return recording(self._request.file, BLOCK_S, "file", self._request.name)

    def _verbose(self, text: str, seconds: float) -> dict[str, Any]:
        language, chance = spoken(self._windows)
        body: dict[str, Any] = {
            "task": self._request.task,
            "language": "en" if self._request.task == "translate" else language,
            "detected_language": language,
            "language_probability": round(chance, 4),
            "duration": round(seconds, 3),
            "text": text,
            "usage": _duration(seconds),
        }
        if "segment" in self._request.granularities or not self._request.granularities:
            body["segments"] = segments(self._stream.words, self._windows, seconds)
        if "word" in self._request.granularities:
            body["words"] = [
                {
                    "word": word.text.strip(),
                    "start": round(word.start, 3),
                    "end": round(word.end, 3),
                    "probability": round(word.probability, 4),
                }
                for word in self._stream.words
            ]
        return body


def _duration(seconds: float) -> dict[str, Any]:
    return {"type": "duration", "seconds": round(seconds)}


def spoken(windows: Sequence[HeardWindow]) -> tuple[str, float]:
    """The language of most of the recording and its probability, 1 if it was given; "" where no word is."""
    seconds: dict[str, float] = defaultdict(float)
    for one in windows:
        if not one.rejected:
            seconds[one.language] += one.end - one.start
    if not seconds:
        return "", 0.0
    language = max(seconds, key=lambda code: seconds[code])
    return language, min(one.language_probability for one in windows if one.language == language)


def segments(words: Sequence[Word], windows: Sequence[HeardWindow], seconds: float) -> list[dict[str, Any]]:
    """Cues with all fields that Whisper's segments have; those of a window have its figures."""
    starts = [round(word.start * 1000) for word in words]
    cue_segments = []
    for id, cue in enumerate(cues(words, seconds)):
        own = words[bisect_left(starts, cue.start_ms) : bisect_left(starts, cue.end_ms)]
        middle = (cue.start_ms + cue.end_ms) / 2000
        # Of live windows the last one counts that heard it.
        window = next((one for one in reversed(windows) if one.start <= middle <= one.end), None)
        figures = window or HeardWindow(0, 0, "", 0, 0, 0, 0, 0)
        cue_segments.append(
            {
                "id": id,
                "seek": cue.start_ms // 10,
                "start": cue.start_ms / 1000,
                "end": cue.end_ms / 1000,
                "text": " ".join(cue.lines),
                "tokens": [token for word in own for token in word.tokens],
                "temperature": round(figures.temperature, 2),
                "avg_logprob": round(figures.avg_logprob, 4),
                "compression_ratio": round(figures.compression_ratio, 4),
                "no_speech_prob": round(figures.no_speech_prob, 4),
                **({"doubted": figures.doubted} if figures.doubted else {}),
            }
        )
    return cue_segments
