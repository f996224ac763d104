from pathlib import Path

import pytest

from trimodal.errors import ServerError
from trimodal.repository import read_model
from trimodal.server.options import ServerOptions
from trimodal.server.overlay import ServedRepository, overlay, parse_changes

CONFIG = """
name: "llm" backend: "python"
parameters [
  { key: "engine" value { string_value: "openvino" } },
  { key: "artefact" value { string_value: "openvino-int8" } }
]
dynamic_batching { max_queue_delay_microseconds: 500 }
"""


@pytest.fixture
def repository(tmp_path):
    root = tmp_path / "repository"
    for name, text in {"llm": CONFIG, "pair": 'name: "pair" platform: "ensemble"', "echo": CONFIG}.items():
        (root / name / "1").mkdir(parents=True)
        (root / name / "config.pbtxt").write_text(text.replace('"llm"', f'"{name}"'))
    (root / "llm" / "configs").mkdir()
    (root / "llm" / "configs" / "cpu.pbtxt").write_text(CONFIG.replace("500", "100"))
    (root / "llm" / "1" / "model.py").write_text("# glue\n")
    (root / "llm" / "labels.txt").write_text("zero\n")
    return root


def test_parse_changes():
    assert parse_changes(["llm.engine=fake", "llm.stop=a=b.c", "echo.x="]) == {
        "llm": {"engine": "fake", "stop": "a=b.c"},
        "echo": {"x": ""},
    }
    for wrong in ("llm", "llm.engine", "llm=1", ".x=1", "llm.=1"):
        with pytest.raises(ServerError, match="model.parameter=value"):
            parse_changes([wrong])


def test_a_change_is_utf_8_whatever_the_locale():
    without_a_locale = "ü".encode().decode("ascii", "surrogateescape")
    assert parse_changes([f"llm.artefact={without_a_locale}"]) == {"llm": {"artefact": "ü"}}
    with pytest.raises(ServerError, match="UTF-8"):
        parse_changes(["llm.artefact=\udcfc"])


def test_values_change_and_everything_else_is_linked(repository, tmp_path):
    target = overlay(repository, tmp_path / "overlay", {"llm": {"engine": "fake", "step_ms": "5"}}, "cpu")
    model = read_model(target, "llm", "cpu")
    assert model.parameters == {"engine": "fake", "artefact": "openvino-int8", "step_ms": "5"}
    assert model.config.dynamic_batching.max_queue_delay_microseconds == 100
    assert (target / "llm" / "1" / "model.py").read_text() == "# glue\n"
    assert (target / "llm" / "labels.txt").is_symlink()
    assert (target / "echo").is_symlink()
    # an artefact built later is seen, and the original is as it was
    (repository / "llm" / "1" / "openvino-int8").mkdir()
    assert (target / "llm" / "1" / "openvino-int8").is_dir()
    assert read_model(repository, "llm", "cpu").parameters["engine"] == "openvino"


def test_only_the_file_of_the_profile_is_changed(repository, tmp_path):
    """config.pbtxt also says which models belong to a pipeline: trimodal.repository.select_models."""
    changes = {"llm": {"engine": "fake"}}
    cpu = overlay(repository, tmp_path / "cpu", changes, "cpu")
    assert read_model(cpu, "llm", "tensorrt").config == read_model(repository, "llm", "tensorrt").config
    tensorrt = overlay(repository, tmp_path / "tensorrt", changes, "tensorrt")
    assert read_model(tensorrt, "llm", "tensorrt").parameters["engine"] == "fake"
    assert read_model(tensorrt, "llm", "cpu").config == read_model(repository, "llm", "cpu").config


@pytest.fixture
def engines(tmp_path):
    """One engine that the repository has too, one that it lacks, and a build that has not ended."""
    root = tmp_path / "engines"
    for place in ("llm/openvino-int8", "echo/onnx-fp16", "echo/.onnx-fp16-x1"):
        (root / place).mkdir(parents=True)
        (root / place / "which").write_text("of the engines directory\n")
    return root


def test_engines_of_another_place_are_where_models_look(repository, engines, tmp_path):
    (repository / "llm" / "1" / "openvino-int8").mkdir()
    target = overlay(repository, tmp_path / "overlay", {}, "tensorrt", engines=engines)
    assert (target / "llm" / "1" / "openvino-int8" / "which").read_text() == "of the engines directory\n"
    assert (target / "llm" / "1" / "model.py").read_text() == "# glue\n"
    assert (target / "llm" / "config.pbtxt").resolve() == repository / "llm" / "config.pbtxt"
    assert read_model(target, "llm", "cpu").config == read_model(repository, "llm", "cpu").config
    # by the paths that configs use: the system follows a link before it goes up
    assert (target / "llm" / "1" / "../../echo/1/onnx-fp16/which").is_file()
    assert [entry.name for entry in (target / "echo" / "1").iterdir()] == ["onnx-fp16"]
    assert not list((repository / "llm" / "1" / "openvino-int8").iterdir())


