"""Writes a checkpoint of a real model's shapes with random weights, to measure speed and to test builds.

    python build/random_checkpoint.py qwen2-0.5b --out artefacts/qwen2-0.5b
    python build/random_checkpoint.py whisper-base --out artefacts/whisper-base
    python build/random_checkpoint.py swin_tiny --out artefacts/swin_tiny

It answers nothing sensible. Its tokenizer is fabricated too: all ids decode to
distinct text, any text encodes, and made-up words encode to the id that they
came from.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import typer
from steps.artefact import refuse_others
from steps.llm.checkpoint import quiet
from steps.random.checkpoint import byte_level_tokenizer, make_weights, save_tokenizer, save_weights
from steps.random.classifier import CLASSIFIER_SHAPES, write_classifier
from steps.random.whisper import WHISPER_SHAPES, write_whisper

from trimodal.build_support import operator_errors, report
from trimodal.manifest import atomic_directory

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@dataclass(frozen=True)
class Shape:
    """A causal language model's dimensions, and the spread of its random weights."""

    model_type: str
    config: dict[str, Any]
    std: float


SHAPES = {
    "qwen2-0.5b": Shape(
        "qwen2",
        dict(
            hidden_size=896, intermediate_size=4864, num_hidden_layers=24, num_attention_heads=14,
            num_key_value_heads=2, vocab_size=151936, max_position_embeddings=32768, rope_theta=1e6,
            tie_word_embeddings=True,
        ),
        std=0.05,
    ),
    "llama-tiny": Shape(
        "llama",
        dict(
            hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, vocab_size=512, max_position_embeddings=512, tie_word_embeddings=True,
        ),
        std=0.2,
    ),
}  # fmt: skip
NAMES = (*SHAPES, *WHISPER_SHAPES, *CLASSIFIER_SHAPES)
ShapeName = Enum("ShapeName", {name: name for name in NAMES}, type=str)  # type: ignore[misc]


def main(
    shape: ShapeName = typer.Argument(..., help="whose dimensions to use"),
    out: Path = typer.Option(..., help="directory of the checkpoint; replaced when it exists"),
) -> None:
    """Write a Hugging Face checkpoint of SHAPE with random weights to --out."""
    quiet()
    with operator_errors():
        refuse_others(out, "config.json")
        with atomic_directory(out) as work:
            if shape.value in WHISPER_SHAPES:
                parameters = write_whisper(WHISPER_SHAPES[shape.value], work)
            elif shape.value in CLASSIFIER_SHAPES:
                parameters = write_classifier(CLASSIFIER_SHAPES[shape.value], work)
            else:
                parameters = write_weights(SHAPES[shape.value], work)
                write_tokenizer(SHAPES[shape.value].config["vocab_size"], work)
    size = sum(path.stat().st_size for path in out.iterdir())
    report(f"Random checkpoint in {out}", {"shape": shape.value, "parameters": parameters, "bytes": size})


def write_weights(shape: Shape, directory: Path) -> int:
    """Saves config.json, generation_config.json and BF16 weights; returns the number of parameters."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    eos = shape.config["vocab_size"] - 1
    config = AutoConfig.for_model(
        shape.model_type, **shape.config, bos_token_id=eos - 2, eos_token_id=eos, dtype="bfloat16"
    )
    config.random_weights = True  # Build scripts do not expect agreement with torch of such a model.
    with torch.device("meta"):  # Shapes alone: the weights below are made once, in their final type.
        model = AutoModelForCausalLM.from_config(config)
    generator = torch.Generator().manual_seed(0)
    weights = make_weights(model, lambda name, sizes: _weight(name, sizes, shape.std, generator))
    model.generation_config.save_pretrained(directory)
    return save_weights(model, weights, directory)


def _weight(name: str, shape: tuple[int, ...], std: float, generator: Any) -> Any:
    import torch

    if name.endswith("norm.weight"):
        return torch.ones(shape, dtype=torch.bfloat16)
    weight = torch.empty(shape).normal_(0, std, generator=generator)
    if "q_proj" in name or "k_proj" in name:
        weight *= 0.5  # Softer attention: sharp scores blow rounding up from layer to layer.
    if "embed_tokens" in name:
        # Rows of unequal length: a few ids stand out in every step, as in a trained model, so that
        # rounding seldom changes which id is the largest. Small beside the layers' outputs, or the
        # tied head would only repeat the last token.
        weight *= torch.empty(shape[0], 1).normal_(0, 0.6, generator=generator).exp() * 0.05
    return weight.to(torch.bfloat16)


def write_tokenizer(vocab_size: int, directory: Path) -> None:
    """A byte-level tokenizer of `vocab_size` ids: 256 bytes, made-up words, three special tokens."""
    tokenizer = byte_level_tokenizer(vocab_size - len(SPECIAL))
    tokenizer.add_special_tokens(list(SPECIAL))
    save_tokenizer(
        tokenizer,
        directory,
        bos_token=None,
        eos_token=SPECIAL[2],
        pad_token=SPECIAL[0],
        chat_template=CHAT_TEMPLATE,
    )


if __name__ == "__main__":
    typer.run(main)
