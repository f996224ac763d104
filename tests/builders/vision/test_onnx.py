"""build/vision_onnx.py: every precision of a tiny checkpoint, its check and its calibration."""

from __future__ import annotations

import os
import re
import shutil
import weakref
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.builders.engine_builds import command
from tests.builders.graphs import rounds_where_told, write_classifier
from tests.builders.scripts import Later, refusal, run
from trimodal.errors import ArtefactError
from trimodal.manifest import read_manifest
from trimodal.metrics import MemoryMetrics
from trimodal.paths import data_directory
from trimodal.vision.artefact import InputSpec
from trimodal.vision.image import Picture
from trimodal.vision.settings import VisionSettings
from trimodal.vision.steps import VisionStep

pytestmark = [pytest.mark.build, pytest.mark.filterwarnings("ignore")]
SCRIPT = "vision_onnx"
PRECISIONS = ["fp32", "fp16", "int8", "int8-gpu", "fp8"]
PHOTOS = data_directory() / "samples" / "photos"
check, images, export = (
    Later("steps.vision.check"),
    Later("steps.vision.images"),
    Later("steps.vision.export"),
)


@pytest.fixture(scope="module")
def built(random_checkpoint, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("vision_classify") / "1"
    wanted = [part for precision in PRECISIONS for part in ("--precision", precision)]
    checkpoint = random_checkpoint("resnet-nano")
    run(SCRIPT, checkpoint, *wanted, "--max-batch", 4, "--min-agreement", 0.5, "--out-dir", out)
    return out


def test_the_check_and_the_calibration_are_in_the_manifest(built):
    found = {
        name: read_manifest(built / f"onnx-{name}", task="vision", runtime="onnxruntime")
        for name in PRECISIONS
    }
    assert found["fp32"].check["max_score_error"] < 1e-5
    for precision, manifest in found.items():
        assert manifest.precision == precision
        assert manifest.check["against"] == "torch"
        assert manifest.check["images"] == 64
        assert manifest.check["images_from"] == "20 of photos, whole and other parts of them"
        assert manifest.extra["input"]["mean"] == pytest.approx([0.485, 0.456, 0.406], abs=0.1)
        assert manifest.shapes == {"pixels": [-1, 3, 64, 64], "classes": 6}
        assert set(manifest.files) == {"model.onnx", "labels.json"}
    for precision in ("int8", "int8-gpu", "fp8"):
        assert found[precision].calibration["images"] == 128
        assert "parts of 20 of photos" in found[precision].calibration["from"]
        assert found[precision].check["relative_error"] < 0.3
    assert found["fp32"].calibration == found["fp16"].calibration == {}
    for precision in ("fp16", "int8-gpu", "fp8"):
        assert found[precision].check["relative_error_rounded"] < 0.3
    fp16 = found["fp16"].check
    assert (
        found["fp32"].check["relative_error"] < fp16["relative_error"] < fp16["relative_error_rounded"] < 1e-2
    )


@pytest.mark.parametrize(
    "precision",
    [one if one in ("fp32", "int8") else pytest.param(one, marks=rounds_where_told) for one in PRECISIONS],
)
def test_bytes_are_normalised_in_floats_before_the_first_layer(built, precision):
    import onnx

    graph = onnx.load(built / f"onnx-{precision}" / "model.onnx").graph
    assert graph.input[0].type.tensor_type.elem_type == onnx.TensorProto.UINT8
    assert graph.output[0].type.tensor_type.elem_type == onnx.TensorProto.FLOAT
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


# ONNX Runtime's CPU kernels get FP8 wrong: those graphs are TensorRT's alone.
@pytest.mark.parametrize("precision", [name for name in PRECISIONS if name != "fp8"])
def test_every_precision_is_served(built, precision):
    settings = VisionSettings(artefact=f"onnx-{precision}", intra_op_threads=1, top_k=6)
    vision = VisionStep.open(built, settings, MemoryMetrics())
    ((labels, scores),) = vision.classify([[(PHOTOS / "cat.jpg").read_bytes()]])
    vision.close()
    assert {label.decode() for label in labels[0]} == {f"LABEL_{index}" for index in range(6)}
    assert scores.sum() == pytest.approx(1, abs=1e-5)


def test_int8_keeps_the_layers_in_floats_that_it_is_told_to(random_checkpoint, tmp_path):
    import onnx

    quantised = {}
    for kept in (0, 2):
        run(SCRIPT, random_checkpoint("resnet-nano"), "--precision", "int8", "--keep-float", kept,
            "--max-batch", 2, "--min-agreement", 0, "--out-dir", tmp_path)  # fmt: skip
        manifest = read_manifest(tmp_path / "onnx-int8", task="vision", runtime="onnxruntime")
        assert manifest.calibration["keep_float"] == kept
        graph = onnx.load(tmp_path / "onnx-int8" / "model.onnx").graph
        quantised[kept] = sum(weight.data_type == onnx.TensorProto.INT8 and len(weight.dims) > 1
                              for weight in graph.initializer)  # fmt: skip
    assert quantised[2] == quantised[0] - 3  # two first layers and the last one


def test_too_little_agreement_leaves_the_old_artefact(random_checkpoint, tmp_path, capsys):
    out = tmp_path / "out"
    (out / "onnx-int8").mkdir(parents=True)
    (out / "onnx-int8" / "old").write_text("old")
    sentence = refusal(
        capsys, SCRIPT, random_checkpoint("resnet-nano"), "--precision", "int8", "--max-batch", 2,
        "--out-dir", out, "--min-agreement", "1.01",
    )  # fmt: skip
    assert "onnx-int8 not written: the same label on " in sentence
    assert "below --min-agreement 1.01: try --images with 128 to 512 pictures" in sentence
    assert "--keep-float" in sentence
    assert [path.name for path in out.rglob("*")] == ["onnx-int8", "old"]


def figures(found: np.ndarray, reference: np.ndarray) -> dict[str, float]:
    return dict(check.distance(found, reference)) | {"batch_change": 0.0}


def test_only_where_the_reference_is_sure_another_label_counts():
    three = np.zeros((20, 3), np.float32)  # a third each: sure of nothing
    reference = np.concatenate([np.tile([9, 0, 0], (12, 1)), three + [0.1, 0, 0]]).astype(np.float32)
    found = reference.copy()
    found[12:] = [0, 0.1, 0]  # another label on the unsure
    told = figures(found, reference)
    assert told["sure_images"] == 12
    assert told["top1_agreement_where_sure"] == 1
    assert told["top1_agreement"] == pytest.approx(12 / 32)
    check.judge("onnx-int8", "int8", told, 0.95)
    found[0] = [0, 9, 0]  # and on one of the sure
    with pytest.raises(ArtefactError, match=r"91\.7% of the 12 images where the reference is above 0\.4"):
        check.judge("onnx-int8", "int8", figures(found, reference), 0.95)


def test_images_of_a_folder_are_taken_and_what_is_no_image_is_skipped(random_checkpoint, tmp_path, capsys):
    folder = tmp_path / "pictures"
    folder.mkdir()
    (folder / "broken.png").write_bytes(b"no picture")
    for photo in sorted(PHOTOS.glob("*.jpg"))[:8]:
        shutil.copy(photo, folder)
    arguments = (SCRIPT, random_checkpoint("resnet-nano"), "--images", folder, "--max-batch", 2)
    run(*arguments, "--out-dir", tmp_path / "out")
    assert "skipped broken.png: image: not a JPEG, PNG" in capsys.readouterr().out
    manifest = read_manifest(tmp_path / "out" / "onnx-fp32", task="vision", runtime="onnxruntime")
    assert manifest.check["images_from"] == "8 of pictures, whole and other parts of them"
    next(folder.glob("*.jpg")).unlink()
    assert "holds 7 usable images: at least 8 are needed" in refusal(capsys, *arguments)
    nowhere = refusal(capsys, *arguments[:3], tmp_path / "nowhere")
    assert "no images at" in nowhere
    assert "--images" in nowhere


def test_calibration_and_check_share_no_view():
    spec = InputSpec(height=24, width=24)
    calibration, evaluation = images.load_images(None, spec)
    assert (len(calibration.pixels), len(evaluation.pixels)) == (128, 64)
    seen = {view.tobytes() for view in calibration.pixels}
    assert not seen & {view.tobytes() for view in evaluation.pixels}
    again, _ = images.load_images(None, spec)
    assert np.array_equal(calibration.pixels, again.pixels)


def test_no_more_pictures_are_in_memory_than_fit(tmp_path, monkeypatch):
    """A folder of 512 photographs of a telephone would take 24 GB."""
    for number in range(60):
        (tmp_path / f"{number}.jpg").write_bytes(b"picture")
    made, alive = [], []

    def decode(data, limits):
        picture = Picture(Image.new("RGB", (32, 32)), 1)
        made.append(weakref.ref(picture))
        alive.append(sum(one() is not None for one in made))
        return picture

    monkeypatch.setattr("steps.vision.images.decode", decode)
    calibration, evaluation = images.load_images(tmp_path, InputSpec(height=24, width=24))
    assert (len(calibration.pixels), len(evaluation.pixels)) == (128, 64)
    assert max(alive) <= images.HELD + 2


@pytest.mark.parametrize("count", [8, 256], ids=["views", "halves"])
def test_a_folder_whose_name_is_no_utf_8_is_in_the_manifest_all_the_same(tmp_path, monkeypatch, count):
    folder = tmp_path / os.fsdecode(b"f\xf6tos")
    folder.mkdir()
    for number in range(count):
        (folder / f"{number}.jpg").write_bytes(b"picture")
    monkeypatch.setattr("steps.vision.images.decode", lambda *_: Picture(Image.new("RGB", (32, 32)), 1))
    for some in images.load_images(folder, InputSpec(height=24, width=24)):
        assert "f\ufffdtos" in some.origin
        some.origin.encode()


@pytest.mark.parametrize(
    ("before", "power", "told"),
    [
        (8, 13, "onnx-fp16 not written: relative_error_rounded (nan|inf) is above 0.01"),
        (0, 17, r"weight \S+ reaches \S+: FP16 ends at 65504"),
    ],
    ids=["values of a layer", "weights"],
)
def test_fp16_that_a_gpu_would_get_wrong_is_refused(random_checkpoint, tmp_path, capsys, before, power, told):
    from safetensors.torch import load_file, save_file

    checkpoint = Path(shutil.copytree(random_checkpoint("resnet-nano"), tmp_path / "checkpoint"))
    weights = load_file(checkpoint / "model.safetensors")
    # A layer beyond FP16's range and one that brings it back: FP32, as on a CPU, has room for both.
    first, second = (f"resnet.encoder.stages.1.layers.0.layer.{number}" for number in (0, 1))
    for name in ("weight", "bias"):
        weights[f"resnet.embedder.embedder.normalization.{name}"] *= 2.0**before
        weights[f"{first}.normalization.{name}"] *= 2.0**power
    weights[f"{second}.convolution.weight"] *= 2.0**-power
    save_file(weights, checkpoint / "model.safetensors", metadata={"format": "pt"})
    run(SCRIPT, checkpoint, "--max-batch", 2, "--out-dir", tmp_path / "out")
    sentence = refusal(
        capsys, SCRIPT, checkpoint, "--precision", "fp16", "--max-batch", 2, "--out-dir", tmp_path / "out"
    )
    assert re.search(told, sentence)
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["onnx-fp32"]


def test_a_network_too_small_for_fp8_is_told(tmp_path):
    import onnx

    graph = onnx.load(write_classifier(tmp_path / "model.onnx"))  # one layer, of four classes
    with pytest.raises(ArtefactError, match="no layer of this network is large enough for fp8"):
        Later(SCRIPT).calibrated(graph, "fp8", images.ImageSet(np.zeros((1, 3, 8, 8), np.uint8), "nothing"))


@pytest.mark.slow
def test_random_weights_of_a_real_shape_are_built(tmp_path):
    made = command("random_checkpoint")("mobilenet_v2", "--out", tmp_path / "mobilenet_v2")
    assert made.exit_code == 0, made.output
    wanted = ("--precision", "fp32", "--precision", "int8-gpu")
    run(SCRIPT, tmp_path / "mobilenet_v2", *wanted, "--max-batch", 2, "--out-dir", tmp_path)
    manifest = read_manifest(tmp_path / "onnx-fp32", task="vision", runtime="onnxruntime")
    assert manifest.extra["random_weights"]
    assert manifest.check["relative_error"] < 1e-4


def test_too_small_a_disk_is_told_before_anything_is_exported(
    random_checkpoint, tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr("trimodal.manifest.free_room", lambda place: 1_000)
    told = refusal(capsys, SCRIPT, random_checkpoint("resnet-nano"), "--out-dir", tmp_path / "out")
    assert "whose disk has 0 MB left: free some" in told
    assert not (tmp_path / "out").exists()
