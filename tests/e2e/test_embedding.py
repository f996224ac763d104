"""The `embedding` model on the real server, with MiniLM built from its package."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import tritonclient.grpc as grpcclient

from trimodal.server.process import TritonServer

pytestmark = [pytest.mark.e2e, pytest.mark.build]


@pytest.fixture(scope="module")
def embed(
    serve: Callable[..., TritonServer],
    minilm: Path,
) -> Iterator[Callable[..., np.ndarray]]:
    """`embed(text, …)`: vectors of one request with these texts."""
    server = serve(models=("embedding",), changes={"embedding": {"artefact": str(minilm)}})
    client = grpcclient.InferenceServerClient(server.grpc_url)

    def infer(*texts: str | bytes) -> np.ndarray:
        batch = np.empty((len(texts), 1), object)
        batch[:, 0] = [text.encode() if isinstance(text, str) else text for text in texts]
        tensor = grpcclient.InferInput("text_input", list(batch.shape), "BYTES")
        tensor.set_data_from_numpy(batch)
        return client.infer("embedding", [tensor]).as_numpy("embedding")

    yield infer
    client.close()


def test_near_in_meaning_is_near_in_cosine(embed):
    vectors = embed("How do I open a file?", "What is the way to open a file?", "Bananas are yellow.")
    assert vectors.shape == (3, 384)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    assert vectors[0] @ vectors[1] > 0.8
    assert abs(vectors[0] @ vectors[2]) < 0.2


def test_a_text_means_the_same_alone_and_among_others(embed):
    texts = ["a", "short text", "a text of some more words than the others have", "word " * 300]
    alone = np.concatenate([embed(text) for text in texts])
    np.testing.assert_allclose(embed(*texts), alone, atol=1e-5)
    with ThreadPoolExecutor(8) as pool:
        many = np.concatenate(list(pool.map(embed, texts * 6)))
    np.testing.assert_allclose(many, np.tile(alone, (6, 1)), atol=1e-5)
