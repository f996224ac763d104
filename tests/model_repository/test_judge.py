"""The glue of judge on a fake stub, called as a client does and as the cache does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.doubles import pb_utils
from tests.doubles.pb_utils import MODELS, InferenceRequest, TritonError
from trimodal.cache.models import judge
from trimodal.errors import InvalidArgument, Unavailable
from trimodal.repository import FAKE

MODEL = Path(__file__).parents[2] / "model_repository" / "judge"
CONFIG, PARAMETERS = pb_utils.config_of(MODEL, "configs/cpu.pbtxt")


def loaded(module: Any, **parameters: str) -> Any:
    """The model, initialized as its cpu.pbtxt says but for `parameters`."""
    return pb_utils.initialized(module, MODEL, PARAMETERS | parameters)


def request(*pairs: tuple[str, str]) -> InferenceRequest:
    columns = zip(*pairs, strict=True)
    names = ("question", "other")
    return InferenceRequest(
        {
            name: np.array([[text.encode()] for text in column], object)
            for name, column in zip(names, columns, strict=True)
        }
    )


def test_requests_of_a_batch_get_their_own_pairs(module: Any) -> None:
    model = loaded(module, engine="fake")
    first, bad, last = model.execute(
        [request(("a b", "b a"), ("a", "b")), request(("a", " ")), request(("What's this?", "what is THIS"))]
    )
    assert list(first.outputs) == [one.name for one in CONFIG.output]
    assert first.outputs["same"].tolist() == [[1.0], [0.0]]
    assert first.outputs["same"].dtype == np.float32
    assert bad.error.message() == "other: empty; at least one word is needed"
    assert last.outputs["same"].tolist() == [[1.0]]


def test_the_cache_calls_it(module: Any) -> None:
    model = loaded(module, engine="fake", max_bytes="100")

    def infer(tensors: Any) -> Any:
        (response,) = model.execute([tensors.call])
        return response.error or response.outputs

    MODELS["judge"] = infer
    pairs = [("a lambda", "lambda A"), ("a b", "a c"), ("judge: answer yes", "a")]
    assert judge(pb_utils, "judge", FAKE, pairs) == pytest.approx([1, 1 / 3, 0])
    with pytest.raises(InvalidArgument, match="judge: other: 1000000 bytes; at most 100 are accepted"):
        judge(pb_utils, "judge", FAKE, [("x" * 1_000_000, "x")])
    # Its threshold would be another one's.
    with pytest.raises(Unavailable, match="judge: checkpoint_sha256: another checkpoint .* is served, fake"):
        judge(pb_utils, "judge", "0" * 64, pairs)
    MODELS["judge"] = lambda tensors: TritonError("Request for unknown model: 'judge' is not found")
    with pytest.raises(Exception, match="judge: "):
        judge(pb_utils, "judge", FAKE, [("a", "b")])
