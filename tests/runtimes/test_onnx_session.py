"""Sessions on the processor for real, on CUDA through a double of the real signatures."""

import sys

import pytest

from tests.doubles import onnx_runtime
from tests.doubles.onnx_runtime import CUDA
from trimodal.errors import ArtefactError, ServerError
from trimodal.runtimes import onnx_session
from trimodal.runtimes.onnx_session import open_session

pytest.importorskip("onnx")


@pytest.fixture
def graph(tmp_path):
    onnx_runtime.save_graph(tmp_path / "model.onnx")
    return tmp_path / "model.onnx"


@pytest.fixture
def machine(monkeypatch):
    return onnx_runtime.install(monkeypatch)


def refused(graph, kind, device="cuda", **more):
    with pytest.raises(kind) as caught:
        open_session(graph, device=device, threads=1, **more)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_on_the_processor_no_thread_spins(graph):
    session = open_session(graph, device="cpu", threads=3)
    assert session.get_providers() == ["CPUExecutionProvider"]
    options = session.get_session_options()
    assert (options.intra_op_num_threads, options.inter_op_num_threads) == (3, 1)
    assert options.get_session_config_entry("session.intra_op.allow_spinning") == "0"


def test_cuda_comes_first_with_its_options_and_never_falls_back(graph, machine):
    session = open_session(graph, device="cuda", threads=1)
    assert session.get_providers() == [CUDA, "CPUExecutionProvider"]
    (asked,) = machine.named("InferenceSession.__init__")
    (name, options), processor = asked["providers"]
    assert (name, processor) == (CUDA, "CPUExecutionProvider")
    assert options == onnx_session.CUDA_OPTIONS
    assert asked["kwargs"] == {"enable_fallback": 0}
    # Libraries first: the provider is loaded when the session is made.
    assert [called for called, _ in machine.calls] == ["preload_dlls", "InferenceSession.__init__"]


def test_the_package_without_cuda_is_told_from_a_machine_without_it(graph, machine):
    machine.available = ("CPUExecutionProvider",)
    assert "built without CUDA: pip uninstall -y onnxruntime onnxruntime-gpu" in refused(graph, ServerError)
    assert not machine.calls


def test_a_silent_fall_back_is_an_error_that_names_the_missing_library(graph, machine, monkeypatch, capsys):
    monkeypatch.setattr(onnx_session, "visible_gpus", lambda: ["a GPU"])
    machine.starts = False
    machine.prints = "Failed to load libcublasLt.so.13: no such file\nPlease follow …"
    sentence = refused(graph, ServerError)
    assert "(Failed to load libcublasLt.so.13: no such file): pip install" in sentence
    assert capsys.readouterr().out == ""
    machine.prints = ""
    assert "it needs CUDA 13.0 and a driver for it" in refused(graph, ServerError)


def test_libraries_of_the_interpreter_under_a_virtual_environment_are_found(
    graph, machine, monkeypatch, tmp_path
):
    for name in ("cu13/lib", "cudnn/lib"):
        (tmp_path / "nvidia" / name).mkdir(parents=True)
    monkeypatch.syspath_prepend(tmp_path)
    machine.prints = "Failed to load libcublasLt.so.13: no such file"
    machine.libraries = str(tmp_path / "nvidia" / "cu13" / "lib")
    open_session(graph, device="cuda", threads=1)
    asked = [each.get("directory") for each in machine.named("preload_dlls")]
    assert asked[0] is None  # beside the package first
    assert {machine.libraries, str(tmp_path / "nvidia" / "cudnn" / "lib")} <= set(asked)
    assert asked[-1] is None  # and last, to know what is still missing


def test_a_machine_without_a_gpu_says_so_first(graph, machine, monkeypatch):
    machine.starts = False
    machine.prints = "Failed to load libcublasLt.so.13"
    monkeypatch.setattr(onnx_session, "visible_gpus", lambda: [])
    assert "CUDA_VISIBLE_DEVICES hides every GPU" in refused(graph, ServerError)

    def no_driver():
        raise ServerError("no NVIDIA driver answers")

    monkeypatch.setattr(onnx_session, "visible_gpus", no_driver)
    assert refused(graph, ServerError) == "no NVIDIA driver answers"


def test_what_cuda_refuses_is_not_blamed_on_the_artefact(graph, machine, monkeypatch):
    monkeypatch.setattr(onnx_session, "visible_gpus", lambda: ["a GPU"])
    machine.refuses = RuntimeError("CUDA failure 2: out of memory ; GPU=0\nstack")
    sentence = refused(graph, ServerError, command="python build/x.py")
    assert "cannot use the GPU (CUDA failure 2: out of memory ; GPU=0)" in sentence
    assert "build again" not in sentence


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_damaged_graph_says_how_to_build_again(graph, machine, device):
    graph.write_bytes(b"{}")
    sentence = refused(graph, ArtefactError, device, command="python build/x.py")
    assert sentence.startswith("ONNX Runtime 1.")
    assert sentence.endswith("build again with: python build/x.py")
    graph.unlink()
    assert sentence != refused(graph, ArtefactError, device)


def test_without_the_package_the_extra_is_named(graph, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    assert refused(graph, ServerError, "cpu").endswith("pip install 'trimodal[cpu]'")
    assert refused(graph, ServerError).endswith("pip install 'trimodal[cuda]'")
