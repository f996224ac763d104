"""Reads an image classifier of the Hugging Face hub with transformers, and its own image processor."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from steps.artefact import read_json, reason
from steps.llm.checkpoint import quiet
from steps.vision.classifier import CONFIG, EXPORT_THERE, Classifier
from steps.vision.images import normalised
from torch import Tensor, nn

from trimodal.errors import ArtefactError
from trimodal.vision.artefact import InputSpec
from trimodal.vision.image import Picture
from trimodal.vision.preprocess import FILTERS, Preprocessor
from trimodal.vision.settings import Limits

PROCESSOR = "preprocessor_config.json"
WARPED_FROM = 384  # pixels from which ConvNeXt's processor does not crop
# What a processor's fields say that is honoured, or that changes no pixel.
HONOURED = {
    "do_resize", "size", "resample", "do_center_crop", "crop_size", "crop_pct", "do_rescale",
    "rescale_factor", "rescale_offset", "do_normalize", "image_mean", "image_std", "include_top",
}  # fmt: skip
WITHOUT_EFFECT = {
    "image_processor_type", "default_to_square", "do_convert_rgb", "data_format", "return_tensors",
    "input_data_format", "device", "disable_grouping", "processor_class", "do_reduce_labels", "pad_size",
    "feature_extractor_type", "return_segmentation_masks",
}  # fmt: skip
FILTER_NAMES = {int(value): name for name, value in FILTERS.items()}
TOLERANCE = 1e-4  # of normalised pixels: rounding of floats, where one byte is 0.015


class LogitsOf(nn.Module):
    """A transformers model as pixels → logits."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, pixels: Tensor) -> Tensor:
        logits: Tensor = self.model(pixel_values=pixels).logits
        return logits


def read_hub(directory: Path, model_type: str) -> Classifier:
    """The classifier of a directory as `save_pretrained` leaves it.

    Raises:
        ArtefactError: no image classifier, weights that are missing or do not fit, or a processor that does
            what is not done here; named.
    """
    quiet()
    import transformers

    try:
        model, found = transformers.AutoModelForImageClassification.from_pretrained(
            directory, local_files_only=True, output_loading_info=True, dtype=torch.float32,
            attn_implementation="eager", ignore_mismatched_sizes=True,
        )  # fmt: skip
    except Exception as error:  # transformers, safetensors and torch raise errors of their own.
        raise ArtefactError(
            f"{directory}: transformers opens no image classifier of model_type {model_type} "
            f"({reason(error)})"
        ) from None
    lacking = sorted({*found["missing_keys"], *(key for key, *_ in found["mismatched_keys"])})
    if lacking:
        raise ArtefactError(
            f"{directory}: {len(lacking)} tensors of {type(model).__name__} are missing or of another shape "
            f"({', '.join(lacking[:3])} …): it was saved without its classifier, or is damaged"
        )
    network = LogitsOf(model).eval()
    named = model.config.id2label
    if unnamed := sorted(set(range(model.config.num_labels)) - set(named)):
        raise ArtefactError(
            f"{directory / CONFIG}: id2label names no class {unnamed[0]}: its classes are "
            f"0 to {model.config.num_labels - 1}"
        )
    labels = [str(named[index]) for index in range(model.config.num_labels)]
    processor = _processor(directory, model_type)
    spec = input_spec(processor.to_dict(), directory / PROCESSOR)
    _compare(processor, spec, directory / PROCESSOR)
    random_weights = bool(getattr(model.config, "random_weights", False))
    return Classifier(model_type, spec, labels, network, random_weights)


def input_spec(fields: dict[str, Any], file: Path) -> InputSpec:
    """A processor's fields in our terms. Raises: ArtefactError: one asks for what is not done here."""
    given = {name: value for name, value in fields.items() if value not in (None, False)}
    if unknown := sorted(set(given) - HONOURED - WITHOUT_EFFECT):
        raise ArtefactError(
            f"{file}: {unknown[0]} is {given[unknown[0]]}, which is not done here: {EXPORT_THERE}"
        )
    if not fields.get("do_resize", True):
        raise ArtefactError(f"{file}: do_resize is false, and pictures come in all sizes: set it, with size")
    resampling = FILTER_NAMES[int(given.get("resample", 0))]
    mean, std = _normalisation(fields, file)
    return InputSpec(**_geometry(given, file), filter=resampling, crop_offset="floor", mean=mean, std=std)


