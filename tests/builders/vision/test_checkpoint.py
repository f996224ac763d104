"""build/steps/vision/checkpoint.py: weights by torchvision's names, and any classifier as an ONNX graph."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

from tests.builders.scripts import Later, refusal, run
from trimodal.errors import ArtefactError
from trimodal.manifest import Manifest, read_manifest
from trimodal.vision.artefact import InputSpec

pytestmark = [pytest.mark.build, pytest.mark.filterwarnings("ignore")]
SCRIPT = "vision_onnx"
SPEC = InputSpec(height=32, width=32, resize="exact")
CLASSES = 6
PIXELS = np.random.default_rng(3).integers(0, 256, (24, 3, 32, 32), dtype=np.uint8)
torch, checkpoint, models = Later("torch"), Later("steps.vision.checkpoint"), Later("steps.vision.models")


def config(directory: Path, architecture: str) -> Path:
    directory.mkdir()
    fields = {"architecture": architecture, "num_classes": CLASSES, "input": SPEC.model_dump(mode="json")}
    (directory / "config.json").write_text(json.dumps(fields))
    np.savez(directory / "calibration.npz", images=PIXELS.transpose(0, 2, 3, 1))
    return directory


def normalised(pixels: np.ndarray) -> np.ndarray:
    return np.asarray(Later("steps.vision.images").normalised(pixels, SPEC))


def random(architecture: str) -> torch.nn.Module:
    return models.random_model(architecture, SPEC, normalised(PIXELS), classes=CLASSES)


def logits_of(model: torch.nn.Module) -> np.ndarray:
    with torch.inference_mode():
        return np.asarray(model(torch.from_numpy(normalised(PIXELS))).numpy())


def export(model: torch.nn.Module, file: Path, *, free: bool = True, opset: int = 17) -> None:
    """As the owner of any classifier does it, with names of their own."""
    axes = {"image": {0: "n"}, "scores": {0: "n"}} if free else {}
    names = {"input_names": ["image"], "output_names": ["scores"], "dynamic_axes": axes}
    example = (torch.zeros(1, 3, 32, 32),)
    torch.onnx.export(model, example, str(file), opset_version=opset, dynamo=False, **names)


@pytest.fixture
def exported(tmp_path: Path) -> tuple[Path, torch.nn.Module]:
    directory, model = config(tmp_path / "exported", "onnx"), random("convnext-nano")
    export(model, directory / "model.onnx")
    return directory, model


def built(out: Path, precision: str) -> Manifest:
    return read_manifest(out / f"onnx-{precision}", task="vision", runtime="onnxruntime")


@pytest.mark.parametrize(
    "name",
    [
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("vit-tiny", "convnext-nano")),
        "digits-resnet",
    ],
)
def test_every_precision_of_every_kind_of_network(tmp_path, name):
    from safetensors.torch import save_file

    directory = config(tmp_path / name, name)
    weights = random(name).state_dict()
    if name == "vit-tiny":  # as in torchvision's published files
        weights = {
            key.replace(".mlp.0.", ".mlp.linear_1.").replace(".mlp.3.", ".mlp.linear_2."): weight
            for key, weight in weights.items()
        }
        assert "encoder.layers.encoder_layer_0.mlp.linear_1.weight" in weights
    save_file(weights, directory / "model.safetensors")
    precisions = ("fp32", "fp16", "int8-gpu", "fp8")
    wanted = [part for each in precisions for part in ("--precision", each)]
    run(SCRIPT, directory, *wanted, "--max-batch", 40, "--min-agreement", 0.5, "--out-dir", tmp_path)
    limits = {"fp32": 1e-4, "fp16": 1e-2, "int8-gpu": 0.2, "fp8": 0.3}
    for precision in precisions:
        check = built(tmp_path, precision).check
        assert check["against"] == "torch"
        assert check["relative_error"] < limits[precision]
        assert check["batch_change"] < 1e-4
        assert check["tensorrt_lacks"] == "nothing"
        if precision != "fp32":
            assert 1e-5 < check["relative_error_rounded"] < limits[precision]
    for precision, kind in (("int8-gpu", onnx.TensorProto.INT8), ("fp8", onnx.TensorProto.FLOAT8E4M3FN)):
        model = onnx.load(tmp_path / f"onnx-{precision}" / "model.onnx")
        assert kind in {weight.data_type for weight in model.graph.initializer if len(weight.dims) > 1}
        assert built(tmp_path, precision).calibration["images"] == len(PIXELS)
        assert [value.type.tensor_type.elem_type for value in (*model.graph.input, *model.graph.output)] == [
            onnx.TensorProto.UINT8,
            onnx.TensorProto.FLOAT,
        ]


def test_any_classifier_comes_as_a_graph_and_torchs_own_answers_judge_it(exported, tmp_path):
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
    before = built(tmp_path, "fp32").source_sha256
    export(random("digits-resnet"), directory / "model.onnx")
    unnamed = onnx.load(directory / "model.onnx")
    for node in unnamed.graph.node:
        node.name = ""
    onnx.save(unnamed, directory / "model.onnx")
    (directory / "reference.npz").unlink()
    run(
        SCRIPT,
        directory,
        "--precision",
        "fp32",
        "--precision",
        "fp8",
        "--max-batch",
        4,
        "--out-dir",
        tmp_path,
    )
    after = built(tmp_path, "fp32")
    assert built(tmp_path, "fp8").check["relative_error_rounded"] < 0.1
    assert after.check["against"] == "ONNX Runtime"
    assert after.source_sha256 != before  # another graph is another checkpoint


def test_a_graph_that_is_not_what_torch_computed_is_refused(exported, tmp_path, capsys):
    directory, model = exported
    np.savez(directory / "reference.npz", pixels=PIXELS, logits=logits_of(model) * 1.01)
    sentence = refusal(capsys, SCRIPT, directory, "--max-batch", 2, "--out-dir", tmp_path)
    assert "onnx-fp32 not written: relative_error 0.0099 is above 0.001" in sentence
    np.savez(directory / "reference.npz", pixels=PIXELS, logits=logits_of(model)[:5])
    assert "one row of 6 for each" in refusal(capsys, SCRIPT, directory)
    np.savez(directory / "reference.npz", pixels=PIXELS)
    assert "lacks 'pixels' or 'logits'" in refusal(capsys, SCRIPT, directory)


def test_operators_that_tensorrt_lacks_are_told_and_keep_a_graph_from_gpus(tmp_path, capsys):
    class Odd(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.usual = random("digits-resnet")

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.usual(x) + 1e-3 * torch.linalg.det(x[:, 0, :3, :3])[:, None]

    directory = config(tmp_path / "checkpoint", "onnx")
    export(Odd().eval(), directory / "model.onnx")
    run(SCRIPT, directory, "--max-batch", 2, "--out-dir", tmp_path)
    (told,) = built(tmp_path, "fp32").check["tensorrt_lacks"]
    assert told.startswith("Det (model/")
    sentence = refusal(
        capsys, SCRIPT, directory, "--precision", "fp16", "--max-batch", 2, "--out-dir", tmp_path
    )
    assert "onnx-fp16 not written: TensorRT's ONNX parser refuses Det (model/" in sentence


def static(file: Path) -> None:
    export(random("digits-resnet"), file, free=False)


def other_classes(file: Path) -> None:
    export(torch.nn.Sequential(random("digits-resnet"), torch.nn.Linear(CLASSES, 7)), file)


def later_opset(file: Path) -> None:
    export(random("digits-resnet"), file)
    model = onnx.load(file)
    model.opset_import[0].version = 21
    onnx.save(model, file)


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (static, "input must be float ['free', 3, 32, 32], not float [1, 3, 32, 32]"),
        (other_classes, "output must be float ['free', 6], not float ['free', 7]"),
        (later_opset, "is of opset 21: export it with opset_version=20"),
        (lambda file: file.write_bytes(b"damaged"), "is not a valid ONNX model"),
        (lambda file: None, "it lacks model.onnx"),
    ],
    ids=["batch", "classes", "opset", "damaged", "missing"],
)
def test_a_graph_of_another_form_is_refused(tmp_path, capsys, make: Callable[[Path], object], told):
    directory = config(tmp_path / "checkpoint", "onnx")
    make(directory / "model.onnx")
    assert told in refusal(capsys, SCRIPT, directory, "--out-dir", tmp_path / "out")


def test_patches_need_a_square_input(tmp_path, capsys):
    directory = config(tmp_path / "checkpoint", "vit-tiny")
    fields = json.loads((directory / "config.json").read_text())
    for size in ({"height": 40, "width": 40}, {"height": 32, "width": 48}):
        fields["input"] |= size
        (directory / "config.json").write_text(json.dumps(fields))
        assert "needs a square input, a multiple of 16" in refusal(capsys, SCRIPT, directory)


@pytest.mark.parametrize(
    ("layer_type", "depths", "hidden_sizes", "architecture"),
    [
        ("basic", [2, 2, 2, 2], [64, 128, 256, 512], "resnet18"),
        ("bottleneck", [3, 4, 6, 3], [256, 512, 1024, 2048], "resnet50"),
    ],
)
def test_a_resnet_of_the_hub_gives_the_logits_that_transformers_gives(
    layer_type, depths, hidden_sizes, architecture, tmp_path
):
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.ResNetConfig(
        layer_type=layer_type, depths=depths, hidden_sizes=hidden_sizes, num_labels=3
    )
    config.id2label = {0: "tench", 1: "goldfish", 2: "shark"}
    theirs = transformers.ResNetForImageClassification(config).eval()
    theirs.save_pretrained(tmp_path)
    processor = {"crop_pct": 0.875, "image_mean": [0.5] * 3, "image_std": [0.25] * 3, "size": 224}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(processor))
    read = checkpoint.read_config(tmp_path)
    assert (read.architecture, read.labels) == (architecture, ["tench", "goldfish", "shark"])
    assert (read.input.height, read.input.resize_to, read.input.filter) == (224, 256, "bicubic")
    pixels = torch.randn(2, 3, 64, 64)
    with torch.no_grad():
        torch.testing.assert_close(checkpoint.load_model(tmp_path, read)(pixels), theirs(pixels).logits)


def test_another_resnet_of_the_hub_is_refused(tmp_path):
    found = {"model_type": "resnet", "layer_type": "bottleneck", "depths": [3, 4, 23, 3], "id2label": {}}
    (tmp_path / "config.json").write_text(json.dumps(found))
    (tmp_path / "preprocessor_config.json").write_text("{}")
    with pytest.raises(ArtefactError, match="neither ResNet-18 nor ResNet-50"):
        checkpoint.read_config(tmp_path)
