"""Answers of a tiny language model that a grammar holds: all valid, among others, with speculation."""

from __future__ import annotations

import datetime
import ipaddress
import json
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from pydantic import TypeAdapter

from trimodal.llm.detokenizer import TextStream
from trimodal.llm.engines.openvino import engine as engine_module
from trimodal.llm.engines.protocol import Engine, EngineRequest, Sampling, open_engine
from trimodal.llm.settings import LlmSettings
from trimodal.llm.structured.constraint import read_form
from trimodal.llm.structured.grammar import characters
from trimodal.llm.structured.json_schema.strings import FORMATS
from trimodal.llm.structured.tools import read_tools
from trimodal.llm.tokenizer import CheckpointTokenizer

pytestmark = pytest.mark.build
MOST_BYTES = LlmSettings().max_grammar_bytes

PARSED = {
    "date": datetime.date, "time": datetime.time, "date-time": datetime.datetime, "uuid": uuid.UUID,
    "ipv4": ipaddress.IPv4Address,
}  # fmt: skip
HARD = [
    {"$ref": "#/$defs/n", "$defs": {"n": {"type": "object", "properties": {
        "v": {"type": "integer", "minimum": -5, "maximum": 5},
        "next": {"anyOf": [{"$ref": "#/$defs/n"}, {"type": "null"}]},
    }, "required": ["v", "next"], "additionalProperties": False}}},
    {"type": "array", "prefixItems": [{"type": "integer"}, {"const": "x"}], "items": False, "minItems": 2},
    {"type": "array", "items": {"type": "number", "minimum": 0, "maximum": 1}, "minItems": 2, "maxItems": 4},
    {"type": "object", "additionalProperties": {"type": "boolean"}, "required": ["a"]},
    {"enum": ["<|user|> \U0001f600 \"\\\n\t"]},
    {"oneOf": [
        {"type": "object", "properties": {"k": {"const": kind}}, "required": ["k"]} for kind in ("a", "b")
    ]},
    {"type": "object", "properties": {f"o{index}": {"type": "null"} for index in range(8)},
     "required": ["o5"], "additionalProperties": False},
]  # fmt: skip


@pytest.fixture(scope="module")
def opened(tiny: Path) -> Iterator[Callable[..., Engine]]:
    engines: dict[str, Engine] = {}

    def make(speculation: str = "none", artefact: Path = tiny) -> Engine:
        key = f"{speculation} {artefact}"
        if key not in engines:
            values = {"threads": 1, "artefact": str(artefact), "num_kv_blocks": 256}
            settings = LlmSettings.model_validate(values | {"speculation": speculation})
            engines[key] = open_engine(settings)
        return engines[key]

    yield make
    for engine in engines.values():
        engine.close()


def prompt_of(tokenizer: CheckpointTokenizer) -> list[int]:
    return tokenizer.encode(tokenizer.render([{"role": "user", "content": "what is a lambda?"}]))


def answer(engine: Engine, tokenizer: CheckpointTokenizer, request: EngineRequest) -> tuple[str, str]:
    """The text, and the reason of its end."""
    stream = TextStream(tokenizer, (), whole=bool(request.sampling.grammar))
    text, reason = "", ""
    engine.add(request)
    while engine.has_work():
        for output in engine.step():
            reason = output.finish_reason or reason
            text += stream.push(output.token_ids, last=output.finish_reason is not None)[0]
    return text, reason


def grammar(schema: Any) -> str:
    form = {"type": "json_schema", "json_schema": {"schema": schema, "strict": True}}
    return read_form(json.dumps(form), None, MOST_BYTES).grammar


@pytest.mark.parametrize("schema", HARD, ids=range(len(HARD)))
def test_what_is_hard_to_keep(
    opened: Callable[..., Engine], tokenizer: CheckpointTokenizer, schema: Any
) -> None:
    for seed, temperature in enumerate((0.0, 1.0, 2.0)):
        sampling = Sampling(300, temperature, seed=seed, grammar=grammar(schema))
        text, reason = answer(opened(), tokenizer, EngineRequest(1, [1, 4, 70], sampling))
        if reason == "stop":
            jsonschema.validate(json.loads(text), schema)


def test_only_whole_characters_are_written(
    opened: Callable[..., Engine], tokenizer: CheckpointTokenizer
) -> None:
    """Each range of UTF-8 by a model of random weights, which begins any byte."""
    rules = "c ::= " + characters([(0x20, 0x21), (0x23, 0x5B), (0x5D, 0xD7FF), (0xE000, 0x10FFFF)])
    wide = "c ::= " + characters([(0x80, 0xD7FF), (0xE000, 0x10FFFF)])
    for seed in range(16):
        text = f"root ::= c{{40}}\n{(rules, wide)[seed % 2]}\n"
        request = EngineRequest(1, [1, 4, 70 + seed], Sampling(200, 3.0, seed=seed, grammar=text))
        answered, reason = answer(opened(), tokenizer, request)
        assert (len(answered), reason, "\ufffd" in answered) == (40, "stop", False)


