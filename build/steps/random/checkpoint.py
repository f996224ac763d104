"""Writes what all checkpoints with random weights have: weights, and a byte-level tokenizer.

Any text encodes, every id decodes. Special tokens and their ids come from the caller.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from trimodal.build_support import progress


def make_weights(model: Any, weight: Callable[[str, tuple[int, ...]], Any]) -> dict[str, Any]:
    """`weight` of each parameter's name and shape; tied ones appear once."""
    named = dict(model.named_parameters())
    weights = {}
    with progress("Making weights", total=len(named)) as advance:
        for name, parameter in named.items():
            weights[name] = weight(name, tuple(parameter.shape))
            advance()
    return weights


def save_weights(model: Any, weights: dict[str, Any], directory: Path) -> int:
    """Saves config.json and the weights; returns the number of parameters."""
    from safetensors.torch import save_file

    with progress("Saving weights"):
        save_file(weights, directory / "model.safetensors", metadata={"format": "pt"})
    model.config.architectures = [type(model).__name__]
    model.config.save_pretrained(directory)
    return sum(weight.numel() for weight in weights.values())


def save_tokenizer(tokenizer: Any, directory: Path, **config: str | None) -> None:
    """Saves the tokenizer and its configuration: bos_token, eos_token, pad_token, chat_template."""
    tokenizer.save(str(directory / "tokenizer.json"))
    common = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False}
    write_json(directory / "tokenizer_config.json", common | config)


def write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n")


def byte_level_tokenizer(size: int, then: tuple[str, ...] = ()) -> Any:
    """256 bytes and made-up words, `size` ids in all, followed by the tokens of `then`."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = [_word(index) for index in range(size - len(alphabet))]
    vocab = {token: index for index, token in enumerate([*alphabet, *words, *then])}
    # `ignore_merges` takes a whole word that is in the vocabulary as it is; all else falls back to bytes.
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[], ignore_merges=True))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _word(index: int) -> str:
    """A word of three syllables, another for each index below a million; "Ġ" is the byte-level space."""
    word = ""
    for _ in range(3):
        index, syllable = divmod(index, 100)
        word = "bcdfghjklmnprstvwxyz"[syllable // 5] + "aeiou"[syllable % 5] + word
    return "Ġ" + word
