"""The peers, on tiny models."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from fastapi.testclient import TestClient
from PIL import Image

from benchmarks.peers import fit, llm_app
from tests.project.pages import ROOT
from trimodal.vision.artefact import InputSpec
from trimodal.vision.image import Picture
from trimodal.vision.preprocess import Preprocessor
from trimodal.vision.settings import Limits


@pytest.mark.parametrize("size", [(64, 64), (90, 60), (48, 100)])
@pytest.mark.parametrize(
    "spec",
    [
        InputSpec(height=32, width=32, resize="crop", resize_to=40),
        InputSpec(height=24, width=32, resize="exact"),
    ],
)
def test_an_image_is_fitted_as_ours_is(size: tuple[int, int], spec: InputSpec) -> None:
    x, y = np.meshgrid(np.linspace(0, 255, size[0]), np.linspace(0, 255, size[1]))
    image = Image.fromarray(np.stack([x, y, (x + y) / 2], -1).astype(np.uint8))
    theirs, ours = fit(image, spec), Preprocessor(spec, Limits()).fit(Picture(image, 1))
    assert theirs.size == (spec.width, spec.height)
    assert np.array_equal(theirs, ours)


@pytest.mark.slow
@pytest.mark.build
@pytest.mark.timeout(600)  # the first import of transformers, on a busy machine
@pytest.mark.filterwarnings("default")  # of libraries that only the peer uses
def test_answers_have_as_many_tokens_as_were_asked_for(tmp_path: Path) -> None:
    script = [sys.executable, "build/random_checkpoint.py", "llama-tiny", "--out", str(tmp_path / "tiny")]
    subprocess.run(
        script, cwd=ROOT, check=True, capture_output=True, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    # Every id ends an answer, as the checkpoint has it.
    file = tmp_path / "tiny" / "generation_config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "eos_token_id": list(range(512))}))
    client = TestClient(llm_app(tmp_path / "tiny", "float32"))
    for tokens in (4, 7):
        asked = {
            "messages": [{"role": "user", "content": "hi"}], "max_tokens": tokens, "ignore_eos": True,
        }  # fmt: skip
        *_, usage, done, _ = client.post("/v1/chat/completions", json=asked).text.split("\n\n")
        assert json.loads(usage.removeprefix("data: "))["usage"]["completion_tokens"] == tokens
        assert done == "data: [DONE]"
