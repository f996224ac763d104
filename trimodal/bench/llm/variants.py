"""Compares ways to run OpenVINO's pipeline, in turns: what was chosen, and what was tried and left.

    python -m trimodal.bench.llm.variants shipped groups-32 step-256 --artefact artefacts/llm-qwen2-0.5b-int8

The pipelines run in this process, without Triton and without the engine around them. Prompts are random
tokens, so that no cache has them, and all of a round come at once.
"""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from trimodal.bench.common.closed_loop import paired_ratio
from trimodal.bench.llm.sides import Round, Sample, summarise
from trimodal.build_support import operator_errors
from trimodal.llm.engines.openvino.pipeline import generation_config, open_pipeline, token_tensor, warm_up
from trimodal.llm.engines.protocol import Sampling
from trimodal.llm.settings import LlmSettings
from trimodal.manifest import read_manifest
from trimodal.report.console import NARROW, make_table

Draw = Callable[[], list[int]]


@dataclass(frozen=True)
class Variant:
    """What differs from the shipped settings: settings, the plugin's properties, the scheduler's fields."""

    settings: dict[str, Any] = field(default_factory=dict)
    properties: dict[str, Any] = field(default_factory=dict)
    sparse: str = ""  # mode of the sparse attention in prefill, which needs the prefix cache off


def _groups(size: int) -> Variant:
    return Variant(properties={"DYNAMIC_QUANTIZATION_GROUP_SIZE": size})


VARIANTS = {
    "shipped": Variant(),
    "groups-32": _groups(32),  # OpenVINO's own
    "groups-64": _groups(64),
    "step-64": Variant({"max_num_batched_tokens": 64}),
    "step-256": Variant({"max_num_batched_tokens": 256}),
    "step-2048": Variant({"max_num_batched_tokens": 2048}),
    "kv-f16": Variant({"kv_cache_precision": "f16"}),
    "reproducible": Variant({"numerics": "reproducible"}),
    "one-thread": Variant({"threads": 1}),
    "xattention": Variant({"enable_prefix_caching": False}, sparse="XATTENTION"),
    "trishape": Variant({"enable_prefix_caching": False}, sparse="TRISHAPE"),
}
Name = Enum("Name", {name: name for name in VARIANTS}, type=str)  # type: ignore[misc]


def opened(variant: Variant, artefact: Path) -> Any:
    """A pipeline of the artefact in this way; 128 tokens a step where the variant names none."""
    import openvino_genai as genai

    settings = LlmSettings.model_validate(
        {"artefact": str(artefact), "max_num_batched_tokens": 128, "num_kv_blocks": 1024, **variant.settings}
    )
    manifest = read_manifest(artefact, task="llm", runtime="openvino")
    scheduling: dict[str, Any] = {}
    if variant.sparse:
        sparse = genai.SparseAttentionConfig()
        sparse.mode = getattr(genai.SparseAttentionMode, variant.sparse)
        scheduling = {"use_sparse_attention": True, "sparse_attention_config": sparse}
    pipeline = open_pipeline(
        settings, manifest, speculate=False, changed=variant.properties, scheduling=scheduling
    )
    warm_up(pipeline)
    return pipeline


def run(pipeline: Any, draw: Draw, streams: int, tokens: int) -> Round:
    """All prompts at once; answers of `tokens` tokens."""
    config = generation_config(Sampling(tokens), [])
    config.ignore_eos = True
    began = time.perf_counter()
    handles = [pipeline.add_request(id, token_tensor(draw()), config) for id in range(streams)]
    times: list[list[float]] = [[] for _ in handles]
    while pipeline.has_non_finished_requests():
        pipeline.step()
        now = time.perf_counter()
        for handle, seen in zip(handles, times, strict=True):
            while handle.can_read():
                for output in handle.read().values():
                    seen += [now] * len(output.generated_ids)
    seconds = time.perf_counter() - began
    gaps = (tuple(later - at for at, later in itertools.pairwise(seen)) for seen in times)
    return Round(
        tuple(Sample(seen[0] - began, gap, len(seen)) for seen, gap in zip(times, gaps, strict=True)), seconds
    )


def main(
    variants: Annotated[list[Name], typer.Argument(help="the first is what ratios refer to")],
    artefact: Annotated[Path, typer.Option(help="directory of an OpenVINO engine")],
    prompt_tokens: Annotated[list[int], typer.Option(min=1)] = [64],  # noqa: B006
    streams: Annotated[list[int], typer.Option(min=1, max=16)] = [1, 8],  # noqa: B006
    max_tokens: Annotated[int, typer.Option(min=2)] = 24,
    rounds: Annotated[int, typer.Option(min=1, help="counted; one more warms up")] = 3,
) -> None:
    """Run all variants in turns, round by round."""
    console = Console(highlight=False)
    with operator_errors():
        pipelines = {each.value: opened(VARIANTS[each.value], artefact) for each in variants}
        vocabulary = int(read_manifest(artefact, task="llm", runtime="openvino").shapes["vocab_size"])
    random_ids = random.Random(0)
    columns = "prompt|streams|side|tok/s|TTFT p50|ITL p50|ITL p99|/tok/s|/TTFT"
    table = make_table(f"{artefact.name}; answers of {max_tokens} tokens; milliseconds", columns, **NARROW)
    for length, count in itertools.product(prompt_tokens, streams):
        found: dict[str, list[Round]] = {name: [] for name in pipelines}

        def draw(length: int = length) -> list[int]:
            return [random_ids.randrange(vocabulary // 8, vocabulary) for _ in range(length)]

        for _ in range(rounds + 1):
            for name, pipeline in pipelines.items():
                found[name].append(run(pipeline, draw, count, max_tokens))
        first = next(iter(found.values()))[1:]
        for name, (_, *counted) in found.items():
            summary = summarise(counted)
            values = (summary.tokens_per_second, summary.ttft_p50, summary.itl_p50, summary.itl_p99)
            ratios = (
                paired_ratio(counted, first, lambda one: one.tokens_per_second),
                paired_ratio(counted, first, lambda one: summarise([one]).ttft_p50),
            )
            shown = [f"{value:.1f}" for value in values] + [f"{ratio:.2f}" for ratio in ratios]
            table.add_row(str(length), str(count), name, *shown)
    console.print(table)


if __name__ == "__main__":
    typer.run(main)
