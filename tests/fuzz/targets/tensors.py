"""Requests of every model as Triton hands them over: tensors of the declared types, parameters, sequences.

Types come from the models' own config files, as Triton checks them; shapes and contents are chosen.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from tests.fuzz.choices import Choices
from tests.fuzz.hostile import INTEGERS, NUMBERS, dumped, spoil, text
from tests.fuzz.targets.forms import CHAT, FORMAT, TOOLS
from tests.fuzz.targets.promise import Broken, promise
from trimodal.assistant.request import read_request as read_question
from trimodal.assistant.settings import AssistantSettings
from trimodal.embedding.engines.fake import FakeEmbedder
from trimodal.embedding.service import EmbeddingService, Texts
from trimodal.embedding.settings import EmbeddingSettings
from trimodal.errors import InvalidArgument, RequestError
from trimodal.llm.request.request import GenerationRequest, read_request
from trimodal.llm.settings import LlmSettings
from trimodal.metrics import MemoryMetrics
from trimodal.repository import read_model
from trimodal.speech.live.request import MAX_CHUNK, read_chunk
from trimodal.speech.recognise.request import RecogniseRequest

REPOSITORY = Path(__file__).parents[3] / "model_repository"
LLM = LlmSettings(engine="fake")
ASSISTANT = AssistantSettings()
EMBEDDING = EmbeddingService(FakeEmbedder(), EmbeddingSettings(engine="fake", artefact="x"), MemoryMetrics())
TYPES: dict[str, Any] = {
    "TYPE_INT32": np.int32,
    "TYPE_INT64": np.int64,
    "TYPE_UINT64": np.uint64,
    "TYPE_FP32": np.float32,
    "TYPE_BOOL": np.bool_,
    "TYPE_INT16": np.int16,
    "TYPE_STRING": np.object_,
}
_HISTORY = [
    {"role": "user", "content": "hi", "heard": "hi", "labels": [{"label": "seven", "score": 0.5}]},
    {"role": "assistant", "content": "a"},
]
VALID: Mapping[str, object] = {
    "messages": CHAT,
    "response_format": FORMAT,
    "tools": TOOLS,
    "history": _HISTORY,
    "text_input": "hello",
    "tool_choice": "auto",
    "stop": "end",
    "cancel_key": "k" * 20,
    "cancel": "k" * 20,
    "tenant": "t",
    "tier": "standard",
    "cache_control": "no-cache, no-store",
    "cache_namespace": "default",
    "image": "\x89PNG",
    "priority": 1,
    "max_tokens": 5,
    "temperature": 0.5,
    "top_p": 0.5,
    "seed": 7,
}


@cache
def inputs_of(model: str) -> dict[str, tuple[Any, int]]:
    """Input name → type of its array and how many values it is declared to hold (-1: any)."""
    config = read_model(REPOSITORY, model, "cpu").config
    kinds = type(config.input[0]).DESCRIPTOR.fields_by_name["data_type"].enum_type.values_by_number
    return {one.name: (TYPES[kinds[one.data_type].name], one.dims[-1]) for one in config.input}


def run(data: bytes) -> None:
    choices = Choices(data)
    reader = choices.pick((_llm, _llm, _assistant, _speech, _recognise, _embedding))
    with promise(InvalidArgument):
        reader(choices)


def array(choices: Choices, name: str, kind: Any, count: int) -> Any:
    """A tensor of an input: of the declared type, mostly as many values as declared."""
    size = count if count > 0 else choices.pick((1, 0, 2, 3, 17))
    if choices.chance(8):
        size = choices.pick((0, 2))
    if kind is np.object_:
        made = np.empty(size, object)
        made[:] = [encoded(choices, name) for _ in range(size)]
        return made
    if kind is np.bool_:
        return np.array([choices.chance(2) for _ in range(size)], kind)
    if np.issubdtype(kind, np.integer):
        limits = np.iinfo(kind)
        sent = [choices.pick((*INTEGERS, choices.integer(0, 300))) for _ in range(size)]
        return np.array([min(max(one, int(limits.min)), int(limits.max)) for one in sent], kind)
    with np.errstate(all="ignore"):
        return np.array([float(_clipped(choices.pick(NUMBERS))) for _ in range(size)], np.float64).astype(
            kind
        )


def encoded(choices: Choices, name: str) -> bytes:
    """Bytes of a text input: valid, spoilt JSON, a hostile text, or no UTF-8."""
    kind = choices.integer(0, 4)
    valid = VALID.get(name, "word")
    if kind == 0:
        return choices.bytes(choices.integer(0, 60))
    if kind == 1:
        return text(choices).encode("utf-8", "surrogatepass")
    if isinstance(valid, str):
        return valid.encode("latin-1")
    return dumped(valid if kind == 2 else spoil(choices, valid))


def parameters(choices: Choices, known: tuple[str, ...]) -> dict[str, Any]:
    """Request parameters as Triton's JSON has them: texts, whole numbers, floats, truths."""
    made = {}
    for _ in range(choices.pick((0, 0, 1, 2))):
        name = choices.pick((*known, "trace", "probe", text(choices)))
        kind = choices.integer(0, 3)
        made[name] = (
            VALID.get(name, "word")
            if kind == 0
            else text(choices)
            if kind == 1
            else choices.pick(INTEGERS)
            if kind == 2
            else choices.pick((True, False, 0.5, 1e300))
        )
    return made


