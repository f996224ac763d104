"""Measures a sentence embedder of MiniLM's shape: in torch, in ONNX Runtime, and served."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from trimodal.bench.common.cuda_graph import graph_of
from trimodal.bench.gpu_check.parts.vision import artefact, require_onnxruntime
from trimodal.bench.gpu_check.steps import Run, Step, require_served
from trimodal.bench.gpu_check.timing import timed

TOKENS = 32
BATCHES = (1, 8, 32, 64)
SMALL = (1, 4)


def torch_steps(run: Run) -> Mapping[str, Any]:
    """A BERT encoder of MiniLM's size in torch, random weights: 6 layers of 384, texts of 32 tokens."""
    import torch

    width, layers = (384, 6) if run.full else (32, 2)
    dtype = torch.float16 if run.full else torch.float32
    one = torch.nn.TransformerEncoderLayer(width, width // 32, 4 * width, activation="gelu", batch_first=True)
    model = torch.nn.TransformerEncoder(one, layers, enable_nested_tensor=False).eval().to(run.device, dtype)
    words = torch.nn.Embedding(30522, width, device=run.device, dtype=dtype)
    found: dict[str, Any] = {}
    with torch.inference_mode():
        for batch in BATCHES if run.full else SMALL:
            host = torch.randint(0, 30522, (batch, TOKENS))
            ids = host.to(run.device, copy=True)

            def forward(ids: torch.Tensor = ids) -> torch.Tensor:
                vectors: torch.Tensor = torch.nn.functional.normalize(model(words(ids)).mean(1), dim=1)
                return vectors

            for graph in (False, True) if run.full else (False,):
                run_once = graph_of(torch, forward) if graph else forward

                def call(ids: torch.Tensor = ids, host: torch.Tensor = host, once: Any = run_once) -> object:
                    ids.copy_(host)
                    return once().cpu()  # waits

                name = f"{'graph' if graph else 'eager'}_{batch}"
                found[name] = timed(call, items=batch, seconds=run.seconds, rounds=run.rounds)
    return found


def onnxruntime_steps(run: Run) -> Mapping[str, Any]:
    """Our engine on ONNX Runtime in this process, its vectors compared with the processor's first."""
    require_onnxruntime(run)
    from trimodal.bench.gpu_check import answers
    from trimodal.embedding.engines.protocol import open_engine
    from trimodal.embedding.settings import EmbeddingSettings

    directory = artefact(run, "embedding")
    found: dict[str, Any] = {"answers": answers.embedding(directory, run.device)}
    engine = open_engine(directory, EmbeddingSettings(artefact=str(directory), device=run.device))
    for batch in BATCHES if run.full else SMALL:
        texts = answers.texts(16, batch)
        timings = timed(
            lambda texts=texts: engine.embed(texts),  # type: ignore[misc]
            items=batch,
            seconds=run.seconds,
            rounds=run.rounds,
        )
        found[f"engine_{batch}"] = timings
    return found


def served(run: Run) -> Mapping[str, Any]:
    """Texts of 16 words from several clients through Triton, beside the engine alone."""
    require_served(run)
    require_onnxruntime(run)
    from rich.console import Console

    from trimodal.bench.embedding import Plan, measure

    plan = Plan(
        concurrency=(1, 8, 32) if run.full else (1, 4),
        words=16,
        rounds=run.rounds,
        seconds=run.seconds,
        bare=True,
        changes={"artefact": str(artefact(run, "embedding")), "engine": "onnxruntime", "device": run.device},
        profile="cuda",
    )
    return asyncio.run(measure(plan, Console()))


BUILT = (
    "torch", "onnxruntime", "onnx", "onnxscript", "transformers", "tokenizers", "safetensors", "pydantic",
    "rich", "typer",
)  # fmt: skip
"""What building the ONNX graph and opening it need."""

STEPS = (
    Step("torch", torch_steps, ("torch",)),
    Step("onnxruntime", onnxruntime_steps, BUILT),
    Step("served", served, BUILT),
)
