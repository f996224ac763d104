"""Trains the demo Whisper on speech that espeak-ng speaks, saves it with samples and measures it as served.

    python build/demo/train_speech.py               # all of it, into build/demo/speech/
    python build/demo/train_speech.py --resume      # go on from the saved model
    python build/demo/train_speech.py --check       # measure a saved model again, train nothing

Not responsible for the sentences, the voices, the windows, the losses or the measure (speech_training/).
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from muon import Muon, has_fast_bfloat16
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from speech_training.gate import FLOORS, measure
from speech_training.model import ALIGNMENT_HEADS, Batch, Whisper, batched
from speech_training.phrases import words
from speech_training.samples import QUESTIONS, write_samples
from speech_training.tokens import Ids, config, generation_config, save_tokenizer
from speech_training.windows import WindowMaker
from tokenizers import Tokenizer
from transformers import WhisperForConditionalGeneration

SEED = 0
OUT = Path(__file__).parent / "speech"
UTTERANCES = 14_000
SHAPE = {
    "d_model": 128, "encoder_layers": 3, "decoder_layers": 2, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 512, "decoder_ffn_dim": 512,
}  # fmt: skip
STEPS = 3500
MATRIX_RATE, REST_RATE = 4e-3, 2e-3
FRAMES_A_BATCH = 12_000
# Shares of windows that write timestamps, and that are given the words before them.
TIMED, PROMPTED = 0.1, 0.2
RESUMED_RATE = 0.4
SAVE_EVERY_S = 240
HEADS = [[SHAPE["decoder_layers"] - 1, head] for head in range(ALIGNMENT_HEADS)]


@dataclass(frozen=True)
class Run:
    """How long to train, and whether from a saved model on: in other speech, gently, with all contexts."""

    steps: int
    minutes: float
    resumed: bool

    def context(self, done: float, draw: float) -> int:
        """Frames of the next batch's windows: short ones first, the longest once the words are learnt."""
        done = 1.0 if self.resumed else done
        if done < 0.12:
            return 300
        if done < 0.25:
            return 300 if draw < 0.4 else 500
        if draw < 0.25 * (done >= 0.55):
            return 3000
        return 1000 if draw > 0.75 else 500

    def rate(self, step: int, done: float) -> float:
        """A warm-up, a flat part and a cosine decay."""
        falling = done if self.resumed else max(0.0, (done - 0.3) / 0.7)
        gentle = RESUMED_RATE if self.resumed else 1.0
        return gentle * min(1.0, (step + 1) / 100) * (0.01 + 0.99 * (0.5 + 0.5 * math.cos(math.pi * falling)))


def optimizers(model: Whisper) -> list[torch.optim.Optimizer]:
    """Muon for the layers' matrices, which it learns in fewer steps than AdamW; AdamW for the rest."""
    matrices: list[torch.nn.Parameter] = []
    rest: list[torch.nn.Parameter] = []
    for name, weight in model.named_parameters():
        if weight.requires_grad:
            inner = weight.dim() == 2 and ".layers." in name
            (matrices if inner else rest).append(weight)
    return [
        Muon(matrices, lr=MATRIX_RATE),
        torch.optim.AdamW(rest, lr=REST_RATE, betas=(0.9, 0.98), weight_decay=0.0),
    ]


def token_rows(directory: Path) -> dict[str, int]:
    """The tokens of a saved tokenizer, with their rows in the embedding."""
    rows: dict[str, int] = Tokenizer.from_file(str(directory / "tokenizer.json")).get_vocab()
    return rows


def take_over(
    model: WhisperForConditionalGeneration,
    saved: WhisperForConditionalGeneration,
    before: dict[str, int],
    now: dict[str, int],
) -> None:
    """Copies the saved weights; tokens keep their embeddings, and new words begin with random ones."""
    embedding = "model.decoder.embed_tokens.weight"
    state = saved.state_dict()
    rows = model.state_dict()[embedding].clone()
    for token, row in now.items():
        if token in before:
            rows[row] = state[embedding][before[token]]
    state.update({embedding: rows, "proj_out.weight": rows})
    model.load_state_dict(state)


def save(model: Whisper, out: Path) -> None:
    """Writes the checkpoint in half precision, without the helpers and without the tied projection."""
    weights = {name: weight.half() for name, weight in model.whisper.state_dict().items()}
    weights.pop("proj_out.weight")
    model.whisper.save_pretrained(out, state_dict=weights)
    (out / "model.safetensors").chmod(0o644)


@torch.inference_mode()
def probe(model: Whisper, batch: Batch) -> str:
    """The losses on windows of voices and templates that were never trained on."""
    return ", ".join(f"{name} {value.item():.3f}" for name, value in model.losses(batch).items())


