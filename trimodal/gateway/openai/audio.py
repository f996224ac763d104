"""Answers POST /v1/audio/transcriptions and /translations, whole in five formats or as a stream of text."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import AsyncIterator, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from heapq import heappop, heappush
from time import monotonic
from typing import Any, Literal, cast, get_args

from pydantic import ValidationError

from trimodal.audio.captions import cues, render
from trimodal.audio.values import SAMPLE_RATE, HeardWindow, Samples, Word
from trimodal.client.async_iteration import pumped
from trimodal.client.client import BLOCK_S, FILE_LISTENING, Client
from trimodal.client.streams.live import Listening, LiveStream
from trimodal.client.values import LiveUpdate
from trimodal.gateway.answering import event
from trimodal.gateway.errors import invalid, unsupported
from trimodal.gateway.media import recording, with_keywords
from trimodal.gateway.openai.generation import timing_headers
from trimodal.gateway.quota import Cost, KeyUsage
from trimodal.speech.settings import ListeningSettings, VoiceActivity

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
    name: str
    model: str
    response_format: Format
    granularities: tuple[str, ...]
    stream: bool
    task: Task
    listening: Listening
    ignored: tuple[str, ...]  # fields that are not known

    @property
    def content_type(self) -> str:
        return CONTENT_TYPES.get(self.response_format, "text/plain; charset=utf-8")


_FIELDS = {
    *("model", "prompt", "hotwords", "response_format", "temperature", "vad_filter", "vad_parameters"),
    *(ListeningSettings.model_fields.keys() - VoiceActivity.model_fields.keys()),
}
_CHUNKING = "chunking_strategy"
# What it sets as server_vad, by Silero's names; OpenAI's package sends each in a field of its own.
_SERVER_VAD = {
    "threshold": "threshold",
    "prefix_padding_ms": "speech_pad_ms",
    "silence_duration_ms": "min_silence_duration_ms",
}
_LISTS = ("include", "timestamp_granularities", "keywords")
_GRANULARITIES = "timestamp_granularities[]"
_OF_TRANSCRIPTIONS = {
    *("language", "stream", _CHUNKING),
    *(f"{name}{end}" for name in _LISTS for end in ("", "[]")),
    *(f"{_CHUNKING}[{name}]" for name in ("type", *_SERVER_VAD)),
}
_BOOLEANS = {"true": True, "1": True, "false": False, "0": False}


def read_form(
    fields: Mapping[str, list[str]], file: bytes | None, task: Task = "transcribe", name: str = ""
) -> TranscriptionRequest:
    """Reads the form's fields. Raises: ApiError 400 naming the field."""
    if task == "translate" and (others := sorted(_OF_TRANSCRIPTIONS.intersection(fields))):
        raise unsupported(others[0], "is a field of transcriptions, not of translations")
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
    # Lists have brackets, which many leave out.
    include, given, keywords = (fields.get(f"{name}[]", fields.get(name, ())) for name in _LISTS)
    if include:
        raise unsupported("include[]", "is not supported by this model")
    granularities = tuple(given)
    if unknown := sorted(set(granularities) - {"word", "segment"}):
        raise invalid(f"{_GRANULARITIES} has '{unknown[0]}': word and segment are known")
    if granularities and response_format != "verbose_json":
        raise invalid(f"{_GRANULARITIES} needs response_format verbose_json")
    try:
        prompt = with_keywords([*keywords, one.get("hotwords", "")], one.get("prompt"))
    except ValueError as error:
        field = "keywords[]" if keywords else "hotwords"
        raise invalid(f"{field}: {error}") from None
    stream = _boolean(one, "stream") or False
    if stream and response_format not in ("json", "text"):  # events have the text alone
        raise unsupported(
            "response_format", f"'{response_format}' is not supported with stream: json and text are"
        )
    listening: Listening = {
        **FILE_LISTENING, **cast("Listening", _own(one)),
        "language": one.get("language") or None, "prompt": prompt,
        "task": "translate" if task == "translate" else None,
        "temperature": temperature or None, "trace": not stream,
    }  # fmt: skip
    model = one["model"]
    format = cast("Format", response_format)
    ignored = tuple(sorted(set(fields) - _FIELDS - _OF_TRANSCRIPTIONS))
    return TranscriptionRequest(file, name, model, format, granularities, stream, task, listening, ignored)


def _own(one: Mapping[str, str]) -> dict[str, Any]:
    """What the form says of ListeningSettings, under the names of faster-whisper and of OpenAI."""
    own: dict[str, Any] = {}
    chunking = _object(one, _CHUNKING) if one.get(_CHUNKING, "auto") != "auto" else {}
    chunking |= {
        name[len(_CHUNKING) + 1 : -1]: text
        for name, text in one.items()
        if name[:-1].startswith(f"{_CHUNKING}[")
    }
    if chunking and chunking.pop("type", "") != "server_vad":
        raise invalid(f"{_CHUNKING}: auto or an object of type server_vad is needed")
    own |= _checked(f"{_CHUNKING}.", chunking, _SERVER_VAD)
    own |= _checked(
        "vad_parameters.", _object(one, "vad_parameters"), {n: n for n in VoiceActivity.model_fields}
    )
    if _boolean(one, "vad_filter") is False:
        own["threshold"] = 0.0  # everything is speech
    alone = [name for name in ListeningSettings.model_fields if name not in VoiceActivity.model_fields]
    given = {name: one[name] for name in alone if one.get(name)}
    return own | _checked("", given, {name: name for name in alone})


