"""Profile cuda, and engines of a directory outside the repository, on the real server."""

from __future__ import annotations

import io
import shutil
from pathlib import Path

import numpy as np
import pytest
import tritonclient.grpc as grpcclient
from PIL import Image

from tests.e2e.conftest import MODEL_REPOSITORY, built
from tests.server.artefacts import build

pytestmark = pytest.mark.e2e


@pytest.fixture
def engines(tmp_path: Path) -> Path:
    build(tmp_path / "engines" / "vision_classify" / "tiny", "vision", "onnxruntime")
    return tmp_path / "engines"


def test_an_engine_outside_the_repository(no_leftovers, own_server, engines):
    """vision opens it by a path through the repository; only the engines directory has it."""
    changes = {"vision": {"engine": "fake", "artefact": "../../vision_classify/1/tiny"}}
    server = own_server(("vision",), changes, engines=engines)
    picture = io.BytesIO()
    Image.new("RGB", (40, 30), "red").save(picture, "PNG")
    tensor = grpcclient.InferInput("image", [1, 1], "BYTES")
    tensor.set_data_from_numpy(np.array([[picture.getvalue()]], dtype=object))
    with grpcclient.InferenceServerClient(server.grpc_url) as client:
        labels = client.infer("vision", [tensor]).as_numpy("labels")
    assert sorted(labels.reshape(-1).tolist()) == [b"cat", b"dog"]
    server.stop(0)


@pytest.mark.build
def test_engines_where_the_path_is_not_ascii(no_leftovers, own_server, tmp_path, monkeypatch):
    """By an absolute path, and beside the config; Triton's stub has no locale."""
    monkeypatch.setenv("LC_ALL", "C")
    monkeypatch.setenv("PYTHONUTF8", "0")
    repository = tmp_path / "mödel 模型"
    served = {"embedding": "onnx-fp32", "judge": "onnx-int8", "llm": "openvino-int8"}
    served |= {"speech_recognize": "ctranslate2-tiny.en", "turn": "onnx-int8", "vision": "onnx-int8"}
    for name, artefact in served.items():
        shutil.copytree(MODEL_REPOSITORY / name, repository / name, ignore=shutil.ignore_patterns("*-*"))
        place = {"vision": "vision_classify"}.get(name, name)
        shutil.copytree(built(place, artefact), repository / place / "1" / artefact, dirs_exist_ok=True)
    absolute = {"llm": "openvino-int8", "speech_recognize": "ctranslate2-tiny.en", "judge": "onnx-int8"}
    changes = {name: {"artefact": str(repository / name / "1" / absolute[name])} for name in absolute}
    server = own_server(tuple(served), changes, repository=repository)
    with grpcclient.InferenceServerClient(server.grpc_url) as client:
        assert all(client.is_model_ready(name) for name in served)
    server.stop(0)


@pytest.mark.slow
def test_profile_cuda_starts_where_no_engine_wants_a_gpu(no_leftovers, own_server):
    changes = {name: {"engine": "fake"} for name in ("embedding", "speech_recognize")}
    server = own_server(("embedding", "speech"), changes, profile="cuda")
    assert set(server.models) == {"embedding", "speech", "speech_recognize"}
    assert server.models["embedding"].config_file.parts[-2:] == ("configs", "cuda.pbtxt")
    server.stop(0)
