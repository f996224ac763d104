"""Makes random weights and a tokenizer in the dimensions of a sentence embedder, for random_checkpoint.py."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from steps.random.checkpoint import byte_level_tokenizer, make_weights, save_tokenizer, save_weights

FIRST, LAST, PAD = "[CLS]", "[SEP]", "[PAD]"


@dataclass(frozen=True)
class EmbedderShape:
    """Dimensions of a BERT encoder."""

    width: int
    layers: int
    heads: int
    vocabulary: int = 30_522
    positions: int = 512


EMBEDDER_SHAPES = {
    "minilm": EmbedderShape(384, 6, 12),  # all-MiniLM-L6-v2
    "minilm-nano": EmbedderShape(32, 2, 2, vocabulary=512),  # no published model: small enough for tests
}


def write_embedder(shape: EmbedderShape, directory: Path, seed: int) -> int:
    """Saves config.json, FP32 weights and a tokenizer; returns the number of parameters."""
    import torch
    from tokenizers.processors import TemplateProcessing
    from transformers import BertConfig, BertModel

    values: dict[str, Any] = dict(
        vocab_size=shape.vocabulary,
        hidden_size=shape.width,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        intermediate_size=4 * shape.width,
        max_position_embeddings=shape.positions,
    )
    config = BertConfig(**values)
    config.random_weights = True
    with torch.device("meta"):  # Shapes alone: the weights below are made once.
        model = BertModel(config, add_pooling_layer=False)
    generator = torch.Generator().manual_seed(seed)

    def weight(name: str, sizes: tuple[int, ...]) -> Any:
        if "LayerNorm.weight" in name:
            return torch.ones(sizes)
        return (
            torch.zeros(sizes)
            if name.endswith("bias")
            else torch.empty(sizes).normal_(0, 0.05, generator=generator)
        )

    weights = make_weights(model, weight)
    tokenizer = byte_level_tokenizer(shape.vocabulary - 3, (FIRST, LAST, PAD))
    tokenizer.add_special_tokens([FIRST, LAST, PAD])
    ids = [(token, tokenizer.token_to_id(token)) for token in (FIRST, LAST)]
    tokenizer.post_processor = TemplateProcessing(single=f"{FIRST} $A {LAST}", special_tokens=ids)
    save_tokenizer(tokenizer, directory, cls_token=FIRST, sep_token=LAST, pad_token=PAD)
    return save_weights(model, weights, directory)
