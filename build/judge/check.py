"""Writes the judge's graphs and compares them with torch on the held-out pairs."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from judge.model import OUTPUT, CrossEncoder, Inputs, as_read, encode
from judge.pairs import Example

from trimodal.cache.models import in_order
from trimodal.errors import ArtefactError
from trimodal.judge.alignment import differ_untold
from trimodal.judge.readings import alike

if TYPE_CHECKING:
    import onnx
    from tokenizers import Tokenizer

Logits = npt.NDArray[np.float64]
BATCH = 32
SURE = 80.0  # a logit whose probability is 1
COMPARED = 1000  # held-out pairs that torch reads as well: it takes its time
INT8_INPUTS = 4  # of MatMulNBits' `accuracy_level`: computes in INT8
MIN_AGREEMENT = {"fp32": 0.99, "int8": 0.98}
MAX_LOGIT_ERROR = {"fp32": 1e-3, "int8": math.inf}  # INT8 is judged by the labels that it gives


def write_graph(model: onnx.ModelProto, precision: str, path: Path) -> None:
    """The FP32 graph, or with INT8 weights, embeddings too, and activations measured at run time."""
    import onnx

    onnx.save(model, path)
    if precision == "int8":
        quantise(path)


@contextmanager
def without_advice() -> Iterator[None]:
    """Keeps ONNX Runtime's quantiser from advising a preparation that changes nothing here (root logger).

    Nothing below ERROR is logged meanwhile; as a decorator, while the function runs.
    """
    root = logging.getLogger()
    level = root.level
    root.setLevel(logging.ERROR)
    try:
        yield
    finally:
        root.setLevel(level)


@without_advice()
def quantise(path: Path) -> None:
    """Stores weights in 8 bits: of layers a scale for each 128 of an output's, of embeddings one for a table.

    A layer's inputs are brought to 8 bits as they come, each 128 of a token's with a scale of their own: a
    few of them are very large, and one scale for all serves the others badly (on 1,246 pairs the mean error
    of a logit was 0.17 so, and is 0.05). And no pair of a batch moves another's score.
    """
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic
    from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer
    from onnxruntime.quantization.shape_inference import quant_pre_process

    prepared = path.with_name("prepared.onnx")
    with without_advice():  # once more: importing the second of these lets everybody log (ONNX Runtime 1.31)
        quant_pre_process(str(path), str(prepared), skip_symbolic_shape=True)
        layers = MatMulNBitsQuantizer(
            onnx.load(prepared), bits=8, block_size=128, is_symmetric=True, accuracy_level=INT8_INPUTS
        )
        layers.process()
        onnx.save(layers.model.model, prepared)
        quantize_dynamic(
            str(prepared), str(path), weight_type=QuantType.QInt8, op_types_to_quantize=["Gather"]
        )
    prepared.unlink()


def run_torch(model: CrossEncoder, inputs: Inputs) -> Logits:
    """Logits [N]."""
    import torch

    with torch.inference_mode():
        found = model(**{name: torch.from_numpy(value) for name, value in inputs.items()})
    return np.asarray(found.numpy(), np.float64)


class Graph:
    """A built graph, run by ONNX Runtime."""

    def __init__(self, path: Path, threads: int = 2) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        self._session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])

    def run(self, inputs: Inputs) -> Logits:
        """Logits [N]."""
        return np.asarray(self._session.run([OUTPUT], inputs)[0], np.float64)


def logits(
    judge: CrossEncoder | Graph, tokenizer: Tokenizer, examples: Sequence[Example]
) -> npt.NDArray[np.float64]:
    """Logits [N] of the pairs, in the order that the cache asks in; batches hold pairs of like length.

    Those that are read alike need no model, nor do those that no token tells apart, as in the engine.
    """
    found = np.empty(len(examples))
    order = sorted(range(len(examples)), key=lambda at: len(examples[at].a) + len(examples[at].b))
    for start in range(0, len(order), BATCH):
        rows = order[start : start + BATCH]
        inputs = encode(tokenizer, [in_order(examples[at].a, examples[at].b) for at in rows])
        found[rows] = judge.run(inputs) if isinstance(judge, Graph) else run_torch(judge, inputs)
    texts = as_read(tokenizer, [in_order(each.a, each.b) for each in examples])
    told = zip(tokenizer.encode_batch(texts), texts, strict=True)
    found[[differ_untold(pair, each) for pair, each in told]] = -SURE
    found[[alike(one, other) for one, other in texts]] = SURE
    return found


def probabilities(found: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """P(same) [N] of logits."""
    same: npt.NDArray[np.float64] = 1 / (1 + np.exp(-found))
    return same


def compare(found: npt.NDArray[np.float64], reference: npt.NDArray[np.float64]) -> dict[str, Any]:
    """Figures of logits against torch's."""
    return {
        "compared": reference.size,
        "max_logit_error": float(np.abs(found - reference).max()),
        "mean_logit_error": float(np.abs(found - reference).mean()),
        "label_agreement": float(((found > 0) == (reference > 0)).mean()),
    }


def refuse(name: str, precision: str, figures: dict[str, Any], min_agreement: float | None) -> None:
    """Raises: ArtefactError where a figure is out of bounds."""
    error, limit = figures["max_logit_error"], MAX_LOGIT_ERROR[precision]
    if not error <= limit:
        raise ArtefactError(f"{name} not written: max_logit_error {error:.2g} is above {limit:g}")
    least = MIN_AGREEMENT[precision] if min_agreement is None else min_agreement
    if not figures["label_agreement"] >= least:
        raise ArtefactError(
            f"{name} not written: it gives torch's label to {figures['label_agreement']:.2%} of the held-out "
            f"pairs, less than --min-agreement {least:g}"
        )
