"""`vision` on the real server, with the demo's classifier as `./scripts/test` builds it."""

from __future__ import annotations

import time
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import tritonclient.grpc as grpcclient
import tritonclient.http as httpclient
from PIL import Image
from tritonclient.utils import InferenceServerException

from tests.e2e.conftest import built, wait_until
from tests.vision.pictures import encode, exif, noise, png_claiming, quarters, webp_claiming
from trimodal.server.process import TritonServer

pytestmark = [pytest.mark.e2e, pytest.mark.build]
ROOT = Path(__file__).parents[3]
DEMO = ROOT / "build" / "demo" / "vision"
SAMPLES = sorted((DEMO / "samples").iterdir())
TRUTH = [file.stem.split("-")[1] for file in SAMPLES]
Ask = Callable[..., tuple[list[list[str]], np.ndarray]]

BAD = {
    "empty": (b"", "image: empty"),
    "text": (b"not a picture", "image: not a JPEG, PNG or WebP file"),
    "gif": (encode(Image.new("L", (4, 4)), "GIF"), "image: not a JPEG, PNG or WebP file"),
    "cut jpeg": (encode(noise(64, 64), "JPEG")[:900], "image: a truncated JPEG file"),
    "cut png": (encode(noise(64, 64), "PNG")[:900], "image: a truncated PNG file"),
    "cut webp": (encode(noise(64, 64), "WEBP")[:90], "image: a truncated WebP file"),
    "png bomb": (png_claiming(60_000, 60_000), "image: 60000 × 60000 pixels; at most 16384 a side"),
    "webp bomb": (webp_claiming(16_000, 16_000), "at most 40000000 in all are accepted"),
    "no width": (png_claiming(0, 9), "image: 0 × 9 pixels; at least 1 a side are needed"),
    "animated": (
        encode(quarters(), "WEBP", save_all=True, append_images=[noise(64, 64)]),
        "image: animated (2 frames); a single frame is accepted",
    ),
    "too many bytes": (b"\xff\xd8\xff" + bytes(16 << 20), "at most 16777216 are accepted"),
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


def test_reads_held_out_digits_one_by_one_and_in_a_batch(ask):
    files = [file.read_bytes() for file in SAMPLES]
    assert [ask(data)[0][0][0] for data in files] == TRUTH
    labels, scores = ask(*files[:16])  # as many as the model takes at once
    assert [row[0] for row in labels] == TRUTH[:16]
    assert scores.shape == (16, 5)
    assert (np.diff(scores, axis=1) <= 0).all()
    assert scores[:, 0].min() > 0.5


@pytest.mark.parametrize("name", BAD)
def test_a_bad_image_gets_its_reason_and_the_next_is_served(ask, name):
    data, told = BAD[name]
    sentence = refused(ask, data)
    assert told in sentence
    assert "/" not in sentence.replace("image/", "")
    assert ask(SAMPLES[3].read_bytes())[0][0][0] == TRUTH[3]


def test_the_bad_image_of_a_batch_is_named(ask):
    files = [file.read_bytes() for file in SAMPLES[:3]]
    assert "image[2]: empty" in refused(ask, *files[:2], b"", files[2])


def test_bad_images_do_not_harm_concurrent_requests(ask):
    bad = [data for data, _ in BAD.values()]

    def one(index: int) -> bool:
        if index % 3 == 0:
            return "image: " in refused(ask, bad[index % len(bad)])
        return ask(SAMPLES[index % 10].read_bytes())[0][0][0] == TRUTH[index % 10]

    with ThreadPoolExecutor(12) as pool:
        assert all(pool.map(one, range(180)))


def test_other_kinds_of_a_digit_read_the_same(ask):
    upright = Image.open(SAMPLES[7]).convert("RGB")
    lying = upright.transpose(Image.Transpose.ROTATE_90)  # EXIF 6 says: turn it back by 90° clockwise.
    grey = np.asarray(upright.convert("L"), np.uint16)
    kinds = {
        "webp": encode(upright, "WEBP"),
        "rotated": encode(lying, "JPEG", exif=exif(6)),
        "cmyk": encode(upright.convert("CMYK"), "JPEG"),
        "palette": encode(upright.quantize(16), "PNG"),
        "16 bit": encode(Image.fromarray(grey * 257), "PNG"),
        "alpha": encode(upright.convert("RGBA"), "PNG"),
    }
    labels, _ = ask(*kinds.values())
    assert dict(zip(kinds, (row[0] for row in labels), strict=True)) == dict.fromkeys(kinds, TRUTH[7])


def test_a_wrong_tensor_is_refused(server):
    client = grpcclient.InferenceServerClient(server.grpc_url)
    text = np.full((1, 1), b"x", object)
    for kind, wrong, told in (
        ("UINT8", np.zeros((1, 1), np.uint8), "data-type is 'UINT8'"),
        ("BYTES", np.repeat(text, 2, axis=1), "unexpected shape for input 'image'"),
        ("BYTES", np.repeat(text, 17, axis=0), "batch-size must be <= 16"),
    ):
        tensor = grpcclient.InferInput("image", list(wrong.shape), kind)
        tensor.set_data_from_numpy(wrong)
        with pytest.raises(InferenceServerException, match=told) as caught:
            client.infer("vision", [tensor])
        assert caught.value.status() == "StatusCode.INVALID_ARGUMENT"
    client.close()


def test_metrics_count_images_by_outcome_and_batches(ask, server):
    names = [f'trimodal_vision_images_total{{outcome="{outcome}"}}' for outcome in ("prepared", "refused")]
    names += ["trimodal_vision_decode_seconds_count", "trimodal_vision_classify_batch_size_sum"]

    def values() -> list[float]:
        with urllib.request.urlopen(f"http://{server.metrics_url}/metrics") as page:
            lines = page.read().decode().splitlines()
        return [float(line.rsplit(" ", 1)[1]) for name in names for line in lines if line.startswith(name)]

    def settled() -> list[float]:
        """A stub hands its metrics over in the background: until a few looks in a row agree."""
        looks: list[list[float]] = []
        while len(looks) < 5 or any(look != looks[-1] for look in looks[-5:]):
            looks.append(values())
            time.sleep(0.1)
        return looks[-1]

    before = settled()
    ask(*(file.read_bytes() for file in SAMPLES[:4]))
    refused(ask, b"x")
    wanted = [value + more for value, more in zip(before, (4, 1, 4, 4), strict=True)]
    wait_until(lambda: values() == wanted, f"metrics of {wanted}", 20)
    assert settled() == wanted