def train(model: Whisper, ids: Ids, run: Run, out: Path) -> int:
    """Trains by steps or minutes, whichever ends first, and saves now and then. Returns the steps."""
    started = time.monotonic()
    utterances = UTTERANCES // (1 + run.resumed)
    maker = WindowMaker(utterances, SEED + 2 * run.resumed)
    generator = np.random.default_rng(SEED + 2 * run.resumed)
    unheard = WindowMaker(150, SEED + 1, held_out=True)
    probed = batched([unheard.make(500) for _ in range(24)], ids, 0, 0, generator)
    print(f"{utterances:,} utterances spoken in {time.monotonic() - started:.0f} s", flush=True)
    learners = optimizers(model)
    rates = [learner.param_groups[0]["lr"] for learner in learners]
    saved, made, smooth = time.monotonic(), 0, 0.0
    halved = has_fast_bfloat16("cpu")
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns) as progress:
        task = progress.add_task("training", total=1.0)
        for step in range(run.steps):
            elapsed = time.monotonic() - started
            done = max(step / run.steps, elapsed / (60 * run.minutes))
            if done >= 1:
                break
            for learner, rate in zip(learners, rates, strict=True):
                learner.param_groups[0]["lr"] = rate * run.rate(step, done)
            context = run.context(done, generator.random())
            # Torch's fused attention is slower than its parts on a CPU, but for long windows.
            model.whisper.set_attn_implementation("sdpa" if context > 1000 else "eager")
            windows = [maker.make(context) for _ in range(FRAMES_A_BATCH // context)]
            late = run.resumed or done >= 0.3
            batch = batched(windows, ids, TIMED * late, PROMPTED * late, generator)
            with torch.autocast("cpu", torch.bfloat16, enabled=halved):
                losses = model.losses(
                    batch, decoding=run.resumed or done >= 0.03, aside=run.resumed and done < 0.05
                )
            helpers = 0.3 if run.resumed or done >= 0.6 else 1.0
            loss = helpers * (losses["class"] + 0.5 * losses["count"])
            loss = loss + losses.get("text", 0) + 0.3 * losses.get("look", 0)
            model.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            for learner in learners:
                learner.step()
            smooth = loss.item() if step == 0 else 0.95 * smooth + 0.05 * loss.item()
            made = step + 1
            progress.update(task, completed=done, description=f"loss {smooth:.3f}")
            if made % 100 == 0:
                progress.console.print(
                    f"step {made}, {elapsed:.0f} s: loss {smooth:.3f}; unheard: {probe(model, probed)}"
                )
            if time.monotonic() - saved > SAVE_EVERY_S:
                save(model, out)
                saved = time.monotonic()
    model.whisper.set_attn_implementation("sdpa")
    return made


def keep(out: Path, figures: dict[str, Any]) -> int:
    """Measures the model in `out`, prints the gate, writes figures.json; 0 where it passed, for the shell."""
    figures = {**figures, **measure(out)}
    (out / "figures.json").write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(figures, indent=1))
    for name, floor in FLOORS.items():
        rate = figures["word_error_rate_percent"][name]
        print(f"{'held' if rate <= floor else 'MISSED'}: {name}, {rate} % word error rate, at most {floor} %")
    return 0 if figures["passed"] else 1


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--resume", action="store_true", help="go on from the saved model")
    parser.add_argument("--check", action="store_true", help="measure a saved model, train nothing")
    parser.add_argument("--out", type=Path, default=OUT, help="directory to save to")
    parser.add_argument("--steps", type=int, default=STEPS, help="optimizer steps")
    parser.add_argument(
        "--minutes", type=float, default=60.0, help="stop after so many minutes at the latest"
    )
    parser.add_argument("--threads", type=int, default=1, help="CPU threads")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(SEED)
    out: Path = options.out
    if options.check:
        return keep(out, json.loads((out / "figures.json").read_text(encoding="utf-8")))
    out.mkdir(parents=True, exist_ok=True)
    vocabulary = words()
    rows = token_rows(out) if options.resume else {}
    saved = WhisperForConditionalGeneration.from_pretrained(out) if options.resume else None
    ids = save_tokenizer(vocabulary, out)
    model = Whisper(config(ids, **SHAPE), len(vocabulary))
    if saved is not None:
        take_over(model.whisper, saved, rows, token_rows(out))
    model.whisper.generation_config = generation_config(ids, HEADS)
    started = time.monotonic()
    steps = train(model, ids, Run(options.steps, options.minutes, options.resume), out)
    minutes = (time.monotonic() - started) / 60
    save(model, out)
    write_samples(out / "samples", SEED)
    write_samples(out / "questions", SEED, QUESTIONS)
    figures: dict[str, Any] = {
        "words": len(vocabulary),
        "parameters": sum(weight.numel() for weight in model.whisper.parameters()),
    }
    if options.resume and (out / "figures.json").exists():
        before = json.loads((out / "figures.json").read_text(encoding="utf-8"))
        steps, minutes = steps + before["training_steps"], minutes + before["training_minutes"]
    print(f"{steps} steps, {minutes:.1f} minutes in all, speaking included")
    return keep(out, {**figures, "training_steps": steps, "training_minutes": round(minutes, 1)})


if __name__ == "__main__":
    sys.exit(main())
