"""The three profiles of the repository: what runs in each, where, and that each says it in the same way."""

from __future__ import annotations

from pathlib import Path

import pytest
from tritonclient.grpc import model_config_pb2

from trimodal.repository import GPU_ENGINES, Model, model_names, read_model, select_models
from trimodal.server.artefacts import TASKS, artefacts_of
from trimodal.server.options import PROFILES

REPOSITORY = Path(__file__).parents[2] / "model_repository"
NAMES = model_names(REPOSITORY)
# What runs a model; a plan is run by Triton's own backend.
EVERYWHERE = {"embedding": "onnxruntime", "judge": "onnxruntime", "turn": "onnxruntime"}
ENGINES = {
    "cpu": {**EVERYWHERE, "llm": "openvino", "speech_recognize": "ctranslate2", "vision": "onnxruntime"},
    "cuda": {**EVERYWHERE, "llm": "vllm", "speech_recognize": "ctranslate2", "vision": "onnxruntime"},
    "tensorrt": {
        **EVERYWHERE,
        **{"llm": "tensorrt_llm_pytorch", "speech_recognize": "tensorrt", "vision_classify": "tensorrt"},
    },
}
ON_THE_PROCESSOR = {"judge", "turn"}  # in all profiles: small and in INT8, and one run takes milliseconds
KIND = model_config_pb2.ModelInstanceGroup
SERVED = {profile: sorted(select_models(REPOSITORY, (), profile)) for profile in PROFILES}
STEPS = {"vision_classify", "vision_preprocess", "vision_rank"}
with_weights = pytest.mark.parametrize(
    ("profile", "name"), [(profile, name) for profile, models in ENGINES.items() for name in models]
)
profiles = pytest.mark.parametrize("profile", PROFILES)


def model(name: str, profile: str) -> Model:
    return read_model(REPOSITORY, name, profile)


def runs(one: Model) -> str:
    return one.engine if one.backend == "python" else one.backend


@profiles
def test_a_profile_holds_all_models(profile: str) -> None:
    """The steps of vision come with it where it is an ensemble."""
    assert set(SERVED[profile]) == set(NAMES) - (set() if profile == "tensorrt" else STEPS)
    assert set(ENGINES[profile]) <= set(TASKS) <= set(NAMES)
    opening = {name for name in SERVED[profile] for one in artefacts_of(model(name, profile)) if one.runtime}
    assert opening == set(ENGINES[profile])


@with_weights
def test_what_runs_a_model(name: str, profile: str) -> None:
    one = model(name, profile)
    assert runs(one) == ENGINES[profile][name], one.config_file
    assert one.wants_gpu == (profile != "cpu" and name not in ON_THE_PROCESSOR), one.config_file


@with_weights
def test_the_artefact_is_named_after_what_runs_it(name: str, profile: str) -> None:
    """So that `1/` can hold those of all profiles side by side."""
    one = model(name, profile)
    (artefact, *_) = artefacts_of(one)
    assert artefact.runtime
    prefix = {"onnxruntime": "onnx"}.get(artefact.runtime, artefact.runtime)
    built = artefact.directory.name
    assert built == prefix or built.startswith(f"{prefix}-"), one.config_file
    if "-" in built and name not in ON_THE_PROCESSOR:  # which come in packages
        assert f"--precision {built.removeprefix(prefix + '-')}" in artefact.remedy


def test_a_gpu_profile_does_not_read_the_artefact_of_the_cpu() -> None:
    def directories(profile: str) -> set[Path]:
        names = set(SERVED[profile]) - ON_THE_PROCESSOR
        return {one.directory for name in names for one in artefacts_of(model(name, profile))}

    assert directories("cpu")
    for profile in ("cuda", "tensorrt"):
        assert directories(profile).isdisjoint(directories("cpu"))


@pytest.mark.parametrize("name", SERVED["cpu"])
def test_the_cpu_profile_asks_for_no_gpu(name: str) -> None:
    one = model(name, "cpu")
    assert not one.wants_gpu
    assert one.engine not in GPU_ENGINES
    assert all(group.kind == KIND.KIND_CPU for group in one.config.instance_group)


@pytest.mark.parametrize("name", SERVED["cuda"])
def test_profile_cuda_needs_no_backend_but_python(name: str) -> None:
    """The wheel's Triton has no other, and need not know of GPUs: models open them by themselves."""
    one = model(name, "cuda")
    assert one.backend == "python"
    assert all(group.kind == KIND.KIND_CPU for group in one.config.instance_group)
    assert runs(one) != "tensorrt", "nothing is compiled"


@pytest.mark.parametrize(
    ("profile", "name"), [(profile, name) for profile, names in SERVED.items() for name in names]
)
def test_no_size_that_batches_are_made_for_exceeds_the_largest(name: str, profile: str) -> None:
    config = model(name, profile).config
    sizes = [*config.dynamic_batching.preferred_batch_size]
    sizes += [spec.batch_size for spec in config.optimization.cuda.graph_spec]
    sizes += [warmup.batch_size for warmup in config.model_warmup]
    warm_up = model(name, profile).parameters.get("warm_up_batch_sizes", "")
    sizes += [int(size) for size in warm_up.split(",") if size]
    windows = model(name, profile).parameters.get("max_batch_windows", "0")
    assert max([0, int(windows), *sizes]) <= config.max_batch_size


@profiles
def test_config_files_of_a_profile_have_its_name(profile: str) -> None:
    """A file of another name would be read by nobody."""
    known = {f"{one}.pbtxt" for one in PROFILES if one != "tensorrt"}
    assert {path.name for path in REPOSITORY.glob("*/configs/*")} <= known
    used = {model(name, profile).config_file.name for name in SERVED[profile]}
    assert used <= {"config.pbtxt", f"{profile}.pbtxt"}
