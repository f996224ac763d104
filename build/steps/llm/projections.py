"""Makes one matrix of those that read the same values: query, key and value, and a feed-forward's first two.

A step of decoding multiplies one row by each matrix, and to begin with one takes the processor as long as to
read 100 KB of weights. OpenVINO's CPU plugin joins matrices by itself for AMX alone (2026.4). What fewer and
larger products gain is in docs/benchmarks.md.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np


def join_projections(model: Any) -> int:
    """Replaces products of one input by one, whose columns are split; tells how many products went.

    The weights may be compressed in any way that gives each row scales of its own. Matrices that are
    compressed unlike their neighbours, as some GGUF files have it, stay as they are.
    """
    products = defaultdict(list)
    for node in model.get_ordered_ops():
        if node.get_type_name() == "MatMul" and _is_linear(node):
            source = node.input_value(0)
            products[source.get_node().get_name(), source.get_index()].append(node)
    went = sum(len(nodes) - 1 for nodes in products.values() if len(nodes) > 1 and _join(nodes))
    model.validate_nodes_and_infer_types()
    return went


def _is_linear(node: Any) -> bool:
    """Whether it multiplies by the rows of a matrix, as torch's Linear does."""
    flags, shape = (
        node.get_attributes(),
        node.get_input_partial_shape(1),
    )  # keys of attention are of any length
    return flags["transpose_b"] and not flags["transpose_a"] and shape.is_static and len(shape) == 2


def _join(nodes: Sequence[Any]) -> bool:
    from openvino import opset13

    rows = [node.get_input_shape(1)[0] for node in nodes]
    weights = _stacked([node.input_value(1).get_node() for node in nodes], rows)
    if weights is None:
        return False
    product = opset13.matmul(nodes[0].input_value(0), weights, False, True)
    product.set_friendly_name(nodes[0].get_friendly_name())
    ends = [node.output(0) for node in nodes]
    adds = [found for node in nodes if (found := _added_bias(node))]
    if len(adds) == len(nodes):
        ends = [add.output(0) for add, _ in adds]
        product = opset13.add(product, opset13.constant(np.concatenate([bias for _, bias in adds])))
    parts = opset13.variadic_split(product, opset13.constant(np.int64(-1)), opset13.constant(np.array(rows)))
    for end, part in zip(ends, parts.outputs(), strict=True):
        end.replace(part)
    return True


def _stacked(nodes: Sequence[Any], rows: Sequence[int]) -> Any | None:
    """A node that gives the rows of all, one matrix below the other; None: they are not made alike."""
    from openvino import opset13

    if len({(node.get_type_name(), node.get_element_type().get_type_name()) for node in nodes}) > 1:
        return None
    first = nodes[0]
    kind = first.get_type_name()
    if kind == "Constant":
        return _stacked_constants(nodes, rows)
    if kind not in ("Convert", "Subtract", "Multiply", "Reshape"):
        return None
    count = 1 if kind == "Reshape" else len(first.inputs())  # its other input is the shape
    inputs = [_stacked([node.input_value(n).get_node() for node in nodes], rows) for n in range(count)]
    if None in inputs:
        return None
    if kind == "Convert":
        return opset13.convert(*inputs, first.get_element_type())
    if kind == "Reshape":
        shape = [sum(rows), *first.get_output_shape(0)[1:]]
        return opset13.reshape(*inputs, opset13.constant(np.array(shape)), special_zero=False)
    return (opset13.subtract if kind == "Subtract" else opset13.multiply)(*inputs)


def _stacked_constants(nodes: Sequence[Any], rows: Sequence[int]) -> Any | None:
    """The constants' rows, or the one that all share, as a zero point of all groups."""
    from openvino import Shape, Tensor, op

    shapes = [tuple(node.get_output_shape(0)) for node in nodes]
    data = [np.ascontiguousarray(node.data).reshape(-1).view(np.uint8) for node in nodes]
    if [shape[:1] for shape in shapes] != [(count,) for count in rows]:
        alike = len(set(shapes)) == 1 and all(np.array_equal(each, data[0]) for each in data)
        return nodes[0] if alike else None
    kind = nodes[0].get_element_type()
    if len({shape[1:] for shape in shapes}) > 1 or any(kind.bitwidth * np.prod(each) % 8 for each in shapes):
        return None
    shape = Shape([sum(rows), *shapes[0][1:]])
    return op.Constant(Tensor(np.concatenate(data), shape, kind), shared_memory=False)


def _added_bias(node: Any) -> tuple[Any, Any] | None:
    """The only reader, where it adds a number to each column, and these numbers."""
    readers = [port.get_node() for port in node.output(0).get_target_inputs()]
    if len(readers) != 1 or readers[0].get_type_name() != "Add":
        return None
    others = [value.get_node() for value in readers[0].input_values()]
    biases = [other for other in others if other.get_type_name() == "Constant"]
    if len(biases) != 1 or biases[0].get_element_type().get_type_name() != "f32":
        return None
    columns = node.get_input_shape(1)[0]
    shape = biases[0].get_output_shape(0)
    return (
        (readers[0], biases[0].data.reshape(-1)) if [*shape][-1:] == [columns] == [np.prod(shape)] else None
    )
