"""Builds Whisper for torch: checkpoint → weights.pt, which serves on any GPU that torch knows.

    python build/speech_torch.py openai/whisper-large-v3-turbo --precision fp16

Nothing is compiled; build/speech_tensorrt.py compiles it. Every artefact is compared with transformers on
audio before it replaces an older one; on this machine's processor, where FP16 weights compute in FP32.
"""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Any

import typer
from steps.speech import build
from steps.speech.audio import DEMO_SAMPLES
from steps.speech.check import BATCH, compare, compare_words
from steps.speech.checkpoint import Checkpoint

from trimodal.build_support import operator_errors
from trimodal.speech.engines.torch.engine import WEIGHTS


class Precision(str, Enum):
    fp32 = "fp32"
    fp16 = "fp16"


def main(
    source: build.Source,
    precision: list[Precision] = typer.Option(["fp16"], help="of the weights; repeat it to build several"),
    name: build.Name = "torch-{precision}",
    out: build.Out = "",
    contexts: build.Contexts = "",
    padding: build.Padding = "",
    audio: build.Audio = DEMO_SAMPLES,
    language: build.Language = "",
    min_agreement: build.MinAgreement = None,
) -> None:
    """Write SOURCE's weights for the engine torch, compare it with transformers, and put it in place."""
    with operator_errors():
        made = build.prepare(source, precision, name, out, contexts, padding, audio, language)
        import torch

        made.put_in_place(
            "speech_torch",
            {"runtime": "torch", "runtime_version": torch.__version__},
            extra(made.checkpoint),
            lambda work, precision: write_weights(made.checkpoint, work, precision),
            lambda work, precision: check(made, work),
            min_agreement,
        )


def write_weights(checkpoint: Checkpoint, directory: Path, precision: str) -> None:
    """The state of both halves by transformers' names, less "model."; the projection is the embeddings'."""
    import torch

    dtype = {"fp16": torch.float16, "fp32": torch.float32}[precision]
    # Clones: what shares memory with more than itself is saved whole.
    state = {name: each.to(dtype).clone() for name, each in checkpoint.model.model.state_dict().items()}
    torch.save(state, directory / WEIGHTS)


def check(made: build.Prepared, directory: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Figures on audio, and none beside them."""
    from steps.speech.torch_check import runtime

    figures = compare(made.checkpoint, made.heard, *runtime(directory, made.checkpoint, BATCH))
    words = compare_words(made.heard, directory, "torch", random_weights=made.checkpoint.random_weights)
    return figures | words, {}


def extra(checkpoint: Checkpoint) -> dict[str, Any]:
    """What the engine needs beside the weights, for the manifest."""
    never, not_first = checkpoint.suppressed()
    return checkpoint.described() | {
        "suppressed": never,
        "suppressed_first": not_first,
        "network": checkpoint.network(),
    }


if __name__ == "__main__":
    typer.run(main)
