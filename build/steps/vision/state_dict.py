"""Reads a state dict: ResNet 18 to 152 by torchvision's and timm's names, and EfficientNet-Lite."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import torch
from pydantic import ValidationError
from steps.artefact import reason
from steps.vision.classifier import (
    CONFIG,
    EXPORT_THERE,
    Classifier,
    name_classes,
    read_own_config,
    weights_file,
)
from steps.vision.efficientnet_lite import SCALES, EfficientNetLite, fits
from steps.vision.hub import LogitsOf
from torch import Tensor, nn

from trimodal.errors import ArtefactError
from trimodal.settings import describe
from trimodal.vision.artefact import InputSpec

State = dict[str, Tensor]
WRAPPED = ("state_dict", "model", "model_state_dict")  # where trainers put the state dict in their files
# Hashes in the names of torchvision's second weights, which want pictures of 232 pixels before the crop.
SECOND = ("11ad3fa6", "cd907fc2", "f82ba261")
BLOCK = re.compile(r"layer(\d+)\.(\d+)\.(conv|bn|downsample\.)(\d)\.")


def read_state_dict(directory: Path, config: dict[str, Any]) -> Classifier:
    """The network that the names and shapes of the weights tell.

    config.json is timm's, or ours (`input`, `labels`), or missing.

    Raises:
        ArtefactError: names what is not known here, and what to do.
    """
    pretrained = config.get("pretrained_cfg")
    if pretrained and not re.fullmatch(r"resnet\d+", str(config.get("architecture"))):
        raise ArtefactError(
            f"{directory}: timm's {config.get('architecture')} is not read here, only its plain ResNets: "
            f"{EXPORT_THERE}"
        )
    file = weights_file(directory)
    state = _load(file)
    if name := fits(state):
        network: nn.Module = EfficientNetLite(name, len(state["_fc.bias"]))
        network.load_state_dict(state)
        spec = _lite_input(SCALES[name][2])
    elif "conv1.weight" in state and "fc.weight" in state:
        name, network = _resnet(state, file)
        second = any(file.stem.endswith(hash) for hash in SECOND)
        spec = InputSpec(height=224, width=224, resize_to=232 if second else 256)
    else:
        examples = ", ".join(list(state)[:3])
        raise ArtefactError(
            f"{file} holds the weights of no network that is known here ({examples} …): {EXPORT_THERE}"
        )
    classes = len(state["_fc.bias"] if "_fc.bias" in state else state["fc.bias"])
    if pretrained:
        spec, labels = _timm_input(config, directory), config.get("label_names") or []
    else:
        own = read_own_config(directory)
        spec, labels = own.input or spec, own.labels
    return Classifier(name, spec, name_classes(labels, classes, directory), network.eval())


def _load(file: Path) -> State:
    try:
        if file.suffix == ".safetensors":
            from safetensors.torch import load_file

            found: Any = load_file(file)
        else:
            found = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # pickle, zipfile, safetensors and torch raise errors of their own.
        raise ArtefactError(f"{file} holds no plain weights ({reason(error)})") from None
    for key in WRAPPED:
        if isinstance(found, dict) and isinstance(found.get(key), dict):
            found = found[key]
    if not isinstance(found, dict) or not found or not all(isinstance(x, Tensor) for x in found.values()):
        raise ArtefactError(f"{file} is no state dict: save model.state_dict(), not the model")
    return {str(key).removeprefix("module."): weight.float() for key, weight in found.items()}


def _resnet(state: State, file: Path) -> tuple[str, nn.Module]:
    """transformers' ResNet with these weights: it computes what torchvision's and timm's do."""
    import transformers

    blocks = {(int(found[1]), int(found[2])) for key in state if (found := BLOCK.match(key))}
    depths = [sum(stage == number for stage, _ in blocks) for number in range(1, 5)]
    kind = "bottleneck" if "layer1.0.conv3.weight" in state else "basic"
    last = "conv3" if kind == "bottleneck" else "conv2"
    try:
        widths = [len(state[f"layer{stage}.0.{last}.weight"]) for stage in range(1, 5)]
        make: Any = transformers.ResNetConfig
        config = make(
            layer_type=kind, depths=depths, hidden_sizes=widths, embedding_size=len(state["conv1.weight"]),
            num_labels=len(state["fc.bias"]), hidden_act="relu",
        )  # fmt: skip
        model = transformers.ResNetForImageClassification(config)
        loaded = model.load_state_dict({_transformers_name(key): x for key, x in state.items()}, strict=False)
    except (KeyError, RuntimeError, ValueError) as error:
        said = str(error).strip().splitlines()[-1].strip()[:150]
        raise ArtefactError(f"{file} fits no plain ResNet ({said}): {EXPORT_THERE}") from None
    missing = [key for key in loaded.missing_keys if not key.endswith("num_batches_tracked")]
    if missing or loaded.unexpected_keys:
        examples = ", ".join([*missing, *loaded.unexpected_keys][:3])
        raise ArtefactError(f"{file} fits no plain ResNet ({examples} …): {EXPORT_THERE}")
    layers = sum(depths) * (3 if kind == "bottleneck" else 2) + 2
    return f"resnet{layers}", LogitsOf(model)


def _transformers_name(key: str) -> str:
    """layer1.0.conv2.weight → resnet.encoder.stages.0.layers.0.layer.1.convolution.weight"""
    if found := BLOCK.match(key):
        stage, block, kind, number = found.groups()
        place = f"resnet.encoder.stages.{int(stage) - 1}.layers.{block}"
        if kind == "downsample.":
            return f"{place}.shortcut.{('convolution', 'normalization')[int(number)]}.{key[found.end() :]}"
        what = "convolution" if kind == "conv" else "normalization"
        return f"{place}.layer.{int(number) - 1}.{what}.{key[found.end() :]}"
    for own, theirs in (("conv1.", "convolution."), ("bn1.", "normalization.")):
        if key.startswith(own):
            return f"resnet.embedder.embedder.{theirs}{key.removeprefix(own)}"
    return key.replace("fc.", "classifier.1.") if key.startswith("fc.") else key


def _lite_input(side: int) -> InputSpec:
    """As efficientnet_lite's own evaluation: (value − 127) / 128, 32 pixels more before the crop, bicubic."""
    shift, scale = (127 / 255,) * 3, (128 / 255,) * 3
    return InputSpec(height=side, width=side, resize_to=side + 32, filter="bicubic", mean=shift, std=scale)


def _timm_input(config: dict[str, Any], directory: Path) -> InputSpec:
    """What timm's create_transform makes of a pretrained_cfg for evaluation. Raises: ArtefactError."""
    given = config["pretrained_cfg"]
    try:
        _, height, width = given["input_size"]
        mode, share = given.get("crop_mode") or "center", given.get("crop_pct") or 0.875
        if mode not in ("center", "squash") or height != width:
            raise ValueError(f"crop_mode {mode} of {height} × {width} pixels is not done here")
        return InputSpec(
            height=height, width=width, resize="crop" if mode == "center" else "exact-crop",
            resize_to=math.floor(height / share), filter=given.get("interpolation") or "bicubic",
            mean=given["mean"], std=given["std"],
        )  # fmt: skip
    except ValidationError as error:
        raise ArtefactError(f"{directory / CONFIG}: pretrained_cfg: {describe(error, InputSpec)}") from None
    except (KeyError, TypeError, ValueError) as error:
        raise ArtefactError(f"{directory / CONFIG}: pretrained_cfg cannot be read ({error})") from None
