"""Makes the table "Text: ways to run the CPU engine": what was chosen, and what was tried and left, in turns.

    python -m benchmarks.variants shipped groups-32 step-256 --artefact artefacts/llm-qwen2-0.5b-int8

The pipelines run in this process, without Triton and without the engine around them. Prompts are random
tokens, so that no cache has them, and all of a round come at once.
"""

from __future__ import annotations

import itertools
import random
import time
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import typer
from rich.console import Console

from benchmarks.common import run_command
from benchmarks.tables import NARROW, make_table
from trimodal.build_support import operator_errors
from trimodal.client.timing import percentile
from trimodal.llm.engines.openvino.pipeline import generation_config, open_pipeline, token_tensor, warm_up
from trimodal.llm.engines.protocol import Sampling
from trimodal.llm.settings import LlmSettings
from trimodal.manifest import read_manifest


@dataclass(frozen=True)
class Variant:
    """What differs from the shipped settings: settings, and the plugin's properties."""

    settings: dict[str, Any] = field(default_factory=dict)
    properties: dict[str, Any] = field(default_factory=dict)


VARIANTS = {
    "shipped": Variant(),
    "groups-32": Variant(properties={"DYNAMIC_QUANTIZATION_GROUP_SIZE": 32}),  # OpenVINO's own
    "step-64": Variant({"max_num_batched_tokens": 64}),
    "step-256": Variant({"max_num_batched_tokens": 256}),
    "kv-f16": Variant({"kv_cache_precision": "f16"}),
    "reproducible": Variant({"numerics": "reproducible"}),
}
Name = Enum("Name", {name: name for name in VARIANTS}, type=str)  # type: ignore[misc]


def opened(variant: Variant, artefact: Path) -> Any:
    """A pipeline of the artefact in this way; 128 tokens a step where the variant names none."""
    settings = LlmSettings.model_validate(
        {"artefact": str(artefact), "max_num_batched_tokens": 128, "num_kv_blocks": 1024, **variant.settings}
    )
    pipeline = open_pipeline(settings, speculate=False, changed=variant.properties)
    warm_up(pipeline)
    return pipeline


def run_round(pipeline: Any, prompts: list[list[int]], tokens: int) -> list[float]:
    """All prompts at once, answers of `tokens` tokens: tokens a second, TTFT p50, ITL p50 and p99 (ms)."""
    config = generation_config(Sampling(tokens), [])
    config.ignore_eos = True
    began = time.perf_counter()
    handles = [pipeline.add_request(id, token_tensor(prompt), config) for id, prompt in enumerate(prompts)]
    times: list[list[float]] = [[] for _ in handles]
    while pipeline.has_non_finished_requests():
        pipeline.step()
        now = time.perf_counter() - began
        for handle, seen in zip(handles, times, strict=True):
            while handle.can_read():
                for output in handle.read().values():
                    seen += [now] * len(output.generated_ids)
    rate = sum(map(len, times)) / (time.perf_counter() - began)
    gaps = [later - at for seen in times for at, later in itertools.pairwise(seen)]
    percentiles = (([seen[0] for seen in times], 50), (gaps, 50), (gaps, 99))
    return [rate, *(1e3 * (percentile(values, percent) or 0.0) for values, percent in percentiles)]


def main(
    variants: Annotated[list[Name], typer.Argument(help="the first is what ratios refer to")],
    artefact: Annotated[Path, typer.Option(help="directory of an OpenVINO engine")],
    prompt_tokens: Annotated[list[int], typer.Option(min=1)] = [64],  # noqa: B006
    streams: Annotated[list[int], typer.Option(min=1, max=16)] = [1, 8],  # noqa: B006
    max_tokens: Annotated[int, typer.Option(min=2)] = 24,
    rounds: Annotated[int, typer.Option(min=1, help="counted; one more warms up")] = 3,
) -> None:
    """Runs all variants in turns, round by round."""
    with operator_errors():
        pipelines = {each.value: opened(VARIANTS[each.value], artefact) for each in variants}
        vocabulary = int(read_manifest(artefact, task="llm", runtime="openvino").shapes["vocab_size"])
    rng = random.Random(0)
    columns = "prompt|streams|side|tok/s|TTFT p50|ITL p50|ITL p99|/tok/s|/TTFT"
    table = make_table(f"{artefact.name}; answers of {max_tokens} tokens; milliseconds", columns, **NARROW)
    for length, count in itertools.product(prompt_tokens, streams):
        found: dict[str, list[list[float]]] = {name: [] for name in pipelines}
        for _ in range(rounds + 1):
            for name, pipeline in pipelines.items():
                prompts = [
                    [rng.randrange(vocabulary // 8, vocabulary) for _ in range(length)] for _ in range(count)
                ]
                found[name].append(run_round(pipeline, prompts, max_tokens))
        first = found[variants[0].value]
        for name, (_, *counted) in found.items():
            medians = [median(values) for values in zip(*counted, strict=True)]
            pairs = list(zip(counted, first[1:], strict=True))  # neighbours: what drifts in both cancels out
            ratios = [median(ours[of] / theirs[of] for ours, theirs in pairs) for of in (0, 1)]
            shown = [f"{value:.1f}" for value in medians] + [f"{ratio:.2f}" for ratio in ratios]
            table.add_row(str(length), str(count), name, *shown)
    Console(highlight=False).print(table)


if __name__ == "__main__":
    run_command(main)
