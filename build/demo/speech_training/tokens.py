"""Makes the demo speech model's tokenizer: byte-level BPE, every word of the vocabulary one token.

Special tokens have Whisper's names and order, so that what knows Whisper by name works; their numbers are
small ones, because the words are few. The model is English-only as Whisper's `.en` models are: no language
tokens.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import GenerationConfig, WhisperConfig, WhisperFeatureExtractor, WhisperTokenizer

TIMESTAMPS = tuple(f"<|{index * 0.02:.2f}|>" for index in range(1501))
SPECIALS = (
    "<|endoftext|>", "<|startoftranscript|>", "<|translate|>", "<|transcribe|>", "<|startoflm|>",
    "<|startofprev|>", "<|nospeech|>", "<|notimestamps|>",
)  # fmt: skip
CONTEXTS_S = (5, 10, 30)
MEL_BANDS = 80
POSITIONS = 448


@dataclass(frozen=True)
class Ids:
    """Token numbers: of the words, and of the special tokens by Whisper's names."""

    words: dict[str, int]
    eot: int
    sot: int
    prev: int
    no_speech: int
    no_timestamps: int
    size: int

    def timestamp(self, seconds: float) -> int:
        """The token of a time in the window, at most 30 s."""
        return self.no_timestamps + 1 + min(1500, max(0, round(seconds / 0.02)))


def save_tokenizer(words: list[str], out: Path) -> Ids:
    """Writes tokenizer.json, tokenizer_config.json and preprocessor_config.json for these words."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=100_000, min_frequency=1, show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )  # fmt: skip
    # With room enough the merges of training end only when each word is one token.
    tokenizer.train_from_iterator((" " + word for word in words), trainer)
    model = json.loads(tokenizer.to_str())["model"]
    whisper = WhisperTokenizer(
        vocab=model["vocab"], merges=[tuple(merge) for merge in model["merges"]], model_max_length=POSITIONS,
        pad_token="<|endoftext|>",
    )  # fmt: skip
    whisper.add_special_tokens({"additional_special_tokens": list(SPECIALS[1:])})
    whisper.add_tokens(list(TIMESTAMPS))
    whisper.set_prefix_tokens(predict_timestamps=False)
    whisper.save_pretrained(out)
    # The one that each utterance gets does not matter; chunk_length 30 is what Whisper has.
    WhisperFeatureExtractor(feature_size=MEL_BANDS).save_pretrained(out)
    return load_ids(words, out)


def load_ids(words: list[str], directory: Path) -> Ids:
    """The token numbers in a saved tokenizer.

    Raises:
        ValueError: a word is not one token, or the special tokens are not in Whisper's order.
    """
    tokenizer = Tokenizer.from_file(str(directory / "tokenizer.json"))
    encoded = {word: tokenizer.encode(" " + word, add_special_tokens=False).ids for word in words}
    split = [word for word, ids in encoded.items() if len(ids) != 1]
    specials = [tokenizer.token_to_id(token) for token in (*SPECIALS, *TIMESTAMPS)]
    if split or len({ids[0] for ids in encoded.values()}) != len(words):
        raise ValueError(f"these words are not a token of their own: {split}")
    if specials != list(range(specials[0], specials[0] + len(specials))):
        raise ValueError("the special tokens do not follow each other in Whisper's order")
    by_name = dict(zip(SPECIALS, specials, strict=False))
    return Ids(
        words={word: ids[0] for word, ids in encoded.items()}, eot=by_name["<|endoftext|>"],
        sot=by_name["<|startoftranscript|>"], prev=by_name["<|startofprev|>"],
        no_speech=by_name["<|nospeech|>"], no_timestamps=by_name["<|notimestamps|>"],
        size=specials[-1] + 1,
    )  # fmt: skip


def config(ids: Ids, **shape: Any) -> WhisperConfig:
    """The model's configuration; `shape` is its width, layers and heads."""
    values: dict[str, Any] = {
        "vocab_size": ids.size, "num_mel_bins": MEL_BANDS, "max_source_positions": 1500,
        "max_target_positions": POSITIONS, "bos_token_id": ids.eot, "eos_token_id": ids.eot,
        "pad_token_id": ids.eot, "decoder_start_token_id": ids.sot, "dropout": 0.0, "suppress_tokens": [],
        "begin_suppress_tokens": [], "trimodal_contexts_s": list(CONTEXTS_S), "trimodal_padding": "zeros",
    }  # fmt: skip
    return WhisperConfig(**values, **shape)


def generation_config(ids: Ids, alignment_heads: list[list[int]]) -> GenerationConfig:
    """How to decode. Nothing is suppressed: a window without words ends at once, with an empty text."""
    return GenerationConfig(
        decoder_start_token_id=ids.sot, bos_token_id=ids.eot, eos_token_id=ids.eot, pad_token_id=ids.eot,
        no_timestamps_token_id=ids.no_timestamps, prev_sot_token_id=ids.prev, suppress_tokens=[],
        begin_suppress_tokens=[], alignment_heads=alignment_heads, is_multilingual=False,
        max_initial_timestamp_index=50, max_length=POSITIONS, return_timestamps=False,
    )  # fmt: skip
