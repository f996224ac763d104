"""Makes one request of each kind, and reads what came back as words."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from trimodal.audio.values import SAMPLE_RATE
from trimodal.client.options import generation_inputs
from trimodal.client.streams.ask import ask_inputs
from trimodal.client.transports.base import Parameter, Request, Tensors, utf8
from trimodal.client.transports.tensors import strings
from trimodal.errors import InvalidArgument
from trimodal.files import read_at_most
from trimodal.paths import data_directory

Kind = Literal["llm", "vision", "speech", "embedding", "assistant"]
STREAMED: tuple[Kind, ...] = ("llm", "assistant")
QUESTION = "What is the capital of Japan?"
MOST_AUDIO_S = 30
SAMPLES = data_directory() / "samples"
_WARM_UP = "a first question, so that all is loaded"
_SHOWN = 60


@dataclass(frozen=True)
class Question:
    """What to ask. What is not given is a short question, or one of the samples."""

    kind: Kind
    text: str | None = None
    image: Path | None = None
    audio: Path | None = None
    max_tokens: int = 32

    @property
    def streamed(self) -> bool:
        return self.kind in STREAMED


@dataclass(frozen=True)
class DescribedRequest:
    """A request, and what it is in words."""

    request: Request
    words: str


async def make(question: Question, *, warm_up: bool = False) -> DescribedRequest:
    """The request of a question; one for warming up differs, so that no cache gives the answer away.

    Raises:
        InvalidArgument, AudioError: a file cannot be read.
    """
    kind = question.kind
    if question.image and kind not in ("vision", "assistant"):
        raise InvalidArgument(f"--image: {kind} takes none")
    if question.audio and kind not in ("speech", "assistant"):
        raise InvalidArgument(f"--audio: {kind} takes none")
    if question.text is not None and kind in ("vision", "speech"):
        raise InvalidArgument(f"a text is given: {kind} takes none")
    text = question.text or QUESTION
    if kind in STREAMED and warm_up:
        text = _WARM_UP
    request = Request(kind, {}, id=f"explain-{secrets.token_hex(8)}")
    if kind == "vision":
        return _image(request, question)
    if kind == "speech":
        return _recording(request, question)
    if kind == "embedding":
        encoded = strings([utf8("text", text)]).reshape(1, 1)
        return DescribedRequest(
            replace(request, inputs={"text_input": encoded}), f"a text of {len(text)} characters"
        )
    options: dict[str, int] = {"max_tokens": question.max_tokens}
    if kind == "llm":
        inputs = generation_inputs(text, None, options)  # type: ignore[arg-type]
        return DescribedRequest(replace(request, inputs=inputs), _quoted(text))
    said = text if question.text is not None or not question.audio or warm_up else None
    inputs = await ask_inputs(said, question.image, question.audio, (), options)  # type: ignore[arg-type]
    words = [_quoted(said)] if said else []
    words += [f"the image {question.image.name}"] if question.image else []
    words += [f"the recording {question.audio.name}"] if question.audio else []
    return DescribedRequest(replace(request, inputs=inputs), ", ".join(words))


def traced(request: Request) -> Request:
    """The request, which wants to be told what took how long."""
    return replace(request, parameters={**request.parameters, "trace": True})


def answer_of(kind: Kind, pieces: Sequence[Tensors]) -> str:
    """What came, in words; `pieces` are the outputs of each response."""
    if kind in STREAMED:
        return _quoted("".join(text_of(kind, one) for one in pieces))
    (outputs,) = pieces
    if kind == "embedding":
        return f"a vector of {outputs['embedding'].shape[-1]} numbers"
    if kind == "speech":
        return _quoted(_text(outputs, "committed").strip())
    best = bytes(outputs["labels"].reshape(-1)[0]).decode(errors="replace")
    return f"{best} ({float(outputs['scores'].reshape(-1)[0]):.0%})"


def text_of(kind: Kind, outputs: Tensors) -> str:
    """The new text of the answer in one response."""
    if kind == "assistant" and _text(outputs, "stage") != "answer":
        return ""
    return _text(outputs, "text_output")


def stage_of(outputs: Tensors) -> str:
    """Which finding of the assistant a response brings; "": none."""
    stage = _text(outputs, "stage")
    return stage if stage != "answer" else ""


def usage_of(outputs: Tensors) -> list[tuple[str, str]]:
    """Figures of the last response of an answer, for a person."""
    known = ("prompt_tokens", "cached_tokens", "completion_tokens")
    return [
        (name.replace("_", " "), str(int(outputs[name].reshape(-1)[0]))) for name in known if name in outputs
    ]


def _text(outputs: Tensors, name: str) -> str:
    found = outputs.get(name)
    return "" if found is None or not found.size else bytes(found.reshape(-1)[0]).decode(errors="replace")


def _quoted(text: str) -> str:
    # What a model writes must not steer the terminal.
    line = "".join(one for one in " ".join(text.split()) if one.isprintable())
    return f"“{line if len(line) <= _SHOWN else line[: _SHOWN - 1] + '…'}”"


def _image(request: Request, question: Question) -> DescribedRequest:
    file = question.image or SAMPLES / "photos" / "koala.jpg"
    try:
        data = read_at_most(file)
    except OSError as error:
        raise InvalidArgument(f"--image {file}: {(error.strerror or '').lower()}") from None
    inputs = {"image": strings([data]).reshape(1, 1)}
    return DescribedRequest(replace(request, inputs=inputs), f"{file.name} ({len(data):,} bytes)")


def _recording(request: Request, question: Question) -> DescribedRequest:
    from trimodal.audio.files import read_blocks

    file = question.audio or SAMPLES / "speech" / "austen-1-leisure.wav"
    samples = next(iter(read_blocks(file, MOST_AUDIO_S)))
    parameters: Mapping[str, Parameter] = {
        "sequence_id": secrets.randbelow((1 << 63) - 1) + 1,
        "sequence_start": True,
        "sequence_end": True,
        "policy": "file",
    }
    request = replace(request, inputs={"audio": samples.reshape(1, -1)}, parameters=parameters)
    return DescribedRequest(request, f"{file.name}, {samples.size / SAMPLE_RATE:.1f} s, in one piece")
