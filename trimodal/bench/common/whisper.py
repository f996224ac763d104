"""Opens one of our Whisper artefacts with faster-whisper, with the limits that our own engine has."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple


class FasterWhisper(NamedTuple):
    """An opened model.

    Attributes:
        model: faster_whisper.WhisperModel.
        tokenizer: its own, for English.
        never_made: ids of tokens that our engine never makes.
        most_new: length of a window in seconds → tokens that our engine writes of it at most.
    """

    model: Any
    tokenizer: Any
    never_made: list[int]
    most_new: Callable[[float], int]


def open_whisper(directory: Path, device: str, threads: int) -> FasterWhisper:
    """Opens an artefact of CTranslate2 on that many threads; 0: as many as faster-whisper takes by itself.

    Raises:
        ArtefactError: there is none, or it is one of another runtime.
    """
    from faster_whisper import WhisperModel
    from faster_whisper.tokenizer import Tokenizer

    from trimodal.manifest import read_manifest
    from trimodal.speech.engines.ctranslate2_model import compute_type, preload_cublas
    from trimodal.speech.whisper.artefact import read_shapes
    from trimodal.speech.whisper.tokens import WhisperTokens
    from trimodal.speech.whisper.word_timestamps import most_tokens

    manifest = read_manifest(directory, task="speech", runtime="ctranslate2")
    if device == "cuda":
        preload_cublas()
    model = WhisperModel(
        str(directory),
        device=device,
        compute_type=compute_type(directory, manifest, device),
        cpu_threads=threads,
    )
    tokenizer = Tokenizer(model.hf_tokenizer, model.model.is_multilingual, task="transcribe", language="en")
    prompt = model.get_prompt(tokenizer, [], without_timestamps=True)
    languages = read_shapes(directory, manifest).languages
    never = WhisperTokens(directory, languages, multilingual=model.model.is_multilingual).never_made()

    def most_new(seconds: float) -> int:
        # CTranslate2 makes at most half of max_length, which is the prompt and this.
        return min(2 * most_tokens(seconds), int(model.max_length)) - len(prompt)

    return FasterWhisper(model, tokenizer, never, most_new)
