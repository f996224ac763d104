"""Compares a built language model with the torch checkpoint that it came from.

Teacher forcing on torch's answers gives logit errors and perplexity of the graph; the
greedy answers of the pipeline as it will be served are read along by torch. The caller sets
the thresholds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from steps.llm.checkpoint import Checkpoint
from steps.llm.export import MODEL, feeds

from trimodal.build_support import progress
from trimodal.errors import ArtefactError
from trimodal.llm.engines.openvino.pipeline import generation_config, open_pipeline, token_tensor
from trimodal.llm.engines.protocol import Sampling
from trimodal.llm.settings import LlmSettings

Logits = npt.NDArray[np.float32]
GREEDY_TOKENS = 32
KV_BLOCK = 32  # tokens
PROMPTS = (
    "What is a list?", "How do I open a file?", "Name three colours.", "Why is the sky blue?",
    "What is the capital of France?", "Count from one to ten.", "Translate good morning into Spanish.",
    "What does a compiler do?", "Write a haiku about rain.", "What is 17 plus 25?",
    "How does a for loop work?", "Explain what an exception is.", "Who wrote Hamlet?",
    "What is a dictionary?", "Give me a recipe for pancakes.", "How do I sort a sequence?",
)  # fmt: skip


@dataclass(frozen=True)
class Sample:
    """Token ids that both models see; what follows position `start` is compared."""

    ids: list[int]
    start: int


def reference_samples(checkpoint: Checkpoint) -> list[Sample]:
    """The built-in prompts with torch's greedy answers."""
    with progress("Answering the check prompts with torch"):
        return greedy_samples(checkpoint, [checkpoint.encode_prompt(each) for each in PROMPTS])