def _checked(place: str, given: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """Values of ListeningSettings, each under its own name. Raises: ApiError 400 with the form's."""
    if unknown := sorted(set(given) - set(names)):
        raise invalid(f"{place}{unknown[0]}: unknown field (known: {', '.join(names)})")
    try:
        read = ListeningSettings.model_validate(
            {names[name]: value for name, value in given.items() if value is not None}
        )
    except ValidationError as error:
        problem = error.errors()[0]
        name = next(name for name, own in names.items() if own == problem["loc"][0])
        raise invalid(f"{place}{name}: {problem['msg']}") from None
    return read.model_dump(exclude_unset=True)


def _object(one: Mapping[str, str], name: str) -> dict[str, Any]:
    try:
        read = json.loads(one.get(name) or "{}")
    except (ValueError, RecursionError):
        read = None
    if not isinstance(read, dict):
        raise invalid(f"{name}: a JSON object is needed")
    return read


def _boolean(one: Mapping[str, str], name: str) -> bool | None:
    if name in one and one[name].lower() not in _BOOLEANS:
        raise invalid(f"{name}: true or false is needed")
    return _BOOLEANS[one[name].lower()] if name in one else None


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

    cost = Cost(audio=True)

    def __init__(self, request: TranscriptionRequest, client: Client) -> None:
        self._request = request
        self._windows: list[HeardWindow] = []
        self._stream: LiveStream = client.listen(model=request.model, **request.listening)

    async def whole(self, usage: KeyUsage) -> tuple[Any, Mapping[str, str]]:
        """The transcript in the format that was asked for."""
        began = monotonic()
        async with aclosing(self._updates(usage)) as updates:
            async for _ in updates:
                pass
        stream, text = self._stream, self._stream.text.strip()
        seconds = stream.latest.received_s
        headers = {
            "x-trimodal-audio-seconds": f"{seconds:.3f}",
            **timing_headers(monotonic() - began, stream.spans),
        }
        if self._request.response_format == "json":
            return {"text": text, "usage": _duration(seconds)}, headers
        if self._request.response_format == "verbose_json":
            return self._verbose(text, seconds), headers
        return render(stream.words, self._request.response_format, seconds=seconds).encode(), headers

    async def events(self, usage: KeyUsage) -> AsyncIterator[bytes]:
        """A delta for each part of the text that is final, then the whole of it."""
        async with aclosing(self._updates(usage)) as updates:
            async for update in updates:
                if update.text:
                    yield event({"type": "transcript.text.delta", "delta": update.text})
        # Without usage: here OpenAI's type of it has tokens only, no seconds.
        yield event({"type": "transcript.text.done", "text": self._stream.text.strip()})

    async def _updates(self, usage: KeyUsage) -> Any:
        async with self._stream as stream:
            async with aclosing(pumped(self._recording())) as blocks:
                async for block in blocks:
                    usage.hear(len(block) / SAMPLE_RATE)
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
            "language_probabilities": probabilities(self._windows),
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


def probabilities(windows: Sequence[HeardWindow]) -> dict[str, float]:
    """Languages with their mean probabilities in the windows where one was detected, the likeliest first."""
    told = [one.language_probabilities for one in windows if one.language_probabilities and not one.rejected]
    sums: dict[str, float] = defaultdict(float)
    for one in told:
        for code, chance in one.items():
            sums[code] += chance
    return {code: round(sums[code] / len(told), 4) for code in sorted(sums, key=lambda code: -sums[code])}


def segments(words: Sequence[Word], windows: Sequence[HeardWindow], seconds: float) -> list[dict[str, Any]]:
    """Cues with all fields that Whisper's segments have; those of a window have its figures."""
    cue_segments = []
    shown = cues(words, seconds)
    heard = _heard_in(((cue.start_ms + cue.end_ms) / 2000 for cue in shown), windows)
    for id, (cue, figures) in enumerate(zip(shown, heard, strict=True)):
        cue_segments.append(
            {
                "id": id,
                "seek": cue.start_ms // 10,
                "start": cue.start_ms / 1000,
                "end": cue.end_ms / 1000,
                "text": " ".join(cue.lines),
                "tokens": list(cue.tokens),
                "temperature": round(figures.temperature, 2),
                "avg_logprob": round(figures.avg_logprob, 4),
                "compression_ratio": round(figures.compression_ratio, 4),
                "no_speech_prob": round(figures.no_speech_prob, 4),
                **({"doubted": figures.doubted} if figures.doubted else {}),
            }
        )
    return cue_segments


def _heard_in(times: Iterable[float], windows: Sequence[HeardWindow]) -> Iterator[HeardWindow]:
    """Of each time, in order, the last window that heard it, else one without figures."""
    later = sorted(range(len(windows)), key=lambda index: -windows[index].start)
    begun: list[int] = []  # a heap: the last window, as a negative index, is its first
    for time in times:
        while later and windows[later[-1]].start <= time:
            heappush(begun, -later.pop())
        while begun and windows[-begun[0]].end < time:
            heappop(begun)
        yield windows[-begun[0]] if begun else HeardWindow(0, 0, "", 0, 0, 0, 0, 0)
