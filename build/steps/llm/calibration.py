"""Lays calibration texts out as TensorRT-LLM's quantiser reads them, from a text file or a directory.

The quantiser calls `datasets.load_dataset(directory, split="train")` and takes the column `text`.
How many tokens of a text count, the build decides.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

from steps.artefact import evenly
from steps.llm.checkpoint import read_texts

from trimodal.errors import ArtefactError

FEWEST, MOST = 128, 512  # Fewer leave scales to chance; more cost time and change little.
# Words in a path that make the quantiser (quantize_by_modelopt.py of 1.2) take a data set for another
# one, or a checkpoint for another model.
DATA_WORDS = ("cnn_dailymail", "scienceqa", "science_qa")
MODEL_WORDS = ("mpt", "vila", "llava-onevision-qwen2")


@dataclass(frozen=True)
class Calibration:
    """Texts, and where they are from. `sha256` is over the texts as used."""

    name: str
    texts: list[str]

    @property
    def sha256(self) -> str:
        return hashlib.sha256("\0".join(self.texts).encode()).hexdigest()

    def figures(self) -> dict[str, str | int]:
        """For the manifest."""
        return {"source": self.name, "samples": len(self.texts), "sha256": self.sha256}


def read_calibration(path: Path) -> Calibration:
    """128 to 512 texts: lines or paragraphs of a file, or all .txt and .jsonl files of a directory.

    A .txt file of a directory is one text; a line of a .jsonl file is an object with the key `text`. Of
    more than 512 texts, 512 are taken evenly over all.

    Raises:
        ArtefactError: unreadable, or too few.
    """
    if path.is_dir():
        texts = _directory_texts(path)
    else:
        texts = _json_lines(path) if path.suffix == ".jsonl" else read_texts(path, at_least=0)
    if len(texts) < FEWEST:
        raise ArtefactError(
            f"--calibration {path} holds {len(texts)} texts: {FEWEST} to {MOST} are needed "
            "(lines or paragraphs of a file; .txt files and lines of .jsonl files of a directory)"
        )
    return Calibration(path.name, evenly(texts, MOST))


def _directory_texts(path: Path) -> list[str]:
    texts = []
    for file in sorted(path.rglob("*")):
        if file.suffix == ".jsonl":
            texts += _json_lines(file)
        elif file.suffix == ".txt":
            texts.append("\n\n".join(read_texts(file, at_least=0)))
    return [text for text in texts if text]


def _json_lines(path: Path) -> list[str]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
        texts = [json.loads(line)["text"] for line in lines if line.strip()]
    except (OSError, ValueError, KeyError, TypeError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise ArtefactError(f"{path} is not one JSON object with a key text a line ({reason})") from None
    if any(not isinstance(text, str) for text in texts):
        raise ArtefactError(f"{path}: the key text holds something else than a string")
    return [text.strip() for text in texts if text.strip()]


def write_dataset(calibration: Calibration, directory: Path) -> Path:
    """Puts the texts under `directory` as split `train`, column `text`; returns the data set's directory."""
    check_path(directory, DATA_WORDS, "the data set")
    folder = directory / "calibration"
    folder.mkdir(parents=True)
    with (folder / "train.jsonl").open("w", encoding="utf-8") as file:
        for text in calibration.texts:
            file.write(json.dumps({"text": text}, ensure_ascii=False) + "\n")
    return folder


def check_path(path: Path, words: tuple[str, ...], what: str) -> None:
    """Raises: ArtefactError when TensorRT-LLM's quantiser would take the path for something else."""
    if word := next((each for each in words if each in str(path).lower()), None):
        raise ArtefactError(
            f"TensorRT-LLM's quantiser takes {what} for another one because its path {path} "
            f"holds {word!r}: move it, or name it by a link elsewhere"
        )
