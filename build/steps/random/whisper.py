"""Makes random weights and a vocabulary in the dimensions of a real Whisper, for random_checkpoint.py.

The vocabulary has a real Whisper's 51,865 ids, all special tokens at their places. The
decoder ends after a set number of tokens, which are nearly certain of themselves: decoding
costs what it costs on speech, and no guard takes the result for silence. What it
writes has nothing to do with the audio.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from steps.random.checkpoint import (
    byte_level_tokenizer,
    make_weights,
    save_tokenizer,
    save_weights,
    write_json,
)

EMPTY, END, START = 50256, 50257, 50258
TRANSLATE, TRANSCRIBE, START_OF_LM, START_OF_PREVIOUS, NO_SPEECH, NO_TIMESTAMPS = range(50358, 50364)
VOCABULARY = 51_865
# <|startoftranscript|>, language, task, <|notimestamps|>: what the first written token follows.
PROMPT_TOKENS = 4
TEXT_TOKENS = 16  # written a window; speech has about 3 a second
# Spread of the logits: the largest stands out so far that rounding seldom changes which it is.
LOGIT_STD = 20.0


@dataclass(frozen=True)
class WhisperShape:
    """Dimensions of encoder and decoder, which are alike in every Whisper but the distilled ones."""

    width: int
    layers: int
    heads: int
    ffn: int
    mel_bins: int = 80


WHISPER_SHAPES = {
    "whisper-tiny": WhisperShape(384, 4, 6, 1536),
    "whisper-base": WhisperShape(512, 6, 8, 2048),
    "whisper-small": WhisperShape(768, 12, 12, 3072),
    "whisper-nano": WhisperShape(64, 2, 4, 128),  # no published model: small enough for tests
}


def write_whisper(shape: WhisperShape, directory: Path) -> int:
    """Saves config, generation config, FP16 weights, tokenizer; returns the number of parameters."""
    import torch
    from transformers import WhisperConfig, WhisperFeatureExtractor, WhisperForConditionalGeneration

    values: dict[str, Any] = dict(
        vocab_size=VOCABULARY, num_mel_bins=shape.mel_bins, d_model=shape.width, dtype="float16",
        encoder_layers=shape.layers, encoder_attention_heads=shape.heads, encoder_ffn_dim=shape.ffn,
        decoder_layers=shape.layers, decoder_attention_heads=shape.heads, decoder_ffn_dim=shape.ffn,
        decoder_start_token_id=START, bos_token_id=END, eos_token_id=END, pad_token_id=END,
    )  # fmt: skip
    config = WhisperConfig(**values)
    config.random_weights = True  # Build scripts do not expect agreement with torch of such a model.
    with torch.device("meta"):  # Shapes alone: the weights below are made once.
        model = WhisperForConditionalGeneration(config)
    generator = torch.Generator().manual_seed(0)
    weights = make_weights(model, lambda name, sizes: _weight(name, sizes, generator))
    _end_after(weights, PROMPT_TOKENS - 1 + TEXT_TOKENS)
    _write_generation_config(shape, directory)
    WhisperFeatureExtractor(feature_size=shape.mel_bins).save_pretrained(directory)
    _write_tokenizer(directory)
    halves = {name: weight.half().contiguous() for name, weight in weights.items()}
    return save_weights(model, halves, directory)


def _weight(name: str, shape: tuple[int, ...], generator: Any) -> Any:
    import torch
    from transformers.models.whisper.modeling_whisper import sinusoids

    if name == "model.encoder.embed_positions.weight":
        return sinusoids(*shape)
    if name == "model.decoder.layer_norm.weight":
        # Embeddings have rows of length 1: the logits' spread is this gain.
        return torch.full(shape, LOGIT_STD)
    if name.endswith("norm.weight"):
        return torch.ones(shape)
    if name.endswith("bias"):
        return torch.zeros(shape)
    weight = torch.empty(shape).normal_(0, 1, generator=generator)
    if "embed" in name:
        # Places as long as what the layers add, or one and the same token would be written all the time.
        return weight * 2.0 if "positions" in name else weight / shape[1] ** 0.5
    weight /= (weight[0].numel()) ** 0.5  # Keeps the length of what goes through.
    return weight * 0.5 if "q_proj" in name or "k_proj" in name else weight


def _end_after(weights: dict[str, Any], last: int) -> None:
    """Makes <|endoftext|> the certain token from position `last` on, and hardly possible before."""
    places, tokens = (weights[f"model.decoder.embed_{name}.weight"] for name in ("positions", "tokens"))
    direction = tokens[END] / tokens[END].norm()
    places -= (places @ direction)[:, None] * direction  # No place tells of it by chance, …
    tokens -= (tokens @ direction)[:, None] * direction
    tokens[END] = direction
    length = places[0].norm()
    places[:last] -= length / 4 * direction  # … only by this.
    places[last:] += length * 4 * direction


def _write_generation_config(shape: WhisperShape, directory: Path) -> None:
    layers = range(shape.layers // 2, shape.layers)
    config = {
        "alignment_heads": [[layer, head] for layer in layers for head in (0, shape.heads - 1)],
        "begin_suppress_tokens": [220, END],
        "bos_token_id": END,
        "decoder_start_token_id": START,
        "eos_token_id": END,
        "is_multilingual": True,
        "lang_to_id": {token: START + 1 + index for index, token in enumerate(_language_tokens())},
        "max_initial_timestamp_index": 50,
        "max_length": 448,
        "no_timestamps_token_id": NO_TIMESTAMPS,
        "pad_token_id": END,
        "prev_sot_token_id": START_OF_PREVIOUS,
        "suppress_tokens": [START, TRANSLATE, TRANSCRIBE, START_OF_LM, START_OF_PREVIOUS, NO_SPEECH],
        "task_to_id": {"transcribe": TRANSCRIBE, "translate": TRANSLATE},
    }
    write_json(directory / "generation_config.json", config)


def _language_tokens() -> list[str]:
    """Of ids 50259 to 50357: large-v3's hundredth language is not in this vocabulary."""
    from transformers.models.whisper.tokenization_whisper import LANGUAGES

    return [f"<|{code}|>" for code in list(LANGUAGES)[: TRANSLATE - START - 1]]


def _write_tokenizer(directory: Path) -> None:
    """256 bytes, made-up words up to id 50255, "" at 50256 as in the real one, then the special tokens."""
    tokenizer = byte_level_tokenizer(EMPTY, then=("",))
    special = ["<|endoftext|>", "<|startoftranscript|>", *_language_tokens()]
    special += ["<|translate|>", "<|transcribe|>", "<|startoflm|>", "<|startofprev|>", "<|nospeech|>"]
    special += ["<|notimestamps|>", *(f"<|{index * 0.02:.2f}|>" for index in range(1501))]
    tokenizer.add_special_tokens(special)
    assert tokenizer.get_vocab_size() == VOCABULARY
    end = special[0]
    save_tokenizer(tokenizer, directory, bos_token=end, eos_token=end, pad_token=end)
