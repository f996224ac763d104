from __future__ import annotations

import pytest

from tests.server.artefacts import H200, PLAN, add_model, build, plan_fields, python_model
from trimodal.doctor.models import check_models, settings_class
from trimodal.paths import default_repository
from trimodal.repository import model_names, read_model, select_models
from trimodal.runtimes import gpu_libraries

CLASSIFIER = "../../vision_classify/1/tensorrt-fp16"
STEPS = '{ model_name: "vision_classify" }, { model_name: "vision_rank" }'


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """A plan, a model that reads it, a pipeline of both, and a model without an engine."""
    monkeypatch.setattr(gpu_libraries, "native_tensorrt", lambda: "10.14.1")
    version = add_model(tmp_path, PLAN)
    build(version / "tensorrt-fp16", "vision", "tensorrt", "model.plan", **plan_fields())
    add_model(tmp_path, python_model("vision_rank", classifier=CLASSIFIER))
    add_model(tmp_path, f'name: "vision" platform: "ensemble" ensemble_scheduling {{ step [{STEPS}] }}')
    add_model(tmp_path, python_model("llm", engine="fake", artefact="openvino-int8"))
    return tmp_path


def look(repository, gpus=(H200,), deep=False):
    models = select_models(repository, (), "tensorrt").values()
    return {check.place.name: check for check in check_models(models, gpus, deep=deep)}


def test_all_is_there(repository):
    checks = look(repository)
    assert {check.severity for check in checks.values()} == {"ok"}
    assert list(checks) == ["llm", "vision", "vision_classify", "vision_rank"]
    found = checks["vision_classify"].sentence
    assert found.startswith("tensorrt-fp16 of checkpoint, 1 KiB, tensorrt 10.14.1.48, built 20")
    assert found.endswith("for 1 × NVIDIA H200, SM 9.0")
    assert checks["vision"].sentence == "a pipeline of vision_classify, vision_rank"
    assert checks["vision_rank"].sentence == "reads vision_classify/1/tensorrt-fp16"
    assert checks["llm"].sentence == "engine fake, nothing built is needed"


def test_a_config_that_the_launcher_refuses_is_a_failure(repository):
    config = repository / "vision_classify" / "config.pbtxt"
    config.write_text(config.read_text().replace("graphs: true", "graphs: true output_copy_stream: true"))
    check = look(repository)["vision_classify"]
    assert check.severity == "error"
    assert "output_copy_stream" in f"{check.sentence} {check.remedy}"


def test_what_is_missing_is_said_with_the_command(repository):
    plan = repository / "vision_classify" / "1" / "tensorrt-fp16"
    (plan / "manifest.json").unlink()
    checks = look(repository)
    assert checks["vision_classify"].sentence == "there is no built engine vision_classify/1/tensorrt-fp16"
    remedy = "build one with: trimodal build vision CHECKPOINT --runtime tensorrt --precision fp16"
    assert checks["vision_classify"].remedy == remedy
    assert checks["vision_rank"].severity == "error"
    assert checks["vision"].severity == "ok"


def test_deep_finds_a_file_that_was_changed(repository):
    plan = repository / "vision_classify" / "1" / "tensorrt-fp16" / "model.plan"
    assert "2 files as they were built" in look(repository, deep=True)["vision_classify"].sentence
    plan.write_bytes(b"weightz")
    assert look(repository)["vision_classify"].severity == "ok"
    check = look(repository, deep=True)["vision_classify"]
    assert (check.severity, check.sentence) == ("error", f"{plan} is not the file that was built")
    assert check.remedy == "build again with: python build/vision.py checkpoint"


def test_the_settings_of_every_python_model_are_known():
    repository = default_repository()
    for name in model_names(repository):
        for model in (read_model(repository, name, profile) for profile in ("cpu", "tensorrt")):
            assert (model.backend == "python") == bool(settings_class(model)), name


def test_a_setting_that_is_not_known(repository):
    config = repository / "vision_rank" / "config.pbtxt"
    config.write_text(python_model("vision_rank", classifier=CLASSIFIER, topk="3"))
    check = look(repository)["vision_rank"]
    assert check.severity == "error"
    assert check.sentence.startswith(
        "vision_rank/config.pbtxt: unknown parameter 'topk' (did you mean top_k?)"
    )


def test_labels_of_another_classifier(repository):
    build(repository / "vision_classify" / "1" / "onnx-fp16", "vision", "onnxruntime")
    config = repository / "vision_rank" / "config.pbtxt"
    config.write_text(python_model("vision_rank", classifier="../../vision_classify/1/onnx-fp16"))
    check = look(repository)["vision_rank"]
    assert check.severity == "warning"
    assert check.sentence.startswith("reads vision_classify/1/onnx-fp16, which vision_classify does not run")


def test_gpus_that_are_not_known_are_not_compared(repository):
    assert look(repository, gpus=())["vision_classify"].severity == "error"
    assert look(repository, gpus=None)["vision_classify"].severity == "ok"
