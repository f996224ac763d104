"""Writes the graphs of a Whisper artefact in one precision: FP32 as exported, FP16 inside, or 8-bit products.

FP16 keeps features, logits and alignment in FP32; caches are FP16, so nothing is cast between steps.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import onnx
from onnx import TensorProto, helper
from steps.onnx.fp16 import to_fp16
from steps.onnx.logs import without_advice
from steps.onnx.rounding import rounded
from steps.speech.onnx_export import OPSET, save

from trimodal.speech.engines.onnxruntime import DECODER, ENCODER, KEEP
from trimodal.speech.whisper.graphs import layer_names

# What a caller on the host reads or writes: as exported, whatever the graph has inside.
KEPT = {ENCODER: ("features",), DECODER: ("logits", "alignment")}
CACHES = ("cross_key_{}", "cross_value_{}", "key_{}", "value_{}")


def write_graphs(graphs: Path, directory: Path, precision: str) -> None:
    """Encoder, decoder, and the graph that takes rows out of caches, into `directory`.

    Args:
        graphs: the FP32 graphs, as exported.

    Raises:
        ArtefactError: a weight is too large for FP16.
    """
    if precision == "int8":
        _quantise(graphs, directory)
    for name in (ENCODER, DECODER):
        if precision == "fp32":
            for path in graphs.glob(f"{name}*"):  # Large weights lie beside the graph.
                shutil.copyfile(path, directory / path.name)
        elif precision == "fp16":
            save(to_fp16(onnx.load(graphs / name), keep=KEPT[name]), directory / name)
    decoder = onnx.load(directory / DECODER, load_external_data=False)
    save(keep_graph(decoder), directory / KEEP)


def write_rounded(directory: Path, into: Path) -> None:
    """FP16 graphs as FP32 ones that round every tensor as FP16 would: ONNX Runtime's processor does not."""
    for name in (ENCODER, DECODER):
        save(rounded(onnx.load(directory / name)), into / name)


def keep_graph(decoder: onnx.ModelProto) -> onnx.ModelProto:
    """rows int64[kept] and all caches → kept_* with those rows alone, in the decoder's types."""
    inputs = {value.name: value for value in decoder.graph.input}
    layers = sum(name.startswith("past_key_") for name in inputs)
    rows = helper.make_tensor_value_info("rows", TensorProto.INT64, ["kept"])
    given, kept, nodes = [rows], [], []
    for name in layer_names(*CACHES, layers=layers):
        like = inputs[name if name.startswith("cross_") else f"past_{name}"].type.tensor_type
        sizes = [dim.dim_param or dim.dim_value for dim in like.shape.dim]
        given.append(helper.make_tensor_value_info(name, like.elem_type, sizes))
        kept.append(helper.make_tensor_value_info(f"kept_{name}", like.elem_type, ["kept", *sizes[1:]]))
        nodes.append(helper.make_node("Gather", [name, "rows"], [f"kept_{name}"], axis=0))
    graph = helper.make_graph(nodes, "keep", given, kept)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)


@without_advice()
def _quantise(graphs: Path, directory: Path) -> None:
    """8-bit products; convolutions and embeddings stay in FP32."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    for name, source in ((ENCODER, graphs / ENCODER), (DECODER, _unshared(graphs / DECODER))):
        quantize_dynamic(
            source,
            directory / name,
            op_types_to_quantize=["MatMul", "Gemm"],
            per_channel=True,
            weight_type=QuantType.QInt8,
            use_external_data_format=(graphs / f"{name}.data").exists(),
        )


def _unshared(path: Path) -> Path:
    """A copy whose last product has embeddings of its own: the quantiser transposes them in place."""
    model = onnx.load(path)
    weights = {weight.name: weight for weight in model.graph.initializer}
    for node in model.graph.node:
        if node.op_type == "Gemm":
            copy = TensorProto()
            copy.CopyFrom(weights[node.input[1]])
            copy.name = node.input[1] = f"{copy.name}_projection"
            model.graph.initializer.append(copy)
    save(model, path.with_name("unshared.onnx"))
    return path.with_name("unshared.onnx")
