"""A small vocabulary with Whisper's special tokens by name and in Whisper's order, written without torch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

WORDS = ("one", "two", "three", "hello", "world", "what", "is", "a", "lambda")
LANGUAGES = ("en", "de", "zh")


def write_tokenizer(
    directory: Path, words: Sequence[str] = WORDS, languages: Sequence[str] = (), times: int = 1501
) -> int:
    """Saves tokenizer.json: bytes, a token for each " word", the special tokens; returns the number of ids.

    Without `languages` it is English-only; with them it holds the empty token that
    marks Whisper's multilingual vocabularies, too.
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokens = [*alphabet, *("Ġ" + word for word in words), *([""] if languages else [])]
    vocab = {token: index for index, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[], ignore_merges=True))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    names = ["endoftext", "startoftranscript", *languages]
    names += ["translate", "transcribe", "startoflm", "startofprev", "nospeech", "notimestamps"]
    names += [f"{index * 0.02:.2f}" for index in range(times)]
    tokenizer.add_special_tokens([f"<|{name}|>" for name in names])
    directory.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(directory / "tokenizer.json"))
    return int(tokenizer.get_vocab_size())