def greedy_samples(
    checkpoint: Checkpoint, prompts: list[list[int]], tokens: int = GREEDY_TOKENS
) -> list[Sample]:
    """Each prompt with the torch model's greedy answer, its end token included; one left-padded batch."""
    import torch

    special = checkpoint.special_ids()
    ends = set(special["eos_token_ids"])
    padding = next((one for one in (special["pad_token_id"], *sorted(ends)) if one is not None), 0)
    width = max(len(prompt) for prompt in prompts)
    ids = torch.tensor([[padding] * (width - len(prompt)) + prompt for prompt in prompts])
    mask = [[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts]
    with torch.inference_mode():
        rows = checkpoint.model.generate(
            ids,
            attention_mask=torch.tensor(mask),
            max_new_tokens=tokens,
            do_sample=False,
            repetition_penalty=1.0,
            eos_token_id=sorted(ends) or None,
            pad_token_id=padding,
        )
    samples = []
    for prompt, row in zip(prompts, rows[:, width:].tolist(), strict=True):
        length = next((index + 1 for index, one in enumerate(row) if one in ends), len(row))
        samples.append(Sample(prompt + row[:length], len(prompt)))
    return samples


def check(checkpoint: Checkpoint, directory: Path, answers: list[Sample]) -> dict[str, Any]:
    """All figures of the artefact in `directory`, for its manifest.

    Logit errors and perplexities are of the graph alone, in FP32; `token_agreement` and the identical answers
    are of the pipeline as it is served, with the shipped numerics and KV cache.
    """
    import torch

    threads = torch.get_num_threads()
    with progress("Comparing with torch", total=len(answers)) as advance:
        built = open_ir(directory / MODEL, threads)
        figures = compare(checkpoint.model, built, answers, advance)
        del built  # Its weights need not be in memory twice.
    prompts = [sample.ids[: sample.start] for sample in answers]
    with progress("Answering as it will be served"):
        served, how = served_answers(checkpoint, directory, prompts)
    return figures | {"served": how} | compare_answers(checkpoint, prompts, served, answers)


def open_ir(xml: Path, threads: int) -> Callable[[list[int]], Logits]:
    """The built IR outside the serving pipeline: one text in, FP32 logits [len(ids), vocabulary] out."""
    import openvino

    # Only the build is to differ from torch: with AMX it would compute in BF16, and the cache have 8 bits.
    exact = {"INFERENCE_PRECISION_HINT": "f32", "KV_CACHE_PRECISION": "f32"}
    compiled = openvino.Core().compile_model(xml, "CPU", exact | {"INFERENCE_NUM_THREADS": threads})
    request = compiled.create_infer_request()
    inputs = {name for port in request.model_inputs for name in port.get_names()}

    def logits(ids: list[int]) -> Logits:
        request.reset_state()
        request.infer(feeds(ids, inputs))
        return np.array(request.get_tensor("logits").data[0], np.float32)

    return logits


def compare(
    reference: Any, built: Callable[[list[int]], Logits], samples: list[Sample], advance: Callable[[], None]
) -> dict[str, Any]:
    """Figures of `built` against the torch model `reference` over all compared positions."""
    import torch

    positions, largest, total, entries = 0, 0.0, 0.0, 0
    losses = [0.0, 0.0]
    for sample in samples:
        with torch.inference_mode():
            expected = reference(torch.tensor([sample.ids])).logits[0].float().numpy()
        window = slice(sample.start - 1, len(sample.ids) - 1)
        pair = expected[window], built(sample.ids)[window]
        targets = sample.ids[sample.start :]
        for index, logits in enumerate(pair):
            of_each = torch.from_numpy(logits).double(), torch.tensor(targets)
            losses[index] += float(torch.nn.functional.cross_entropy(*of_each, reduction="sum"))
        error = np.abs(pair[0] - pair[1])
        largest = float(np.maximum(largest, error.max()))  # NaN stays; max() would drop it.
        total, entries = total + float(error.sum(dtype=np.float64)), entries + error.size
        positions += len(targets)
        advance()
    with np.errstate(over="ignore"):  # A graph that is wrong may be surprised beyond any number.
        perplexities = np.exp(np.array([*losses, losses[1] - losses[0]]) / positions).tolist()
    return {
        "text_positions": positions,
        "logit_error_max": largest,
        "logit_error_mean": total / entries,
        "perplexity_torch": perplexities[0],
        "perplexity_built": perplexities[1],
        "perplexity_ratio": perplexities[2],
    }


def served_answers(
    checkpoint: Checkpoint, directory: Path, prompts: list[list[int]]
) -> tuple[list[list[int]], str]:
    """The greedy answers of `directory`, opened as the server opens it, and the settings that it has."""
    settings = LlmSettings(
        artefact=str(directory), num_kv_blocks=sum(len(ids) // KV_BLOCK + 2 for ids in prompts)
    )
    ends = checkpoint.special_ids()["eos_token_ids"]
    greedy = generation_config(Sampling(GREEDY_TOKENS), ends)
    try:
        pipeline = open_pipeline(settings, speculate=False)
        results = pipeline.generate([token_tensor(ids) for ids in prompts], [greedy] * len(prompts))
    except RuntimeError as error:
        reason = str(error).strip().split("\n")[-1][:200]
        raise ArtefactError(f"the serving pipeline does not take this model: {reason}") from error
    how = f"numerics {settings.numerics}, KV cache {settings.kv_cache_precision}"
    return [list(result.m_generation_ids[0]) for result in results], how


def identical(samples: list[Sample], answers: Sequence[Sequence[int]], ends: set[int]) -> int:
    """How many answers are torch's, but for the end token, which one runtime returns and another may not."""

    def before_end(ids: Sequence[int]) -> list[int]:
        return list(ids[:-1] if ids and ids[-1] in ends else ids)

    expected = [before_end(sample.ids[sample.start :]) for sample in samples]
    return sum(one == before_end(other) for one, other in zip(expected, answers, strict=True))


def compare_answers(
    checkpoint: Checkpoint,
    prompts: list[list[int]],
    answers: list[list[int]],
    torch_answers: list[Sample] | None = None,
) -> dict[str, Any]:
    """`token_agreement` over all positions of the engine's answers, and how many answers are torch's own.

    The engine shows no logits, so its own answers are what torch reads along: at each position torch says
    which token it would have taken, in the checkpoint's own type.

    Raises:
        ArtefactError: the engine answered nothing at all.
    """
    import torch

    positions = agreed = 0
    with progress("Reading the engine's answers with torch", total=len(prompts)) as advance:
        for prompt, answer in zip(prompts, answers, strict=True):
            if answer:
                ids = torch.tensor([prompt + answer])
                with torch.inference_mode():
                    logits = checkpoint.model(ids, logits_to_keep=len(answer) + 1).logits[0, :-1]
                agreed += int((logits.argmax(-1).numpy() == answer).sum())
                positions += len(answer)
            advance()
    if not positions:
        raise ArtefactError("the engine answered every check prompt with nothing: it is not usable")
    ends = set(checkpoint.special_ids()["eos_token_ids"])
    expected = torch_answers or greedy_samples(checkpoint, prompts)
    return {
        "positions": positions,
        "token_agreement": agreed / positions,
        "greedy_answers": len(prompts),
        "greedy_answers_identical": identical(expected, answers, ends),
        "reference": f"torch {str(checkpoint.model.dtype).removeprefix('torch.')}",
    }
