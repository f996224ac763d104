import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tritonclient.grpc import model_config_pb2

from tests.server.artefacts import add_model, build, python_model
from trimodal.errors import OperatorError, ServerError
from trimodal.paths import PROFILE_VARIABLE
from trimodal.repository import (
    FAKE,
    Built,
    Model,
    as_python_reads,
    built_model,
    callers,
    loaded_last,
    model_names,
    read_model,
    select_models,
)

PYTHON = 'name: "{name}" backend: "python" instance_group [{{ count: {count} }}]'
STEPS = '{ model_name: "a" }, { model_name: "b" }'
ENSEMBLE = f'name: "pair" platform: "ensemble" ensemble_scheduling {{ step [{STEPS}] }}'


@pytest.fixture
def repository(tmp_path):
    for name, text in {
        "a": PYTHON.format(name="a", count=2),
        "b": PYTHON.format(name="b", count=1),
        "c": 'name: "c" backend: "python" parameters { key: "artefact" value { string_value: "onnx-int8" } }',
        "pair": ENSEMBLE,
    }.items():
        (tmp_path / name / "1").mkdir(parents=True)
        (tmp_path / name / "config.pbtxt").write_text(text)
    (tmp_path / "notes").mkdir()
    return tmp_path


def test_names_are_the_folders_with_a_config(repository):
    assert model_names(repository) == ["a", "b", "c", "pair"]


def test_an_ensemble_brings_its_steps(repository):
    models = select_models(repository, ["pair"], "cpu")
    assert sorted(models) == ["a", "b", "pair"]
    assert models["pair"].engine == "ensemble"
    assert [models[name].instances for name in ("a", "b", "pair")] == [2, 1, 0]


def test_each_gpu_of_a_group_has_its_instances(repository):
    group = "instance_group [ { count: 2 kind: KIND_GPU gpus: [ 0, 1 ] }, { kind: KIND_CPU } ]"
    (repository / "b" / "config.pbtxt").write_text(f'name: "b" backend: "python" {group}')
    assert read_model(repository, "b", "cpu").instances == 5


def test_none_named_means_all(repository):
    assert sorted(select_models(repository, (), "cpu")) == ["a", "b", "c", "pair"]


def test_steps_of_a_profile_s_ensemble_are_not_of_a_profile_where_it_is_one_model(repository):
    (repository / "pair" / "configs").mkdir()
    (repository / "pair" / "configs" / "cpu.pbtxt").write_text(PYTHON.format(name="pair", count=1))
    assert sorted(select_models(repository, (), "cpu")) == ["c", "pair"]
    assert sorted(select_models(repository, (), "tensorrt")) == ["a", "b", "c", "pair"]
    assert sorted(select_models(repository, ["a", "pair"], "cpu")) == ["a", "pair"], "as named"


def test_profile_chooses_the_file(repository):
    (repository / "a" / "configs").mkdir()
    (repository / "a" / "configs" / "cpu.pbtxt").write_text(PYTHON.format(name="a", count=7))
    assert read_model(repository, "a", "cpu").instances == 7
    assert read_model(repository, "a", "tensorrt").instances == 2
    assert read_model(repository, "b", "cpu").instances == 1


def test_profile_cuda_has_files_of_its_own_or_those_of_gpu(repository):
    assert read_model(repository, "a", "cuda").instances == 2
    (repository / "a" / "configs").mkdir()
    (repository / "a" / "configs" / "cuda.pbtxt").write_text(PYTHON.format(name="a", count=3))
    assert [read_model(repository, "a", profile).instances for profile in ("cpu", "cuda", "tensorrt")] == [
        2,
        3,
        2,
    ]


