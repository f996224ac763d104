import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

from trimodal.errors import ServerError
from trimodal.server import installation
from trimodal.server.installation import Triton, assemble, find_triton

ROOT = Path(__file__).parents[2]
RUNNING = f"3.{sys.version_info.minor}"


@pytest.fixture
def wheel(tmp_path):
    """The files of a wheel, empty: site-packages/pytriton/tritonserver and its neighbours."""
    root = tmp_path / "site-packages" / "pytriton" / "tritonserver"
    for file in (
        "bin/tritonserver",
        "backends/python/libtriton_python.so",
        "caches/local/libtritoncache_local.so",
        "python_backend_stubs/3.9/triton_python_backend_stub",
        f"python_backend_stubs/{RUNNING}/triton_python_backend_stub",
    ):
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        (root / file).touch()
    (tmp_path / "site-packages" / "nvidia_pytriton.libs").mkdir()
    return root


@pytest.fixture
def container(tmp_path):
    root = tmp_path / "opt"
    for folder in ("bin", "backends/python", "caches"):
        (root / folder).mkdir(parents=True)
    (root / "bin" / "tritonserver").touch()
    return root


def test_backend_directory_holds_the_stub_of_the_running_python(wheel, tmp_path):
    run = tmp_path / "run"
    backends, environment = assemble(Triton(wheel), run)
    stub = backends / "python" / "triton_python_backend_stub"
    assert stub.resolve() == wheel / "python_backend_stubs" / RUNNING / "triton_python_backend_stub"
    assert (backends / "python" / "libtriton_python.so").is_file()
    libraries = environment["LD_LIBRARY_PATH"].split(":")
    assert libraries[0] == str(tmp_path / "site-packages" / "nvidia_pytriton.libs")
    assert environment["PATH"].split(":")[0] == os.path.dirname(sys.executable)
    assert environment["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"  # as trimodal.runtimes.gpu_device describes them


@pytest.mark.parametrize("path", ["/nowhere", ""])
def test_stubs_find_their_shell_whatever_the_path(wheel, tmp_path, monkeypatch, path):
    monkeypatch.setenv("PATH", path)
    _, environment = assemble(Triton(wheel), tmp_path / "run")
    assert shutil.which("bash", path=environment["PATH"])


def test_a_system_without_a_shell_is_refused(wheel, tmp_path, monkeypatch):
    monkeypatch.setattr("os.defpath", "/nowhere")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ServerError, match="there is no bash"):
        assemble(Triton(wheel), tmp_path / "run")


