"""build/steps/vision/exported.py: a classifier as an ONNX graph; what is wrong with it is found and said."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from tests.builders.scripts import Later, refusal, run
from trimodal.manifest import Manifest, read_manifest

pytestmark = [pytest.mark.build, pytest.mark.filterwarnings("ignore")]
SCRIPT = "vision_onnx"
SIDE, CLASSES = 32, 6
INPUT = {"height": SIDE, "width": SIDE, "resize": "exact"}
PIXELS = np.random.default_rng(3).integers(0, 256, (24, 3, SIDE, SIDE), dtype=np.uint8)
torch = Later("torch")


def network(classes: int = CLASSES) -> Any:
    torch.manual_seed(0)
    nn = torch.nn
    return nn.Sequential(
        nn.Conv2d(3, 16, 5, 2), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 32, 3, 2), nn.GELU(),
        nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(128, classes),
    ).eval()  # fmt: skip


def export(model: Any, file: Path, *, free: bool = True, opset: int = 17) -> None:
    """As the owner of any classifier does it, with names of their own."""
    axes = {"image": {0: "n"}, "scores": {0: "n"}} if free else {}
    names = {"input_names": ["image"], "output_names": ["scores"], "dynamic_axes": axes}
    example = (torch.zeros(1, 3, SIDE, SIDE),)
    torch.onnx.export(model, example, str(file), opset_version=opset, dynamo=False, **names)


def configure(directory: Path, **fields: object) -> None:
    directory.mkdir(exist_ok=True)
    given = {"architecture": "onnx", "num_classes": CLASSES, "input": INPUT} | fields
    (directory / "config.json").write_text(json.dumps(given))


def logits_of(model: Any) -> np.ndarray:
    images, artefact = Later("steps.vision.images"), Later("trimodal.vision.artefact")
    with torch.inference_mode():
        pixels = images.normalised(PIXELS, artefact.InputSpec(**INPUT))
        return np.asarray(model(torch.from_numpy(pixels)).numpy())


def built(out: Path, precision: str) -> Manifest:
    return read_manifest(out / f"onnx-{precision}", task="vision", runtime="onnxruntime")


@pytest.fixture
def exported(tmp_path: Path) -> tuple[Path, Any]:
    directory, model = tmp_path / "exported", network()
    configure(directory)
    export(model, directory / "model.onnx")
    return directory, model


def test_torchs_own_answers_judge_the_graph(exported, tmp_path):
    directory, model = exported
    np.savez(directory / "reference.npz", pixels=PIXELS, logits=logits_of(model))
    run(SCRIPT, directory, "--precision", "fp32", "--precision", "fp16", "--precision", "int8-gpu",
        "--max-batch", 4, "--min-agreement", 0.5, "--out-dir", tmp_path)  # fmt: skip
    for precision, limit in (("fp32", 1e-4), ("fp16", 1e-2), ("int8-gpu", 0.1)):
        manifest = built(tmp_path, precision)
        assert manifest.check["against"] == "torch"
        assert manifest.check["images_from"] == "reference.npz"
        assert manifest.check["relative_error"] < limit
        graph = onnx.load(tmp_path / f"onnx-{precision}" / "model.onnx").graph
        assert (graph.input[0].name, graph.output[0].name) == ("pixels", "logits")


def test_without_them_the_graph_as_given_does(exported, tmp_path):
    directory, _ = exported
    unnamed = onnx.load(directory / "model.onnx")
    for node in unnamed.graph.node:
        node.name = ""
    onnx.save(unnamed, directory / "model.onnx")
    run(SCRIPT, directory, "--precision", "fp32", "--precision", "int8-gpu", "--max-batch", 4,
        "--min-agreement", 0.5, "--out-dir", tmp_path)  # fmt: skip
    assert built(tmp_path, "int8-gpu").check["relative_error_rounded"] < 0.1
    assert built(tmp_path, "fp32").check["against"] == "ONNX Runtime"
    before = built(tmp_path, "fp32").source_sha256
    export(network().append(torch.nn.Identity()), directory / "model.onnx", opset=15)
    run(SCRIPT, directory, "--max-batch", 4, "--out-dir", tmp_path)
    assert built(tmp_path, "fp32").source_sha256 != before  # another graph is another checkpoint


def test_a_graph_that_is_not_what_torch_computed_is_refused(exported, tmp_path, capsys):
    directory, model = exported
    np.savez(directory / "reference.npz", pixels=PIXELS, logits=logits_of(model) * 1.01)
    sentence = refusal(capsys, SCRIPT, directory, "--max-batch", 2, "--out-dir", tmp_path)
    assert "onnx-fp32 not written: relative_error 0.0099 is above 0.001" in sentence
    np.savez(directory / "reference.npz", pixels=PIXELS, logits=logits_of(model)[:5])
    assert "one row of 6 for each" in refusal(capsys, SCRIPT, directory)
    np.savez(directory / "reference.npz", pixels=PIXELS)
    assert "lacks 'pixels' or 'logits'" in refusal(capsys, SCRIPT, directory)


def two_outputs(file: Path) -> None:
    export(network(), file)
    model = onnx.load(file)
    model.graph.output.append(model.graph.output[0])
    model.graph.output[1].name = model.graph.node[0].output[0]
    onnx.save(model, file)


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda file: export(network(), file, free=False), "the batch of its input is fixed at 1: export it"),
        (lambda file: export(network(7), file), "output must be float ['free', 6], not float ['free', 7]"),
        (lambda file: export(network(), file, opset=11), "is of opset 11, too old"),
        (two_outputs, "is not a valid ONNX model"),
        (lambda file: file.write_bytes(b"damaged"), "is not a valid ONNX model"),
        (
            lambda file: export(network().append(torch.nn.Softmax(1)), file),
            "gives probabilities, so it ends in Softmax",
        ),
    ],
    ids=["batch", "classes", "old", "outputs", "damaged", "softmax"],
)
def test_a_graph_of_another_form_is_refused(tmp_path, capsys, make: Callable[[Path], object], told):
    directory = tmp_path / "checkpoint"
    configure(directory)
    make(directory / "model.onnx")
    assert told in refusal(capsys, SCRIPT, directory, "--out-dir", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_later_opset_is_refused(exported, capsys):
    directory, _ = exported
    model = onnx.load(directory / "model.onnx")
    model.opset_import[0].version = 21
    onnx.save(model, directory / "model.onnx")
    assert "is of opset 21, too new" in refusal(capsys, SCRIPT, directory)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (
            {"input": INPUT | {"mean": [123.7, 116.3, 103.5]}},
            "are of pixels from 0 to 255: divide both by 255",
        ),
        ({"input": INPUT | {"std": [58.4, 57.1, 57.4]}}, "divide both by 255"),
        ({"input": {"height": 32}}, "parameter 'input.width'"),
        ({"input": None}, "lacks input, which says how a picture becomes"),
        ({"labels": ["a", "b"]}, "2 labels for 6 classes"),
        ({"trust_remote_code": True}, "unknown parameter 'trust_remote_code'"),
    ],
)
def test_a_config_that_does_not_fit_is_refused_by_field(exported, capsys, change, told):
    directory, _ = exported
    configure(directory, **change)
    assert told in refusal(capsys, SCRIPT, directory)
