"""Checkpoints of image classifiers for the tests of their builds: random weights, a few thousand of them."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest import mock

import pytest
from PIL import Image

from tests.builders.scripts import importable
from trimodal.paths import data_directory

Checkpoint = Callable[[str], Path]
_TINY = {"num_hidden_layers": 2, "num_attention_heads": 2, "hidden_size": 32, "image_size": 64}
_SQUARE = {"size": {"height": 64, "width": 64}}
_CROPPED = {"crop_size": {"height": 64, "width": 64}}
# Arguments of a ClassifierShape: the kinds of build/steps/random/classifier.py, small.
SHAPES: dict[str, tuple[object, ...]] = {
    "resnet-nano": (
        "ResNet", {"embedding_size": 32, "hidden_sizes": [32, 64], "depths": [1, 1], "layer_type": "basic"},
        "ConvNextImageProcessor", {"size": {"shortest_edge": 64}, "crop_pct": 0.875},
    ),
    "vit-nano": (
        "ViT", _TINY | {"intermediate_size": 64, "patch_size": 16}, "ViTImageProcessor", _SQUARE
    ),
    "convnext-nano": (
        "ConvNext", {"hidden_sizes": [16, 32], "depths": [1, 2], "num_stages": 2},
        "ConvNextImageProcessor", {"size": {"shortest_edge": 64}, "crop_pct": 0.9},
    ),
    "efficientnet-nano": (
        "EfficientNet",
        {"width_coefficient": 0.25, "depth_coefficient": 0.2, "image_size": 64, "hidden_dim": 320},
        "EfficientNetImageProcessor", _SQUARE | {"resample": 0},
    ),
    "mobilenet-nano": (
        "MobileNetV2", {"depth_multiplier": 0.25, "image_size": 64},
        "MobileNetV2ImageProcessor", {"size": {"shortest_edge": 72}, **_CROPPED},
    ),
    "swin-nano": (
        "Swin", {"image_size": 64, "embed_dim": 16, "depths": [1, 1], "num_heads": [2, 2], "window_size": 4},
        "ViTImageProcessor", _SQUARE | {"resample": 3},
    ),
    "dinov2-nano": (
        "Dinov2", _TINY | {"image_size": 56, "patch_size": 14}, "BitImageProcessor",
        {"size": {"shortest_edge": 64}, "crop_size": {"height": 56, "width": 56}},
    ),
    "deit-nano": (
        "DeiT", _TINY | {"intermediate_size": 64, "patch_size": 16}, "DeiTImageProcessor",
        {"size": {"height": 72, "width": 72}, **_CROPPED},
    ),
}  # fmt: skip


@pytest.fixture(scope="session")
def random_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    """`random_checkpoint(name)`: a checkpoint of that shape, of 6 classes, made once; not to be changed."""
    made: dict[str, Path] = {}

    def checkpoint(name: str) -> Path:
        if name not in made:
            made[name] = tmp_path_factory.mktemp("classifiers") / name
            made[name].mkdir()
            with importable():
                classifier = importlib.import_module("steps.random.classifier")
            classifier.write_classifier(classifier.ClassifierShape(*SHAPES[name], classes=6), made[name])
        return made[name]

    return checkpoint


@pytest.fixture(scope="session")
def small_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project's photos, of 96 pixels: each build reads all of them ten times."""
    folder = tmp_path_factory.mktemp("data")
    (folder / "samples" / "photos").mkdir(parents=True)
    for file in (data_directory() / "samples" / "photos").glob("*.jpg"):
        with Image.open(file) as photo:
            photo.thumbnail((96, 96))
            photo.save(folder / "samples" / "photos" / file.name)
    return folder


@pytest.fixture(scope="module", autouse=True)
def _small_photos(_scripts: None, small_data: Path) -> Iterator[None]:
    with mock.patch("steps.vision.images.data_directory", return_value=small_data):
        yield
