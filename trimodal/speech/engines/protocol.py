"""Defines the protocol of a speech engine, and opens one by name.

The service has checked the windows that an engine gets (limits, finite samples, known languages), and filters
hallucinations afterwards. The engine pads windows and puts them into batches.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Protocol

from trimodal.speech.settings import RecogniseSettings
from trimodal.speech.values import Recognition, Window


class SpeechEngine(Protocol):
    """Turns windows of audio into words with times."""

    @property
    def contexts_s(self) -> tuple[float, ...]:
        """Encoder lengths in seconds, ascending; a window is padded to the first that holds it.

        Windows of one context share a batch: the words of a window must not depend on its neighbours.
        """

    @property
    def languages(self) -> tuple[str, ...]:
        """ISO 639-1 codes that may be asked for; the first is the default unless the model detects it."""

    def recognise(self, windows: Sequence[Window], temperature: float = 0.0) -> list[Recognition]:
        """What is heard in each window, in order.

        Temperature 0 decodes as the settings say, and the same whatever was recognised before; above it
        tokens are drawn.
        """

    def close(self) -> None:
        """Frees what the engine holds; it is not used afterwards."""


# Engine → module with `open_engine`. Imported when opened.
ENGINES = {
    "ctranslate2": "trimodal.speech.engines.ctranslate2",
    "tensorrt": "trimodal.speech.engines.tensorrt.engine",
    "fake": "trimodal.speech.engines.fake",
}


def open_engine(directory: Path, settings: RecogniseSettings) -> SpeechEngine:
    """Opens the engine that `settings.engine` names. Raises ArtefactError: `directory` does not fit it."""
    engine: SpeechEngine = import_module(ENGINES[settings.engine]).open_engine(directory, settings)
    return engine
