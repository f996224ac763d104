"""Builds whose answers or perplexity are too far from torch's."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.builders.scripts import Later
from trimodal.errors import ArtefactError
from trimodal.manifest import Manifest

artefact: Any = Later("steps.artefact")
check: Any = Later("steps.llm.check")
openvino: Any = Later("llm_openvino")
torch: Any = Later("torch")


def manifest(precision: str, torch: float, built: float, **extra: Any) -> Manifest:
    figures = {"perplexity_torch": torch, "perplexity_built": built, "perplexity_ratio": built / torch}
    return Manifest(
        task="llm", runtime="openvino", runtime_version="1", precision=precision, source="tiny",
        source_sha256="ab", command="python build/llm_openvino.py tiny", check=figures, extra=extra,
    )  # fmt: skip


def test_int4_that_is_far_more_surprised_than_torch_is_refused_with_what_to_try() -> None:
    """SmolLM2 in INT4, as it was built without a word."""
    with pytest.raises(ArtefactError) as refused:
        artefact.refuse_perplexity(manifest("int4", 1.87, 3.00), openvino.MAX_PERPLEXITY_RATIO["int4"])
    assert str(refused.value) == (
        "int4 raises the perplexity from 1.87 to 3, 1.60 times, more than --max-perplexity-ratio 1.5: "
        "nothing was replaced; try --awq, --ratio 0.8 or --calibration FILE, or a higher precision"
    )
    artefact.refuse_perplexity(manifest("int4", 1.87, 3.00), 1.7)
    artefact.refuse_perplexity(manifest("int4", 1.87, 2.5), openvino.MAX_PERPLEXITY_RATIO["int4"])


def test_other_precisions_are_held_to_less_and_random_weights_to_nothing() -> None:
    with pytest.raises(ArtefactError, match=r"1\.20 times, .* nothing was replaced; try a higher precision"):
        artefact.refuse_perplexity(manifest("int8", 2, 2.4), openvino.MAX_PERPLEXITY_RATIO["int8"])
    artefact.refuse_perplexity(manifest("int8", 2, 9, random_weights=True), 1.1)
    with pytest.raises(ArtefactError, match="nan times"):
        artefact.refuse_perplexity(manifest("int8", 2, float("nan")), 1.1)


@pytest.mark.parametrize("built", [math.inf, math.nan])
def test_no_number_is_refused_of_random_weights_too(built: float) -> None:
    with pytest.raises(ArtefactError, match="nothing was replaced"):
        artefact.refuse_perplexity(manifest("int8", 2, built, random_weights=True), 1.1)


@pytest.mark.build
def test_a_graph_that_is_surprised_beyond_any_number_is_refused() -> None:
    def reference(ids: Any) -> Any:
        return SimpleNamespace(logits=torch.zeros(1, ids.shape[1], 2))

    def built(ids: list[int]) -> Any:
        return np.tile(np.array([0, 2000], np.float32), (len(ids), 1))

    figures = check.compare(reference, built, [check.Sample([0, 0, 0], 1)], lambda: None)
    assert figures["perplexity_torch"] == pytest.approx(2)
    with pytest.raises(ArtefactError, match="to inf, inf times"):
        artefact.refuse_perplexity(manifest("fp16", 2, figures["perplexity_built"]), 1.1)
