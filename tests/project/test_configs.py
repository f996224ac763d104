"""Every config.pbtxt parses, agrees with its model's other profiles, and its parameters are known."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2

from trimodal import trace
from trimodal.assistant.settings import AssistantSettings
from trimodal.embedding.settings import EmbeddingSettings
from trimodal.judge.settings import JudgeSettings
from trimodal.llm.settings import LlmSettings
from trimodal.settings import Settings
from trimodal.speech.settings import RecogniseSettings, SpeechSettings
from trimodal.turn.settings import TurnSettings
from trimodal.vision.settings import PreprocessSettings, RankSettings, VisionSettings

REPOSITORY = Path(__file__).parents[2] / "model_repository"
SETTINGS: dict[str, type[Settings]] = {
    "assistant": AssistantSettings,
    "embedding": EmbeddingSettings,
    "judge": JudgeSettings,
    "llm": LlmSettings,
    "speech": SpeechSettings,
    "speech_recognize": RecogniseSettings,
    "turn": TurnSettings,
    "vision": VisionSettings,
    "vision_preprocess": PreprocessSettings,
    "vision_rank": RankSettings,
}
FILES = sorted([*REPOSITORY.glob("*/config.pbtxt"), *REPOSITORY.glob("*/configs/*.pbtxt")])
MODELS = sorted({file.relative_to(REPOSITORY).parts[0] for file in FILES})
STRING = model_config_pb2.TYPE_STRING
TUNE, CONTRACT = "# Tune here", "# Clients depend on this"
# What begins a top-level field below the line that clients depend on; everything else is a knob.
CONTRACT_FIELDS = {
    "name", "backend", "platform", "input", "output", "model_transaction_policy", "ensemble_scheduling",
}  # fmt: skip


def named(path: Path) -> str:
    return str(path.relative_to(REPOSITORY))


def config(path: Path) -> Any:
    return text_format.Parse(path.read_text(), model_config_pb2.ModelConfig())


def profiles(model: str) -> dict[str, Any]:
    """File name → its config, for all profiles of a model."""
    return {named(path): config(path) for path in FILES if path.is_relative_to(REPOSITORY / model)}


def contract(model: Any) -> dict[str, Any]:
    """What a client of the model sees."""
    return {
        "name": model.name,
        "inputs": [(one.name, one.data_type, tuple(one.dims), one.optional) for one in model.input],
        # Without the times, which a pipeline of models with one of Triton's own in it cannot tell.
        "outputs": [
            (one.name, one.data_type, tuple(one.dims)) for one in model.output if one.name != trace.NAME
        ],
        "decoupled": model.model_transaction_policy.decoupled,
        "batched": model.max_batch_size > 0,
        "largest batch": model.max_batch_size,
        "versions": str(model.version_policy),
    }


def test_a_model_that_tells_its_times_does_so_in_every_profile_that_is_no_pipeline() -> None:
    told = {
        named(path)
        for path in FILES
        if any((one.name, one.data_type) == (trace.NAME, STRING) for one in config(path).output)
    }
    served = ("assistant", "embedding", "llm", "speech", "vision")
    assert told == {
        name for model in served for name, one in profiles(model).items() if not one.ensemble_scheduling.step
    }


def parameters(path: Path) -> dict[str, str]:
    return {key: value.string_value for key, value in config(path).parameters.items()}


def top_level(lines: list[str]) -> Iterator[str]:
    """Names of the fields that begin in column 0."""
    for line in lines:
        if line and line[0].isalpha():
            yield line.replace(":", " ").replace("{", " ").split()[0]


def test_every_model_of_the_repository_is_looked_at() -> None:
    folders = sorted(path.name for path in REPOSITORY.iterdir() if path.is_dir())
    assert folders == MODELS
    assert set(SETTINGS) == {model for model in MODELS if (REPOSITORY / model / "1" / "model.py").exists()}


@pytest.mark.parametrize("model", MODELS)
def test_the_profiles_of_a_model_agree_on_what_clients_see(model: str) -> None:
    first, *others = profiles(model).items()
    for file, other in others:
        assert contract(other) == contract(first[1]), f"{file} and {first[0]}"


@pytest.mark.parametrize("path", FILES, ids=named)
def test_knobs_come_first_and_the_contract_below(path: Path) -> None:
    lines = path.read_text().splitlines()
    starts = [at for at, line in enumerate(lines) if line.startswith((TUNE, CONTRACT))]
    assert len(starts) == 2, f"{TUNE} and {CONTRACT}, once each"
    tune, depends = starts
    assert lines[tune].startswith(TUNE)
    assert list(top_level(lines[:tune])) == []
    # The llm's engine batches by itself, speech keeps its streams and the assistant its requests in one
    # place: these two are not for tuning.
    whole = ("assistant/", "llm/", "speech/")
    fixed = {"max_batch_size", "instance_group"} if named(path).startswith(whole) else set()
    assert set(top_level(lines[tune:depends])) & CONTRACT_FIELDS == set()
    assert set(top_level(lines[depends:])) <= CONTRACT_FIELDS | fixed
    assert "parameters" not in set(top_level(lines[depends:]))


@pytest.mark.parametrize("path", FILES, ids=named)
def test_no_queue_policy(path: Path) -> None:
    """Its timeouts make the batcher stall for 500 ms; an overflow in a pipeline's step makes it hang."""
    batching = config(path).dynamic_batching
    assert not batching.HasField("default_queue_policy")
    assert not batching.priority_queue_policy
    assert "queue_policy" not in text_format.MessageToString(config(path))


def test_the_llm_is_decoupled_and_bounds_its_own_queue() -> None:
    for file, model in profiles("llm").items():
        assert model.model_transaction_policy.decoupled, file
        assert model.max_batch_size == 0, file
        assert model.parameters["max_queue"].string_value, file
        assert all(one.optional for one in model.input), file
