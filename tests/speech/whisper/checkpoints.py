"""A tiny Whisper with random weights, whose words depend on the audio, converted for CTranslate2."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tests.speech.whisper.vocabulary import LANGUAGES, WORDS, write_tokenizer
from trimodal.audio.values import SAMPLE_RATE, Samples
from trimodal.manifest import Manifest, write_manifest

CONTEXTS_S = [2.0, 5.0]


def write_checkpoint(
    directory: Path,
    languages: Sequence[str] = (),
    seed: int = 1,
    end_gain: float = 0.0,
    ffn: int = 64,
    *,
    may_be_empty: bool = False,
) -> None:
    """A Hugging Face directory: two layers, width 32, `tests.speech.whisper.vocabulary`'s words.

    As OpenAI's, it writes a token at least, unless it `may_be_empty`: many texts are with an `end_gain` of 3.
    """
    import torch
    from transformers import GenerationConfig, WhisperConfig, WhisperForConditionalGeneration

    ids = write_tokenizer(directory, languages=languages)
    (directory / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}')
    end = 256 + len(WORDS) + bool(languages)
    not_first = [] if may_be_empty else [end]
    special = {"bos_token_id": end, "eos_token_id": end, "pad_token_id": end}
    halves = {
        f"{half}_{name}": value
        for half in ("encoder", "decoder")
        for name, value in (("layers", 2), ("attention_heads", 2), ("ffn_dim", ffn))
    }
    config = WhisperConfig(
        vocab_size=ids, d_model=32, num_mel_bins=80, init_std=0.2, decoder_start_token_id=end + 1,
        suppress_tokens=[], begin_suppress_tokens=not_first, **halves, **special,
    )  # fmt: skip
    torch.manual_seed(seed)
    model = WhisperForConditionalGeneration(config)
    with torch.no_grad():
        # What is heard and the place in the text count for more than the token before, words for most.
        model.model.decoder.embed_positions.weight *= 12
        for layer in model.model.decoder.layers:
            layer.encoder_attn.out_proj.weight *= 4
            layer.encoder_attn.v_proj.weight *= 2
        embedded = model.model.decoder.embed_tokens.weight
        embedded[256 : 256 + len(WORDS)] *= 3
        embedded[end] = end_gain * torch.randn(32)  # it pads, too: made as zeros
    model.generation_config = GenerationConfig(
        alignment_heads=[[1, 0], [1, 1]], suppress_tokens=[], begin_suppress_tokens=not_first,
        decoder_start_token_id=end + 1, **special,
    )  # fmt: skip
    if languages:
        model.generation_config.lang_to_id = {
            f"<|{code}|>": end + 2 + at for at, code in enumerate(languages)
        }
    model.save_pretrained(directory)


def convert(checkpoint: Path, out: Path, languages: Sequence[str] = (), precision: str = "float32") -> Path:
    """The artefact that the engine opens."""
    from ctranslate2.converters import TransformersConverter

    files = ["tokenizer.json"]
    TransformersConverter(str(checkpoint), copy_files=files).convert(
        str(out), quantization=precision, force=True
    )
    shapes = {
        "contexts_s": CONTEXTS_S, "languages": list(languages or ("en",)), "mel_bins": 80,
        "sample_rate": SAMPLE_RATE,
    }  # fmt: skip
    manifest = Manifest(
        task="speech", runtime="ctranslate2", runtime_version="x", precision=precision, source="random",
        source_sha256="0", command="make it again", shapes=shapes,
    )  # fmt: skip
    write_manifest(out, manifest)
    return out


def edit_manifest(artefact: Path, **changes: object) -> None:
    """Changes keys of the manifest; `shapes` are merged."""
    path = artefact / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["shapes"] |= changes.pop("shapes", {})
    path.write_text(json.dumps(manifest | changes))


def sound(seconds: float, seed: int) -> Samples:
    """Bursts of tones, other ones for each seed."""
    generator = np.random.default_rng(seed)
    times = np.arange(round(seconds * SAMPLE_RATE)) / SAMPLE_RATE
    samples = generator.normal(0, 0.01, len(times))
    for begin in np.arange(0, seconds, 0.25):
        burst = (times >= begin) & (times < begin + 0.2)
        samples[burst] += 0.3 * np.sin(2 * np.pi * generator.uniform(100, 4000) * times[burst])
    return samples.astype(np.float32)


__all__ = ["CONTEXTS_S", "LANGUAGES", "convert", "edit_manifest", "sound", "write_checkpoint"]
