"""All models on their fake engines: answers can be worked out beforehand, so "right" means equal."""

from __future__ import annotations

import io
from pathlib import Path

from PIL import Image

from tests.vision.pictures import artefact

MODELS = ("embedding", "llm", "vision", "speech", "speech_recognize")
SCRIPT = "naïve café, 日本語, 😀 and a quick brown fox;"
LLM = {"engine": "fake", "fake_answer": SCRIPT, "fake_step_ms": "2", "max_num_seqs": "4"}
Changes = dict[str, dict[str, str]]


def vision(directory: Path, classes: int = 3, **settings: str) -> Changes:
    """vision on a fake classifier that names a picture by its red value.

    Args:
        settings: its own, as `fake_delay_ms`.
    """
    plain = {"mean": (0, 0, 0), "std": (1 / 255,) * 3}  # a pixel is its own value
    classifier = str(artefact(directory / "classifier", classes=classes, **plain))
    return {"vision": {"artefact": classifier, "engine": "fake", **settings}}


def changes(directory: Path) -> Changes:
    """Parameters of all models; vision's artefact (no model in it) is made in `directory`."""
    return {
        "llm": LLM,
        "embedding": {"engine": "fake"},
        "judge": {"engine": "fake"},
        "speech": {"vad": "energy"},
        "speech_recognize": {"engine": "fake"},
        **vision(directory),
    }


def png(red: int) -> bytes:
    """A picture of one colour; its class is `red` modulo the number of classes."""
    file = io.BytesIO()
    Image.new("RGB", (16, 12), (red, 0, 0)).save(file, "PNG")
    return file.getvalue()
