"""The vision models' config.pbtxt files: one model, or steps that fit together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from trimodal.repository import read_model

REPOSITORY = Path(__file__).parents[2] / "model_repository"


def config(model: str, profile: str) -> Any:
    return read_model(REPOSITORY, model, profile).config


def test_all_steps_read_the_artefact_that_classifies():
    artefact = read_model(REPOSITORY, "vision_classify", "tensorrt").artefact
    assert artefact
    for name in ("vision_preprocess", "vision_rank"):
        read = read_model(REPOSITORY, name, "tensorrt").parameters["classifier"]
        assert read == f"../../vision_classify/1/{artefact}", name


def test_what_one_model_and_the_steps_share_is_set_to_the_same():
    one = read_model(REPOSITORY, "vision", "cuda").parameters
    for name in ("vision_preprocess", "vision_rank"):
        step = read_model(REPOSITORY, name, "tensorrt").parameters
        assert {key: one[key] for key in step if key != "classifier"} == {
            key: value for key, value in step.items() if key != "classifier"
        }


def test_there_is_a_cuda_graph_for_one_image_and_for_every_batch_that_is_preferred():
    """Without a graph_spec the backend captures 1, the preferred sizes and max_batch_size."""
    model = config("vision_classify", "tensorrt")
    assert model.optimization.cuda.graphs
    preferred = list(model.dynamic_batching.preferred_batch_size)
    assert preferred == sorted(set(preferred))
    assert preferred[-1] == model.max_batch_size
    # One graph_spec alone would take the place of all of those.
    specified = {spec.batch_size for spec in model.optimization.cuda.graph_spec}
    assert not specified or specified >= {1, *preferred}
