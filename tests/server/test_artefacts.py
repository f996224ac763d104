from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from tests.server.artefacts import H200, L4, PLAN, add_model, build, plan_fields, python_model
from trimodal.errors import ArtefactError, ServerError
from trimodal.manifest import read_manifest
from trimodal.repository import Model, read_model
from trimodal.runtimes import gpu_libraries
from trimodal.server.artefacts import (
    FileCheck,
    artefacts_of,
    check_artefact,
    check_artefacts,
    newer_beside,
)


@pytest.fixture(autouse=True)
def tensorrt(monkeypatch: pytest.MonkeyPatch) -> None:
    """The library of Triton's backend, whose file name lacks the build number."""
    monkeypatch.setattr(gpu_libraries, "native_tensorrt", lambda: "10.14.1")


def model(repository: Path, name: str, profile: str = "tensorrt") -> Model:
    return read_model(repository, name, profile)


def refusal(repository: Path, name: str = "vision_classify", gpus=(H200,)) -> str:
    """The sentence about the first artefact of a model."""
    with pytest.raises(ArtefactError) as refused:
        check_artefact(artefacts_of(model(repository, name))[0], gpus)
    return str(refused.value)


def file_failure(models: list[Model]) -> str:
    """What is wrong with the files of models of which all else is right."""
    check = check_artefacts(models, [H200])
    check.start()
    check.join()
    return check.failure


def plan(repository: Path, config: str = PLAN, **fields: object) -> Path:
    """A repository with a plan in Triton's own backend."""
    version = add_model(repository, config)
    build(version / "tensorrt-fp16", "vision", "tensorrt", "model.plan", **(plan_fields() | fields))
    return version / "tensorrt-fp16"


@pytest.mark.parametrize(
    ("config", "found"),
    [
        (python_model("llm", engine="vllm", artefact="checkpoint"), [("llm", "checkpoint", "checkpoint")]),
        (
            python_model("llm", engine="openvino", artefact="a", speculation="prompt_lookup"),
            [("llm", "openvino", "a")],
        ),
        (
            python_model("llm", engine="vllm", artefact="a", speculation="eagle3", draft_artefact="b"),
            [("llm", "checkpoint", "a"), ("llm", "checkpoint", "b")],
        ),
        (
            python_model("llm", engine="tensorrt_llm_pytorch", artefact="a", speculation="eagle3"),
            [("llm", "checkpoint", "a"), ("llm", "checkpoint", "draft")],
        ),
        (
            python_model("llm", engine="vllm", artefact="a", speculation="prompt_lookup", draft_artefact="b"),
            [("llm", "checkpoint", "a")],
        ),
        (PLAN, [("vision", "tensorrt", "tensorrt-fp16")]),
        (
            python_model("vision_rank", classifier="../../vision_classify/1/onnx-int8"),
            [("vision", None, "onnx-int8")],
        ),
        (
            python_model("vision", engine="onnxruntime", artefact="../../vision_classify/1/onnx-int8"),
            [("vision", "onnxruntime", "onnx-int8")],
        ),
        (python_model("speech_recognize", engine="fake", artefact="a"), []),
        (python_model("speech", recognizer="speech_recognize"), []),
        (python_model("somebody_elses", engine="theirs", artefact="a"), []),
    ],
)
def test_what_a_model_opens(tmp_path, config, found):
    version = add_model(tmp_path, config)
    artefacts = artefacts_of(model(tmp_path, version.parent.name))
    assert [(one.task, one.runtime, one.directory.name) for one in artefacts] == found


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        (plan_fields(version="10.13.3.9"), "was built with tensorrt 10.13.3.9, here is 10.14.1: build again"),
        (plan_fields(sm="8.0"), "was compiled for SM 8.0 (NVIDIA H200), GPU 0 has 9.0 (NVIDIA H200): build"),
        (
            plan_fields(most=8),
            "does not fit max_batch_size 16: pixels takes 1×3×224×224 to 8×3×224×224, not 16×3×224×224",
        ),
    ],
)
def test_a_plan_that_does_not_fit(tmp_path, fields, sentence):
    directory = plan(tmp_path, **fields)
    refused = refusal(tmp_path)
    assert f"the engine in {directory} {sentence}" in refused
    assert refused.endswith("build again with: python build/vision.py checkpoint")


