"""build/vision_onnx.py on the demo's checkpoint and on damaged ones."""

from __future__ import annotations

import importlib
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.builders.scripts import BUILD, refusal, run
from trimodal.manifest import read_manifest
from trimodal.metrics import MemoryMetrics
from trimodal.vision.settings import VisionSettings
from trimodal.vision.steps import VisionStep

pytestmark = [pytest.mark.build, pytest.mark.filterwarnings("ignore")]
DEMO = BUILD / "demo" / "vision"
SCRIPT = "vision_onnx"
PRECISIONS = ["fp32", "fp16", "int8", "int8-gpu", "fp8"]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("vision_classify") / "1"
    wanted = [part for precision in PRECISIONS for part in ("--precision", precision)]
    run(SCRIPT, DEMO, *wanted, "--out-dir", out)
    return out


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """A copy of the demo's checkpoint without images, to be damaged."""
    copy = tmp_path / "checkpoint"
    copy.mkdir()
    for name in ("config.json", "model.safetensors"):
        shutil.copy(DEMO / name, copy)
    return copy


def test_the_check_and_the_calibration_are_in_the_manifest(built):
    found = {
        name: read_manifest(built / f"onnx-{name}", task="vision", runtime="onnxruntime")
        for name in PRECISIONS
    }
    assert found["fp32"].check["max_error"] < 1e-4
    assert found["fp32"].check["images"] == 360
    for precision, manifest in found.items():
        assert manifest.precision == precision
        assert manifest.check["top1_agreement"] >= 0.99
        assert manifest.check["top1_accuracy"] >= 0.99
        assert manifest.extra["pixels"] == "uint8"
        assert manifest.extra["input"]["mean"] == [0.5, 0.5, 0.5]
        assert manifest.shapes == {"pixels": [-1, 3, 32, 32], "classes": 10}
        assert set(manifest.files) == {"model.onnx", "labels.json"}
    for precision in ("int8", "int8-gpu", "fp8"):
        assert found[precision].calibration["images"] == 128
    assert found["fp32"].calibration == found["fp16"].calibration == {}
    for precision in ("fp16", "int8-gpu", "fp8"):
        assert found[precision].check["top1_agreement_rounded"] >= 0.99
        assert found[precision].check["tensorrt_lacks"] == "nothing"
    fp16 = found["fp16"].check
    assert (
        found["fp32"].check["relative_error"] < fp16["relative_error"] < fp16["relative_error_rounded"] < 1e-2
    )


def test_int8_really_is_int8(built):
    import onnx

    nodes = {node.op_type for node in onnx.load(built / "onnx-int8" / "model.onnx").graph.node}
    assert {"QuantizeLinear", "DequantizeLinear"} <= nodes
    assert "QuantizeLinear" not in {
        node.op_type for node in onnx.load(built / "onnx-fp32" / "model.onnx").graph.node
    }


@pytest.mark.parametrize("precision", PRECISIONS)
def test_bytes_are_normalised_in_floats_before_the_first_layer(built, precision):
    import onnx

    graph = onnx.load(built / f"onnx-{precision}" / "model.onnx").graph
    assert graph.input[0].type.tensor_type.elem_type == onnx.TensorProto.UINT8
    users = {tensor: node for node in graph.node for tensor in node.input}
    path, tensor = [], "pixels"
    while not path or path[-1] != "Conv":
        path.append(users[tensor].op_type)
        tensor = users[tensor].output[0]
    # FP8 leaves the first layer, with its three channels, in FP16.
    between = {
        "fp32": [],
        "int8": ["Q", "DQ"],
        "fp16": ["Cast"],
        "int8-gpu": ["Cast", "Q", "DQ"],
        "fp8": ["Cast"],
    }
    names = {"Q": "QuantizeLinear", "DQ": "DequantizeLinear"}
    quantised = [names.get(name, name) for name in between[precision]]
    assert path == ["Cast", "Mul", "Add", *quantised, "Conv"]
    weights = {weight.name: weight.data_type for weight in graph.initializer}
    assert weights["pixel_scale"] == weights["pixel_offset"] == onnx.TensorProto.FLOAT


def test_the_graph_normalises_as_the_checkpoint_says():
    import torch

    images, models = (
        importlib.import_module("steps.vision.images"),
        importlib.import_module("steps.vision.models"),
    )
    spec = images.InputSpec(height=2, width=128, mean=(0.1, 0.2, 0.3), std=(0.5, 0.6, 0.7))
    pixels = np.arange(256, dtype=np.uint8).reshape(1, 1, 2, 128).repeat(3, axis=1)
    seen = models.FromBytes(torch.nn.Identity(), spec)(torch.from_numpy(pixels)).numpy()
    np.testing.assert_allclose(seen, images.normalised(pixels, spec), atol=1e-6)
    assert seen[0, 1, 1, 127] == pytest.approx((1 - 0.2) / 0.6)


# ONNX Runtime's CPU kernels get FP8 wrong: those graphs are TensorRT's alone.
@pytest.mark.parametrize("precision", [name for name in PRECISIONS if name != "fp8"])
def test_the_built_classifier_reads_the_samples(built, precision):
    samples = sorted((DEMO / "samples").iterdir())
    assert {file.suffix for file in samples} == {".png", ".jpg"}
    artefact = f"onnx-{precision}"
    metrics = MemoryMetrics()
    settings = VisionSettings(artefact=artefact, intra_op_threads=1, top_k=1)
    vision = VisionStep.open(built, settings, metrics)
    ((labels, scores),) = vision.classify([[file.read_bytes() for file in samples]])
    vision.close()
    assert [label.decode() for label in labels[:, 0]] == [file.stem.split("-")[1] for file in samples]
    assert scores.min() > 0.5


