"""`vision` on the real server, with EfficientNet-Lite0 as `./scripts/test` builds it, on photos."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import tritonclient.grpc as grpcclient
import tritonclient.http as httpclient
from tritonclient.utils import InferenceServerException

from tests.e2e.conftest import built
from tests.vision.pictures import encode, noise, png_claiming
from trimodal.paths import data_directory
from trimodal.server.process import TritonServer

pytestmark = [pytest.mark.e2e, pytest.mark.build]
PHOTOS = data_directory() / "samples" / "photos"
# File of a photo → words of which one is in a right label; what ImageNet does not know is left out.
SHOWS = {
    entry["file"]: entry["shows"]
    for entry in json.loads((PHOTOS / "samples.json").read_text())
    if entry["shows"]
}
# Torch with the same weights names these wrongly, too: an agama, and a Komodo dragon.
MISTAKEN = {"chameleon.jpg", "crocodile.jpg"}
SAMPLES = [PHOTOS / name for name in SHOWS if name not in MISTAKEN]
Ask = Callable[..., tuple[list[list[str]], np.ndarray]]

BAD = {
    "text": (b"not a picture", "image: not a JPEG, PNG, WebP, GIF, BMP, TIFF, AVIF or HEIC file"),
    "cut jpeg": (encode(noise(64, 64), "JPEG")[:900], "image: a truncated JPEG file"),
    "png bomb": (png_claiming(60_000, 60_000), "image: 60000 × 60000 pixels; at most 16384 a side"),
}


@pytest.fixture(scope="module")
def server(serve: Callable[..., TritonServer]) -> TritonServer:
    artefact = str(built("vision_classify", "onnx-int8"))
    return serve(models=("vision",), changes={"vision": {"artefact": artefact}})


@pytest.fixture(scope="module", params=["grpc", "http"])
def ask(request: pytest.FixtureRequest, server: TritonServer) -> Ask:
    """`ask(bytes, …)`: labels and scores of one request with these images."""
    kind, url = (grpcclient, server.grpc_url) if request.param == "grpc" else (httpclient, server.http_url)

    def infer(*images: bytes) -> tuple[list[list[str]], np.ndarray]:
        batch = np.empty((len(images), 1), object)
        batch[:, 0] = images
        tensor = kind.InferInput("image", list(batch.shape), "BYTES")
        tensor.set_data_from_numpy(batch)
        with kind.InferenceServerClient(url) as client:  # The HTTP client belongs to one thread.
            answer = client.infer("vision", [tensor])
        labels = answer.as_numpy("labels")
        return [[label.decode() for label in row] for row in labels], answer.as_numpy("scores")

    return infer


def refused(ask: Ask, *images: bytes) -> str:
    with pytest.raises(InferenceServerException) as caught:
        ask(*images)
    assert caught.value.status() in ("StatusCode.INVALID_ARGUMENT", "400")
    return str(caught.value)


def is_right(labels: list[str], name: str) -> bool:
    """Whether the best label says what the photo shows."""
    return any(word in labels[0].lower() for word in SHOWS[name])


def test_photos_get_their_labels_one_by_one_and_in_a_batch(ask):
    files = [file.read_bytes() for file in SAMPLES]
    alone = [ask(data)[0][0] for data in files]
    wrong = [
        file.name for file, labels in zip(SAMPLES, alone, strict=True) if not is_right(labels, file.name)
    ]
    assert wrong == []
    labels, scores = ask(*files[:16])  # as many as the model takes at once
    assert [row[0] for row in labels] == [row[0] for row in alone[:16]]
    assert scores.shape == (len(files[:16]), 5)
    assert (np.diff(scores, axis=1) <= 0).all()


def test_bad_images_do_not_harm_concurrent_requests(ask):
    bad = [data for data, _ in BAD.values()]

    def one(index: int) -> bool:
        if index % 3 == 0:
            return "image: " in refused(ask, bad[index % len(bad)])
        file = SAMPLES[index % 10]
        return is_right(ask(file.read_bytes())[0][0], file.name)

    with ThreadPoolExecutor(12) as pool:
        assert all(pool.map(one, range(180)))