def test_a_build_number_differs_only_where_both_say_it(tmp_path, monkeypatch):
    plan(tmp_path)
    monkeypatch.setattr(gpu_libraries, "native_tensorrt", lambda: "10.14.1.99")
    assert "here is 10.14.1.99" in refusal(tmp_path)
    monkeypatch.setattr(gpu_libraries, "native_tensorrt", lambda: None)  # not found: Triton will say
    check_artefacts([model(tmp_path, "vision_classify")], [H200])


def test_a_plan_of_another_gpu_is_refused_only_where_gpus_are_known(tmp_path):
    plan(tmp_path)
    check_artefacts([model(tmp_path, "vision_classify")], [H200])
    (artefact,) = artefacts_of(model(tmp_path, "vision_classify"))
    assert check_artefact(artefact, None).precision == "fp16"
    assert "for 1 GPUs, and none can be seen" in refusal(tmp_path, gpus=[])
    assert "GPU 0 has 8.9 (NVIDIA L4)" in refusal(tmp_path, gpus=[L4])


def test_instances_are_held_to_the_profiles_that_they_name(tmp_path):
    small, large = (plan_fields(most=most)["profiles"][0] for most in (8, 16))
    first = PLAN.replace("kind: KIND_GPU", 'kind: KIND_GPU profile: [ "0" ]')
    plan(tmp_path / "a", first, profiles=[small, large])
    assert "does not fit max_batch_size 16" in refusal(tmp_path / "a")
    plan(tmp_path / "b", first.replace('"0"', '"1"'), profiles=[small, large])
    check_artefacts([model(tmp_path / "b", "vision_classify")], [H200])
    plan(tmp_path / "c", first.replace('"0"', '"2"'), profiles=[small, large])
    assert "has 2 optimisation profiles, and instance_group names profile 2" in refusal(tmp_path / "c")
    plan(tmp_path / "d", first.replace('"0"', '"large"'), profiles=[small, large])
    assert "names profile 'large': name its number, from 0" in refusal(tmp_path / "d")


def test_the_file_that_triton_is_told_of_must_be_there(tmp_path):
    plan(tmp_path, PLAN.replace("model.plan", "other.plan"))
    assert "lacks other.plan: build again with:" in refusal(tmp_path)


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        (
            PLAN,
            "vision_classify/1/tensorrt-fp16: build one with: trimodal build vision CHECKPOINT "
            "--runtime tensorrt --precision fp16",
        ),
        (
            python_model("speech_recognize", engine="tensorrt", artefact="/engines/whisper"),
            "/engines/whisper: build one with: trimodal build speech CHECKPOINT --runtime tensorrt",
        ),
    ],
)
def test_a_missing_engine_says_where_and_how_it_is_built(tmp_path, config, sentence):
    version = add_model(tmp_path, config)
    assert refusal(tmp_path, version.parent.name).endswith(f"there is no built engine {sentence}")


@pytest.mark.parametrize(
    ("parameter", "sentence"),
    [
        ({"precision": "int4"}, "is fp16, and the configuration asks for int4"),
        ({"checkpoint_sha256": "cd" * 32}, "from a checkpoint with hash abababababab, not cdcdcdcdcdcd"),
    ],
)
def test_what_a_config_pins(tmp_path, parameter, sentence):
    parameters = {"engine": "onnxruntime", "artefact": "onnx-fp16", **parameter}
    version = add_model(tmp_path, python_model("embedding", **parameters))
    build(version / "onnx-fp16", "embedding", "onnxruntime")
    assert sentence in refusal(tmp_path, "embedding")


