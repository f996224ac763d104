"""Makes a byte-level tokenizer for checkpoints with random weights: any text encodes, every id decodes.

Special tokens and their ids come from the caller.
"""

from __future__ import annotations

from typing import Any


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
