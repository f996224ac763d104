"""Answers POST /v1/audio/transcriptions and /translations, whole in five formats or as a stream of text."""

from __future__ import annotations

import math
import zlib
from bisect import bisect_left
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Literal, get_args

from trimodal.audio.captions import as_srt, as_text, as_vtt, cues
from trimodal.audio.values import Word
from trimodal.client.async_iteration import pumped
from trimodal.client.client import BLOCK_S, FILE_LISTENING, Client
from trimodal.client.streams.live import Listening, LiveStream
from trimodal.client.values import LiveUpdate
from trimodal.gateway.answering import event
from trimodal.gateway.errors import ApiError, invalid, unsupported
from trimodal.gateway.media import recording
from trimodal.gateway.quota import KeyUsage

Format = Literal["json", "text", "srt", "vtt", "verbose_json"]
Task = Literal["transcribe", "translate"]
CONTENT_TYPES = {
    "json": "application/json",
    "verbose_json": "application/json",
    "vtt": "text/vtt; charset=utf-8",
}
_WRITERS = {"text": as_text, "srt": as_srt, "vtt": as_vtt}


@dataclass
class TranscriptionRequest:
    """The form of an endpoint; `file` is the contents of the upload."""

    file: bytes
    model: str
    language: str | None = None
    prompt: str | None = None
    response_format: Format = "json"
    granularities: tuple[str, ...] = ()
    stream: bool = False
    task: Task = "transcribe"

    @property
    def content_type(self) -> str:
        return CONTENT_TYPES.get(self.response_format, "text/plain; charset=utf-8")


_FIELDS = {"model", "prompt", "response_format", "temperature"}
_OF_TRANSCRIPTIONS = {"language", "stream", "timestamp_granularities[]", "include[]", "chunking_strategy"}


def read_form(
    fields: Mapping[str, list[str]], file: bytes | None, task: Task = "transcribe"
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
    if one.get("temperature", "0") not in ("0", "0.0", ""):
        raise unsupported("temperature", "other than 0 is not supported by this model")
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
    return TranscriptionRequest(
        file,
        one["model"],
        one.get("language") or None,
        one.get("prompt") or None,
        response_format,  # type: ignore[arg-type]
        granularities,
        stream in ("true", "1"),
        task,
    )


class Transcription:
    """One recording that is sent as fast as the server takes it."""

    def __init__(self, request: TranscriptionRequest, client: Client) -> None:
        self._request = request
        listening: Listening = {
            **FILE_LISTENING, "language": request.language, "prompt": request.prompt,
            "task": "translate" if request.task == "translate" else None,
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
        return _WRITERS[self._request.response_format](stream.words).encode(), headers

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
            async with aclosing(pumped(recording(self._request.file, BLOCK_S, "file"))) as blocks:
                async for block in blocks:
                    update: LiveUpdate = await stream.send(block)
                    yield update
            yield await stream.end()

    def _verbose(self, text: str, seconds: float) -> dict[str, Any]:
        body: dict[str, Any] = {
            "task": self._request.task,
            "language": "en" if self._request.task == "translate" else self._request.language or "",
            "duration": round(seconds, 3),
            "text": text,
            "usage": _duration(seconds),
        }
        if "segment" in self._request.granularities or not self._request.granularities:
            body["segments"] = segments(self._stream.words)
        if "word" in self._request.granularities:
            body["words"] = [
                {"word": word.text.strip(), "start": round(word.start, 3), "end": round(word.end, 3)}
                for word in self._stream.words
            ]
        return body


def _duration(seconds: float) -> dict[str, Any]:
    return {"type": "duration", "seconds": round(seconds)}


def segments(words: Sequence[Word]) -> list[dict[str, Any]]:
    """Cues with all fields that Whisper's segments have in OpenAI's API.

    The model gives no tokens and no probability of silence: there is none where there are words.
    """
    starts = [round(word.start * 1000) for word in words]
    cue_segments = []
    for id, cue in enumerate(cues(words)):
        own = words[bisect_left(starts, cue.start_ms) : bisect_left(starts, cue.end_ms)]
        text = " ".join(cue.lines)
        raw = text.encode()
        logs = [math.log(max(word.probability, 1e-6)) for word in own]
        cue_segments.append(
            {
                "id": id,
                "seek": cue.start_ms // 10,
                "start": cue.start_ms / 1000,
                "end": cue.end_ms / 1000,
                "text": text,
                "tokens": [],
                "temperature": 0.0,
                "avg_logprob": round(sum(logs) / max(1, len(logs)), 4),
                "compression_ratio": round(len(raw) / len(zlib.compress(raw)), 4),
                "no_speech_prob": 0.0,
            }
        )
    return cue_segments