def test_tensorrt_of_python_models_is_the_package(tmp_path, monkeypatch):
    version = add_model(
        tmp_path, python_model("speech_recognize", engine="tensorrt", artefact="tensorrt-fp16")
    )
    build(version / "tensorrt-fp16", "speech", "tensorrt", runtime_version="10.14.1.48")
    monkeypatch.setattr(gpu_libraries, "python_tensorrt", lambda: "11.4.0.106")
    assert "built with tensorrt 10.14.1.48, here is 11.4.0.106" in refusal(tmp_path, "speech_recognize")


def test_all_that_is_wrong_is_said_at_once_and_each_thing_once(tmp_path):
    add_model(tmp_path, PLAN)
    for name in ("vision_preprocess", "vision_rank"):
        add_model(tmp_path, python_model(name, classifier="../../vision_classify/1/tensorrt-fp16"))
    version = add_model(tmp_path, python_model("llm", engine="openvino", artefact="openvino-int8"))
    build(version / "openvino-int8", "embedding", "onnxruntime")
    names = ("vision_preprocess", "llm", "vision_classify", "vision_rank")
    with pytest.raises(ServerError) as refused:
        check_artefacts([model(tmp_path, name) for name in names], [H200])
    first, second = str(refused.value).splitlines()
    assert first.startswith("model llm: ")
    assert "holds a embedding engine for onnxruntime, not a llm engine for openvino" in first
    assert second.startswith(
        "model vision_classify, vision_preprocess, vision_rank: there is no built engine"
    )


def test_the_engine_of_every_version_that_is_loaded_must_be_there(tmp_path):
    config = python_model("llm", engine="openvino", artefact="openvino-int8")
    version = add_model(tmp_path, config)
    build(version / "openvino-int8", "llm", "openvino")
    (version.parent / "2").mkdir()
    for policy in ("all {}", "latest { num_versions: 2 }", "specific { versions: [ 1, 2 ] }"):
        (version.parent / "config.pbtxt").write_text(f"{config}\nversion_policy {{ {policy} }}")
        with pytest.raises(ServerError, match="there is no built engine llm/2/openvino-int8"):
            check_artefacts([model(tmp_path, "llm")], [])
    (version.parent / "config.pbtxt").write_text(f"{config}\nversion_policy {{ specific {{ versions: 1 }} }}")
    check_artefacts([model(tmp_path, "llm")], [])


def test_labels_that_a_model_only_reads_are_checked(tmp_path):
    config = python_model("vision_rank", classifier="../../vision_classify/1/tensorrt-fp16")
    add_model(tmp_path, config)
    plan(tmp_path)
    check_artefacts([model(tmp_path, "vision_rank")], [])
    (tmp_path / "vision_classify" / "1" / "tensorrt-fp16" / "labels.json").write_text('["cat"]')
    assert "labels.json: 2 strings wanted" in refusal(tmp_path, "vision_rank")


def test_a_file_with_a_flipped_byte_is_refused_by_name_once(tmp_path):
    artefact = plan(tmp_path)
    rank = python_model("vision_rank", classifier="../../vision_classify/1/tensorrt-fp16")
    add_model(tmp_path, rank)
    models = [model(tmp_path, name) for name in ("vision_classify", "vision_rank")]
    assert file_failure(models) == ""
    file = artefact / "model.plan"
    file.write_bytes(bytes([file.read_bytes()[0] ^ 1]) + file.read_bytes()[1:])
    (line,) = file_failure(models).splitlines()
    assert line.startswith("model vision_classify, vision_rank: ")
    assert f"{file} is not the file that was built: build again with: " in line


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (OSError(5, "Input/output error", "model.plan"), "[Errno 5] Input/output error: 'model.plan'"),
        (MemoryError(), "MemoryError"),
    ],
    ids=["unreadable", "anything else"],
)
def test_why_a_file_was_not_read_is_told(tmp_path, monkeypatch, error, told):
    plan(tmp_path)

    def fails(*_: object) -> str:
        raise error

    monkeypatch.setattr("trimodal.manifest.sha256", fails)
    assert file_failure([model(tmp_path, "vision_classify")]) == f"model vision_classify: {told}"


