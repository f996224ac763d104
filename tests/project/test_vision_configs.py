"""The vision models' config.pbtxt files: one model, or steps that fit together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tritonclient.grpc import model_config_pb2

from trimodal.repository import read_model, select_models
from trimodal.server.artefacts import artefacts_of

REPOSITORY = Path(__file__).parents[2] / "model_repository"
STEPS = ("vision_preprocess", "vision_classify", "vision_rank")
# What Triton's tensorrt backend reads of `parameters`, and takes (its README and model_state.cc).
STRATEGIES = {"STATIC", "ON_PROFILE_CHANGE"}


def config(model: str, profile: str) -> Any:
    return read_model(REPOSITORY, model, profile).config


def tensors(side: Any) -> dict[str, tuple[int, tuple[int, ...]]]:
    return {tensor.name: (tensor.data_type, tuple(tensor.dims)) for tensor in side}


def test_each_step_takes_what_the_step_before_gives():
    preprocess, classify, rank = (config(name, "tensorrt") for name in STEPS)
    vision = config("vision", "tensorrt")
    assert tensors(vision.input) == tensors(preprocess.input)
    assert tensors(preprocess.output) == tensors(classify.input)
    assert tensors(classify.output) == tensors(rank.input)
    assert tensors(rank.output) == tensors(vision.output)
    # A request of the largest size must pass every step.
    sizes = {model.max_batch_size for model in (vision, preprocess, classify, rank)}
    assert sizes == {16}


def test_all_steps_read_the_artefact_that_classifies():
    artefact = read_model(REPOSITORY, "vision_classify", "tensorrt").artefact
    assert artefact
    for name in ("vision_preprocess", "vision_rank"):
        read = read_model(REPOSITORY, name, "tensorrt").parameters["classifier"]
        assert read == f"../../vision_classify/1/{artefact}", name


@pytest.mark.parametrize("profile", ["cpu", "cuda"])
def test_where_onnx_runtime_classifies_vision_is_one_model(profile):
    models = select_models(REPOSITORY, ["vision"], profile)
    assert list(models) == ["vision"]
    assert (models["vision"].backend, models["vision"].engine) == ("python", "onnxruntime")
    # The artefacts of all profiles lie side by side.
    (artefact,) = artefacts_of(models["vision"])
    assert artefact.directory.parent == REPOSITORY / "vision_classify" / "1"


def test_on_a_gpu_one_instance_decodes_while_the_other_classifies():
    assert {name: read_model(REPOSITORY, "vision", name).instances for name in ("cpu", "cuda")} == {
        "cpu": 1,
        "cuda": 2,
    }


def test_what_one_model_and_the_steps_share_is_set_to_the_same():
    one = read_model(REPOSITORY, "vision", "cuda").parameters
    for name in ("vision_preprocess", "vision_rank"):
        step = read_model(REPOSITORY, name, "tensorrt").parameters
        assert {key: one[key] for key in step if key != "classifier"} == {
            key: value for key, value in step.items() if key != "classifier"
        }


def test_the_plan_is_served_as_tuned():
    model = config("vision_classify", "tensorrt")
    assert (model.platform, model.default_model_filename) == (
        "tensorrt_plan",
        "tensorrt-fp16/model.plan",
    )
    (group,) = model.instance_group
    assert group.kind == model_config_pb2.ModelInstanceGroup.KIND_GPU
    assert group.count == 2
    assert all(name.isdecimal() for name in group.profile), "the backend reads a profile's name as its number"
    optimization = model.optimization
    assert optimization.eager_batching
    assert optimization.input_pinned_memory.enable
    assert optimization.output_pinned_memory.enable
    cuda = optimization.cuda
    assert (cuda.graphs, cuda.busy_wait_events) == (True, True)
    # With graphs it answers clients from other clients' images: trimodal.server.preflight.check_graphs.
    assert not cuda.output_copy_stream
    parameters = {key: value.string_value for key, value in model.parameters.items()}
    assert parameters.keys() == {"execution_context_allocation_strategy"}, "others are ignored in silence"
    assert parameters["execution_context_allocation_strategy"] in STRATEGIES


def test_there_is_a_cuda_graph_for_one_image_and_for_every_batch_that_is_preferred():
    """Without a graph_spec the backend captures 1, the preferred sizes and max_batch_size."""
    model = config("vision_classify", "tensorrt")
    preferred = list(model.dynamic_batching.preferred_batch_size)
    assert preferred == sorted(set(preferred))
    assert preferred[-1] == model.max_batch_size
    # One graph_spec alone would take the place of all of those.
    specified = {spec.batch_size for spec in model.optimization.cuda.graph_spec}
    assert not specified or specified >= {1, *preferred}


def test_profile_tensorrt_names_no_image_size():
    """So that a plan of any classifier is served by the same file."""
    model = config("vision_classify", "tensorrt")
    assert tuple(model.input[0].dims) == (3, -1, -1)
    assert not model.optimization.cuda.graph_spec
    assert not model.model_warmup
