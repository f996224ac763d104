"""Holds a graph against the operators that TensorRT's ONNX parser takes, its published list.

The list is `docs/operators.md` of onnx/onnx-tensorrt. Only what both TensorRT 10.1 and 10.15 take is here, so
that 10.14 and 11 do too. On a GPU the parser has the word.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, numpy_helper, shape_inference
from steps.onnx.fp16 import infer_shapes

SOURCE = "onnx-tensorrt docs/operators.md, TensorRT 10.1 and 10.15"
OPSETS = range(9, 21)  # 10.1 ends at 20; later ones at 24 or 25

T = TensorProto
HALVES: set[int] = {T.FLOAT16, T.FLOAT}
FLOATS: set[int] = HALVES | {T.BFLOAT16}
NUMBERS: set[int] = FLOATS | {T.INT32, T.INT64}
ANY: set[int] = NUMBERS | {T.BOOL}
QUANTISED: set[int] = {T.INT8, T.FLOAT8E4M3FN, T.INT4}

_LIST: tuple[tuple[set[int], str], ...] = (
    (
        FLOATS,
        """
        Acos Acosh Asin Asinh Atan Atanh AveragePool BatchNormalization Ceil Celu Clip Conv
        ConvTranspose Cos Cosh CumSum Dropout Einsum Elu Erf Exp Floor Gemm GlobalAveragePool
        GlobalLpPool GlobalMaxPool GroupNormalization GRU Hardmax HardSigmoid HardSwish
        InstanceNormalization IsInf LayerNormalization LeakyRelu Log LogSoftmax LpNormalization
        LpPool LRN LSTM MatMul MaxPool MeanVarianceNormalization Pow PRelu QuantizeLinear RandomNormal
        RandomNormalLike RandomUniform RandomUniformLike Reciprocal Resize RNN Round Scan Selu
        Sigmoid Sin Sinh Softmax Softplus Softsign Sqrt Tan Tanh ThresholdedRelu Upsample
        """,
    ),
    (HALVES, "GridSample Mish NonMaxSuppression NonZero RoiAlign"),
    (
        NUMBERS,
        """
        Abs Add ArgMax ArgMin DepthToSpace Div Equal Gelu Greater GreaterOrEqual IsNaN Less
        LessOrEqual Max Mean Min Mod Mul Neg Pad Range ReduceL1 ReduceL2 ReduceLogSum
        ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare Relu
        Scatter ScatterElements ScatterND Shrink Sign SpaceToDepth Sub Sum TopK
        """,
    ),
    (
        ANY,
        """
        Concat Constant ConstantOfShape Expand EyeLike Flatten Gather GatherElements GatherND
        Identity If Loop OneHot Reshape ReverseSequence Shape Size Slice Split Squeeze Tile
        Transpose Trilu Unsqueeze Where
        """,
    ),
    ({T.BOOL}, "And Not Or Xor"),
    (ANY | {T.UINT8}, "Cast CastLike"),
    (QUANTISED, "DequantizeLinear"),
)
OPERATORS = {name: types for types, names in _LIST for name in names.split()}
# The input whose type counts where it is not the first; -1: none does.
DATA = {"Where": 1, "OneHot": 2, "ConstantOfShape": -1, "If": -1, "Loop": -1}
# Inputs that must be known when the plan is built.
CONSTANT = {"CumSum": 1, "OneHot": 1, "Slice": 3, "Squeeze": 1, "Unsqueeze": 1, "Pad": 3}
CONSTANT |= {name: 1 for name in OPERATORS if name.startswith("Reduce") and name != "Reduce"}
ONE_OUTPUT = ("MaxPool", "LayerNormalization", "Dropout")
# Types of tensors between nodes: UINT8 is only for the network's own inputs and outputs.
TENSORS = ANY | QUANTISED


def unsupported(model: onnx.ModelProto) -> list[str]:
    """What the parser would refuse, a sentence each; an empty list where nothing is known against the graph.

    `model` may have any size. Checked are opset and domains, operators, the types of their data and of all
    tensors between nodes, inputs that must be constant, outputs that must be unused, and zero points.
    """
    problems = []
    for opset in model.opset_import:
        if opset.domain in ("", "ai.onnx") and opset.version not in OPSETS:
            problems.append(f"opset {opset.version} is outside of {OPSETS[0]} to {OPSETS[-1]}")
    try:
        graph = infer_shapes(model, strict=True).graph
    except shape_inference.InferenceError as error:
        return [*problems, f"its types do not agree: {error}"]
    return [*problems, *_of_graph(graph, {}, {}, top=True)]


def _of_graph(
    graph: onnx.GraphProto, types: dict[str, int], constants: dict[str, TensorProto], *, top: bool
) -> Iterator[str]:
    """`types` and `constants`: of the graphs around this one."""
    constants = constants | {weight.name: weight for weight in graph.initializer}
    types = types | {name: weight.data_type for name, weight in constants.items()}
    for value in (*graph.input, *graph.value_info, *graph.output):
        types[value.name] = value.type.tensor_type.elem_type
    for node in graph.node:
        if node.op_type == "Constant" and node.attribute and node.attribute[0].name == "value":
            constants[node.output[0]] = node.attribute[0].t
    borders = {value.name for value in (*graph.input, *graph.output)} if top else set()
    for node in graph.node:
        name = f"{node.op_type} ({node.name or node.output[0]})"
        for problem in _of_node(node, types, constants):
            yield f"{name}: {problem}"
        for tensor in node.output:
            if tensor not in borders and (kind := types.get(tensor, 0)) and kind not in TENSORS:
                yield f"{name}: gives {_name(kind)}, which no tensor between nodes may have"
        for attribute in node.attribute:
            for inner in [attribute.g] if attribute.HasField("g") else attribute.graphs:
                yield from _of_graph(inner, types, constants, top=False)


def _of_node(node: NodeProto, types: dict[str, int], constants: dict[str, TensorProto]) -> Iterator[str]:
    operator = node.op_type
    if node.domain not in ("", "ai.onnx") or operator not in OPERATORS:
        yield f"not in the list ({SOURCE})"
        return
    data = DATA.get(operator, 0)
    kind = types.get(node.input[data], 0) if 0 <= data < len(node.input) else 0
    if kind and kind not in OPERATORS[operator]:
        yield f"is given {_name(kind)} (supported: {', '.join(sorted(map(_name, OPERATORS[operator])))})"
    place = CONSTANT.get(operator)
    if (
        place is not None
        and len(node.input) > place
        and (name := node.input[place])
        and name not in constants
    ):
        yield f"its input {name} must be constant"
    if operator in ONE_OUTPUT and any(node.output[1:]):
        yield "only its first output is supported"
    if operator in ("QuantizeLinear", "DequantizeLinear") and len(node.input) > 2 and node.input[2]:
        zero = constants.get(node.input[2])
        if zero is None or np.any(numpy_helper.to_array(zero).astype(np.float32)):
            yield "its zero point must be a constant 0"


def _name(kind: int) -> str:
    return str(TensorProto.DataType.Name(kind)).lower()
