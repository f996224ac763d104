"""Measures the demo LLM: how many answers a checkpoint recites exactly, and how often the draft agrees.

An answer is exact when, after every token of it, the greedy choice is the next one up to the end mark: the
same as generating it greedily, in one pass. Not responsible for training (train_llm.py).
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import torch
from llm_training.conversations import talk
from llm_training.corpus import Sample, encode
from llm_training.data import load_passages, load_topics
from llm_training.phrases import HELD_OUT, LISTS, REFUSAL, TRAINED, question_about, unknown_question
from llm_training.picture_gate import WANTED, questions
from tokenizers import Tokenizer
from transformers import LlamaForCausalLM

PHRASINGS = 6
WANTED_TOPICS, WANTED_AGREEMENT = 0.95, 0.80
CANONICAL = ("what is {s}", "explain {s}", "tell me about {s}", "how does {s} work")


def pad(samples: list[Sample], device: str) -> tuple[torch.Tensor, torch.Tensor]:
    """ids[batch, longest] (0 after the end: causal attention never looks there) and said[batch, longest]."""
    longest = max(len(sample.ids) for sample in samples)
    ids = torch.tensor([sample.ids + [0] * (longest - len(sample.ids)) for sample in samples], device=device)
    said = torch.tensor(
        [sample.said + [False] * (longest - len(sample.said)) for sample in samples], device=device
    )
    return ids, said


@torch.no_grad()
def hits(model: LlamaForCausalLM, samples: list[Sample], device: str = "cpu") -> list[list[bool]]:
    """For each sample, whether the greedy choice is right at each token of its last answer."""
    order = sorted(range(len(samples)), key=lambda i: len(samples[i].ids))
    found: list[list[bool]] = [[] for _ in samples]
    for first in range(0, len(order), 32):
        chosen = order[first : first + 32]
        ids, _ = pad([samples[i] for i in chosen], device)
        best = model(input_ids=ids, use_cache=False).logits.argmax(-1)
        for row, i in enumerate(chosen):
            said, length = samples[i].said, len(samples[i].ids)
            start = length - next((n for n, flag in enumerate(reversed(said)) if not flag), length)
            found[i] = (best[row, start - 1 : length - 1] == ids[row, start:length]).tolist()
    return found


def exactness(model: LlamaForCausalLM, samples: list[Sample], device: str = "cpu") -> float:
    """The share of samples whose last answer is recited exactly."""
    right = [all(row) for row in hits(model, samples, device)]
    return sum(right) / len(right)


def round_to_int8(model: LlamaForCausalLM) -> None:
    """Rounds every weight matrix in place as symmetric INT8 with a scale a row (an output channel) would."""
    with torch.no_grad():
        for weight in (p for p in model.parameters() if p.dim() == 2):
            scale = weight.abs().amax(dim=1, keepdim=True).clamp(min=1e-8) / 127
            weight.copy_((weight / scale).round().clamp(-127, 127) * scale)


def ask_all(
    tokenizer: Tokenizer, templates: tuple[str, ...], count: int, prefix: bool, seed: int
) -> list[list[Sample]]:
    """`count` conversations a topic: one question each, after a long system message where `prefix` is set."""
    random_, passages = random.Random(seed), load_passages()
    asked = []
    for topic in load_topics():
        rows = []
        for _ in range(count):
            system, passage = random_.choice(LISTS["system_prompts"]), random_.choice(passages)
            text = f"{system}\n{passage[: random_.randint(300, 1700)]}"
            head = [{"role": "system", "content": text}] if prefix else []
            asked_for = talk((question_about(topic, random_, templates), topic["answer"]))
            rows.append(encode(tokenizer, head + asked_for))
        asked.append(rows)
    return asked


def share(model: LlamaForCausalLM, asked: list[list[Sample]]) -> tuple[float, float]:
    """The share of topics exact in every conversation, and the share of conversations exact."""
    right = [all(row) for row in hits(model, [sample for rows in asked for sample in rows])]
    count = len(asked[0])
    topics = [all(right[i : i + count]) for i in range(0, len(right), count)]
    return round(sum(topics) / len(topics), 4), round(sum(right) / len(right), 4)


def print_gate(directory: Path, judge: Path | None) -> dict[str, Any]:
    """Measures the checkpoint in `directory`, prints the figures and returns them.

    `judge` is the main model's directory when the checkpoint is its draft: then what counts is the share of
    the main model's tokens that the draft would have chosen too. Without it: the share of topics exact
    for all of PHRASINGS trained phrasings, as saved and after INT8 rounding.
    """
    tokenizer = Tokenizer.from_file(str(directory / "tokenizer.json"))
    model = LlamaForCausalLM.from_pretrained(directory, dtype=torch.float32).eval()

    trained = ask_all(tokenizer, TRAINED, PHRASINGS, False, seed=1)
    plain = ask_all(tokenizer, CANONICAL, PHRASINGS, False, seed=2)
    held_out = ask_all(tokenizer, HELD_OUT, PHRASINGS, False, seed=3)
    prefixed = ask_all(tokenizer, TRAINED, 2, True, seed=4)
    figures: dict[str, Any] = {}
    if judge is not None:
        main = LlamaForCausalLM.from_pretrained(judge, dtype=torch.float32).eval()
        for name, asked in (("trained", trained), ("held_out", held_out), ("long_prefix", prefixed)):
            samples = [sample for rows in asked for sample in rows]
            # Where the main model recites exactly, the reference answer is what it says.
            both = zip(hits(model, samples), hits(main, samples), strict=True)
            tokens = [hit for draft, whole in both if all(whole) for hit in draft]
            figures[f"agreement_{name}"] = round(sum(tokens) / len(tokens), 4)
    figures["topics_exact"], figures["trained_exact"] = share(model, trained)
    figures["topics_exact_canonical"], figures["canonical_exact"] = share(model, plain)
    _, figures["held_out_exact"] = share(model, held_out)
    figures["topics_exact_long_prefix"], figures["long_prefix_exact"] = share(model, prefixed)
    random_ = random.Random(5)
    unknown = [encode(tokenizer, talk((unknown_question(random_), REFUSAL))) for _ in range(200)]
    figures["refused_exact"] = round(exactness(model, unknown), 4)
    about = questions(tokenizer)
    figures |= {name: round(exactness(model, samples), 4) for name, samples in about.items()}
    round_to_int8(model)
    figures["topics_exact_int8"], figures["trained_exact_int8"] = share(model, trained)
    _, figures["long_prefix_exact_int8"] = share(model, prefixed)
    figures |= {f"{name}_int8": round(exactness(model, about[name]), 4) for name in WANTED}
    main_goals = {"topics_exact": WANTED_TOPICS, **WANTED}
    goals = main_goals if judge is None else {"agreement_trained": WANTED_AGREEMENT}
    figures["missed"] = [
        name
        for name, least in goals.items()
        if min(figures[name], figures.get(f"{name}_int8", figures[name])) < least
    ]
    for name, value in figures.items():
        print(f"{name:26} {value:.1%}" if isinstance(value, float) else f"{name:26} {value}")
    return figures
