"""Takes a Whisper that is converted already: a CTranslate2 directory, as faster-whisper's users have it.

`precision` is what CTranslate2 computes with, and it makes that of any weights when it opens them. They stay
as they are, but for INT8, which is written (weights.py). What serving reads beside the weights comes from the
directory's own files; a tokenizer that an older converter left out is OpenAI's. The reference is
faster-whisper on the same directory and audio, computing in FP32 over its 30 s.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from steps.artefact import reason
from steps.speech.audio import Recording
from steps.speech.check import agreement, error_rates, hear
from steps.speech.openai import TOKENIZER, languages, tokenizer_for

from trimodal.audio.values import SAMPLE_RATE
from trimodal.build_support import progress
from trimodal.errors import ArtefactError
from trimodal.speech.engines.ctranslate2 import CTranslate2Whisper
from trimodal.speech.values import Window
from trimodal.speech.whisper.features import Padding
from trimodal.speech.whisper.weights import WEIGHTS

POSITIONS = 448  # tokens that every Whisper's decoder has room for
# What CTranslate2 reads; `vocabulary` is .txt of older converters, .json since 3.17.
VOCABULARIES = ("vocabulary.txt", "vocabulary.json")
FILES = ("config.json", TOKENIZER, "preprocessor_config.json", *VOCABULARIES)


def is_converted(directory: Path) -> bool:
    """Whether CTranslate2's weights lie there."""
    return (directory / WEIGHTS).is_file()


class ConvertedCheckpoint:
    """A CTranslate2 directory.

    Attributes:
        languages: ISO 639-1 codes, in the order of their tokens; ("en",) of an English-only Whisper.
    """

    def __init__(self, directory: Path, source: str, padding: Padding) -> None:
        """Raises: ArtefactError: not a Whisper, or a file is missing or damaged."""
        import ctranslate2

        self.directory, self._padding = directory, padding
        try:
            self._config = json.loads((directory / "config.json").read_text(encoding="utf-8"))
            model = ctranslate2.models.Whisper(str(directory), device="cpu", compute_type="float32")
            self._multilingual, self._mel_bins = bool(model.is_multilingual), int(model.n_mels)
            size = len(_vocabulary(directory))
        except Exception as error:  # json and CTranslate2 raise kinds of their own
            raise ArtefactError(
                f"{source} cannot be opened as a Whisper of CTranslate2: {reason(error)}"
            ) from None
        self._tokenizer = tokenizer_for(directory / WEIGHTS, size)
        self.languages = tuple(languages(self._tokenizer.get_vocab())) if self._multilingual else ("en",)
        if not self.languages:
            raise ArtefactError(f"{source}: its {TOKENIZER} has no token of a language")

    def shapes(self, contexts_s: list[float]) -> dict[str, Any]:
        """What a serving engine relies on, for the manifest."""
        return {
            "contexts_s": contexts_s,
            "languages": list(self.languages),
            "mel_bins": self._mel_bins,
            "sample_rate": SAMPLE_RATE,
            "padding": self._padding,
            "positions": POSITIONS,
        }

    def described(self) -> dict[str, Any]:
        """What a manifest says of the checkpoint itself."""
        known = bool(self._config.get("alignment_heads"))
        heads = "named by the checkpoint" if known else "all of the decoder's later half"
        return {"alignment_heads": heads, "multilingual": self._multilingual, "random_weights": False}

    def copy(self, directory: Path) -> None:
        """Puts weights, vocabulary and configuration there; weights as a hard link where that is possible."""
        target = directory / WEIGHTS
        try:
            target.hardlink_to((self.directory / WEIGHTS).resolve())
        except OSError:
            shutil.copyfile(self.directory / WEIGHTS, target)
        for name in FILES:
            if (self.directory / name).is_file():
                shutil.copyfile(self.directory / name, directory / name)
        if not (directory / TOKENIZER).is_file():
            self._tokenizer.save(str(directory / TOKENIZER))


def _vocabulary(directory: Path) -> list[str]:
    """All tokens. Raises: OSError, ValueError: there is no list of them."""
    text, listed = (directory / name for name in VOCABULARIES)
    if text.is_file():
        return text.read_text(encoding="utf-8").removesuffix("\n").split("\n")
    return list(json.loads(listed.read_text(encoding="utf-8")))


def hear_with_faster_whisper(directory: Path, recordings: list[Recording], language: str) -> list[str]:
    """What faster-whisper hears in each window, with the weights that lie there."""
    import faster_whisper

    model = faster_whisper.WhisperModel(str(directory), device="cpu", compute_type="float32")
    windows = [window for recording in recordings for window in recording.windows]
    expected = []
    with progress("Hearing the audio with faster-whisper", total=len(windows)) as advance:
        for window in windows:
            segments, _ = model.transcribe(
                window,
                language=language or None,
                beam_size=1,
                temperature=0.0,
                condition_on_previous_text=False,
            )
            expected.append("".join(segment.text for segment in segments))
            advance()
    return expected


def compare_with_faster_whisper(
    expected: list[str], engine: CTranslate2Whisper, recordings: list[Recording], language: str
) -> dict[str, Any]:
    """Figures of the serving engine: its words against faster-whisper's; error rates where texts are."""
    windows = [window for recording in recordings for window in recording.windows]
    heard = hear(engine, [Window(samples, language) for samples in windows])
    figures = {"windows": len(windows), "word_agreement": agreement(expected, heard)}
    return figures | error_rates(recordings, {"faster_whisper": expected, "built": heard}, engine.contexts_s)
