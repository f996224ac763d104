"""Reads any checkpoint of an image classifier: which kind it is, its network or graph, its input, its labels.

- A Hugging Face directory: whatever transformers' AutoModelForImageClassification opens (`hub.py`).
- A state dict of torchvision or timm, ResNet 18 to 152, or of EfficientNet-Lite (`state_dict.py`).
- An ONNX graph (`exported.py`).

No code of a checkpoint is ever run: pickles are opened with `weights_only`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from steps.artefact import read_json

from trimodal.errors import ArtefactError
from trimodal.settings import describe
from trimodal.vision.artefact import InputSpec

if TYPE_CHECKING:
    import torch

CONFIG, GRAPH = "config.json", "model.onnx"
TIMM = "timm_wrapper"  # `model_type` of timm's checkpoints, where they have one
EXPORT_THERE = (
    "export it where it runs (torch.onnx.export, a free batch, opset 17) and build from a directory with "
    "that model.onnx and a config.json"
)
WEIGHTS = (".pth", ".pt", ".safetensors")


@dataclass(frozen=True)
class Classifier:
    """A network in torch that takes normalised pixels [B, 3, H, W] and gives logits [B, classes].

    `random_weights`: made by random_checkpoint.py, which is sure of nothing.
    """

    architecture: str
    input: InputSpec
    labels: list[str]
    network: torch.nn.Module
    random_weights: bool = False


class OwnConfig(BaseModel):
    """config.json beside a state dict or an ONNX graph, where its owner wrote one for this build.

    `labels` are in the order of the classes; left out, numbers, or ImageNet's where there are 1,000 classes.
    """

    model_config = ConfigDict(extra="forbid")

    architecture: str = ""
    num_classes: int | None = Field(None, ge=2, le=100_000)
    input: InputSpec | None = None
    labels: list[str] = Field(default_factory=list)
    description: str = ""

    @model_validator(mode="after")
    def _agree(self) -> OwnConfig:
        if self.input and max(*self.input.mean, *self.input.std) > 1:
            raise ValueError(
                f"input.mean {self.input.mean} and input.std {self.input.std} are of pixels from 0 to 255: "
                "divide both by 255"
            )
        return self


def read_own_config(directory: Path) -> OwnConfig:
    """Raises: ArtefactError: a field is wrong, named."""
    try:
        return OwnConfig.model_validate(read_json(directory / CONFIG))
    except ValidationError as error:
        raise ArtefactError(f"{directory / CONFIG}: {describe(error, OwnConfig)}") from None


def name_classes(labels: list[str], classes: int, whose: Path) -> list[str]:
    """The labels, ImageNet's, or numbers. Raises: ArtefactError: more or fewer labels than classes."""
    imagenet = imagenet_labels()
    labels = labels or (imagenet if classes == len(imagenet) else [str(index) for index in range(classes)])
    if len(labels) != classes:
        raise ArtefactError(f"{whose}: {len(labels)} labels for {classes} classes")
    return labels


def imagenet_labels() -> list[str]:
    """Names of the 1,000 classes of ImageNet (ILSVRC 2012) in their order.

    Of each class's synonyms in WordNet the first, or a longer one that says more: "tabby cat" for "tabby".
    Names that two classes share tell them apart.
    """
    return Path(__file__).with_name("imagenet.txt").read_text(encoding="utf-8").splitlines()


def read_classifier(directory: Path) -> Classifier:
    """The torch network of a checkpoint that is no ONNX graph.

    Raises:
        ArtefactError: names what is missing, damaged or not known here, and what to do.
    """
    config = read_json(directory / CONFIG)
    if config.get("model_type", TIMM) != TIMM:
        from steps.vision.hub import read_hub

        return read_hub(directory, str(config["model_type"]))
    from steps.vision.state_dict import read_state_dict

    return read_state_dict(directory, config)


def weights_file(directory: Path) -> Path:
    """The one file of weights in a directory. Raises: ArtefactError: there is none, or several."""
    found = sorted(file for file in directory.iterdir() if file.suffix in WEIGHTS)
    preferred = [file for file in found if file.name == "model.safetensors"] or found
    if len(preferred) == 1:
        return preferred[0]
    if found:
        names = ", ".join(file.name for file in found)
        raise ArtefactError(f"{directory} holds several files of weights ({names}): leave one of them")
    raise ArtefactError(
        f"{directory} is not a vision checkpoint: it lacks weights ({', '.join(WEIGHTS)}) and {GRAPH}"
    )
