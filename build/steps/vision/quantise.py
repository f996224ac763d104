"""Quantises a classifier to INT8 for CPUs (ONNX Runtime): Q/DQ with zero points and quantised biases.

TensorRT wants another form; see `steps/onnx/qdq.py`.
"""

from __future__ import annotations

from pathlib import Path

import onnx
from steps.onnx.logs import without_advice
from steps.vision.export import INPUT, normalisation_nodes

from trimodal.build_support import progress
from trimodal.vision.engines.protocol import Pixels

BATCH = 16


@without_advice()
def quantise(path: Path, pixels: Pixels, *, activations: str, reduce_range: bool) -> None:
    """INT8 in place of the FP32 graph in `path`: weights per channel, activations by the range they reach.

    Args:
        activations: u8 or s8.
        reduce_range: 7-bit weights, for CPUs without VNNI, whose sums would overflow.
    """
    from onnxruntime import quantization as q
    from onnxruntime.quantization.shape_inference import quant_pre_process

    starts = range(0, len(pixels), BATCH)
    prepared = path.with_name("prepared.onnx")
    quant_pre_process(str(path), str(prepared), skip_symbolic_shape=True)
    with progress(f"int8: calibrate on {len(pixels)} images", len(starts)) as advance:

        class Reader(q.CalibrationDataReader):  # type: ignore[misc]  # the library has no types
            def __init__(self) -> None:
                self._batches = iter([pixels[start : start + BATCH] for start in starts])

            def get_next(self) -> dict[str, Pixels] | None:
                batch = next(self._batches, None)
                if batch is None:
                    return None
                advance()
                return {INPUT: batch}

        q.quantize_static(
            str(prepared),
            str(path),
            Reader(),
            quant_format=q.QuantFormat.QDQ,
            per_channel=True,
            reduce_range=reduce_range,
            activation_type=q.QuantType.QUInt8 if activations == "u8" else q.QuantType.QInt8,
            weight_type=q.QuantType.QInt8,
            nodes_to_exclude=normalisation_nodes(onnx.load(prepared)),
        )
    prepared.unlink()
