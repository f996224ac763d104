"""CUDA graphs of Triton's TensorRT backend answer each image with its own result, at every size with a graph.

With output_copy_stream the backend (26.07) answers half of the batches from the batch two before, without an
error: only the answers tell. Two images by turns would not, as the one before the last is the same again.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
import tritonclient.grpc as grpcclient

from trimodal.repository import read_model
from trimodal.runtimes.gpu_device import current_gpu

ROOT = Path(__file__).parents[3]
MODEL = read_model(ROOT / "model_repository", "vision_classify", "tensorrt")
SIZES = sorted({1, *MODEL.config.dynamic_batching.preferred_batch_size, MODEL.config.max_batch_size})
REQUESTS = 12  # twice the period of 3 event sets over 2 sets of buffers
Array = np.ndarray


def strays(ask: Callable[[Array], Array], images: Sequence[Array]) -> list[int]:
    """Images whose answer is not the same when they are asked for in the reverse order."""
    there = [ask(image) for image in images]
    back = [ask(image) for image in reversed(images)][::-1]
    nearest = [int(np.argmin([np.abs(one - other).max() for other in there])) for one in back]
    return [index for index, found in enumerate(nearest) if found != index]


def images(count: int) -> list[Array]:
    """Of one bright patch each, at another place."""
    made = np.zeros((count, 3, 224, 224), np.uint8)
    for index, image in enumerate(made):
        row, column = divmod(index, 4)
        image[:, row * 56 : row * 56 + 56, column * 56 : column * 56 + 56] = 255
    return list(made)


@pytest.fixture(scope="module")
def engines(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A plan of random weights for this very GPU."""
    folder = tmp_path_factory.mktemp("engines")
    checkpoint, environment = str(folder / "resnet50"), {**os.environ, "TRIMODAL_ENGINES": str(folder)}
    for command in (
        ["build/random_checkpoint.py", "resnet50", "--out", checkpoint],
        ["build/vision_tensorrt.py", checkpoint, "--precision", "fp16"],
    ):
        built = subprocess.run(
            [sys.executable, *command], cwd=ROOT, env=environment, capture_output=True, text=True
        )
        assert built.returncode == 0, built.stdout[-2000:] + built.stderr[-2000:]
    return folder


@pytest.mark.e2e
@pytest.mark.slow
@pytest.mark.skipif(current_gpu() is None, reason="no NVIDIA GPU is here")
def test_each_image_has_its_own_answer_at_every_size_with_a_graph(serve, engines: Path) -> None:
    server = serve(("vision_classify",), profile="tensorrt", engines=engines)
    with grpcclient.InferenceServerClient(server.grpc_url) as client:
        for size in SIZES:

            def ask(image: Array, size: int = size) -> Array:
                batch = np.repeat(image[None], size, axis=0)
                tensor = grpcclient.InferInput("pixels", list(batch.shape), "UINT8")
                tensor.set_data_from_numpy(batch)
                logits = client.infer("vision_classify", [tensor]).as_numpy("logits")
                assert (logits == logits[0]).all(), "one batch, one image"
                return logits[0]

            assert strays(ask, images(REQUESTS)) == [], f"at {size} images"
