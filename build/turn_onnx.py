"""Builds the model of turns: smart-turn v3's ONNX graph, checked with the features that it is served with.

    python build/turn_onnx.py starter:smart-turn-v3

The checkpoint is a directory with one ONNX file, "input_features" in, "logits" (with their sigmoid) out.
It is taken as it is: INT8, or FP32.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import shutil
from pathlib import Path
from typing import Any

from steps.artefact import origin

from trimodal.build_support import operator_errors, progress, report, resolve_checkpoint
from trimodal.errors import ArtefactError
from trimodal.manifest import Manifest, atomic_directory, check_room, write_manifest
from trimodal.paths import artefact_root

INPUT, OUTPUT = ("input_features", [80, 800]), ("logits", [1])
# Of features and probabilities; far below what moves a decision.
TOLERANCE = 1e-3


def main() -> None:
    options = arguments()
    directory = resolve_checkpoint(options.source)
    graph, precision = read_graph(directory)
    target = options.out_dir / f"onnx-{precision}"
    check_room(options.out_dir, graph.stat().st_size)
    with atomic_directory(target) as work:
        shutil.copy(graph, work / "model.onnx")
        with progress(f"{precision}: check"):
            check = compare(work / "model.onnx")
        report(f"{target.name}: {options.source} against transformers' features", check)
        for what, off in check.items():
            if not off <= TOLERANCE:  # so that NaN is above it
                raise ArtefactError(f"{graph.name}: {what}, is {off:.3g}: at most {TOLERANCE} is accepted")
        made = Manifest(
            task="turn",
            runtime="onnxruntime",
            runtime_version=importlib.metadata.version("onnxruntime"),
            precision=precision,
            **origin(directory, options.source, "turn_onnx"),
            check=check,
        )
        write_manifest(work, made)
    print(f"wrote {target}")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("source", help="checkpoint directory, or starter:smart-turn-v3")
    default = artefact_root("turn")
    parser.add_argument("--out-dir", type=Path, default=default, help="where onnx-<precision> is put")
    return parser.parse_args()


def read_graph(directory: Path) -> tuple[Path, str]:
    """The one graph of a checkpoint and its precision. Raises: ArtefactError: it is no model of turns."""
    import onnx

    files = sorted(directory.glob("*.onnx"))
    if len(files) != 1:
        raise ArtefactError(f"{directory} holds {len(files)} .onnx files: one is needed")
    try:
        graph = onnx.load(str(files[0])).graph
    except Exception as error:  # protobuf's and onnx's own
        raise ArtefactError(f"{files[0]} is no ONNX graph ({type(error).__name__})") from None
    for values, (name, shape) in ((graph.input, INPUT), (graph.output, OUTPUT)):
        sizes = {one.name: [dim.dim_value for dim in one.type.tensor_type.shape.dim] for one in values}
        if list(sizes) != [name] or sizes[name][1:] != shape or sizes[name][0]:
            raise ArtefactError(f"{files[0].name} has {sizes}: {name} [any, {shape}] alone is needed")
    quantised = any(node.op_type == "DequantizeLinear" for node in graph.node)
    return files[0], "int8" if quantised else "fp32"


def compare(path: Path) -> dict[str, float]:
    """Largest differences: of our features with transformers', and of a batch with its rows alone."""
    import numpy as np
    from transformers import WhisperFeatureExtractor

    from trimodal.runtimes.onnx_runner import HostRunner
    from trimodal.runtimes.onnx_session import open_session
    from trimodal.turn.engines.onnxruntime import OnnxRuntimeTurns, features
    from trimodal.turn.engines.protocol import WINDOW

    random = np.random.default_rng(0)
    sizes = (WINDOW, WINDOW // 3, 1600)
    windows = [(random.normal(0, 0.1, size) + 0.01).astype(np.float32) for size in sizes]
    extract: Any = WhisperFeatureExtractor(chunk_length=8)
    padded = [np.pad(window, (WINDOW - len(window), 0)) for window in windows]
    expected = extract(padded, sampling_rate=16_000, do_normalize=True, return_tensors="np").input_features
    turns = OnnxRuntimeTurns(HostRunner(open_session(path, device="cpu", threads=0)))
    alone = np.concatenate([turns.judge([window]) for window in windows])
    return {
        "features, largest difference": float(
            np.abs(expected - np.stack([features(window) for window in windows])).max()
        ),
        "a batch against its rows, largest difference": float(np.abs(turns.judge(windows) - alone).max()),
    }


if __name__ == "__main__":
    with operator_errors():
        main()