def test_variables_by_which_libraries_would_fail_are_not_passed_on(wheel, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONUTF8", "0")
    monkeypatch.setenv("PYTHONOPTIMIZE", "2")
    _, environment = assemble(Triton(wheel), tmp_path / "run")
    assert environment["PYTHONUTF8"] == "1"
    assert "PYTHONOPTIMIZE" not in environment


@pytest.mark.parametrize(("own", "passed_on"), [(None, "4"), ("20", "20")])
def test_threads_that_wait_for_products_sleep_unless_the_operator_says_how_long_they_spin(
    wheel, tmp_path, monkeypatch, own, passed_on
):
    monkeypatch.delenv("OPENBLAS_THREAD_TIMEOUT", raising=False)
    if own:
        monkeypatch.setenv("OPENBLAS_THREAD_TIMEOUT", own)
    _, environment = assemble(Triton(wheel), tmp_path / "run")
    assert environment["OPENBLAS_THREAD_TIMEOUT"] == passed_on


def test_an_environment_whose_path_is_not_ascii_opens_without_a_locale_as_in_the_stub(tmp_path):
    """Triton waited for stubs that had ended: in a clone below such a folder, for all of --ready-timeout."""
    odd = tmp_path / "ümgebung mit 1"
    venv.create(odd, symlinks=True)
    (packages,) = odd.glob("lib/python3*/site-packages")
    (packages / "editable.pth").write_text(f"{tmp_path}/ü\n", "utf-8")
    (packages / "plain.pth").write_text("plain\n")
    (packages / "numpy").mkdir()
    links = tmp_path / "environment"
    code = "import sys; from pathlib import Path; from trimodal.server.installation import link_environment"
    here = {**os.environ, "PYTHONPATH": f"{ROOT}:{sysconfig.get_path('purelib')}"}
    command = [odd / "bin" / "python3", "-c", f"{code}; link_environment(Path(sys.argv[1]))", links]
    subprocess.run(command, env=here, check=True, timeout=60)
    (linked,) = links.glob("lib/python3*/site-packages")
    assert {path.name for path in linked.iterdir()} >= {"numpy", "plain.pth", "trimodal"}
    isolated = [links / "bin" / "python3", "-I", "-X", "utf8=0", "-c", "import sys; print(sys.prefix)"]
    ended = subprocess.run(isolated, env={"LC_ALL": "C"}, capture_output=True, text=True, timeout=60)
    assert (ended.stdout, ended.stderr) == (f"{links}\n", "")


@pytest.mark.parametrize(("prefix", "linked"), [("/opt/venv", False), ("/opt/ümgebung", True)])
def test_stubs_get_such_an_environment_by_links(wheel, tmp_path, monkeypatch, prefix, linked):
    monkeypatch.setattr(sys, "prefix", prefix)
    monkeypatch.setattr(installation, "PACKAGE", "/opt/trimodal")
    monkeypatch.setattr(installation, "link_environment", lambda directory: directory)
    _, environment = assemble(Triton(wheel), tmp_path / "run")
    links = tmp_path / "run" / "environment"
    assert environment["VIRTUAL_ENV"] == (str(links) if linked else prefix)
    assert environment["PATH"].startswith(f"{links}/bin:") == linked


def test_libpython_is_found_where_the_stub_looks(wheel, tmp_path):
    _, environment = assemble(Triton(wheel), tmp_path / "run")
    code = f"import ctypes; ctypes.CDLL('libpython{RUNNING}.so.1.0')"
    subprocess.run([sys.executable, "-c", code], env=environment, check=True, timeout=30)


def test_a_container_is_used_as_it_is(container, tmp_path):
    (container / "backends" / "python" / "triton_python_backend_stub").write_bytes(
        f"..libpython{RUNNING}.so.1.0..".encode()
    )
    backends, _ = assemble(Triton(container), tmp_path / "run")
    assert backends == container / "backends"


def test_unsupported_python_names_the_supported(wheel, container):
    (wheel / "python_backend_stubs" / RUNNING / "triton_python_backend_stub").unlink()
    with pytest.raises(ServerError, match=rf"Python {RUNNING} is not supported .*\(it has 3\.9\)"):
        Triton(wheel).stub()
    (container / "backends" / "python" / "triton_python_backend_stub").write_bytes(b"..libpython3.7.so.1.0..")
    with pytest.raises(ServerError, match=r"\(it has 3\.7\)"):
        Triton(container).stub()


def test_the_environment_variable_names_the_binary_or_its_folder(container, monkeypatch):
    for named in (container, container / "bin" / "tritonserver"):
        monkeypatch.setenv("TRIMODAL_TRITONSERVER", str(named))
        assert find_triton().root == container
    for named in (container / "bin" / "other" / "tritonserver", "/no-such-tritonserver"):
        monkeypatch.setenv("TRIMODAL_TRITONSERVER", str(named))
        with pytest.raises(ServerError, match="TRIMODAL_TRITONSERVER names"):
            find_triton()
    assert Triton(Path("/tritonserver")).libraries is None


def test_nothing_found_names_the_extra(monkeypatch, tmp_path):
    monkeypatch.delenv("TRIMODAL_TRITONSERVER", raising=False)
    monkeypatch.setattr(installation, "CONTAINER", tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.setattr(sys, "path_importer_cache", {})
    monkeypatch.delitem(sys.modules, "pytriton", raising=False)
    with pytest.raises(ServerError, match=r"pip install 'trimodal\[cpu\]'"):
        find_triton()