def test_files_that_were_not_read_to_their_end_are_a_failure(tmp_path):
    plan(tmp_path)
    check = check_artefacts([model(tmp_path, "vision_classify")], [H200])
    check.stop()
    assert check.failure
    check.start()
    check.join()
    assert check.failure == "the files of the models were not read to their end"


def test_once_it_is_stopped_no_further_directory_is_opened(tmp_path, monkeypatch):
    """A thread that was started while the interpreter ends is a traceback after Ctrl-C."""
    opened: list[Path] = []

    def check_files(directory: Path, *_: object) -> None:
        opened.append(directory)
        check._stopped.set()
        raise RuntimeError("cannot schedule new futures after interpreter shutdown")

    monkeypatch.setattr("trimodal.server.artefacts.check_files", check_files)
    monkeypatch.setattr(threading, "excepthook", lambda told: pytest.fail(str(told.exc_value)))
    manifest = read_manifest(plan(tmp_path), task="vision", runtime="tensorrt")
    check = FileCheck(dict.fromkeys((tmp_path / "one", tmp_path / "two"), manifest), {tmp_path / "one": []})
    check.start()
    check.join()
    assert opened == [tmp_path / "one"]
    assert check.failure == "the files of the models were not read to their end"


def test_files_are_read_after_what_the_models_do(tmp_path, monkeypatch):
    """Engines time their steps while they open, and choose by that."""
    plan(tmp_path)
    own, reading = os.getpriority(os.PRIO_PROCESS, 0), []
    monkeypatch.setattr(
        "trimodal.manifest.sha256", lambda *_: str(reading.append(os.getpriority(os.PRIO_PROCESS, 0)))
    )
    file_failure([model(tmp_path, "vision_classify")])
    assert set(reading) == {min(own + 10, 19)}
    assert os.getpriority(os.PRIO_PROCESS, 0) == own


LLM = ("llm", "openvino", "openvino_model.bin")


def test_an_artefact_that_was_built_later_is_named_with_what_to_type(tmp_path):
    config = python_model("llm", engine="openvino", artefact="openvino-int8")
    version = add_model(tmp_path, config)
    assert newer_beside(model(tmp_path, "llm")) == "", "not built at all: that is said elsewhere"
    build(version / "openvino-int8", *LLM, built_at="2026-11-26T10:00:00+00:00")
    build(version / "openvino-fp16", *LLM, built_at="2026-11-26T09:00:00+00:00")
    build(version / "onnx-fp32", "llm", "onnxruntime", "model.onnx", built_at="2026-11-26T12:00:00+00:00")
    starter = {"built_at": "2026-11-26T12:00:00+00:00", "source": "starter:smollm2-135m-instruct"}
    build(version / "openvino-other", *LLM, **starter)
    (version / "damaged").mkdir()
    (version / "damaged" / "manifest.json").write_text("{")
    assert newer_beside(model(tmp_path, "llm")) == ""
    build(version / "openvino-int4", *LLM, built_at="2026-11-26T11:00:00+00:00")
    expected = "llm serves openvino-int8; openvino-int4, beside it, was built later: "
    assert newer_beside(model(tmp_path, "llm")) == expected + (
        "trimodal serve --set llm.artefact=openvino-int4"
    )
    (tmp_path / "llm" / "config.pbtxt").write_text(config.replace("openvino-int8", "openvino-int4"))
    assert newer_beside(model(tmp_path, "llm")) == ""


def test_for_a_plan_of_triton_s_own_backend_the_file_to_edit_is_named(tmp_path):
    directory = plan(tmp_path, built_at="2026-11-26T10:00:00+00:00")
    fields = plan_fields() | {"built_at": "2026-11-26T10:00:01+00:00"}
    build(directory.with_name("tensorrt-fp8"), "vision", "tensorrt", "model.plan", **fields)
    sentence = newer_beside(model(tmp_path, "vision_classify"))
    assert sentence.endswith("built later: default_model_filename in vision_classify/config.pbtxt")
