"""build/steps/vision/state_dict.py: ResNets by torchvision's and timm's names, EfficientNet-Lite."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.builders.scripts import Later
from trimodal.errors import ArtefactError

pytestmark = [pytest.mark.build, pytest.mark.filterwarnings("ignore")]
torch, classifier = Later("torch"), Later("steps.vision.classifier")
lite = Later("steps.vision.efficientnet_lite")
theirs = Later("benchmarks.torchvision_reference.resnet")


def resnet(depths: tuple[int, ...] = (1, 1, 1, 1), wide: int = 1, classes: int = 5, width: int = 8) -> Any:
    torch.manual_seed(0)
    model = theirs.ResNet(depths, wide, classes, width)
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            for weight, low in ((module.weight, 0.5), (module.running_var, 0.5), (module.running_mean, -1)):
                torch.nn.init.uniform_(weight, low, 1)
    return model.eval()


def save(model: Any, directory: Path, name: str = "weights.pth", config: object = None) -> Path:
    directory.mkdir(exist_ok=True)
    torch.save(model.state_dict(), directory / name)
    if config is not None:
        (directory / "config.json").write_text(json.dumps(config))
    return directory


@pytest.mark.parametrize(
    ("depths", "wide", "name"),
    [
        ((2, 2, 2, 2), 1, "resnet18"), ((3, 4, 6, 3), 1, "resnet34"), ((3, 4, 6, 3), 4, "resnet50"),
        ((3, 4, 23, 3), 4, "resnet101"), ((3, 8, 36, 3), 4, "resnet152"),
    ],
)  # fmt: skip
def test_a_resnet_gives_the_logits_that_torchvisions_gives(tmp_path, depths, wide, name):
    model = resnet(depths, wide)
    read = classifier.read_classifier(save(model, tmp_path))
    assert read.architecture == name
    assert read.labels == ["0", "1", "2", "3", "4"]
    pixels = torch.randn(2, 3, 70, 64)
    with torch.inference_mode():
        torch.testing.assert_close(read.network(pixels), model(pixels), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("name", "shorter"), [("resnet50-0676ba61.pth", 256), ("resnet50-11ad3fa6.pth", 232)]
)
def test_torchvisions_two_sets_of_weights_want_two_sizes(tmp_path, name, shorter):
    read = classifier.read_classifier(save(resnet(), tmp_path, name))
    assert (read.input.height, read.input.resize_to, read.input.filter) == (224, shorter, "bilinear")
    assert read.input.crop_offset == "round"


def test_a_config_of_ours_says_what_the_weights_do_not(tmp_path):
    spec = {"height": 64, "width": 48, "resize_to": 72, "filter": "bicubic"}
    config = {"input": spec, "labels": ["a", "b", "c", "d", "e"]}
    read = classifier.read_classifier(save(resnet(), tmp_path, config=config))
    assert (read.input.width, read.input.filter, read.labels[4]) == (48, "bicubic", "e")
    save(resnet(), tmp_path, config=config | {"labels": ["a"]})
    with pytest.raises(ArtefactError, match="1 labels for 5 classes"):
        classifier.read_classifier(tmp_path)


TIMM: dict[str, Any] = {
    "architecture": "resnet18",
    "num_classes": 5,
    "pretrained_cfg": {
        "input_size": [3, 224, 224], "interpolation": "bicubic", "crop_pct": 0.95, "crop_mode": "center",
        "mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225],
    },
}  # fmt: skip


def test_timms_input_is_its_own(tmp_path):
    read = classifier.read_classifier(save(resnet(), tmp_path, "model.pth", TIMM))
    assert (read.input.resize, read.input.resize_to, read.input.filter) == ("crop", 235, "bicubic")
    unsaid = {name: value for name, value in TIMM["pretrained_cfg"].items() if name != "interpolation"}
    for given in (unsaid, unsaid | {"interpolation": ""}):  # as timm 1.0 resolves them
        read = classifier.read_classifier(
            save(resnet(), tmp_path, "model.pth", TIMM | {"pretrained_cfg": given})
        )
        assert read.input.filter == "bicubic"
    squashed = TIMM | {"pretrained_cfg": TIMM["pretrained_cfg"] | {"crop_mode": "squash", "crop_pct": 0.5}}
    read = classifier.read_classifier(save(resnet(), tmp_path, "model.pth", squashed))
    assert (read.input.resize, read.input.resize_to) == ("exact-crop", 448)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"architecture": "vit_base_patch16_224"}, "timm's vit_base_patch16_224 is not read here"),
        ({"architecture": "resnet18d"}, r"timm's resnet18d is not read here.*torch\.onnx\.export"),
        ({"pretrained_cfg": TIMM["pretrained_cfg"] | {"crop_mode": "border"}}, "crop_mode border"),
        ({"pretrained_cfg": {"input_size": [3, 224, 224]}}, "pretrained_cfg cannot be read"),
        (
            {"pretrained_cfg": TIMM["pretrained_cfg"] | {"interpolation": "random"}},
            "pretrained_cfg: .*filter",
        ),
    ],
)
def test_what_timm_does_otherwise_is_refused_by_name(tmp_path, change, told):
    with pytest.raises(ArtefactError, match=told):
        classifier.read_classifier(save(resnet(), tmp_path, "model.pth", TIMM | change))


def grouped() -> Any:
    model = resnet((1, 1, 1, 1), 4)
    model.layer1[0].conv2 = torch.nn.Conv2d(8, 8, 3, padding=1, groups=2, bias=False)  # as ResNeXt
    return model


def deep_stem() -> Any:
    model = resnet()
    model.conv1 = torch.nn.Conv2d(3, 8, 3, 2, 1, bias=False)  # another kernel
    return model


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (grouped, "fits no plain ResNet"),
        (deep_stem, "fits no plain ResNet"),
        (lambda: torch.nn.Linear(3, 4), "holds the weights of no network that is known here"),
    ],
)
def test_other_weights_are_refused_with_what_to_do(tmp_path, make, told):
    with pytest.raises(ArtefactError, match=told) as caught:
        classifier.read_classifier(save(make(), tmp_path))
    assert "torch.onnx.export" in str(caught.value)


def test_weights_alone_are_read(tmp_path):
    torch.save(resnet(), tmp_path / "weights.pth")  # a pickle of a class: code
    with pytest.raises(ArtefactError, match="holds no plain weights"):
        classifier.read_classifier(tmp_path)
    (tmp_path / "weights.pth").write_bytes(b"damaged")
    with pytest.raises(ArtefactError, match="holds no plain weights"):
        classifier.read_classifier(tmp_path)
    save(resnet(), tmp_path, "other.pth")
    with pytest.raises(ArtefactError, match=r"several files of weights \(other.pth, weights.pth\)"):
        classifier.read_classifier(tmp_path)
    for file in tmp_path.iterdir():
        file.unlink()
    with pytest.raises(ArtefactError, match="is not a vision checkpoint: it lacks weights"):
        classifier.read_classifier(tmp_path)


def test_what_a_trainer_wraps_around_the_weights_is_taken_off(tmp_path):
    model = resnet()
    state = {f"module.{key}": weight for key, weight in model.state_dict().items()}
    torch.save({"state_dict": state, "epoch": 3}, tmp_path / "last.pth")
    pixels = torch.randn(1, 3, 64, 64)
    with torch.inference_mode():
        found = classifier.read_classifier(tmp_path).network(pixels)
        torch.testing.assert_close(found, model(pixels), rtol=1e-4, atol=1e-4)


# Parameters without running statistics, as published: tensorflow/tpu, efficientnet/lite/README.md.
@pytest.mark.parametrize(
    ("name", "millions"), [(f"efficientnet-lite{number}", size) for number, size in
                           enumerate((4.7, 5.4, 6.1, 8.2, 13.0))]
)  # fmt: skip
def test_efficientnet_lite_has_the_published_size(name, millions):
    with torch.device("meta"):
        model = lite.EfficientNetLite(name, 1000)
    assert sum(weight.numel() for weight in model.parameters()) / 1e6 == pytest.approx(millions, abs=0.06)
    assert lite.fits(model.state_dict()) == name


@pytest.mark.parametrize(("kernel", "stride", "side"), [(3, 2, 224), (5, 2, 57), (5, 1, 14), (3, 2, 7)])
def test_padding_is_tensorflows_same(kernel, stride, side):
    convolution, left = lite.padded_convolution(3, 4, kernel, stride, side)
    assert left == -(-side // stride)
    pixels = torch.randn(1, 3, side, side)
    # What tf.nn.conv2d documents: the smaller half of the padding comes first.
    total = max((left - 1) * stride + kernel - side, 0)
    padded = torch.nn.functional.pad(pixels, (total // 2, total - total // 2) * 2)
    expected = torch.nn.functional.conv2d(padded, convolution.weight, stride=stride)
    torch.testing.assert_close(convolution(pixels), expected)


def test_efficientnet_lite_brings_its_input_and_imagenets_labels(tmp_path):
    read = classifier.read_classifier(save(lite.EfficientNetLite("efficientnet-lite1", 1000), tmp_path))
    assert (read.input.height, read.input.resize_to, read.input.filter) == (240, 272, "bicubic")
    assert read.input.mean[0] == pytest.approx(127 / 255)
    assert read.labels == classifier.imagenet_labels()
    assert [read.labels[index] for index in (0, 281, 388, 999)] == [
        "tench", "tabby cat", "giant panda", "toilet tissue",
    ]  # fmt: skip
    assert len(set(read.labels)) == 1000
