"""Makes the table "Tokens a second in a form": answers of the served language model with a form and without.

    python -m benchmarks.llm.forms

The engine alone, one answer after the other, at temperature 1. The first answer in each form also compiles
its grammar; the engine keeps it after that. A free answer of as many tokens stands beside each.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import typer
from rich.console import Console

from benchmarks.common import run_command
from benchmarks.tables import NARROW, make_table
from trimodal.build_support import operator_errors
from trimodal.errors import ServerError
from trimodal.llm.engines.protocol import Engine, EngineRequest, Sampling, open_engine
from trimodal.llm.settings import LlmSettings
from trimodal.llm.structured.constraint import read_form
from trimodal.llm.tokenizer import CheckpointTokenizer
from trimodal.paths import artefact_root


def _object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}


TEXT = {"type": "string", "minLength": 80, "maxLength": 200}
FORMS: dict[str, dict[str, Any]] = {
    "three fields": _object(name=TEXT, kind={"enum": ["a", "b"]}, size={"type": "integer"}),
    "twenty fields": _object(**{f"field{number}": {"type": ["integer", "null"]} for number in range(20)}),
    "an enum of 300": _object(
        codes={"type": "array", "minItems": 9, "items": {"enum": [f"C{n}" for n in range(300)]}}
    ),
    "patterns": _object(
        **{
            f"key{number}": {"type": "string", "pattern": "^[A-Z]{3}-[0-9]{4}( \\w+){2,4}$"}
            for number in range(4)
        }
    ),
    "any JSON": _object(value={}),
}


def timed(engine: Engine, request: EngineRequest) -> list[float]:
    """Seconds of each step; the first has the prompt. Raises: ServerError: it is not answered."""
    engine.add(request)
    steps = []
    while engine.has_work():
        began = time.perf_counter()
        outputs = engine.step()
        steps.append(time.perf_counter() - began)
        for output in outputs:
            if output.error:
                raise ServerError(output.error)
    return steps


def main(
    answers: Annotated[int, typer.Option(min=1, help="In each form.")] = 8,
    max_tokens: Annotated[int, typer.Option(min=8)] = 160,
    artefact: Annotated[Path | None, typer.Option(help="Of the language model.")] = None,
) -> None:
    """Asks in each form, and as often without."""
    with operator_errors():
        measure(answers, max_tokens, artefact)


def measure(answers: int, max_tokens: int, artefact: Path | None) -> None:
    directory = artefact or artefact_root("llm") / "openvino-int8"
    settings = LlmSettings(artefact=str(directory.resolve()))
    tokenizer = CheckpointTokenizer(directory)
    prompt = tokenizer.encode(
        tokenizer.render([{"role": "user", "content": "Answer in JSON. Invent something."}])
    )
    table = make_table("Tokens a second in a form", "|in the form|free|first step, ms|once more", **NARROW)
    engine = open_engine(settings)
    try:
        timed(engine, EngineRequest(1, prompt, Sampling(8)))
        for name, schema in FORMS.items():
            asked = {"type": "json_schema", "json_schema": {"schema": schema, "strict": True}}
            grammar = read_form(json.dumps(asked), None, settings.max_grammar_bytes).grammar
            held, free = [], []
            for seed in range(answers):
                sampling = Sampling(max_tokens, 1.0, seed=seed, grammar=grammar)
                held.append(timed(engine, EngineRequest(1, prompt, sampling)))
                free.append(timed(engine, EngineRequest(1, prompt, Sampling(len(held[-1]), 1.0, seed=seed))))
            speeds = [
                f"{1 / median(one for steps in runs for one in steps[1:]):.1f}" for runs in (held, free)
            ]
            firsts = [
                f"{1e3 * held[0][0]:.0f}",
                f"{1e3 * median(steps[0] for steps in held[1:] or held):.0f}",
            ]
            table.add_row(name, *speeds, *firsts)
    finally:
        engine.close()
    Console().print(table)


if __name__ == "__main__":
    run_command(main)
