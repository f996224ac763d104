from __future__ import annotations

import pytest

from tests.server.artefacts import H200, PLAN, add_model, build, plan_fields, python_model
from trimodal.doctor.models import check_models, weights_on_gpu
from trimodal.manifest import GpuTarget
from trimodal.repository import select_models
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


def test_what_is_missing_is_said_where_it_is_opened(repository):
    plan = repository / "vision_classify" / "1" / "tensorrt-fp16"
    (plan / "manifest.json").unlink()
    checks = look(repository)
    assert checks["vision_classify"].sentence == "there is no built engine vision_classify/1/tensorrt-fp16"
    remedy = "build one with: trimodal build vision CHECKPOINT --runtime tensorrt --precision fp16"
    assert checks["vision_classify"].remedy == remedy
    assert (checks["vision_rank"].severity, checks["vision_rank"].remedy) == ("error", "")
    assert checks["vision_rank"].sentence == "reads the engine of vision_classify"
    assert checks["vision"].severity == "ok"


def test_deep_finds_a_file_that_was_changed(repository):
    plan = repository / "vision_classify" / "1" / "tensorrt-fp16" / "model.plan"
    assert "2 files as they were built" in look(repository, deep=True)["vision_classify"].sentence
    plan.write_bytes(b"weightz")
    assert look(repository)["vision_classify"].severity == "ok"
    check = look(repository, deep=True)["vision_classify"]
    assert (check.severity, check.sentence) == ("error", f"{plan} is not the file that was built")
    assert check.remedy == "build again with: python build/vision.py checkpoint"


def test_a_setting_that_is_not_known(repository):
    config = repository / "vision_rank" / "config.pbtxt"
    config.write_text(python_model("vision_rank", classifier=CLASSIFIER, topk="3"))
    check = look(repository)["vision_rank"]
    assert check.severity == "error"
    assert check.sentence.startswith("vision_rank/config.pbtxt: unknown parameter 'topk' (known: classifier")


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


def test_the_bytes_that_go_to_the_gpu(repository):
    models = list(select_models(repository, (), "tensorrt").values())
    directory = repository / "vision_classify" / "1" / "tensorrt-fp16"
    written = sum(path.stat().st_size for path in directory.iterdir())
    assert weights_on_gpu(models) == {"vision_classify": written}
    (directory / "model.plan").write_bytes(bytes(5 << 20))
    assert weights_on_gpu(models) == {"vision_classify": written - len(b"weights") + (5 << 20)}
    assert weights_on_gpu([model for model in models if model.name != "vision_classify"]) == {}


def test_an_engine_that_gpus_share_counts_in_parts(tmp_path):
    parameters = {"engine": "vllm", "artefact": "checkpoint", "tensor_parallel_size": "4"}
    version = add_model(tmp_path, python_model("llm", **parameters))
    build(version / "checkpoint", "llm", "checkpoint")
    (version / "checkpoint" / "model.bin").write_bytes(bytes(4 << 20))
    models = list(select_models(tmp_path, (), "cuda").values())
    assert 1 << 20 <= weights_on_gpu(models)["llm"] < 2 << 20
    compiled = version / "tensorrt-llm-fp8"
    build(compiled, "llm", "tensorrt_llm", gpu=GpuTarget(sm="9.0", name="NVIDIA H200", count=2))
    (compiled / "model.bin").write_bytes(bytes(4 << 20))
    config = python_model("llm", engine="tensorrt_llm", artefact="tensorrt-llm-fp8")
    (version.parent / "config.pbtxt").write_text(config)
    assert 2 << 20 <= weights_on_gpu(select_models(tmp_path, (), "tensorrt").values())["llm"] < 3 << 20
