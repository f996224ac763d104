"""Checks one chunk of a live stream as the client sent it; each refusal names the field and the limit."""

from __future__ import annotations

import math
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Annotated, Any, Literal, get_args

import numpy as np
from pydantic import AfterValidator, ConfigDict, Field, ValidationError

from trimodal.audio.languages import language_code
from trimodal.audio.samples import one_channel, to_float
from trimodal.audio.values import SAMPLE_RATE, Delay, PolicyName, Samples
from trimodal.errors import InvalidArgument
from trimodal.settings import describe, shorten
from trimodal.speech.settings import ListeningSettings, SpeechSettings, VoiceActivity
from trimodal.speech.values import MAX_PROMPT

MIN_CHUNK_S, MAX_CHUNK_S = 0.02, 30.0
MIN_CHUNK, MAX_CHUNK = round(MIN_CHUNK_S * SAMPLE_RATE), round(MAX_CHUNK_S * SAMPLE_RATE)
RECORDED_WINDOWS = 2  # of a recording, at the recogniser at once: more gain little
# Received behind those: as many that are full, and what says that they are.
_RECEIVED_WINDOWS = RECORDED_WINDOWS + 0.5
AFTER = "after_s"  # the parameter of a request for news
LENGTHS = f"a chunk holds {MIN_CHUNK} to {MAX_CHUNK} samples (20 ms to 30 s at 16 kHz)"


class StreamOptions(ListeningSettings):
    """Request parameters that a START may carry; what is not given is the model's default.

    Attributes:
        max_pending_s: audio that is not heard yet, above which answers wait; only less than the model's
            counts. 0: each chunk is answered once nothing of it is being heard. A recording that does not say
            has at least what fills RECORDED_WINDOWS.
        recording: it was spoken before, and comes as fast as it is taken: it is heard after live streams, and
            waits where new ones of those are refused.
        admitted: a turn of a session of which one was admitted before: it is not refused for lateness.
        temperature: of each decoding; 0: the model's own, higher where it is doubted.
        trace: the last answer tells what took how long.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    policy: PolicyName | None = None
    language: Annotated[str, Field(max_length=16), AfterValidator(language_code)] = ""
    prompt: Annotated[str, Field(max_length=MAX_PROMPT)] = ""
    task: Literal["transcribe", "translate"] = "transcribe"
    temperature: Annotated[float, Field(ge=0, le=1)] = 0.0
    delay: Delay | None = None
    step_s: Annotated[float, Field(ge=0.1, le=30)] | None = None
    max_pending_s: Annotated[float, Field(ge=0, le=3600)] | None = None
    sample_rate: int = SAMPLE_RATE
    channels: int = 1
    recording: bool = False
    admitted: bool = False
    trace: bool = False

    def on(self, settings: SpeechSettings) -> SpeechSettings:
        """The model's settings with what this stream chose."""
        own = self.model_dump(include={*ListeningSettings.model_fields}, exclude_unset=True)
        if "max_speech_duration_s" in own:
            own["file_window_s"] = own["max_speech_duration_s"]
        if self.step_s is not None:
            own |= {"step_s": self.step_s, "max_step_s": max(self.step_s, settings.max_step_s)}
        if self.delay is not None:
            own["delay"] = self.delay
        if self.max_pending_s is not None:
            own["max_pending_s"] = min(self.max_pending_s, settings.max_pending_s)
        elif self.recording:
            window_s = own.get("file_window_s", settings.file_window_s)
            own["max_pending_s"] = max(_RECEIVED_WINDOWS * window_s, settings.max_pending_s)
        return settings.model_copy(update=own)


@dataclass(frozen=True, slots=True)
class Chunk:
    """What one request brings.

    Attributes:
        stream: correlation id, not 0.
        samples: float32[n] 16 kHz mono, empty only at the end of a stream.
        options: at the start of a stream.
        after: of a request for news, which brings no audio: the samples that its client has an answer for.
    """

    stream: int
    samples: Samples
    start: bool
    end: bool
    options: StreamOptions
    after: int | None = None


