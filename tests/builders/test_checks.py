"""The checks of the build scripts: what is not a number is out of every bound, wherever it stands."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from trimodal.errors import ArtefactError
from trimodal.manifest import Manifest

pytestmark = pytest.mark.build


def whole(pixels: Any) -> Any:
    return np.repeat(pixels[:, :1].astype(np.float32), 3, 1) + np.float32([1, 2, 3])


@pytest.mark.parametrize("broken", [1, 3, 5])
def test_a_classifier_that_fails_in_one_size_of_batch(broken: int) -> None:
    vision_check = importlib.import_module("steps.vision.check")
    pixels = np.arange(8, dtype=np.uint8)[:, None]

    def run(batch: Any) -> Any:
        return whole(batch) * (np.nan if len(batch) == broken else 1)

    logits = whole(pixels)
    assert vision_check.batch_change(whole, pixels, logits, 5) == 0
    figures = {"batch_change": vision_check.batch_change(run, pixels, logits, 5)}
    with pytest.raises(ArtefactError, match="batch_change nan is above 0.01"):
        vision_check.judge("onnx-fp16", "fp16", figures, 0.9)


@pytest.mark.parametrize(("error", "kept"), [(0.01, True), (0.5, False), (float("nan"), False)])
def test_a_recogniser_whose_encoder_is_off(error: float, kept: bool) -> None:
    speech_check = importlib.import_module("steps.speech.check")
    manifest = Manifest(
        task="speech", runtime="ctranslate2", runtime_version="1", precision="float16", source="here",
        source_sha256="none", command="python build/speech_ctranslate2.py here",
        check={"encoder_relative_error": error, "token_agreement": 1.0},
    )  # fmt: skip
    if kept:
        speech_check.judge(manifest, None, "ctranslate2-float16")
        return
    with pytest.raises(ArtefactError, match="encodes audio with an error of"):
        speech_check.judge(manifest, None, "ctranslate2-float16")


def test_weights_that_have_no_room_are_told_before_they_are_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check = importlib.import_module("steps.artefact").check_weights_fit
    model = SimpleNamespace(parameters=lambda: [SimpleNamespace(numel=lambda: 1_000_000)] * 2)
    places = {each: tmp_path / each for each in ("fp16", "int8", "int4")} | {"fp32": tmp_path / "other" / "a"}
    needed = 2_000_000 * (4 + 2 + 1 + 0.5)  # what goes elsewhere needs no room here
    monkeypatch.setattr("trimodal.manifest.free_room", lambda place: needed)
    check(model, places, beside=4.0)
    monkeypatch.setattr("trimodal.manifest.free_room", lambda place: needed - 1)
    with pytest.raises(ArtefactError, match="at least 15 MB in"):
        check(model, places, beside=4.0)