def test_too_little_agreement_leaves_the_old_artefact(checkpoint, tmp_path, capsys):
    out = tmp_path / "out"
    (out / "onnx-fp32").mkdir(parents=True)
    (out / "onnx-fp32" / "old").write_text("old")
    sentence = refusal(capsys, SCRIPT, checkpoint, "--out-dir", out, "--min-agreement", "1.01")
    assert "onnx-fp32 not written: top-1 agreement 1.0000 is below --min-agreement 1.01" in sentence
    assert [path.name for path in out.rglob("*")] == ["onnx-fp32", "old"]


def test_int8_from_a_folder_skips_what_is_no_image(checkpoint, tmp_path, capsys):
    folder = tmp_path / "images"
    folder.mkdir()
    (folder / "broken.png").write_bytes(b"no picture")
    with np.load(DEMO / "calibration.npz") as file:
        for index, image in enumerate(file["images"][:16]):
            Image.fromarray(image).save(folder / f"{index}.png")
    run(SCRIPT, checkpoint, "--precision", "int8", "--calibration", folder, "--out-dir", tmp_path / "out")
    assert "skipped broken.png: image: not a JPEG, PNG or WebP file" in capsys.readouterr().out
    manifest = read_manifest(tmp_path / "out" / "onnx-int8", task="vision", runtime="onnxruntime")
    assert manifest.calibration["images"] == 16
    (folder / "3.png").unlink()
    sentence = refusal(capsys, SCRIPT, checkpoint, "--precision", "int8", "--calibration", folder)
    assert "holds 15 usable images: at least 16 are needed" in sentence


@pytest.mark.parametrize("precision", ["int8", "int8-gpu", "fp8"])
def test_quantisation_without_images_is_refused(checkpoint, capsys, precision):
    assert f"{precision} needs images" in refusal(capsys, SCRIPT, checkpoint, "--precision", precision)


def test_fp16_that_a_gpu_would_get_wrong_is_refused(checkpoint, tmp_path, capsys):
    from safetensors.torch import load_file, save_file

    weights = load_file(checkpoint / "model.safetensors")
    # A layer beyond FP16's range and one that brings it back: in FP32, as on a CPU, nothing changes.
    for name in ("bn1.weight", "bn1.bias"):
        weights[f"layer2.0.{name}"] *= 2.0**14
    weights["layer2.0.conv2.weight"] *= 2.0**-14
    save_file(weights, checkpoint / "model.safetensors")
    run(SCRIPT, checkpoint, "--max-batch", 2, "--out-dir", tmp_path / "out")
    sentence = refusal(capsys, SCRIPT, checkpoint, "--precision", "fp16", "--out-dir", tmp_path / "out")
    assert re.search("onnx-fp16 not written: relative_error_rounded (nan|inf) is above 0.01", sentence)
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["onnx-fp32"]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"architecture": "vgg"}, "architecture 'vgg' is not one of digits-resnet, resnet18, resnet50"),
        ({"architecture": "resnet18"}, "does not fit resnet18: "),
        ({"num_classes": 11}, "10 labels for 11 classes"),
        ({"num_classes": 11, "labels": []}, "does not fit digits-resnet"),
        ({"input": {"height": 32}}, "parameter 'input.width'"),
        ({"trust_remote_code": True}, "unknown parameter 'trust_remote_code'"),
    ],
)
def test_a_config_that_does_not_fit_is_refused_by_field(checkpoint, capsys, change, told):
    config = json.loads((checkpoint / "config.json").read_text()) | change
    (checkpoint / "config.json").write_text(json.dumps(config))
    assert told in refusal(capsys, SCRIPT, checkpoint)


def test_missing_and_damaged_files_are_named(checkpoint, capsys):
    (checkpoint / "model.safetensors").write_bytes(b"damaged")
    assert "model.safetensors does not fit digits-resnet" in refusal(capsys, SCRIPT, checkpoint)
    (checkpoint / "model.safetensors").unlink()
    assert "it lacks model.safetensors" in refusal(capsys, SCRIPT, checkpoint)
    assert "no checkpoint at" in refusal(capsys, SCRIPT, checkpoint / "nowhere")


@pytest.mark.parametrize("arrays", [{"pixels": np.zeros(3)}, {"images": np.zeros((20, 8, 8))}])
def test_an_npz_of_another_kind_is_refused(checkpoint, tmp_path, capsys, arrays):
    np.savez(tmp_path / "c.npz", **arrays)
    sentence = refusal(capsys, SCRIPT, checkpoint, "--precision", "int8", "--calibration", tmp_path / "c.npz")
    assert "images" in sentence


def test_the_demos_builder_sees_an_artefact_of_the_older_form(built, tmp_path):
    builder = importlib.import_module("demo.build_all")
    old = tmp_path / "onnx-fp32"
    shutil.copytree(built / "onnx-fp32", old)
    build = builder.Build("classifier", "vision", "onnxruntime", (str(old),), DEMO, ())
    assert build.is_current(None)
    manifest = json.loads((old / "manifest.json").read_text())
    del manifest["extra"]["pixels"]
    (old / "manifest.json").write_text(json.dumps(manifest))
    assert not build.is_current(None)