def test_several_versions_keep_what_they_hold(repository, engines, tmp_path):
    """One engine in the place of both would make a rollout compare it with itself."""
    for version in ("2", "3"):
        (repository / "llm" / version).mkdir()
    (repository / "llm" / "2" / "openvino-int8").mkdir()
    (repository / "llm" / "2" / "openvino-int8" / "which").write_text("version 2's\n")
    target = overlay(repository, tmp_path / "overlay", {}, "tensorrt", engines=engines)
    told = [(target / "llm" / version / "openvino-int8" / "which").read_text() for version in "123"]
    assert told == ["of the engines directory\n", "version 2's\n", "of the engines directory\n"]


def served(repository, folder, **options):
    folder.mkdir(exist_ok=True)
    return ServedRepository(ServerOptions(repository=repository, **options), folder)


@pytest.mark.parametrize("changes", [{}, {"llm": {"engine": "fake"}}])
def test_a_copy_follows_the_files_when_it_is_made_again(repository, engines, tmp_path, changes):
    copy = served(repository, tmp_path / "run", changes=changes, engines=engines)
    (repository / "llm" / "2").mkdir()
    file = repository / "llm" / "configs" / "cpu.pbtxt"
    file.write_text(CONFIG.replace("500", "700"))
    (engines / "llm" / "openvino-int4").mkdir()
    copy.refresh()
    model = read_model(copy.path, "llm", "cpu")
    assert model.config.dynamic_batching.max_queue_delay_microseconds == 700
    assert model.engine == changes.get("llm", {}).get("engine", "openvino")
    assert (copy.path / "llm" / "2" / "openvino-int4").is_dir()
    file.write_text("broken")
    if changes:
        with pytest.raises(ServerError, match="llm/configs/cpu.pbtxt is not a valid"):
            copy.refresh()
        assert read_model(copy.path, "llm", "cpu").engine == "fake"
    assert [entry.name for entry in (tmp_path / "run").iterdir()] == ["model_repository"]


def test_only_versions_beside_engines_are_made_anew(repository, engines, tmp_path):
    """Triton loads again what has another ctime, which of what is made is always another."""

    def versions(name, engines):
        copy = served(repository, tmp_path / name, changes={"llm": {"engine": "fake"}}, engines=engines)
        folders = [copy.path / model / "1" for model in ("llm", "echo")]
        before = [folder.stat() for folder in folders]
        copy.refresh()
        after = [folder.stat() for folder in folders]
        return [(one.st_ino, one.st_ctime_ns) == (old.st_ino, old.st_ctime_ns)
                for one, old in zip(after, before, strict=True)]  # fmt: skip

    assert versions("set", None) == [True, True]
    assert versions("engines", engines) == [False, False], "an older artefact put back would not be loaded"


def test_a_copy_that_cannot_take_its_place_leaves_the_one_that_was_there(repository, tmp_path, monkeypatch):
    copy = served(repository, tmp_path / "run", changes={"llm": {"engine": "fake"}})
    rename = Path.rename

    def fails(self, target):
        if self.suffix == ".new":
            raise OSError("no space")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", fails)
    with pytest.raises(OSError, match="no space"):
        copy.refresh()
    assert read_model(copy.path, "llm", "cpu").engine == "fake"
    assert [entry.name for entry in (tmp_path / "run").iterdir()] == ["model_repository"]


def test_what_is_no_copy_stays_as_it_is(repository, tmp_path):
    copy = served(repository, tmp_path / "run", engines=None)
    copy.refresh()
    assert copy.path == repository


def test_refusals(repository, tmp_path):
    with pytest.raises(ServerError, match="'lm': the models are echo, llm, pair"):
        overlay(repository, tmp_path / "one", {"lm": {"engine": "fake"}})
    with pytest.raises(ServerError, match="model pair has no parameter 'engine'"):
        overlay(repository, tmp_path / "two", {"pair": {"engine": "fake"}})
    with pytest.raises(ServerError, match="--engines .*/nothing is no folder: build into it"):
        overlay(repository, tmp_path / "three", {}, engines=tmp_path / "nothing")