@pytest.mark.parametrize(
    ("config", "wants", "backend", "artefact"),
    [
        ('backend: "python"', False, "python", ""),
        ('backend: "python" parameters { key: "device" value { string_value: "cuda" } }', True, "python", ""),
        ('backend: "python" parameters { key: "engine" value { string_value: "vllm" } }', True, "python", ""),
        (
            'platform: "tensorrt_plan" default_model_filename: "a-fp16/m.plan"',
            True,
            "tensorrt",
            "a-fp16",
        ),
        ('backend: "onnxruntime" instance_group [ { kind: KIND_GPU } ]', True, "onnxruntime", ""),
        ('platform: "onnxruntime_onnx" instance_group [ { kind: KIND_CPU } ]', False, "onnxruntime", ""),
        (f'platform: "ensemble" ensemble_scheduling {{ step [{STEPS}] }}', False, "", ""),
    ],
)
def test_who_wants_a_gpu_and_which_backend(tmp_path, config, wants, backend, artefact):
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "config.pbtxt").write_text(f'name: "m" {config}')
    model = read_model(tmp_path, "m", "tensorrt")
    assert (model.wants_gpu, model.backend, model.artefact) == (wants, backend, artefact)


def test_a_fake_wants_neither_gpu_nor_artefact(tmp_path):
    parameters = {"engine": "fake", "device": "cuda", "artefact": "onnx-int8"}
    version = add_model(tmp_path, python_model("m", **parameters))
    model = read_model(tmp_path, "m", "tensorrt")
    assert (model.wants_gpu, model.artefact, model.precision()) == (False, "", "")
    (version.parent / "12").mkdir()
    (version.parent / "9").mkdir()
    assert model.version_directory.name == "12"


def test_precision_by_manifest_else_by_name(repository):
    assert read_model(repository, "a", "cpu").precision() == ""
    assert read_model(repository, "c", "cpu").precision() == "int8"
    artefact = repository / "c" / "1" / "onnx-int8"
    artefact.mkdir()
    (artefact / "manifest.json").write_text(json.dumps({"precision": "int8-qdq"}))
    assert read_model(repository, "c", "cpu").precision() == "int8-qdq"


