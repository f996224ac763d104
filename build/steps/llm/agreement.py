"""Measures how far an engine's greedy answers are those of the torch checkpoint, in the checkpoint's type.

The engine shows no logits, so its own answers are what torch reads along: at each position torch says
which token it would have taken. The caller sets the threshold.
"""

from __future__ import annotations

from typing import Any

from steps.llm.check import Sample, greedy_samples
from steps.llm.checkpoint import Checkpoint

from trimodal.build_support import progress
from trimodal.errors import ArtefactError


def load_reference(checkpoint: Checkpoint) -> None:
    """Loads the weights in their own type: over the GPUs and, where they end, the CPU's memory."""
    import torch

    with progress("Loading the checkpoint in torch"):
        checkpoint.load("auto", "auto" if torch.cuda.is_available() else None)


def compare(checkpoint: Checkpoint, prompts: list[list[int]], answers: list[list[int]]) -> dict[str, Any]:
    """`token_agreement` over all positions of the engine's answers, and how many answers are torch's own.

    Raises:
        ArtefactError: the engine answered nothing at all.
    """
    import torch

    positions = agreed = 0
    with progress("Reading the engine's answers with torch", total=len(prompts)) as advance:
        for prompt, answer in zip(prompts, answers, strict=True):
            if answer:
                ids = torch.tensor([prompt + answer], device=checkpoint.model.device)
                with torch.inference_mode():
                    logits = checkpoint.model(ids).logits[0, len(prompt) - 1 : -1]
                agreed += sum(
                    one == other for one, other in zip(logits.argmax(-1).tolist(), answer, strict=True)
                )
                positions += len(answer)
            advance()
    if not positions:
        raise ArtefactError("the engine answered every check prompt with nothing: it is not usable")
    ends = set(checkpoint.special_ids()["eos_token_ids"])
    expected = greedy_samples(checkpoint, prompts)
    identical = sum(_same(sample, answer, ends) for sample, answer in zip(expected, answers, strict=True))
    return {
        "positions": positions,
        "token_agreement": agreed / positions,
        "greedy_answers": len(prompts),
        "greedy_answers_identical": identical,
        "reference": f"torch {str(checkpoint.model.dtype).removeprefix('torch.')}",
    }


def _same(sample: Sample, answer: list[int], ends: set[int]) -> bool:
    """Without the closing end token, which one runtime returns and another may not."""
    pair = [sample.ids[sample.start :], answer]
    first, second = ([*ids[:-1]] if ids and ids[-1] in ends else [*ids] for ids in pair)
    return first == second