@pytest.mark.parametrize(
    "schema",
    [
        {"enum": ["aa", "b", "ba", "bb"]},
        {"enum": list(range(-448, 448, 7))},
        *(
            {"type": "integer", "minimum": low, "maximum": high}
            for low, high in [(1348, 1001348), (-441, 999559), (-1583, 998417), (0, 7000)]
        ),
    ],
    ids=range(6),
)
def test_only_values_of_an_enum_and_within_bounds_are_written(
    opened: Callable[..., Engine], tokenizer: CheckpointTokenizer, schema: Any
) -> None:
    for seed in range(16):
        sampling = Sampling(60, 2.0, seed=seed, grammar=grammar(schema))
        text, reason = answer(opened(), tokenizer, EngineRequest(1, [1, 4, 70 + seed], sampling))
        assert reason == "stop"
        jsonschema.validate(json.loads(text), schema)


@pytest.mark.slow
def test_a_text_has_the_length_that_was_asked_for(opened: Callable[..., Engine], smollm2: Path) -> None:
    schema = {"type": "string", "minLength": 70, "maxLength": 130}
    tokenizer = CheckpointTokenizer(smollm2)
    request = EngineRequest(1, prompt_of(tokenizer), Sampling(140, grammar=grammar(schema)))
    text, reason = answer(opened(artefact=smollm2), tokenizer, request)
    assert reason == "stop"
    jsonschema.validate(json.loads(text), schema)


@pytest.mark.parametrize("form", FORMATS)
def test_formats_are_kept(opened: Callable[..., Engine], tokenizer: CheckpointTokenizer, form: str) -> None:
    sampling = Sampling(120, 1.5, seed=4, grammar=grammar({"type": "string", "format": form}))
    text, reason = answer(opened(), tokenizer, EngineRequest(1, [1, 4, 70], sampling))
    assert reason == "stop"
    value = TypeAdapter(PARSED[form]).validate_json(text) if form in PARSED else json.loads(text)
    assert value


@pytest.mark.parametrize(
    "name",
    [
        "",
        "\x00\x1f\x7fe",
        "\u2028\ufeff\uffff",
        "gr\xf6\xdfe 1\xe9a",
        "\U0010ffff",
        '"\\/',
        "[a-z]{2}|r1",
        "}",
    ],
)
def test_any_text_can_be_a_name_and_a_constant(
    opened: Callable[..., Engine], tokenizer: CheckpointTokenizer, name: str
) -> None:
    schema = {"type": "object", "properties": {name: {"const": [name]}}, "required": [name]}
    sampling = Sampling(300, 1.0, seed=1, grammar=grammar(schema | {"additionalProperties": False}))
    text, reason = answer(opened(), tokenizer, EngineRequest(1, [1, 4, 70], sampling))
    assert (json.loads(text), reason) == ({name: [name]}, "stop")