def read_chunk(
    stream: int | str, start: bool, end: bool, inputs: Mapping[str, Any], parameters: Mapping[str, Any]
) -> Chunk:
    """The chunk that tensors (name → array [1, n]) and parameters describe, or InvalidArgument.

    `stream` is the correlation id; texts are refused, though Triton takes them. A request without one and
    without flags is a stream of its own: it is answered once all of it is heard.
    """
    if isinstance(stream, str):
        raise InvalidArgument(
            f"sequence_id: {shorten(repr(stream))} is a text; a stream's id is a number, 1 to 2^64 - 1"
        )
    if not stream:
        if start or end or AFTER in parameters:
            raise InvalidArgument("sequence_id: missing, or 0; a stream's id is a number, 1 to 2^64 - 1")
        return Chunk(_own_number(), _samples(inputs, empty=False), True, True, _options(parameters))
    options = _options(parameters) if start else StreamOptions()
    after = None if start or end else _after(inputs, parameters)
    return Chunk(stream, _samples(inputs, empty=end or after is not None), start, end, options, after)


def _own_number() -> int:
    """A stream that no client knows: theirs begin at 1, over gRPC below 2^63."""
    return secrets.randbits(63) | 1 << 63


def _after(inputs: Mapping[str, Any], parameters: Mapping[str, Any]) -> int | None:
    if AFTER not in parameters:
        return None
    if one_channel(inputs) is not None:
        raise InvalidArgument(f"{AFTER}: a request for news brings no audio")
    after_s = _number(AFTER, parameters[AFTER])
    if not 0 <= after_s < math.inf:
        raise InvalidArgument(f"{AFTER}: {after_s:g}; the received_s of an answer is needed, 0 or more")
    return round(after_s * SAMPLE_RATE)


def _samples(inputs: Mapping[str, Any], *, empty: bool) -> Samples:
    given = one_channel(inputs)
    if given is None:
        if empty:
            return np.zeros(0, np.float32)
        raise InvalidArgument(
            f"audio: missing; {LENGTHS}; only a stream's end and a request with {AFTER} come without"
        )
    name, flat = given
    if len(flat) > MAX_CHUNK or (len(flat) < MIN_CHUNK and not empty):
        raise InvalidArgument(f"{name}: {len(flat)} samples; {LENGTHS}")
    return to_float(name, flat)


def _number(name: str, given: Any) -> float:
    try:
        return float(given)
    except (ValueError, TypeError, OverflowError):
        raise InvalidArgument(f"{name}: {shorten(repr(given))} is not a number") from None


def _options(parameters: Mapping[str, Any]) -> StreamOptions:
    own = {key: value for key, value in parameters.items() if not key.startswith("triton_")}
    if unknown := sorted(set(own) - set(StreamOptions.model_fields)):
        near = ", ".join(get_close_matches(unknown[0], StreamOptions.model_fields, n=4, cutoff=0))
        raise InvalidArgument(f"unknown parameter {shorten(repr(unknown[0]))} (known are {near} and others)")
    # JSON and gRPC parameters know no float for a whole number.
    for name in (
        "step_s",
        "max_pending_s",
        "temperature",
        "hallucination_silence_threshold",
        "language_detection_threshold",
        *VoiceActivity.model_fields,
    ):
        if isinstance(own.get(name), (int, str)) and not isinstance(own[name], bool):
            own[name] = _number(name, own[name])
    if "policy" in own and own["policy"] not in get_args(PolicyName):
        known = ", ".join(get_args(PolicyName))
        raise InvalidArgument(f"policy: {shorten(repr(own['policy']))}; known are {known}")
    try:
        options = StreamOptions.model_validate(own)
    except ValidationError as error:
        raise InvalidArgument(describe(error, StreamOptions)) from None
    if options.sample_rate != SAMPLE_RATE:
        raise InvalidArgument(
            f"sample_rate: {options.sample_rate}; only {SAMPLE_RATE} Hz is taken, resample first"
        )
    if options.channels != 1:
        raise InvalidArgument(f"channels: {options.channels}; one channel is taken, mix down first")
    return options
