"""Draws JSON Schemas, and holds sampled answers of an engine to them."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from trimodal.llm.detokenizer import TextStream
from trimodal.llm.engines.protocol import Engine, EngineRequest, Sampling
from trimodal.llm.settings import LlmSettings
from trimodal.llm.structured.constraint import read_form
from trimodal.llm.tokenizer import CheckpointTokenizer

_WORDS = ("name", "size", "kind", "tags", "when", "note", "parts", "price")
MOST_BYTES = LlmSettings().max_grammar_bytes
_TEMPERATURES = (0.0, 0.7, 1.0, 1.5)


def draw_schema(draw: random.Random, depth: int = 3) -> dict[str, Any]:
    """A schema with types, enums, arrays, nested objects, required and optional properties, and bounds."""
    kinds = ["string", "integer", "number", "boolean", "null", "enum", "const", "format"]
    kinds += ["object", "object", "array", "union"] if depth else []
    match draw.choice(kinds if depth < 3 else ["object", "array"]):
        case "object":
            names = draw.sample(_WORDS, draw.randint(1, 4))
            properties = {name: draw_schema(draw, depth - 1) for name in names}
            required = [name for name in names if draw.random() < 0.6]
            return {
                "type": "object", "properties": properties, "required": required,
                "additionalProperties": False,
            }  # fmt: skip
        case "array":
            least = draw.randint(0, 2)
            return {
                "type": "array", "items": draw_schema(draw, depth - 1), "minItems": least,
                "maxItems": least + draw.randint(0, 3),
            }  # fmt: skip
        case "union":
            return {"anyOf": [draw_schema(draw, depth - 1), {"type": "null"}]}
        case "string":
            least = draw.randint(0, 8)
            return {"type": "string", "minLength": least, "maxLength": least + draw.randint(0, 30)}
        case "integer":
            low = draw.randint(-1000, 1000)
            return {"type": "integer", "minimum": low, "exclusiveMaximum": low + draw.randint(1, 500)}
        case "number":
            bottom = draw.randint(-50, 50) / 4
            return {"type": "number", "exclusiveMinimum": bottom, "maximum": bottom + draw.randint(1, 40) / 2}
        case "enum":
            return {"enum": draw.sample(["red", "gréén", "日本", 'a "b"\n', 1, 2.5, None, True, ["x"]], 3)}
        case "const":
            return {"const": draw.choice(["<|user|>", "yes", 7, {"a": [1]}])}
        case "format":
            return {"type": "string", "format": draw.choice(["date", "date-time", "uuid", "email"])}
        case plain:
            return {"type": plain}


@dataclass
class Outcome:
    """What the answers to all schemas came to."""

    complete: int = 0
    cut: int = 0
    wrong: list[str] = field(default_factory=list)


def prompt_of(tokenizer: CheckpointTokenizer) -> list[int]:
    return tokenizer.encode(tokenizer.render([{"role": "user", "content": "what is a lambda?"}]))


def run(engine: Engine, tokenizer: CheckpointTokenizer, schemas: Sequence[Any], max_tokens: int) -> Outcome:
    """Asks for one answer to each schema, one after the other."""
    from jsonschema import Draft202012Validator

    outcome = Outcome()
    prompt = prompt_of(tokenizer)
    for number, schema in enumerate(schemas, 1):
        form = json.dumps({"type": "json_schema", "json_schema": {"schema": schema}})
        sampling = Sampling(
            max_tokens,
            _TEMPERATURES[number % len(_TEMPERATURES)],
            seed=number,
            grammar=read_form(form, None, MOST_BYTES).grammar,
        )
        text, reason = answer(engine, tokenizer, EngineRequest(number, prompt, sampling))
        if reason != "stop":
            outcome.cut += 1
            continue
        outcome.complete += 1
        try:
            problem = next(Draft202012Validator(schema).iter_errors(json.loads(text)), None)
        except ValueError as error:
            problem = error
        if problem:
            outcome.wrong.append(f"{json.dumps(schema)}\n  {text}\n  {problem}")
    return outcome


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
