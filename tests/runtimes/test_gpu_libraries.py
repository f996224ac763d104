from __future__ import annotations

import ctypes
import sys
from pathlib import Path

import pytest

from trimodal.runtimes import gpu_libraries


def distribution(folder: Path, name: str, version: str, *requires: str) -> None:
    """Metadata of an installed package."""
    metadata = folder / f"{name.replace('-', '_')}-{version}.dist-info" / "METADATA"
    metadata.parent.mkdir(parents=True)
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
    metadata.write_text("\n".join([*lines, *(f"Requires-Dist: {one}" for one in requires), ""]))


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A folder of packages that this process sees."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    return folder


@pytest.fixture
def loader(tmp_path, monkeypatch):
    """The loader's folders: two of LD_LIBRARY_PATH, one of its configuration."""
    folders = [tmp_path / name for name in ("first", "second", "configured")]
    for folder in folders:
        folder.mkdir()
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "a.conf").write_text(f"# ours\n{folders[2]}\n")
    monkeypatch.setenv("LD_LIBRARY_PATH", f"{folders[0]}::{folders[1]}")
    monkeypatch.setattr(gpu_libraries, "_LOADER", tmp_path / "conf")
    monkeypatch.setattr(gpu_libraries, "_SYSTEM", ())
    monkeypatch.delenv("TRT_VERSION", raising=False)
    return folders


def library(folder: Path, stem: str, version: str) -> None:
    """As packages install one: the real file, and links by shorter names."""
    (folder / f"{stem}.so.{version}").touch()
    for name in (f"{stem}.so.{version.split('.')[0]}", f"{stem}.so"):
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to(f"{stem}.so.{version}")


def test_versions_without_an_import(site):
    distribution(site, "tensorrt-cu13", "10.14.1.48.post1")
    assert gpu_libraries.installed(("tensorrt-none", "tensorrt-cu13")) == "10.14.1.48.post1"
    assert gpu_libraries.python_tensorrt() == "10.14.1.48"
    assert gpu_libraries.installed("tensorrt-none") is None
    assert "tensorrt" not in sys.modules


def test_versions_of_another_interpreter(tmp_path, site):
    environment = tmp_path / "trtllm"
    (environment / "bin").mkdir(parents=True)
    (environment / "bin" / "python").symlink_to(sys.executable)
    distribution(environment / "lib" / "python3.12" / "site-packages", "tensorrt-llm", "1.2.1")
    distribution(site, "tensorrt-llm", "1.3.0")
    assert gpu_libraries.installed("tensorrt-llm", str(environment / "bin" / "python")) == "1.2.1"
    assert gpu_libraries.installed("tensorrt_llm", str(environment / "bin" / "python")) == "1.2.1"
    assert gpu_libraries.installed("tensorrt-llm") == "1.3.0"
    assert gpu_libraries.installed("pydantic", str(environment / "bin" / "python")) is None


def test_native_tensorrt_is_read_off_the_library_that_the_loader_takes_first(loader):
    assert gpu_libraries.native_tensorrt() is None
    library(loader[2], "libnvinfer", "11.4.0")
    assert gpu_libraries.native_tensorrt() == "11.4.0"
    library(loader[1], "libnvinfer", "10.9.0")
    library(loader[1], "libnvinfer", "10.14.1")
    library(loader[1], "libnvinfer_plugin", "12.0.0")
    assert gpu_libraries.native_tensorrt() == "10.14.1"
    (loader[0] / "libnvinfer.so").write_text("a linker script, no version\n")
    assert gpu_libraries.native_tensorrt() == "10.14.1"


@pytest.mark.parametrize(
    ("told", "version"),
    [
        ("10.14.1.48", "10.14.1.48"),
        ("10.14.1.48+cuda13.0", "10.14.1.48"),
        ("10.13.3.9", "10.14.1"),
        ("", "10.14.1"),
    ],
)
def test_nvidias_images_tell_the_build_number(loader, monkeypatch, told, version):
    """It counts where it is said of the library that is there."""
    library(loader[1], "libnvinfer", "10.14.1")
    monkeypatch.setenv("TRT_VERSION", told)
    assert gpu_libraries.native_tensorrt() == version


def test_a_library_by_its_major_version(loader):
    library(loader[1], "libcudnn", "9.17.1")
    assert gpu_libraries.has_library("libcudnn", 9)
    assert not gpu_libraries.has_library("libcudnn", 8)
    assert not gpu_libraries.has_library("libcublas", 12)


def test_whose_file_is_on_disk(site):
    """Two packages with one folder: the last one's files are there."""
    distribution(site, "one", "1.0")
    distribution(site, "two", "1.0")
    (site / "shared").mkdir()
    for name, content in (("one", b"small"), ("two", b"larger")):
        (site / "shared" / "state.so").write_bytes(content)
        record = site / f"{name}-1.0.dist-info" / "RECORD"
        record.write_text(f"shared/other.py,,7\nshared/state.so,sha256=x,{len(content)}\n")
    assert gpu_libraries.is_on_disk("two", "state")
    assert not gpu_libraries.is_on_disk("one", "state")
    assert not gpu_libraries.is_on_disk("two", "nothing")
    assert not gpu_libraries.is_on_disk("no-such-library", "state")


@pytest.mark.parametrize(
    ("built", "found", "same"),
    [
        ("10.14.1.48", "10.14.1", True),
        ("10.14.1.48", "10.14.1.48", True),
        ("10.14.1.48", "10.14.1.49", False),
        ("10.14.1.48", "10.1.4", False),
        ("11.4.0.106", "10.14.1", False),
    ],
)
def test_versions_agree_as_far_as_both_go(built, found, same):
    assert gpu_libraries.same_version(built, found) == same


@pytest.mark.parametrize(
    ("requires", "major"),
    [
        # onnxruntime-gpu 1.31.1, and 1.22
        (["numpy>=1.21.6", 'nvidia-cuda-runtime~=13.0; extra == "cuda"'], 13),
        (['nvidia-cufft~=12.0; extra == "cuda"', 'nvidia-cudnn-cu13~=9.0; extra == "cudnn"'], 13),
        (['nvidia-cuda-runtime-cu12~=12.0; extra == "cuda"'], 12),
        (["nvidia-cuda-runtime (>=12.4)"], 12),
        (["tensorrt_cu12_libs==11.4.0.106"], 12),
        (["numpy"], None),
    ],
)
def test_the_cuda_that_a_package_is_built_for(site, requires, major):
    distribution(site, "some-library", "1.0", *requires)
    assert gpu_libraries.cuda_of("some-library") == major
    assert gpu_libraries.cuda_of("no-such-library") is None


class LibCuda:
    """cuDriverGetVersion of a driver that serves `version`, or that fails with `code`."""

    def __init__(self, version: int, code: int = 0) -> None:
        self.version, self.code = version, code

    def cuDriverGetVersion(self, reference: object) -> int:  # noqa: N802
        reference._obj.value = self.version  # type: ignore[attr-defined]
        return self.code


@pytest.mark.parametrize(
    ("library", "serves"),
    [(LibCuda(12040), (12, 4)), (LibCuda(13000), (13, 0)), (LibCuda(0), None), (LibCuda(0, 100), None)],
)
def test_the_cuda_that_the_driver_serves(monkeypatch, library, serves):
    monkeypatch.setattr(ctypes, "CDLL", {"libcuda.so.1": library}.__getitem__)
    assert gpu_libraries.driver_cuda() == serves


def test_no_driver(monkeypatch):
    def missing(name):
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(ctypes, "CDLL", missing)
    assert gpu_libraries.driver_cuda() is None
