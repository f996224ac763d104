from __future__ import annotations

import pytest

from tests.server.artefacts import add_model, python_model
from trimodal.doctor import engine_tools
from trimodal.doctor.engine_tools import check_engine_tools
from trimodal.repository import read_model
from trimodal.runtimes.jit_tools import JitTools

PYTHON = "/opt/vllm/bin/python"
C = {"compiler": "/usr/bin/gcc"}
ALL = {**C, "nvcc": "/usr/local/cuda/bin/nvcc", "ninja": "/opt/vllm/bin/ninja"}
HEADERS = "/usr/include/python3.12"
HAS_C = ("ok", f"/usr/bin/gcc, Python.h in {HEADERS}")
DOWNLOAD = "run /opt/vllm/bin/vllm download-kernels"


@pytest.mark.parametrize(
    ("engine", "found", "headers", "lines"),
    [
        ("vllm", ALL, HEADERS, [HAS_C, ("ok", f"compiled with {ALL['nvcc']} and {ALL['ninja']}")]),
        ("vllm", {}, "", [("error", "no C compiler and no Python.h: "), ("warning", DOWNLOAD)]),
        ("vllm", {}, HEADERS, [("error", "no C compiler: "), ("warning", "no nvcc and no ninja, ")]),
        ("vllm", ALL, "", [("error", "no Python.h: "), ("ok", "")]),
        ("vllm", {**C, "nvcc": "nvcc"}, HEADERS, [HAS_C, ("warning", "no ninja, ")]),
        (
            "vllm",
            {**C, "kernels": "0.6.12+cu130"},
            HEADERS,
            [HAS_C, ("ok", "flashinfer-jit-cache 0.6.12+cu130")],
        ),
        (
            "tensorrt_llm_pytorch",
            C,
            HEADERS,
            [HAS_C, ("warning", "fails → install a CUDA toolkit and ninja")],
        ),
        ("openvino", {}, "", []),
        ("vllm eager on cpu", {}, "", []),
        ("vllm eager=yes on cpu", {}, "", []),
        ("vllm on cpu", {}, "", [("error", "→ apt install build-essential python3-dev")]),
    ],
)
def test_the_compilers_of_the_engine_s_own_interpreter(tmp_path, monkeypatch, engine, found, headers, lines):
    def asked(answer):
        def ask(python=""):
            assert python == PYTHON, "asked of the doctor's own environment"
            return answer

        return ask

    tools = JitTools(**({"compiler": "", "nvcc": "", "ninja": "", "kernels": ""} | found))
    monkeypatch.setattr(engine_tools, "find_jit_tools", asked(tools))
    monkeypatch.setattr(engine_tools, "python_headers", asked(headers))
    eager = {"eager": "true", "eager=yes": "yes"}.get(engine.split()[-3], "false") if "cpu" in engine else ""
    on_cpu = {"device": "cpu", "enforce_eager": eager} if eager else {}
    config = python_model("llm", engine=engine.split()[0], python=PYTHON, artefact="checkpoint", **on_cpu)
    name = add_model(tmp_path, config).parent.name
    checks = list(check_engine_tools([read_model(tmp_path, name, "tensorrt")]))
    assert [check.severity for check in checks] == [level for level, _ in lines]
    for check, (_, told) in zip(checks, lines, strict=True):
        assert told in f"{check.sentence} → {check.remedy}"