def _geometry(given: dict[str, Any], file: Path) -> dict[str, Any]:
    size = {name: value for name, value in dict(given["size"]).items() if value}
    crop = {name: value for name, value in dict(given.get("crop_size") or {}).items() if value}
    side = size.get("shortest_edge")
    if "crop_pct" in given and side:
        square = {"height": side, "width": side}
        if side >= WARPED_FROM:
            return square | {"resize": "exact"}
        return square | {"resize": "crop", "resize_to": int(side / given["crop_pct"])}
    cropped = bool(given.get("do_center_crop")) and set(crop) == {"height", "width"}
    if set(size) == {"shortest_edge"} and cropped:
        found = crop | {"resize": "crop", "resize_to": side}
    elif set(size) == {"height", "width"} and not given.get("do_center_crop"):
        return size | {"resize": "exact"}
    elif set(size) == {"height", "width"} and cropped and size["height"] == size["width"]:
        found = crop | {"resize": "exact-crop", "resize_to": size["height"]}
    else:
        raise ArtefactError(
            f"{file}: size {size} with {'crop_size ' + str(crop) if cropped else 'no do_center_crop'} gives "
            f"pictures of several sizes, or is not done here: {EXPORT_THERE}"
        )
    if max(crop.values()) > found["resize_to"]:
        raise ArtefactError(
            f"{file}: crop_size {crop} is larger than size {size}, and nothing is padded here"
        )
    return found


def _normalisation(fields: dict[str, Any], file: Path) -> tuple[list[float], list[float]]:
    """Mean and std of value / 255 that do what the processor does in up to four steps."""
    for name in ("image_mean", "image_std"):
        if np.shape(fields.get(name, 0.0)) not in ((), (3,)):
            raise ArtefactError(f"{file}: {name} {fields[name]} must have 3 numbers")
    factor = float(fields["rescale_factor"]) if fields.get("do_rescale") else 1.0
    mean, std = np.zeros(3), np.ones(3)
    if fields.get("do_normalize"):
        mean = mean + np.asarray(fields["image_mean"], float)
        std = std * np.asarray(fields["image_std"], float)
    if fields.get("rescale_offset"):
        mean = mean + 1
    if fields.get("include_top"):
        std = std * np.asarray(fields["image_std"], float)
    return (mean / (255 * factor)).tolist(), (std / (255 * factor)).tolist()


def _processor(directory: Path, model_type: str) -> Any:
    """The checkpoint's own processor, on Pillow: torchvision is not needed."""
    import transformers

    file = directory / PROCESSOR
    if not file.is_file():
        raise ArtefactError(f"{directory} is not a vision checkpoint: it lacks {PROCESSOR}")
    fields = read_json(file)
    name = str(fields.get("image_processor_type") or fields.get("feature_extractor_type") or "")
    name = name.removesuffix("Fast").replace("FeatureExtractor", "ImageProcessor")
    kind = getattr(transformers, f"{name}Pil", None) if name else None
    if kind is None:
        raise ArtefactError(
            f"{file}: {name or 'a processor without image_processor_type'} of {model_type} is not known "
            f"here: {EXPORT_THERE}"
        )
    return kind.from_pretrained(directory, local_files_only=True)


def _compare(processor: Any, spec: InputSpec, file: Path) -> None:
    """Holds our pixels against the processor's own. Raises: ArtefactError: they differ."""
    generator = np.random.default_rng(0)
    prepare = Preprocessor(spec, Limits())
    for size in ((301, 450), (640, 277)):
        grain = Image.fromarray(generator.integers(0, 256, (size[1] // 4, size[0] // 4, 3), dtype=np.uint8))
        picture = grain.resize(size)
        theirs = np.asarray(processor(picture, return_tensors="np")["pixel_values"])
        ours = np.empty((1, *prepare.shape), np.uint8)
        prepare.lay_out(prepare.fit(Picture(picture, 1)), ours[0])
        if theirs.shape != ours.shape:
            raise ArtefactError(
                f"{file}: gives {theirs.shape[2:]} pixels, here {ours.shape[2:]}: {EXPORT_THERE}"
            )
        error = np.abs(theirs - normalised(ours, spec)).max()
        if not error <= TOLERANCE * max(1.0, float(np.abs(theirs).max())):
            raise ArtefactError(
                f"{file}: {type(processor).__name__} gives other pixels than are made here, by {error:.2g}: "
                f"{EXPORT_THERE}"
            )
