"""build/steps/vision/hub.py: any classifier of transformers, with its own processor."""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.builders.scripts import Later, refusal, run
from trimodal.errors import ArtefactError
from trimodal.manifest import read_manifest
from trimodal.metrics import MemoryMetrics
from trimodal.paths import data_directory
from trimodal.vision.settings import VisionSettings
from trimodal.vision.steps import VisionStep

pytestmark = [pytest.mark.build, pytest.mark.filterwarnings("ignore")]
hub, torch, transformers = Later("steps.vision.hub"), Later("torch"), Later("transformers")
PHOTOS = data_directory() / "samples" / "photos"
FAMILIES = {
    "resnet-nano": "ConvNextImageProcessor",
    "vit-nano": "ViTImageProcessor",
    "convnext-nano": "ConvNextImageProcessor",
    "efficientnet-nano": "EfficientNetImageProcessor",
    "mobilenet-nano": "MobileNetV2ImageProcessor",
    "swin-nano": "ViTImageProcessor",
    "dinov2-nano": "BitImageProcessor",
    "deit-nano": "DeiTImageProcessor",
}

QUICK = ("resnet-nano", "vit-nano", "convnext-nano", "swin-nano")


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in FAMILIES],
)
def test_what_is_served_is_what_transformers_answers(random_checkpoint, tmp_path, name):
    checkpoint = random_checkpoint(name)
    run("vision_onnx", checkpoint, "--max-batch", 3, "--out-dir", tmp_path)
    settings = VisionSettings(artefact="onnx-fp32", intra_op_threads=1, top_k=6)
    vision = VisionStep.open(tmp_path, settings, MemoryMetrics())
    model = transformers.AutoModelForImageClassification.from_pretrained(checkpoint).eval()
    processor = getattr(transformers, f"{FAMILIES[name]}Pil").from_pretrained(checkpoint)
    for file in ("cat.jpg", "koala.jpg", "crocodile.jpg"):
        data = (PHOTOS / file).read_bytes()
        ((labels, scores),) = vision.classify([[data]])
        pixels = processor(Image.open(io.BytesIO(data)), return_tensors="pt")["pixel_values"]
        with torch.inference_mode():
            expected = model(pixel_values=pixels).logits.softmax(1)[0].numpy()
        found = {label.decode(): score for label, score in zip(labels[0], scores[0], strict=True)}
        ours = np.array([found[model.config.id2label[index]] for index in range(6)])
        np.testing.assert_allclose(ours, expected, atol=1e-4)
    vision.close()


FIELDS: dict[str, Any] = {
    "do_resize": True, "size": {"height": 224, "width": 224}, "resample": 3, "do_rescale": True,
    "rescale_factor": 1 / 255, "do_normalize": True, "image_mean": [0.5, 0.4, 0.3], "image_std": [0.2] * 3,
}  # fmt: skip


@pytest.mark.parametrize(
    ("change", "wanted"),
    [
        ({}, {"resize": "exact", "filter": "bicubic", "mean": (0.5, 0.4, 0.3), "std": (0.2,) * 3}),
        ({"resample": 0}, {"filter": "nearest"}),
        ({"resample": 1}, {"filter": "lanczos"}),
        ({"do_normalize": False}, {"mean": (0,) * 3, "std": (1,) * 3}),
        ({"rescale_factor": 1 / 127.5}, {"mean": (0.25, 0.2, 0.15), "std": (0.1,) * 3}),
        ({"do_rescale": False, "do_normalize": False}, {"mean": (0,) * 3, "std": (1 / 255,) * 3}),
        ({"rescale_offset": True}, {"mean": (1.5, 1.4, 1.3)}),
        ({"include_top": True}, {"std": (0.04,) * 3}),
        (
            {"size": {"shortest_edge": 256}, "do_center_crop": True,
             "crop_size": {"height": 224, "width": 200}},
            {"resize": "crop", "resize_to": 256, "height": 224, "width": 200, "crop_offset": "floor"},
        ),
        (
            {"size": {"height": 256, "width": 256}, "do_center_crop": True,
             "crop_size": {"height": 224, "width": 224}},
            {"resize": "exact-crop", "resize_to": 256},
        ),
        ({"size": {"shortest_edge": 224}, "crop_pct": 0.875}, {"resize": "crop", "resize_to": 256}),
        ({"size": {"shortest_edge": 384}, "crop_pct": 1.0}, {"resize": "exact", "height": 384}),
    ],
)  # fmt: skip
def test_every_field_of_a_processor_is_honoured(change, wanted):
    spec = hub.input_spec(FIELDS | change, Path("preprocessor_config.json"))
    for name, value in wanted.items():
        found = getattr(spec, name)
        assert found == (pytest.approx(value) if isinstance(value, tuple) else value), name


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"do_resize": False}, "do_resize is false"),
        ({"do_flip_channel_order": True}, "do_flip_channel_order is True, which is not done here"),
        ({"do_pad": True}, "do_pad is True"),
        ({"size": {"shortest_edge": 224}}, "gives pictures of several sizes"),
        ({"size": {"shortest_edge": 224, "longest_edge": 640}}, "several sizes"),
        (
            {
                "size": {"shortest_edge": 200},
                "do_center_crop": True,
                "crop_size": {"height": 224, "width": 224},
            },
            "is larger than size",
        ),
        ({"image_mean": [0.5]}, "must have 3 numbers"),
    ],
)
def test_what_a_processor_does_beyond_that_is_refused_by_name(change, told):
    with pytest.raises(ArtefactError, match=told):
        hub.input_spec(FIELDS | change, Path("preprocessor_config.json"))


