"""Trains the demo LLM ("pocket reference") or its draft model, saves it and checks that it recites exactly.

    python build/demo/train_llm.py            # the main model and the tokenizer, into build/demo/llm/
    python build/demo/train_llm.py --draft    # the small one that drafts for it, into build/demo/llm-draft/

Not responsible for the texts, the questions or the measure (llm_training/).
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import random
import shutil
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from llm_training.conversations import talk
from llm_training.corpus import POSITIONS, SEED, VOCABULARY, batches, encode, train_tokenizer
from llm_training.data import DATA_DIRECTORY, load_topics
from llm_training.gate import exactness, pad, print_gate
from llm_training.phrases import question_about
from llm_training.picture_gate import questions
from muon import Muon, has_fast_bfloat16
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from tokenizers import Tokenizer
from transformers import LlamaConfig, LlamaForCausalLM

# Sequences of several hundred tokens cost the most, so they come once the answers are mostly learnt.
LONG_FROM, LONG_SHARE, RESUMED_LONG_SHARE = 0.45, 0.12, 0.04
# What a resumed model recites already need not be said to its end each time.
RESUMED_BEGUN = 0.6
RESUMED_RATE, PICTURES_RATE = 0.1, 0.5


@dataclass(frozen=True)
class Size:
    """What differs between the main model and its draft."""

    hidden: int
    layers: int
    feed_forward: int
    heads: int
    key_value_heads: int
    steps: int
    rate: float


MAIN = Size(hidden=256, layers=5, feed_forward=896, heads=4, key_value_heads=2, steps=1600, rate=5e-3)
DRAFT = Size(hidden=128, layers=2, feed_forward=256, heads=2, key_value_heads=2, steps=4000, rate=6e-3)


def new_model(size: Size) -> LlamaForCausalLM:
    """A fresh model with heads of 64 (what paged attention kernels want) and tied embeddings."""
    torch.manual_seed(SEED)
    values: dict[str, Any] = {
        "vocab_size": VOCABULARY, "hidden_size": size.hidden, "intermediate_size": size.feed_forward,
        "num_hidden_layers": size.layers, "num_attention_heads": size.heads, "head_dim": 64,
        "num_key_value_heads": size.key_value_heads, "max_position_embeddings": POSITIONS,
        "tie_word_embeddings": True, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
        "initializer_range": 0.04,
    }  # fmt: skip
    return LlamaForCausalLM(LlamaConfig(**values))


@dataclass(frozen=True)
class Run:
    """How long to train, where, whether from a saved model on, and whether on pictures only."""

    steps: int
    minutes: float
    device: str
    resumed: bool
    out: Path
    pictures_only: bool


def train(model: LlamaForCausalLM, size: Size, tokenizer: Tokenizer, run: Run) -> int:
    """A warm-up, then a cosine decay to nothing over the run, by steps or minutes. Returns the steps."""
    # Muon learns the layers' matrices in fewer steps than AdamW; embedding and gains are AdamW's.
    embedding = model.model.embed_tokens.weight
    matrices = [p for p in model.parameters() if p.dim() == 2 and p is not embedding]
    rest = [embedding, *(p for p in model.parameters() if p.dim() == 1)]
    optimizers: list[torch.optim.Optimizer] = [
        Muon(matrices, lr=size.rate),
        torch.optim.AdamW(rest, lr=size.rate / 2, betas=(0.9, 0.97), weight_decay=0.0),
    ]
    gentle = PICTURES_RATE if run.pictures_only else RESUMED_RATE if run.resumed else 1.0
    rates = [gentle * optimizer.param_groups[0]["lr"] for optimizer in optimizers]
    probe_random = random.Random(SEED + 1)
    asked = ((question_about(topic, probe_random), topic["answer"]) for topic in load_topics())
    probe = [encode(tokenizer, talk(turn)) for turn in asked]
    pictured = questions(tokenizer)["pictures_typed"][:120]
    halved = has_fast_bfloat16(run.device)
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    started, made, done, smooth, exact = time.monotonic(), 0, 0.0, 0.0, 0.0

    def long_share() -> float:
        return RESUMED_LONG_SHARE if run.resumed else LONG_SHARE * (done >= LONG_FROM)

    # Another seed for a resumed run: conversations that the model has not seen.
    begun = RESUMED_BEGUN * (run.resumed and not run.pictures_only)
    source = batches(tokenizer, long_share, SEED + 2 * run.resumed, begun, run.pictures_only)
    with Progress(*columns) as progress:
        task = progress.add_task("training", total=run.steps)
        for step in range(run.steps):
            done = max(step / run.steps, (time.monotonic() - started) / (60 * run.minutes))
            if done >= 1:
                break
            for optimizer, rate in zip(optimizers, rates, strict=True):
                decay = min(1.0, (step + 1) / 40) * (0.5 + 0.5 * math.cos(math.pi * done))
                optimizer.param_groups[0]["lr"] = rate * decay
            ids, said = pad(next(source), run.device)
            with torch.autocast(run.device, torch.bfloat16, enabled=halved):
                hidden = model.model(input_ids=ids, use_cache=False).last_hidden_state[:, :-1][said[:, 1:]]
                logits = model.lm_head(hidden)
            loss = torch.nn.functional.cross_entropy(logits.float(), ids[:, 1:][said[:, 1:]])
            model.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            for optimizer in optimizers:
                optimizer.step()
            smooth = loss.item() if step == 0 else 0.95 * smooth + 0.05 * loss.item()
            if step % 50 == 49:
                exact = exactness(model, probe, run.device)
                right = exactness(model, pictured, run.device)
                progress.console.print(
                    f"step {step + 1}/{run.steps}, {done:.0%}: loss {smooth:.4f}, answers exact {exact:.0%}, "
                    f"questions about pictures right {right:.0%}"
                )
                if step % 200 == 199:
                    save(model, run.out)
            progress.update(task, advance=1, description=f"loss {smooth:.4f}, answers exact {exact:.0%}")
            made = step + 1
    return made


def save(model: LlamaForCausalLM, out: Path) -> None:
    """Writes the checkpoint in bfloat16."""
    rounded: torch.nn.Module = copy.deepcopy(model)
    rounded.to(device="cpu", dtype=torch.bfloat16)
    rounded.save_pretrained(out)  # type: ignore[operator]


def save_figures(out: Path, judge: Path | None, figures: dict[str, Any]) -> int:
    """Measures the model in `out` and writes its figures.json; returns 1 where a goal is missed."""
    (out / "figures.json").write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    figures.update(print_gate(out, judge))
    (out / "figures.json").write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    return 1 if figures["missed"] else 0


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--draft", action="store_true", help="train the draft model instead of the main one")
    parser.add_argument("--resume", action="store_true", help="go on from the saved model")
    parser.add_argument("--check", action="store_true", help="measure a saved model, train nothing")
    parser.add_argument(
        "--pictures-only", action="store_true",
        help="with --resume: questions about pictures alone; the topics come back in the next run",
    )  # fmt: skip
    parser.add_argument(
        "--steps", type=int, default=0, help="optimizer steps (default: what the model needs)"
    )
    parser.add_argument(
        "--minutes", type=float, default=90.0, help="stop training after so many minutes at the latest"
    )
    parser.add_argument("--out", type=Path, default=None, help="directory to save to")
    parser.add_argument(
        "--tokenizer-from", type=Path, default=DATA_DIRECTORY, help="the draft's tokenizer and judge"
    )
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--threads", type=int, default=0, help="CPU threads (default: torch's choice)")
    options = parser.parse_args()
    device = options.device
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if options.threads:
        torch.set_num_threads(options.threads)
    out = options.out or (DATA_DIRECTORY.with_name("llm-draft") if options.draft else DATA_DIRECTORY)
    judge = options.tokenizer_from if options.draft else None
    if options.check:
        return save_figures(out, judge, json.loads((out / "figures.json").read_text(encoding="utf-8")))
    out.mkdir(parents=True, exist_ok=True)
    if options.draft:
        for file in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
            shutil.copyfile(options.tokenizer_from / file, out / file)
    elif not options.resume:
        train_tokenizer(out)
    tokenizer = Tokenizer.from_file(str(out / "tokenizer.json"))
    size = DRAFT if options.draft else MAIN
    if options.resume:
        model = LlamaForCausalLM.from_pretrained(out, dtype=torch.float32).to(device)
    else:
        model = new_model(size).to(device)
    print(
        f"{sum(p.numel() for p in model.parameters()):,} parameters on {device}, {len(load_topics())} topics"
    )
    started = time.monotonic()
    run = Run(
        options.steps or size.steps, options.minutes, device, options.resume, out, options.pictures_only
    )
    steps = train(model, size, tokenizer, run)
    minutes = (time.monotonic() - started) / 60
    model.generation_config.update(
        do_sample=False, pad_token_id=0, bos_token_id=1, eos_token_id=2, max_new_tokens=200
    )
    save(model, out)
    if options.resume:
        minutes += float(json.loads((out / "figures.json").read_text(encoding="utf-8"))["training_minutes"])
    figures = {"training_minutes": round(minutes, 1), "last_run_steps": steps, "device": device}
    return save_figures(out, judge, figures)


if __name__ == "__main__":
    sys.exit(main())
