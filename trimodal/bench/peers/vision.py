"""Serves an image classifier as guides do: FastAPI, and one call of the torch network for each image."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from fastapi import Depends, FastAPI, Request
from PIL import Image

from trimodal.vision.artefact import InputSpec, read_classifier

FILTERS = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}


async def body(request: Request) -> bytes:
    return await request.body()


def make_app(artefact: str, checkpoint: str | None) -> FastAPI:
    """Opens the network of the artefact in float32, on as many threads as torch takes by itself.

    Args:
        checkpoint: directory with its weights; None: random ones, which take the same time.

    Raises:
        ArtefactError: the networks of build/ are not there, or the weights do not fit.
    """
    import torch

    from trimodal.bench.common.networks import open_network

    classifier = read_classifier(Path(artefact))
    network = open_network(classifier, Path(checkpoint) if checkpoint else None, "--peer fastapi").eval()
    mean, std = (np.array(values, np.float32) for values in (classifier.input.mean, classifier.input.std))
    app = FastAPI()

    @app.post("/classify")
    def classify(data: Annotated[bytes, Depends(body)]) -> dict[str, Any]:
        pixels = np.asarray(
            prepare(Image.open(io.BytesIO(data)).convert("RGB"), classifier.input), np.float32
        )
        normalised = (pixels / 255 - mean) / std
        with torch.inference_mode():
            logits = network(torch.from_numpy(normalised.transpose(2, 0, 1)[None]))
            best = logits.softmax(1)[0].topk(min(5, len(classifier.labels)))
        return {
            "labels": [classifier.labels[index] for index in best.indices.tolist()],
            "scores": best.values.tolist(),
        }

    return app


def prepare(image: Image.Image, spec: InputSpec) -> Image.Image:
    """Fits an image to the network's height and width: resized, and for `crop` the centre of it."""
    if spec.resize == "exact":
        return image.resize((spec.width, spec.height), FILTERS[spec.filter])
    scale = spec.shorter / min(image.size)
    image = image.resize((round(image.width * scale), round(image.height * scale)), FILTERS[spec.filter])
    left, top = (image.width - spec.width) // 2, (image.height - spec.height) // 2
    return image.crop((left, top, left + spec.width, top + spec.height))
