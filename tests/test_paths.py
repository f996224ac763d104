"""Where things lie: in the source tree, and in an installed wheel."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from trimodal import build_support, paths
from trimodal.cache.stores.base import Limits, open_store
from trimodal.errors import OperatorError, ServerError
from trimodal.plan.architecture import find_config
from trimodal.server.installation import find_triton
from trimodal.server.options import ServerOptions

ROOT = Path(__file__).parents[1]
WITHOUT_LOCALE = {**os.environ, "LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory without anything."""
    monkeypatch.delenv(paths.ENGINES_VARIABLE, raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "share"))
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The package's folder, as a wheel has it."""
    package = tmp_path / "site-packages" / "trimodal"
    (package / "_data" / "model_repository").mkdir(parents=True)
    monkeypatch.setattr(paths, "PACKAGE", package)
    return package


def test_a_user_whom_the_system_does_not_know(monkeypatch: pytest.MonkeyPatch) -> None:
    """As `docker run --user 1234` makes one, without HOME."""
    for name in ("HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME", "TRIMODAL_CACHE"):
        monkeypatch.delenv(name, raising=False)
    # Path.home() asks it; Python 3.10 took it when it began.
    monkeypatch.setattr("os.path.expanduser", lambda path: path)
    if accessor := getattr(pathlib, "_NormalAccessor", None):
        monkeypatch.setattr(accessor, "expanduser", staticmethod(lambda path: path))
    assert paths.cache_directory() == Path("/.cache/trimodal")
    assert paths.user_engines() == Path("/.local/share/trimodal/engines")


def test_a_source_tree_holds_everything_itself() -> None:
    assert paths.data_directory() == ROOT
    assert paths.default_repository() == ROOT / "model_repository"
    assert paths.artefact_root("llm") == ROOT / "model_repository" / "llm" / "1"
    assert paths.default_engines() is None


def test_a_repository_of_the_working_directory_comes_first(elsewhere: Path, wheel: Path) -> None:
    (elsewhere / "model_repository").mkdir()
    assert paths.default_repository() == elsewhere / "model_repository"
    assert paths.artefact_root("llm") == elsewhere / "model_repository" / "llm" / "1"
    assert paths.default_engines() is None


def test_a_wheel_is_served_as_it_is_and_never_written_to(tmp_path: Path, wheel: Path) -> None:
    assert paths.default_repository() == wheel / "_data" / "model_repository"
    engines = tmp_path / "share" / "trimodal" / "engines"
    assert paths.artefact_root("llm") == engines / "llm"
    assert paths.default_engines() is None, "nothing was built yet"
    engines.mkdir(parents=True)
    assert paths.default_engines() == engines


