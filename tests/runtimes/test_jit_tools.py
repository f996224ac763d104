"""The compilers of an interpreter's environment, and where its processes look for programs."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.runtimes.test_gpu_libraries import distribution
from trimodal.runtimes import jit_tools
from trimodal.runtimes.jit_tools import find_jit_tools, python_headers, search_path


def program(path: Path, text: str = "") -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


@pytest.fixture
def python(tmp_path, monkeypatch):
    """The interpreter of an environment without any tool, on a machine without any."""
    (tmp_path / "usr").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "usr"))
    monkeypatch.setattr(jit_tools, "_CUDA", str(tmp_path / "cuda"))
    for name in ("CC", "CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(name, raising=False)
    folder = tmp_path / "env" / "bin"
    folder.mkdir(parents=True)
    (folder / "python").symlink_to(sys.executable)
    return str(folder / "python")


def test_the_interpreters_own_programs_come_first(monkeypatch):
    monkeypatch.setenv("PATH", "/usr/bin:/opt/env/bin:/bin")
    assert search_path("/opt/env/bin/python") == "/opt/env/bin:/usr/bin:/bin"
    monkeypatch.delenv("PATH")
    assert search_path("/opt/env/bin/python") == f"/opt/env/bin:{os.defpath}"


def test_a_machine_without_tools(python):
    tools = find_jit_tools(python)
    assert (tools.compiler, tools.nvcc, tools.ninja, tools.kernels) == ("", "", "", "")
    assert not tools.flashinfer


def test_ninja_is_found_beside_the_interpreter_and_the_rest_on_the_machine(python, tmp_path):
    ninja = program(Path(python).with_name("ninja"))
    assert not find_jit_tools(python).flashinfer, "ninja alone compiles nothing"
    cc, nvcc = program(tmp_path / "usr" / "gcc"), program(tmp_path / "usr" / "nvcc")
    tools = find_jit_tools(python)
    assert (tools.compiler, tools.nvcc, tools.ninja) == (cc, nvcc, ninja)
    assert tools.flashinfer


@pytest.mark.parametrize("place", ["cuda", "toolkit"])
def test_nvcc_is_looked_for_where_flashinfer_looks(python, tmp_path, monkeypatch, place):
    nvcc = program(tmp_path / place / "bin" / "nvcc")
    if place == "toolkit":
        monkeypatch.setenv("CUDA_HOME", str(tmp_path / "toolkit"))
        program(tmp_path / "usr" / "nvcc")
    assert find_jit_tools(python).nvcc == nvcc


def test_a_cuda_home_without_nvcc_is_what_counts(python, tmp_path, monkeypatch):
    program(tmp_path / "usr" / "nvcc")
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "nowhere"))
    assert find_jit_tools(python).nvcc == ""


def test_compiled_kernels_are_a_package_of_the_interpreter(python, tmp_path):
    packages = tmp_path / "env" / "lib" / "python3.12" / "site-packages"
    distribution(packages, "flashinfer-cubin", "0.6.12")
    assert not find_jit_tools(python).flashinfer, "it holds no kernels for sampling"
    distribution(packages, "flashinfer-jit-cache", "0.6.12+cu130")
    tools = find_jit_tools(python)
    assert (tools.kernels, tools.flashinfer) == ("0.6.12+cu130", True)
    assert find_jit_tools().kernels == ""


def test_headers_are_those_that_the_interpreter_names(tmp_path):
    python = program(tmp_path / "python", f"echo {tmp_path}/include")
    assert python_headers(python) == ""
    (tmp_path / "include").mkdir()
    (tmp_path / "include" / "Python.h").touch()
    assert python_headers(python) == f"{tmp_path}/include"


def test_an_interpreter_that_does_not_run_has_none(tmp_path):
    assert python_headers(str(tmp_path / "nowhere")) == ""
    assert python_headers(program(tmp_path / "python", "exit 3")) == ""
