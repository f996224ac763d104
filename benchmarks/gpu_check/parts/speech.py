"""Measures Whisper on CTranslate2 and on TensorRT."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import closing
from functools import partial
from typing import Any

from benchmarks.gpu_check.artefacts import provide
from benchmarks.gpu_check.steps import Options, Step
from trimodal.errors import ArtefactError

WINDOW_S, SAMPLE_RATE = 5.0, 16_000
LEAST_TEXTS = 0.8  # of windows with the processor's text: one close decision changes a word


def windows(count: int) -> list[Any]:
    """Different made-up sounds, float32 at 16 kHz, which rise and fall as speech does."""
    import numpy as np

    rng = np.random.default_rng(0)
    times = np.arange(round(WINDOW_S * SAMPLE_RATE)) / SAMPLE_RATE
    made = []
    for pitch, pace in rng.uniform((90, 2), (250, 6), (count, 2)):
        voice = sum(np.sin(2 * np.pi * pitch * tone * times) / tone for tone in range(1, 9))
        made.append((0.1 * voice * (1 + np.sin(pace * times))).astype(np.float32))
    return made


def engine(name: str, artefact: str, options: Options) -> Mapping[str, Any]:
    """One engine in this process: its start, its first window, its answers, and windows a second."""
    from trimodal.speech.engines.protocol import open_engine
    from trimodal.speech.settings import RecogniseSettings
    from trimodal.speech.values import Window

    directory = provide(options, artefact)
    sizes = (1, 2, 4, 8, 16) if options.full else (1, 2)
    heard, most = [Window(samples) for samples in windows(16)], sizes[-1]

    def opened(device: str) -> Any:
        given = {"artefact": str(directory), "engine": name, "device": device, "max_batch_windows": most}
        return closing(open_engine(directory, RecogniseSettings.model_validate(given)))

    found: dict[str, Any] = {}
    began = time.perf_counter()
    with opened(options.device) as ours:
        found["open_s"] = time.perf_counter() - began
        ours.recognise(heard[:1])  # CTranslate2 4.8.5 has no code for Hopper: the driver compiles its PTX
        found["first_window_s"] = time.perf_counter() - began - found["open_s"]
        if name == "ctranslate2":
            with opened("cpu") as theirs:
                pairs = zip(ours.recognise(heard[:8]), theirs.recognise(heard[:8]), strict=True)
                same = found["same_texts"] = sum(one.text == other.text for one, other in pairs) / 8
            if same < LEAST_TEXTS:
                raise ArtefactError(f"not the answers of the processor: {same:.3f} of the texts are the same")
        return found | options.sweep("engine", sizes, lambda batch: partial(ours.recognise, heard[:batch]))


BUILT = ("torch", "transformers", "tokenizers", "safetensors", "pydantic", "typer", "soundfile")
"""What building a recogniser from a checkpoint and opening it need."""

STEPS = (
    Step("ctranslate2", partial(engine, "ctranslate2", "speech"), (*BUILT, "ctranslate2")),
    Step("tensorrt", partial(engine, "tensorrt", "speech-plan"), (*BUILT, "tensorrt"), gpu=True),
)
