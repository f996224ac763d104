"""Nothing of ours tells anybody that it is used, and leaves no id of this machine for that."""

import os
import subprocess
import sys

LOAD = """
import trimodal
import onnx.helper as helper, onnx
import onnxruntime, openvino, nncf, huggingface_hub.constants
tensor = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1])
node = helper.make_node("Relu", ["x"], ["y"])
end = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [1])
graph = helper.make_graph([node], "relu", [tensor], [end])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
assert huggingface_hub.constants.HF_HUB_DISABLE_TELEMETRY
"""
# Of the libraries and of CI, where some are silent anyway.
VARIABLES = ("ORT_DISABLE_TELEMETRY", "DO_NOT_TRACK", "CI", "TF_BUILD", "JENKINS_URL")


def test_the_libraries_report_nothing(tmp_path):
    kept = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    own = {"HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    subprocess.run([sys.executable, "-c", LOAD], env=kept | own, check=True, timeout=120)
    assert [str(path) for path in tmp_path.rglob("*") if path.is_file()] == []


def test_who_wants_to_report_may():
    program = "import os, trimodal; print(os.environ['ORT_DISABLE_TELEMETRY'])"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | {"ORT_DISABLE_TELEMETRY": "0"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "0\n"
