"""Reads and checks a question: text, image, audio; every refusal names the field and the limit.

The llm checks what is only handed on to it (sampling, tenant, tier, cache control); the vision and speech
models check what the image and the audio hold.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from trimodal import trace
from trimodal.assistant.settings import AssistantSettings
from trimodal.assistant.values import Labels, Versions
from trimodal.audio.samples import one_channel, to_float
from trimodal.audio.values import SAMPLE_RATE, Samples
from trimodal.errors import InvalidArgument, SettingsError
from trimodal.llm.request import sampling
from trimodal.llm.request.terms import MAX_DEADLINE_MS, MAX_TTFT_DEADLINE_MS, with_parameters
from trimodal.triton.fields import Inputs, integer, scalar, shown, text
from trimodal.vision.formats import TAKEN
from trimodal.vision.settings import Limits

HANDED_ON = (
    *(*sampling.INPUTS, "stop", "response_format", "chat_template_kwargs"),
    *("tenant", "tier", "cache_control", "cache_namespace", "cache_salt", "truncation"),
)
_OWN = (
    *("text_input", "history", "image", "audio", "audio_int16"),
    *("priority", "ttft_deadline_ms", "deadline_ms"),
)
INPUTS = (*_OWN, *HANDED_ON)
"""The assistant's input tensors; all are optional."""
VERSIONS = "versions"  # a parameter of the request
# Before it is copied: Triton's own ports take a body of any size. The vision model's limit may be lower.
_MOST_IMAGE_BYTES = Limits().max_bytes
_VERSIONS = TypeAdapter(dict[str, Annotated[str, Field(pattern=r"^[1-9]\d{0,17}$")]])


class Turn(BaseModel):
    """One message of the talk. `heard` and `labels` are what the assistant told of it then."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    role: Literal["system", "user", "assistant"]
    content: str
    heard: str = ""
    labels: Labels = ()


@dataclass(frozen=True, eq=False)
class AskRequest:
    """A question: text, audio or both, and an image if there is one. Deadlines count from its arrival."""

    text: str | None
    image: bytes | None = None  # a picture file
    samples: Samples | None = None  # float32[n], 16 kHz mono
    options: Mapping[str, NDArray[Any]] = field(default_factory=dict)  # inputs of the llm
    ttft_deadline_ms: int | None = None
    deadline_ms: int | None = None
    history: tuple[Turn, ...] = ()  # before the question
    trace: bool = False  # the client wants to be told what took how long
    headers: Mapping[str, str] = field(default_factory=dict)  # put what the llm is asked under its trace
    id: str = ""  # the client's, for the logs
    versions: Versions = field(default_factory=dict)  # of the models that it asks


def read_request(
    inputs: Inputs,
    parameters: Mapping[str, Any],
    settings: AssistantSettings,
    headers: Mapping[str, str] | None = None,
    request_id: str = "",
) -> AskRequest:
    """Reads the question in tensors (name → array) and Triton's request `parameters`, or refuses it."""
    traced, parameters = trace.wanted(parameters)
    versions, parameters = _versions(parameters)
    inputs = with_parameters(inputs, parameters, INPUTS)
    question = text(inputs, "text_input", settings.max_text_bytes) or None
    image, samples = _image(inputs, settings), _audio(inputs, settings)
    if question is None and samples is None:
        raise InvalidArgument("text_input, audio: at least one of them is needed, and not empty")
    # Copies: the tensors' memory is the server's, and the stages outlast the call.
    options = {name: np.array(inputs[name]).reshape(-1) for name in HANDED_ON if name in inputs}
    priority = integer(inputs, "priority", None, -100, 100)
    if priority is not None:
        options["priority"] = np.array([priority], np.int32)
    return AskRequest(
        question,
        image,
        samples,
        options,
        ttft_deadline_ms=integer(inputs, "ttft_deadline_ms", None, 1, MAX_TTFT_DEADLINE_MS),
        deadline_ms=integer(inputs, "deadline_ms", None, 1, MAX_DEADLINE_MS),
        history=_history(text(inputs, "history", settings.max_history_bytes)),
        trace=traced,
        headers=headers or {},
        id=request_id,
        versions=versions,
    )


def _versions(parameters: Mapping[str, Any]) -> tuple[Versions, Mapping[str, Any]]:
    """Which versions of the models to ask, and the other parameters. Raises: InvalidArgument."""
    others = dict(parameters)
    try:
        return _VERSIONS.validate_json(others.pop(VERSIONS, "{}")), others
    except ValidationError:
        told = 'JSON of models and their versions is needed, as {"llm": "2"}'
        raise InvalidArgument(f"{VERSIONS} is {shown(parameters[VERSIONS])}: {told}") from None


def _image(inputs: Inputs, settings: AssistantSettings) -> bytes | None:
    raw = scalar(inputs, "image")
    if raw is None:
        return None
    if not settings.vision:
        raise InvalidArgument("image: this assistant has no model for images")
    if not raw:
        raise InvalidArgument(f"image: empty; {TAKEN} bytes are needed")
    if len(raw) > _MOST_IMAGE_BYTES:
        raise InvalidArgument(f"image: {len(raw)} bytes; at most {_MOST_IMAGE_BYTES} are accepted")
    return raw.encode() if isinstance(raw, str) else bytes(raw)


def _audio(inputs: Inputs, settings: AssistantSettings) -> Samples | None:
    given = one_channel(inputs)
    if given is None:
        return None
    name, flat = given
    if not settings.speech:
        raise InvalidArgument(f"{name}: this assistant has no model for audio")
    most = round(settings.max_audio_s * SAMPLE_RATE)
    if not 0 < flat.size <= most:
        raise InvalidArgument(
            f"{name} has {flat.size} samples: 1 to {most} are taken ({settings.max_audio_s:g} s at 16 kHz)"
        )
    return to_float(name, flat)


_TURNS = TypeAdapter(tuple[Turn, ...])


def _history(chat: str | None) -> tuple[Turn, ...]:
    """Reads a JSON list of turns; none: no talk yet. Raises: InvalidArgument naming the field."""
    if chat is None:
        return ()
    try:
        return _TURNS.validate_json(chat)
    except ValidationError as error:
        raise InvalidArgument(f"history{_problem(error)}") from None


def read_examples(file: Path | None) -> tuple[Turn, ...]:
    """Reads the turns that are put before a talk with an image. Raises: SettingsError naming the file."""
    if file is None:
        return ()
    try:
        return _TURNS.validate_json(file.read_bytes())
    except OSError as error:
        raise SettingsError(f"parameter 'examples': {file} cannot be read: {error.strerror}") from None
    except ValidationError as error:
        raise SettingsError(f"parameter 'examples': {file}{_problem(error)}") from None


def _problem(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_context=False)[0]
    place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"])
    return f"{place}: {first['msg'].lower()}"