def _chosen(choices: Choices, model: str, always: tuple[str, ...] = ()) -> dict[str, Any]:
    declared = inputs_of(model)
    names = [name for name in always if not choices.chance(12)]
    names += [choices.pick(list(declared)) for _ in range(choices.integer(0, 4))]
    return {name: array(choices, name, *declared[name]) for name in dict.fromkeys(names)}


def _clipped(number: float) -> float:
    try:
        return float(number)
    except OverflowError:
        return math.inf


def _llm(choices: Choices) -> None:
    prompt = choices.pick(("text_input", "messages"))
    inputs = _chosen(choices, "llm", (prompt,))
    made = read_request(inputs, parameters(choices, ("tenant", "tier", "priority", "deadline_ms")), LLM)
    if isinstance(made, GenerationRequest):
        sampling = made.sampling
        if not (1 <= sampling.max_tokens <= LLM.max_output_tokens and 0 <= sampling.temperature <= 10):
            raise Broken(f"beyond its limits: {sampling}")
        repr(made).encode()


def _assistant(choices: Choices) -> None:
    inputs = _chosen(choices, "assistant", ("text_input",))
    read_question(inputs, parameters(choices, ("tenant", "priority")), ASSISTANT)


def _speech(choices: Choices) -> None:
    length = choices.pick((0, 1, 319, 320, 400, MAX_CHUNK, MAX_CHUNK + 1))
    inputs: dict[str, Any] = {"audio": None, "audio_int16": None}
    for name in ("audio", "audio_int16"):
        if not choices.chance(3):
            continue
        inputs[name] = _samples(choices, length, np.int16 if name == "audio_int16" else np.float32)
    given = parameters(
        choices, ("policy", "language", "prompt", "task", "step_s", "max_pending_s", "channels")
    )
    stream: Any = choices.pick((1, 2**63, "", "abc", text(choices)))
    chunk = read_chunk(stream, choices.chance(2), choices.chance(2), inputs, given)
    if not np.isfinite(chunk.samples).all() or chunk.samples.dtype != np.float32:
        raise Broken("samples that are no numbers")


def _samples(choices: Choices, length: int, kind: Any) -> Any:
    made = np.zeros((1, length), kind)
    for _ in range(choices.integer(0, 3) if length else 0):
        sent = _clipped(choices.pick(NUMBERS))
        if kind is np.int16:
            sent = 7.0
        with np.errstate(all="ignore"):
            made[0, choices.integer(0, length - 1)] = sent
    return made


def _recognise(choices: Choices) -> None:
    rows = choices.pick((1, 0, 2, 5))
    windows = np.zeros((rows, choices.pick((1, 0, 400, 480_000, 480_001))), np.float32)
    if windows.size:
        with np.errstate(all="ignore"):
            windows[-1, -1] = _clipped(choices.pick(NUMBERS))
    columns = [
        [encoded(choices, "word") for _ in range(choices.pick((rows, rows, 0, rows + 1)))]
        if choices.chance(2)
        else None
        for _ in range(6)
    ]
    lengths = [choices.pick((0, 1, 400, 480_000, -1)) for _ in range(rows)] if choices.chance(2) else None
    RecogniseRequest(windows, *columns, lengths).checked(("en", "fr"))


def _embedding(choices: Choices) -> None:
    requests = [
        Texts(
            [encoded(choices, choices.pick(("text_input", "word"))) for _ in range(choices.pick((1, 1, 3)))],
            truncate=choices.chance(2),
        )
        for _ in range(choices.pick((1, 2)))
    ]
    outcomes = EMBEDDING.embed(requests)
    if len(outcomes) != len(requests):
        raise Broken("not one outcome a request")
    for outcome in outcomes:
        if isinstance(outcome, RequestError):
            raise outcome
