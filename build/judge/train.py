"""Trains the judge on a CPU: batches of like length, both directions at random, a fixed number of steps."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from judge.model import CrossEncoder, Inputs, encode, load_encoder, longest, open_tokenizer
from judge.pairs import Example

from trimodal.build_support import console

if TYPE_CHECKING:
    from tokenizers import Tokenizer

MEASURED = 20  # steps, after which the time that the rest will take is told
POOL = 50  # batches that are cut from pairs sorted by length
LONGEST = 64  # tokens of a pair while it trains; few are longer


@dataclass(frozen=True)
class Schedule:
    """What the result depends on, beside data and weights."""

    steps: int = 3400
    batch: int = 32
    rate: float = 1.5e-4
    warm_up: float = 0.06
    decay: float = 0.01
    seed: int = 5
    bfloat16: bool = False
    threads: int = 2


def fit(
    directory: Path, examples: Sequence[Example], schedule: Schedule
) -> tuple[CrossEncoder, Tokenizer, dict[str, float]]:
    """A judge from this encoder's checkpoint, its tokenizer, and figures of the training."""
    model = load_encoder(directory, schedule.seed)
    tokenizer = open_tokenizer(directory, longest(model.config))
    return model, tokenizer, train(model, tokenizer, examples, schedule)


def train(
    model: CrossEncoder, tokenizer: Tokenizer, examples: Sequence[Example], schedule: Schedule
) -> dict[str, float]:
    """Trains in place. Returns steps, pairs a second and the last loss.

    The embeddings of words and places stay as they are. The same examples, weights and schedule on one
    machine give the same model.
    """
    torch.manual_seed(schedule.seed)
    torch.set_num_threads(schedule.threads)
    for name, parameter in model.named_parameters():
        parameter.requires_grad = "embeddings" not in name or "token_type" in name
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    groups = [
        {"params": [each for each in trained if each.ndim > 1], "weight_decay": schedule.decay},
        {"params": [each for each in trained if each.ndim < 2], "weight_decay": 0.0},
    ]
    optimiser = torch.optim.AdamW(groups, lr=schedule.rate)
    rates = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: _rate(step, schedule))
    model.train()
    began, losses = time.monotonic(), []
    for step, (inputs, labels) in enumerate(batches(tokenizer, examples, schedule, model.aligned), 1):
        with torch.autocast("cpu", torch.bfloat16, enabled=schedule.bfloat16):
            logits = model(**{name: torch.from_numpy(value) for name, value in inputs.items()})
        loss = torch.nn.functional.binary_cross_entropy_with_logits(logits.float(), labels)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimiser.step()
        rates.step()
        optimiser.zero_grad()
        losses.append(loss.item())
        seconds = time.monotonic() - began
        if step == MEASURED or step % 200 == 0:
            left = seconds / step * (schedule.steps - step) / 60
            console.print(
                f"step {step} of {schedule.steps}: loss {np.mean(losses[-200:]):.3f}, "
                f"{step * schedule.batch / seconds:.0f} pairs/s, {left:.1f} minutes left",
                highlight=False,
            )
    model.eval()
    return {
        "steps": schedule.steps,
        "pairs_per_second": round(schedule.steps * schedule.batch / (time.monotonic() - began), 1),
        "last_loss": round(float(np.mean(losses[-200:])), 4),
    }


def _rate(step: int, schedule: Schedule) -> float:
    """Share of the highest learning rate: rises over the warm-up, then falls to 0 in a line."""
    warm_up = max(1, math.ceil(schedule.steps * schedule.warm_up))
    return min((step + 1) / warm_up, (schedule.steps - step) / max(1, schedule.steps - warm_up))


def batches(
    tokenizer: Tokenizer, examples: Sequence[Example], schedule: Schedule, aligned: bool
) -> Iterator[tuple[Inputs, torch.Tensor]]:
    """`schedule.steps` batches and their labels float32 [N], each pair turned round or not.

    Every pair is drawn once before one is drawn again. Most of the cost is padding: a batch is cut from pairs
    that are sorted by their length, within a pool of 50 batches.
    """
    draw = random.Random(schedule.seed)
    own = type(tokenizer).from_str(tokenizer.to_str())
    own.enable_truncation(min(LONGEST, tokenizer.truncation["max_length"]))
    waiting: list[list[Example]] = []
    for _ in range(schedule.steps):
        if not waiting:
            order = draw.sample(examples, len(examples))
            for start in range(0, len(order), POOL * schedule.batch):
                pool = sorted(order[start : start + POOL * schedule.batch], key=_length)
                waiting += [pool[at : at + schedule.batch] for at in range(0, len(pool), schedule.batch)]
            draw.shuffle(waiting)
        batch = waiting.pop()
        turned = [draw.random() < 0.5 for _ in batch]
        sides = [
            (each.b, each.a) if turn else (each.a, each.b) for each, turn in zip(batch, turned, strict=True)
        ]
        yield encode(own, sides, aligned), torch.tensor([float(each.same) for each in batch])


def _length(example: Example) -> int:
    return len(example.a) + len(example.b)