def test_the_engines_variable_comes_before_all(
    tmp_path: Path, wheel: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(paths.ENGINES_VARIABLE, str(tmp_path / "volume"))
    assert paths.artefact_root("llm") == tmp_path / "volume" / "llm"
    assert paths.default_engines() == tmp_path / "volume"


def test_the_judge_lies_in_its_version_else_in_its_own_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = tmp_path / "judge" / "1"
    assert paths.judge_artefact(version, "onnx-int8") == version / "onnx-int8", "what an error is to name"
    package = tmp_path / "site" / "trimodal_judge"
    (package / "onnx-int8").mkdir(parents=True)
    (package / "__init__.py").touch()
    monkeypatch.syspath_prepend(package.parent)
    assert paths.judge_artefact(version, "onnx-int8") == package / "onnx-int8"
    assert paths.judge_artefact(version, "onnx-fp32") == version / "onnx-fp32", "a build of one's own"
    (version / "onnx-int8").mkdir(parents=True)
    assert paths.judge_artefact(version, "onnx-int8") == version / "onnx-int8"


def test_a_working_directory_that_was_removed(elsewhere: Path) -> None:
    """Every command was a traceback there."""
    elsewhere.rmdir()
    assert paths.default_repository() == ROOT / "model_repository"


@pytest.mark.parametrize(
    ("takes", "named"),
    [
        (lambda path: ServerOptions(repository=Path(path)), "--model-repository"),
        (lambda path: ServerOptions(engines=Path(path)), "--engines"),
        (lambda path: ServerOptions(log=Path(path)), "--log"),
        (lambda path: open_store(path, Limits(timeout_s=1)), "cache_store"),
        (build_support.resolve_checkpoint, "the checkpoint"),
        (find_config, "the checkpoint"),
    ],
)
def test_a_home_folder_that_nobody_knows_is_refused_by_the_setting_s_name(
    takes: Callable[[str], object], named: str
) -> None:
    """It was a RuntimeError of pathlib."""
    with pytest.raises(OperatorError, match=f"^{named} ~nosuch/x.sqlite: no home folder is known"):
        takes("~nosuch/x.sqlite")


def test_such_a_home_folder_in_a_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(paths.ENGINES_VARIABLE, "~nosuch/x")
    monkeypatch.setenv("TRIMODAL_TRITONSERVER", "~nosuch/x")
    for reads in (paths.default_engines, lambda: paths.artefact_root("llm")):
        with pytest.raises(OperatorError, match="^TRIMODAL_ENGINES ~nosuch/x: no home folder"):
            reads()
    with pytest.raises(ServerError, match="^TRIMODAL_TRITONSERVER ~nosuch/x: no home folder"):
        find_triton()


def test_a_server_s_paths_may_begin_with_a_home_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    options = ServerOptions(repository=Path("~/models"), engines=Path("~/engines"), log=Path("~/log"))
    assert (options.repository, options.engines) == (tmp_path / "models", tmp_path / "engines")
    assert options.log == tmp_path / "log"


OPENS = """
import os
import sys
from pathlib import Path
from trimodal.errors import ArtefactError
from trimodal.paths import artefact_directory
version, artefact = Path(sys.argv[1]), os.fsencode(sys.argv[2]).decode()
directory = artefact_directory(version, artefact)
assert str(directory).isascii() and artefact_directory(version, artefact) == directory
print((directory / "model.onnx").read_text())
assert str(ArtefactError(version)).encode() == os.fsencode(version)
assert not artefact_directory(version, "missing").exists()
"""


@pytest.mark.parametrize("artefact", ["onnx-fp32", "../1/onnx-fp32", "öther/onnx", "{}/öther/onnx"])
def test_engines_lie_anywhere_also_without_a_locale_as_in_tritons_stub(tmp_path: Path, artefact: str) -> None:
    version = tmp_path / "mödel 模型" / "1"
    artefact = artefact.format(version)
    (version / artefact).mkdir(parents=True)
    (version / artefact / "model.onnx").write_text("weights")
    done = subprocess.run(
        [sys.executable, "-c", OPENS, str(version), artefact],
        env=WITHOUT_LOCALE, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert (done.stdout, done.stderr) == ("weights\n", "")


def test_where_there_is_a_locale_a_folder_keeps_its_name(tmp_path: Path) -> None:
    assert paths.artefact_directory(tmp_path / "ü", "ö") == tmp_path / "ü" / "ö"


def test_an_engine_s_process_opens_by_its_name_what_triton_s_stub_could_not(tmp_path: Path) -> None:
    """Its children do not have the descriptor."""
    (tmp_path / "ü").mkdir()
    of_the_stub = Path(os.fsencode(tmp_path / "ü").decode("ascii", "surrogateescape"))
    assert paths.for_libraries(of_the_stub) == tmp_path / "ü"
    no_text = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xfc"))
    no_text.mkdir()
    assert str(paths.for_libraries(no_text)).startswith("/proc/self/fd/")


REFUSED = """
import os
import sys
from pathlib import Path
from trimodal.errors import ArtefactError
from trimodal.manifest import read_manifest
from trimodal.paths import artefact_directory
from trimodal.speech.engines.ctranslate2 import open_engine
from trimodal.speech.settings import RecogniseSettings
directory = artefact_directory(Path(sys.argv[1]), "a b")
for refused in (
    lambda: read_manifest(directory, task="embedding", runtime=None),
    lambda: open_engine(directory, RecogniseSettings(artefact="a b")),
):
    try:
        refused()
    except ArtefactError as error:
        os.write(1, str(error).encode() + b"\\n")
"""


def test_a_refusal_without_a_locale_has_the_folder_s_own_name(tmp_path: Path) -> None:
    """It named /proc/self/fd/12."""
    version = tmp_path / "mödel"
    (version / "a b").mkdir(parents=True)
    (version / "a b" / "model.bin").touch()
    done = subprocess.run(
        [sys.executable, "-c", REFUSED, str(version)],
        env=WITHOUT_LOCALE, capture_output=True, timeout=60,
    )  # fmt: skip
    first, second = done.stdout.decode().splitlines()
    assert first.startswith(f"no built embedding engine in {version}/a b: ")
    assert second.startswith(f"{version}/a b holds a Whisper")
    assert second.endswith(f"trimodal build speech '{version}/a b' --name 'a b'")
    assert done.stderr == b""


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("/proc/self/fd/99999/model.bin is open nowhere", "/proc/self/fd/99999/model.bin is open nowhere"),
        (os.fsdecode(b"/b\xfcd \xc3\xbc"), "/b\ufffdd ü"),
        ("/m\udcc3\udcb6del", "/mödel"),
        (json.loads('"a \\ud800 of JSON"'), "a ? of JSON"),
        ("\udcc3\udcb6 and \udfff", "?? and ?"),
    ],
)
def test_an_error_is_text_whatever_stands_in_it(text: str, told: str) -> None:
    """Half a character ended the error's own making."""
    assert str(OperatorError(text)) == told