def test_an_answer_that_never_ends_is_cut(
    opened: Callable[..., Engine], tokenizer: CheckpointTokenizer
) -> None:
    schema = {"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]}
    request = EngineRequest(1, [1, 4, 70], Sampling(60, grammar=grammar(schema)))
    text, reason = answer(opened(), tokenizer, request)
    assert (text[:5], reason) == ('{"a":', "length")


def test_free_answers_beside_it_are_as_alone(
    opened: Callable[..., Engine], tokenizer: CheckpointTokenizer
) -> None:
    engine = opened()
    prompt = prompt_of(tokenizer)
    alone, _ = answer(engine, tokenizer, EngineRequest(1, prompt, Sampling(60)))
    made: dict[int, list[int]] = {number: [] for number in range(2, 6)}
    for number in made:
        form = grammar({"type": "array", "items": {"type": "boolean"}}) if number % 2 else ""
        engine.add(EngineRequest(number, prompt, Sampling(60, grammar=form)))
    while engine.has_work():
        for output in engine.step():
            made[output.id] += output.token_ids
    assert tokenizer.decode(made[2]) == tokenizer.decode(made[4]) == alone
    assert set(tokenizer.decode_whole(made[3])) <= set("[]truefals, ")


@pytest.fixture
def openings(opened: Callable[..., Engine], monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """How many grammars were forgotten each time that the pipeline was opened anew: nothing runs in it."""
    engine: Any = opened()
    monkeypatch.setattr(engine_module, "IDLE_GRAMMAR_BYTES", 0)
    engine.check()  # those of other tests
    real = engine._open
    times: list[int] = []

    def spy(*, speculate: bool) -> None:
        assert not engine._pipeline.has_non_finished_requests()
        times.append(len(engine._grammars))
        real(speculate=speculate)

    monkeypatch.setattr(engine, "_open", spy)
    return times


def constants(numbers: range) -> list[str]:
    """Different grammars."""
    return [grammar({"const": f"value {number}"}) for number in numbers]


def test_grammars_are_forgotten_while_nobody_waits(
    opened: Callable[..., Engine],
    openings: list[int],
    tokenizer: CheckpointTokenizer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What the pipeline made of each stays until it is opened anew: without end, if schemas are ever new."""
    engine, texts = opened(), constants(range(8))
    monkeypatch.setattr(engine_module, "IDLE_GRAMMAR_BYTES", 4 * (len(texts[0]) + 1024))
    resets = engine.stats().cache_resets
    told = []
    for number, text in enumerate([*texts[:4], texts[0], *texts[4:]]):
        told.append(answer(engine, tokenizer, EngineRequest(number, [1, 4, 70], Sampling(40, grammar=text))))
        if number < 5:
            engine.check()  # the same one again is no other
            assert openings == []
    assert told[0] == told[4] == ('"value 0"', "stop")
    assert openings == []  # nothing is due between two answers
    engine.check()
    assert openings == [8]
    engine.check()
    assert openings == [8]
    assert engine.stats().cache_resets == resets + 1


def test_grammars_of_requests_that_left_before_their_turn_do_not_count(
    opened: Callable[..., Engine], openings: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, texts = opened(), constants(range(200, 230))
    monkeypatch.setattr(engine_module, "IDLE_GRAMMAR_BYTES", 10 * (len(texts[0]) + 1024))
    for number, text in enumerate(texts, 200):
        engine.add(EngineRequest(number, [1, 4, number], Sampling(40, grammar=text)))
        engine.cancel(number)
    while engine.has_work():
        engine.step()
    engine.check()
    assert openings == []


def test_where_somebody_always_waits_they_are_forgotten_once_what_runs_has_ended(
    opened: Callable[..., Engine],
    openings: list[int],
    tokenizer: CheckpointTokenizer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine, texts = opened(), constants(range(100, 140))
    prompt = prompt_of(tokenizer)
    alone, _ = answer(engine, tokenizer, EngineRequest(1, prompt, Sampling(30)))
    for name, count in (("BUSY_GRAMMAR_BYTES", 5), ("MOST_GRAMMAR_BYTES", 10)):
        monkeypatch.setattr(engine_module, name, count * (len(texts[0]) + 1024))
    made: dict[int, list[int]] = defaultdict(list)
    engine.add(EngineRequest(1, prompt, Sampling(30)))
    waiting = [
        EngineRequest(number, [1, 4, number], Sampling(40, grammar=text))
        for number, text in enumerate(texts, 100)
    ]
    while engine.has_work() or waiting:
        while waiting and len(engine._sequences) < 4:
            engine.add(waiting.pop(0))
        for output in engine.step():
            made[output.id] += output.token_ids
    assert len(openings) >= 2
    assert max(openings) <= 10 + 4, "those that ran when there were enough"
    assert tokenizer.decode(made[1]) == alone
    for number in range(100, 140):
        assert tokenizer.decode_whole(made[number]) == f'"value {number}"'


@pytest.mark.slow
@pytest.mark.parametrize("choice", ["auto", "required"])
def test_calls_are_valid_and_text_beside_them_is_free(
    opened: Callable[..., Engine], smollm2: Path, choice: str
) -> None:
    engine, tokenizer = opened(artefact=smollm2), CheckpointTokenizer(smollm2)
    function = {"name": "f", "parameters": {"type": "object", "properties": {"n": {"enum": [1, 2]}}}}
    tools = read_tools(json.dumps([{"type": "function", "function": function}]), choice, False)
    prompt = prompt_of(tokenizer)
    request = EngineRequest(1, prompt, Sampling(80, grammar=read_form(None, tools, MOST_BYTES).grammar))
    text, reason = answer(engine, tokenizer, request)
    free, _ = answer(engine, tokenizer, EngineRequest(2, prompt, Sampling(80)))
    if choice == "auto":
        assert text == free
    else:
        head, tail = '<tool_call>\n{"name": "f", "arguments": ', "}\n</tool_call>"
        assert (text.startswith(head), text.endswith(tail), reason) == (True, True, "stop")
        assert json.loads(text[len(head) : -len(tail)]) in ({}, {"n": 1}, {"n": 2})
