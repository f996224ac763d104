"""Holds sampled answers of the demo's model to drawn JSON Schemas: are they valid, and what does it cost?

    python -m trimodal.bench.llm.structured            # 200 schemas; needs the extra `dev` (jsonschema)

The engine runs in this process, without Triton, so that a step is what is measured.
"""

from __future__ import annotations

import json
import random
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

import typer

from trimodal.llm.detokenizer import TextStream
from trimodal.llm.engines.protocol import Engine, EngineRequest, Sampling, open_engine
from trimodal.llm.settings import LlmSettings
from trimodal.llm.structured.constraint import constraint
from trimodal.llm.tokenizer import CheckpointTokenizer
from trimodal.paths import default_repository

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
    """What the answers to all schemas came to; times are seconds of a decoding step of one sequence."""

    complete: int = 0
    cut: int = 0
    wrong: list[str] = field(default_factory=list)
    compiling: list[float] = field(default_factory=list)
    tokens: list[float] = field(default_factory=list)


def run(engine: Engine, tokenizer: CheckpointTokenizer, schemas: Sequence[Any], max_tokens: int) -> Outcome:
    """Asks for one answer to each schema, one after the other."""
    from jsonschema import Draft202012Validator

    outcome = Outcome()
    prompt = tokenizer.encode(tokenizer.render([{"role": "user", "content": "what is a lambda?"}]))
    for number, schema in enumerate(schemas, 1):
        form = json.dumps({"type": "json_schema", "json_schema": {"schema": schema}})
        sampling = Sampling(
            max_tokens,
            _TEMPERATURES[number % len(_TEMPERATURES)],
            seed=number,
            grammar=constraint(form, None, MOST_BYTES),
        )
        text, reason, steps = answer(engine, tokenizer, EngineRequest(number, prompt, sampling))
        outcome.compiling.append(steps[0])
        outcome.tokens += steps[1:]
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


def answer(
    engine: Engine, tokenizer: CheckpointTokenizer, request: EngineRequest
) -> tuple[str, str, list[float]]:
    """The text, the reason of its end, and the seconds of each step; the first has the prompt."""
    stream = TextStream(tokenizer, (), whole=bool(request.sampling.grammar))
    text, reason, steps = "", "", []
    engine.add(request)
    while engine.has_work():
        began = time.perf_counter()
        outputs = engine.step()
        steps.append(time.perf_counter() - began)
        for output in outputs:
            reason = output.finish_reason or reason
            text += stream.push(output.token_ids, last=output.finish_reason is not None)[0]
    return text, reason, steps


def free_steps(
    engine: Engine, tokenizer: CheckpointTokenizer, answers: int, max_tokens: int
) -> list[list[float]]:
    """Steps of unconstrained answers, sampled alike."""
    prompt = tokenizer.encode(tokenizer.render([{"role": "user", "content": "what is a lambda?"}]))
    found = []
    for number in range(1, answers + 1):
        sampling = Sampling(max_tokens, _TEMPERATURES[number % len(_TEMPERATURES)], seed=number)
        found.append(answer(engine, tokenizer, EngineRequest(10_000 + number, prompt, sampling))[2])
    return found


def open_demo(**settings: Any) -> tuple[Engine, CheckpointTokenizer]:
    """The demo's language model and its tokenizer."""
    directory = default_repository() / "llm" / "1"
    values = LlmSettings.model_validate(
        {"version_directory": directory, "artefact": "openvino-int8", **settings}
    )
    return open_engine(values), CheckpointTokenizer(values.artefact_directory)


def main(
    schemas: Annotated[int, typer.Option(min=1)] = 200,
    seed: int = 1,
    max_tokens: Annotated[int, typer.Option(min=1)] = 400,
    speculation: Annotated[str, typer.Option(help="none or prompt_lookup")] = "none",
) -> None:
    """Prints what came out; fails when a complete answer is not valid."""
    draw = random.Random(seed)
    drawn = [draw_schema(draw) for _ in range(schemas)]
    engine, tokenizer = open_demo(speculation=speculation)
    outcome = run(engine, tokenizer, drawn, max_tokens)
    free = free_steps(engine, tokenizer, schemas, 60)
    engine.close()
    print(f"{schemas} schemas: {outcome.complete} complete answers, {outcome.cut} cut by max_tokens")
    print(f"not valid: {len(outcome.wrong)}")
    print(f"first step  {_show(outcome.compiling)}   free {_show([steps[0] for steps in free])}")
    print(f"a token     {_show(outcome.tokens)}   free {_show([one for steps in free for one in steps[1:]])}")
    if outcome.wrong:
        raise SystemExit("\n".join(outcome.wrong))


def _show(seconds: Sequence[float]) -> str:
    ordered = sorted(seconds)
    median, high = statistics.median(ordered), ordered[int(len(ordered) * 0.99)]
    return f"median {median * 1e3:6.2f} ms, p99 {high * 1e3:6.2f} ms"


if __name__ == "__main__":
    typer.run(main)
