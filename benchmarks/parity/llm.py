"""Makes the table "Text: beside transformers": the share of tokens that torch would take, by KV and numerics.

    python -m benchmarks.parity.llm starter:smollm2-135m-instruct \
        --artefact $PWD/model_repository/llm/1/openvino-int8

Each way to open the engine answers 30 chats greedily. transformers reads these answers along in FP32 and says
at each position which token it would have taken. Then the same pipelines are timed in turns.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import typer
from rich.console import Console

from benchmarks.common import run_command
from benchmarks.tables import NARROW, make_table
from benchmarks.variants import Variant, opened, run_round
from trimodal.build_support import operator_errors
from trimodal.llm.engines.openvino.pipeline import generation_config, token_tensor
from trimodal.llm.engines.protocol import Sampling
from trimodal.manifest import read_manifest

sys.path.insert(0, str(Path(__file__).parents[2] / "build"))

PROMPTS = (
    "What is the capital of France?",
    "Name three colours of the rainbow.",
    "Write a haiku about rain.",
    "Explain photosynthesis to a child.",
    "What is 17 plus 25?",
    "Write a Python function that reverses a string.",
    "Translate 'good morning' into Spanish, French and German.",
    "Give me a recipe for pancakes.",
    "Who wrote Hamlet, and what is it about?",
    "What are the symptoms of a cold?",
    "How do I sort a list of dictionaries by a key in Python?",
    "Summarise: The river rose in the night. By morning the bridge was gone, and the village was cut off.",
    "Is the following review positive or negative? 'The food was cold and the waiter rude.'",
    "List the planets of the solar system.",
    "What does HTTP status 404 mean?",
    "Write a short letter of thanks to a neighbour.",
    "Why is the sky blue?",
    "Tell me a story about a fox and a crow.",
    "What is the difference between a virus and a bacterium?",
    "Convert 30 degrees Celsius to Fahrenheit, step by step.",
    "Write a SQL query that counts the orders of each customer.",
    "Give three arguments for and against working from home.",
    "What happened in 1969 on the Moon?",
    "Rewrite more politely: 'Send me the report now.'",
    "How many legs does a spider have?",
    "What is machine learning?",
    "Plan a day in Rome.",
    "Extract the names: 'Anna met Bob in Oslo, and Carla stayed in Lima.'",
    "Count from one to ten in words.",
    "What should I pack for a hike in the mountains?",
)
# KV precisions that the settings allow with each: sums in bf16 do not read a cache in FP32.
PRECISIONS = {"fast": ("u8", "f16"), "reproducible": ("u8", "f16", "f32")}
STREAMS, PROMPT_TOKENS, MAX_TOKENS = (1, 8), 150, 64


def ways() -> dict[tuple[str, str], Variant]:
    """Numerics and KV precision → how the engine is opened."""
    return {
        (numerics, kv): Variant({"numerics": numerics}, {"KV_CACHE_PRECISION": kv})
        for numerics, precisions in PRECISIONS.items()
        for kv in precisions
    }


def answers(pipeline: Any, prompts: list[list[int]], ends: list[int], together: int) -> list[list[int]]:
    """Greedy answers, so many prompts at a time."""
    config, made = generation_config(Sampling(MAX_TOKENS), ends), []
    for begin in range(0, len(prompts), together):
        some = [token_tensor(ids) for ids in prompts[begin : begin + together]]
        made += [result.m_generation_ids[0] for result in pipeline.generate(some, [config] * len(some))]
    return made


def main(
    source: Annotated[str, typer.Argument(help="the checkpoint that the engine was built from")],
    artefact: Annotated[Path, typer.Option(help="directory of an OpenVINO engine")],
    rounds: Annotated[int, typer.Option(min=0, help="timed; one more warms up. 0: tokens alone")] = 3,
    together: Annotated[int, typer.Option(min=1, help="chats that are answered in one batch")] = 8,
) -> None:
    """Answers, compares with transformers, then times."""
    from steps.llm.check import compare_answers, greedy_samples
    from steps.llm.checkpoint import Checkpoint, quiet
    from steps.llm.gguf import resolve_model

    with operator_errors():
        quiet()
        checkpoint = Checkpoint(resolve_model(source))
        manifest = read_manifest(artefact, task="llm", runtime="openvino")
        prompts = [checkpoint.encode_prompt(each) for each in PROMPTS]
        expected = greedy_samples(checkpoint, prompts, MAX_TOKENS)
        pipelines = {way: opened(variant, artefact) for way, variant in ways().items()}
    ends = [int(id) for id in manifest.extra["eos_token_ids"]]
    found = {
        way: compare_answers(checkpoint, prompts, answers(pipeline, prompts, ends, together), expected)
        for way, pipeline in pipelines.items()
    }
    rates = timed(pipelines, int(manifest.shapes["vocab_size"]), rounds)
    title = f"{artefact.name} of {manifest.source}; {len(PROMPTS)} chats, {MAX_TOKENS} tokens each at most"
    title += (
        "\nargmax: share of tokens that are torch's; equal: whole answers; then tokens a second, by streams"
    )
    columns = "numerics|KV|positions|argmax|equal|" + "|".join(map(str, STREAMS))
    table = make_table(title, columns, **NARROW)
    for way, figures in found.items():
        share = f"{figures['token_agreement']:.3f}"
        equal = f"{figures['greedy_answers_identical']} of {figures['greedy_answers']}"
        table.add_row(*way, str(figures["positions"]), share, equal, *rates[way])
    Console(highlight=False).print(table)


def timed(pipelines: dict[Any, Any], vocabulary: int, rounds: int) -> dict[Any, list[str]]:
    """Tokens a second of each pipeline, by streams: the median of rounds in which all take turns."""
    rng, rates = random.Random(0), {way: [[] for _ in STREAMS] for way in pipelines}  # type: ignore[var-annotated]
    for number in range(rounds + 1):
        for at, count in enumerate(STREAMS):
            for way, pipeline in pipelines.items():
                ids = range(vocabulary // 8, vocabulary)
                prompts = [rng.choices(ids, k=PROMPT_TOKENS) for _ in range(count)]
                rate, *_ = run_round(pipeline, prompts, MAX_TOKENS)
                rates[way][at] += [rate] if number else []
    return {
        way: [f"{median(values):.1f}" if values else "–" for values in each] for way, each in rates.items()
    }


if __name__ == "__main__":
    run_command(main)
