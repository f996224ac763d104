"""A checkpoint's tokenizer as SentencePiece has it: words with the blank before them, and bytes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from trimodal.llm.tokenizer import CheckpointTokenizer

STRIPS = decoders.Sequence(
    [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
)
"""Llama 2's decoder, which drops the blank at the beginning of a text."""
END = "<|im_end|>"


def sentencepiece(directory: Path, decoder: Any = STRIPS) -> CheckpointTokenizer:
    """One that has some words; END ends an answer, and is not marked as special."""
    in_bytes = [f"<0x{byte:02X}>" for byte in range(256)]
    words = ["<s>", *in_bytes, "▁The", "▁capital", "▁is", "▁Paris", "▁", ",", "."]
    bpe = models.BPE({word: id for id, word in enumerate(words)}, [], ignore_merges=True, byte_fallback=True)
    made = Tokenizer(bpe)
    words_of = [pre_tokenizers.Metaspace(prepend_scheme="first"), pre_tokenizers.Punctuation("isolated")]
    made.pre_tokenizer = pre_tokenizers.Sequence(words_of)
    made.decoder = decoder
    made.add_special_tokens(["<s>"])
    made.add_tokens([END])
    made.save(str(directory / "tokenizer.json"))
    (directory / "tokenizer_config.json").write_text(json.dumps({"eos_token": END}))
    return CheckpointTokenizer(directory)
