from __future__ import annotations

import pytest

from tests.server.artefacts import add_model, python_model
from trimodal.doctor import engine_tools
from trimodal.doctor.engine_tools import check_engine_tools
from trimodal.repository import read_model
from trimodal.runtimes.jit_tools import JitTools

PYTHON = "/opt/vllm/bin/python"
ALL = {"compiler": "/usr/bin/gcc", "nvcc": "/usr/local/cuda/bin/nvcc", "ninja": "/opt/vllm/bin/ninja"}


@pytest.fixture
def look(tmp_path, monkeypatch):
    """`look(found, headers, engine)`: the two lines, for tools of the engine's interpreter alone."""

    def check(found, headers="/usr/include/python3.12", engine="vllm", **parameters):
        def asked(answer):
            def ask(python=""):
                assert python == PYTHON, "asked of the doctor's own environment"
                return answer

            return ask

        tools = JitTools(**({"compiler": "", "nvcc": "", "ninja": "", "kernels": ""} | found))
        monkeypatch.setattr(engine_tools, "find_jit_tools", asked(tools))
        monkeypatch.setattr(engine_tools, "python_headers", asked(headers))
        config = python_model("llm", engine=engine, python=PYTHON, artefact="checkpoint", **parameters)
        name = add_model(tmp_path, config).parent.name
        return list(check_engine_tools([read_model(tmp_path, name, "tensorrt")]))

    return check


@pytest.mark.parametrize(("eager", "severities"), [("false", ["error"]), ("true", [])])
def test_on_a_cpu_there_is_no_flashinfer_and_eager_needs_no_compiler(look, eager, severities):
    checks = look({}, "", device="cpu", enforce_eager=eager)
    assert [check.severity for check in checks] == severities


@pytest.mark.parametrize("engine", ["vllm", "tensorrt_llm_pytorch"])
def test_all_there(look, engine):
    c, flashinfer = look(ALL, engine=engine)
    assert (c.severity, c.sentence) == ("ok", "/usr/bin/gcc, Python.h in /usr/include/python3.12")
    assert flashinfer.severity == "ok"
    assert flashinfer.sentence == "compiled with /usr/local/cuda/bin/nvcc and /opt/vllm/bin/ninja"


@pytest.mark.parametrize(
    ("found", "headers", "missing"),
    [
        ({}, "", "no C compiler and no Python.h"),
        ({}, "/usr/include", "no C compiler"),
        (ALL, "", "no Python.h"),
    ],
)
def test_what_kernels_of_triton_need(look, found, headers, missing):
    c, _ = look(found, headers)
    assert (c.severity, c.remedy) == ("error", "apt install build-essential python3-dev")
    assert c.sentence.startswith(f"{missing}: ")


@pytest.mark.parametrize(
    ("left_out", "missing"),
    [(("nvcc",), "no nvcc, "), (("ninja",), "no ninja, "), (("nvcc", "ninja"), "no nvcc and no ninja, ")],
)
def test_vllm_goes_on_with_its_own_sampler(look, left_out, missing):
    _, flashinfer = look({name: path for name, path in ALL.items() if name not in left_out})
    assert flashinfer.severity == "warning"
    assert flashinfer.sentence.startswith(missing)
    assert flashinfer.remedy.startswith("run /opt/vllm/bin/vllm download-kernels")


def test_downloaded_kernels_need_no_compiler_of_their_own(look):
    _, flashinfer = look({"kernels": "0.6.12+cu130"})
    assert (flashinfer.severity, flashinfer.sentence) == ("ok", "flashinfer-jit-cache 0.6.12+cu130")


def test_tensorrt_llm_is_told_what_to_install(look):
    _, flashinfer = look({}, engine="tensorrt_llm_pytorch")
    assert (flashinfer.severity, flashinfer.remedy) == (
        "warning",
        "install a CUDA toolkit and ninja",
    )


@pytest.mark.parametrize("engine", ["openvino", "fake"])
def test_other_engines_compile_nothing(look, engine):
    assert look({}, engine=engine) == []