@pytest.fixture
def vit(random_checkpoint, tmp_path: Path) -> Path:
    """A copy, to be damaged."""
    return Path(shutil.copytree(random_checkpoint("vit-nano"), tmp_path / "vit"))


def change(file: Path, **fields: object) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | fields))


def test_a_processor_that_gives_other_pixels_is_refused(vit, monkeypatch):
    processor = transformers.ViTImageProcessorPil
    usual = processor.rescale
    monkeypatch.setattr(processor, "rescale", lambda self, image, *given, **named: 1 - usual(
        self, image, *given, **named
    ))  # fmt: skip
    with pytest.raises(ArtefactError, match="ViTImageProcessorPil gives other pixels than are made here"):
        hub.read_hub(vit, "vit")


def test_labels_and_architecture_are_the_checkpoints(vit, tmp_path):
    names = ["tench", "goldfish, Carassius auratus", "shark", "hen", "jay", "kite"]
    change(vit / "config.json", id2label=dict(enumerate(names)), label2id={})
    run("vision_onnx", vit, "--max-batch", 2, "--out-dir", tmp_path)
    manifest = read_manifest(tmp_path / "onnx-fp32", task="vision", runtime="onnxruntime")
    assert json.loads((tmp_path / "onnx-fp32" / "labels.json").read_text()) == names
    assert manifest.extra["architecture"] == "vit"
    assert manifest.check["max_score_error"] < 1e-5


def test_classes_that_are_counted_from_1_are_refused(vit):
    change(vit / "config.json", id2label={str(index): f"class {index}" for index in range(1, 7)})
    with pytest.raises(ArtefactError, match="id2label names no class 0: its classes are 0 to 5"):
        hub.read_hub(vit, "vit")


def test_checkpoints_that_are_not_whole_classifiers_are_refused(vit, capsys, tmp_path):
    sentence = "it was saved without its classifier, or is damaged"
    change(vit / "config.json", id2label={str(index): str(index) for index in range(7)})
    assert sentence in refusal(capsys, "vision_onnx", vit, "--out-dir", tmp_path / "out")
    (vit / "preprocessor_config.json").unlink()
    change(vit / "config.json", id2label={str(index): str(index) for index in range(6)})
    assert "it lacks preprocessor_config.json" in refusal(capsys, "vision_onnx", vit)
    (vit / "model.safetensors").write_bytes(b"damaged")
    assert "opens no image classifier of model_type vit" in refusal(capsys, "vision_onnx", vit)
    change(vit / "config.json", model_type="llama")
    assert "opens no image classifier of model_type llama" in refusal(capsys, "vision_onnx", vit)
    assert "no checkpoint at" in refusal(capsys, "vision_onnx", vit / "nowhere")


def test_a_processor_of_older_checkpoints_is_found_by_its_old_name(random_checkpoint, tmp_path):
    checkpoint = Path(shutil.copytree(random_checkpoint("resnet-nano"), tmp_path / "resnet"))
    fields = {"feature_extractor_type": "ConvNextFeatureExtractor", "size": 64, "crop_pct": 0.8}
    fields["resample"] = 2
    (checkpoint / "preprocessor_config.json").write_text(json.dumps(fields))  # as microsoft/resnet-50 has it
    spec = hub.read_hub(checkpoint, "resnet").input
    assert (spec.height, spec.resize_to, spec.filter) == (64, 80, "bilinear")


def test_an_unknown_processor_is_refused_by_name(vit):
    change(vit / "preprocessor_config.json", image_processor_type="MadeUpImageProcessor")
    with pytest.raises(ArtefactError, match="MadeUpImageProcessor of vit is not known here"):
        hub.read_hub(vit, "vit")