def test_refusals(repository, tmp_path):
    with pytest.raises(ServerError, match="no model 'x' in .*: it has a, b, c, pair"):
        select_models(repository, ["a", "x"], "cpu")
    (tmp_path / "file").touch()
    for name in ("nowhere", "file"):
        with pytest.raises(ServerError, match=f"{name} is no folder: name one with --model-repository"):
            model_names(tmp_path / name)
    (tmp_path / "clone" / "model_repository").mkdir(parents=True)
    with pytest.raises(ServerError, match="has no model .*: name .*clone/model_repository"):
        model_names(tmp_path / "clone")
    with pytest.raises(ServerError, match="has no model"):
        model_names(repository / "notes")
    (repository / "b" / "config.pbtxt").write_text('name: "b"\nbackend python')
    with pytest.raises(ServerError, match=r"model b: b/config.pbtxt is not a valid .* 2:9"):
        read_model(repository, "b", "cpu")
    (repository / "b" / "config.pbtxt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ServerError, match="model b: b/config.pbtxt is not a valid .* can't decode byte 0xff"):
        read_model(repository, "b", "cpu")


def test_models_go_after_those_that_call_them():
    def model(name, **parameters):
        config = model_config_pb2.ModelConfig(name=name)
        for key, value in parameters.items():
            config.parameters[key].string_value = value
        return Model(name, Path(name), Path(name), config)

    speech = model("speech", recognizer="speech_recognize", engine="llm")
    models = [model("speech_recognize"), model("llm", engine="fake"), speech]
    assert callers({one.name: one for one in models}) == {
        "llm": set(),
        "speech": set(),
        "speech_recognize": {"speech"},
    }
    rings = [model("a", recognizer="b"), model("b", recognizer="a")]
    assert callers({one.name: one for one in rings}) == {"a": {"b"}, "b": {"a"}}


def test_what_takes_the_rest_of_a_gpu_is_loaded_last_and_then_its_callers(tmp_path):
    def models(**engines):
        configs = {
            "assistant": python_model("assistant", llm="llm", speech="speech"),
            "embedding": python_model("embedding", engine="onnxruntime", device="cuda"),
            "llm": python_model("llm", engine="vllm", cache="semantic", embedder="embedding"),
            "speech": python_model("speech", recognizer="speech_recognize"),
            "speech_recognize": python_model("speech_recognize", engine="tensorrt"),
        }
        configs |= {name: python_model(name, **parameters) for name, parameters in engines.items()}
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        for text in configs.values():
            add_model(folder, text)
        return select_models(folder, (), "cuda")

    assert loaded_last(models()) == ["llm", "assistant"]
    assert loaded_last(models(llm={"engine": "tensorrt_llm_pytorch"})) == ["llm", "assistant"]
    for other in ("openvino", "fake"):
        assert loaded_last(models(llm={"engine": other})) == []
    fakes = {name: {"engine": "fake"} for name in ("embedding", "speech_recognize")}
    assert loaded_last(models(**fakes)) == [], "no other model wants a GPU"
    ring = models(speech_recognize={"engine": "vllm", "recognizer": "speech"})
    assert sorted(loaded_last(ring)) == ["assistant", "llm", "speech", "speech_recognize"]


def test_what_a_model_calls_is_selected_with_it(repository):
    (repository / "front").mkdir()
    call = 'parameters { key: "recognizer" value { string_value: "a" } }'
    (repository / "front" / "config.pbtxt").write_text(f'name: "front" backend: "python" {call}')
    assert list(select_models(repository, ["front"], "cpu")) == ["front", "a"]


def test_a_judge_that_is_not_installed_comes_only_with_who_calls_it(repository):
    (repository / "judge" / "1").mkdir(parents=True)
    artefact = 'parameters { key: "artefact" value { string_value: "onnx-int8" } }'
    (repository / "judge" / "config.pbtxt").write_text(f'name: "judge" backend: "python" {artefact}')
    assert "judge" not in select_models(repository, (), "cpu")
    assert list(select_models(repository, ["judge"], "cpu")) == ["judge"]
    (repository / "judge" / "1" / "onnx-int8").mkdir()
    assert "judge" in select_models(repository, (), "cpu")


@pytest.mark.parametrize("kind", ["9999999999", "-9999999999", '"a"', "NO_TYPE"])
def test_a_kind_that_no_enumeration_has_is_told(repository, kind):
    """protobuf 6.33 raises its own ParseError for a name, and ValueError for a number that is too large."""
    (repository / "a" / "config.pbtxt").write_text(f'name: "a" input [ {{ name: "x" data_type: {kind} }} ]')
    with pytest.raises(ServerError, match=r"a/config.pbtxt is not a valid model configuration"):
        read_model(repository, "a", "cpu")


BUILT = (
    "from pathlib import Path; from trimodal.repository import built_model; import sys; "
    "print(built_model(Path(sys.argv[1]), 'm', parameter='embedder', task='embedding').checkpoint)"
)


class TestBuiltModel:
    """What a model was built from that another one calls."""

    @pytest.fixture
    def llm(self, tmp_path):
        """The caller, beside a model in FP16, in FP32 on processors."""
        config = python_model("m", engine="onnxruntime", artefact="fp16")
        version = add_model(tmp_path, f"# bytes → vectors\n{config}")
        (version.parent / "configs").mkdir()
        (version.parent / "configs" / "cpu.pbtxt").write_text(config.replace("fp16", "fp32"))
        return tmp_path / "llm"

    def made(self, llm, name, checkpoint):
        directory = llm.parent / "m" / "1" / name
        build(directory, "embedding", "onnxruntime", source_sha256=checkpoint)
        return directory

    def of(self, llm, model="m"):
        return built_model(llm, model, parameter="embedder", task="embedding")

    def test_profiles_with_artefacts_of_one_checkpoint_agree(self, llm):
        places = self.made(llm, "fp16", "abc"), self.made(llm, "fp32", "abc")
        assert self.of(llm) == Built("abc", places)

    def test_the_highest_version_that_is_loaded_counts(self, llm):
        """Who names no version is answered by it; a folder that is not loaded yet says nothing."""
        self.made(llm, "fp16", "abc")
        self.made(llm, "fp32", "abc")
        build(llm.parent / "m" / "2" / "fp16", "embedding", "onnxruntime", source_sha256="def")
        build(llm.parent / "m" / "2" / "fp32", "embedding", "onnxruntime", source_sha256="def")
        assert self.of(llm).checkpoint == "def"
        for file in llm.parent.glob("m/**/*.pbtxt"):
            file.write_text(file.read_text() + "\nversion_policy { specific { versions: 1 } }")
        assert self.of(llm).checkpoint == "abc"

    def test_profiles_with_different_ones_are_refused_but_where_one_is_served(self, llm, monkeypatch):
        self.made(llm, "fp16", "abc")
        self.made(llm, "fp32", "def")
        with pytest.raises(OperatorError, match="fp16, fp32 of m have different checkpoints"):
            self.of(llm)
        for profile, checkpoint in (("cpu", "def"), ("tensorrt", "abc")):
            monkeypatch.setenv(PROFILE_VARIABLE, profile)
            assert self.of(llm).checkpoint == checkpoint

    def test_of_the_fake_engine_is_fake(self, llm):
        for file in llm.parent.glob("m/**/*.pbtxt"):
            file.write_text(file.read_text().replace('"onnxruntime"', '"fake"'))
        assert self.of(llm) == Built(FAKE)

    def test_what_is_not_built_or_not_there_is_named(self, llm):
        with pytest.raises(OperatorError, match="build one first"):
            self.of(llm)
        with pytest.raises(OperatorError, match="parameter 'embedder': there is no model 'other'"):
            self.of(llm, "other")

    def test_is_read_where_the_locale_knows_ascii_alone_as_in_tritons_stub(self, llm):
        self.made(llm, "fp16", "abc")
        environment = {**os.environ, "LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
        done = subprocess.run(
            [sys.executable, "-c", BUILT, str(llm)],
            env=environment, capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        assert (done.stdout, done.stderr) == ("abc\n", "")


def test_a_config_is_read_without_grpc_and_its_messages_are_those_of_the_client(repository):
    code = f"""
import sys
from pathlib import Path
from trimodal.repository import read_model
model = read_model(Path({str(repository)!r}), "a", "cpu")
print([name for name in ("grpc", "numpy") if name in sys.modules])
from tritonclient.grpc import model_config_pb2, service_pb2
print(type(model.config) is model_config_pb2.ModelConfig)
print(type(service_pb2.ModelConfigResponse(config=model.config).config) is type(model.config))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.split("\n") == ["[]", "True", "True", ""], done.stderr


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("dims: [ - 1, -1, 16, 010 ]", "dims: [  -1, -1, 16,   8 ]"),
        ("data_type: 013", "data_type:  11"),
        ("preserve_ordering: 0x1", "preserve_ordering:   1"),
        ('name: "a - 1 0x1" # - 1 0x1', 'name: "a - 1 0x1" # - 1 0x1'),
        ("name: 'it\\'s 010' x: 0", "name: 'it\\'s 010' x: 0"),
        ("count: 0 a_010: 0.10 b: 1e010 c: 10", "count: 0 a_010: 0.10 b: 1e010 c: 10"),
    ],
)
def test_integers_as_the_server_reads_them(written, read):
    assert as_python_reads(written) == read


def test_a_config_that_only_the_server_s_parser_read(tmp_path):
    folder = tmp_path / "m"
    folder.mkdir()
    (folder / "config.pbtxt").write_text(
        'backend: "python" input { name: "x" data_type: 013 dims: [ - 1 ] } '
        "dynamic_batching { preserve_ordering: 0x1 }"
    )
    config = read_model(tmp_path, "m", "cpu").config
    assert (config.input[0].data_type, config.input[0].dims[0]) == (11, -1)
    assert config.dynamic_batching.preserve_ordering
