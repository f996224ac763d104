"""Builds ONNX graphs of a sentence embedder, pooling and normalisation inside.

    python build/embedding_onnx.py starter:minilm-l6-v2 --precision fp32
    python build/embedding_onnx.py path/or/hub-id --precision fp16

Which checkpoints are taken is in `steps/embedding/checkpoint.py`. FP16 is for GPUs: encoder in FP16, pooling
in FP32.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from steps.artefact import check_weights_fit, origin

from trimodal.build_support import operator_errors, progress, report, resolve_checkpoint
from trimodal.manifest import Manifest, atomic_directory, write_manifest
from trimodal.paths import artefact_root

if TYPE_CHECKING:
    import onnx

PRECISIONS = ["fp32", "fp16"]


def main() -> None:
    options = arguments()
    from steps.embedding.check import SENTENCES, compare, judge, run_torch
    from steps.embedding.checkpoint import encode, export, load, open_tokenizer, read_contract

    directory = resolve_checkpoint(options.source)
    max_length, dimension = read_contract(directory)
    source = options.source

    tokenizer = open_tokenizer(directory, max_length)
    with progress("torch reference"):
        model = load(directory)
        check_weights_fit(model, {each: options.out_dir / f"onnx-{each}" for each in options.precision})
        inputs = encode(tokenizer, SENTENCES)
        reference = run_torch(model, inputs)

    for precision in options.precision:
        target = options.out_dir / f"onnx-{precision}"
        with atomic_directory(target) as work:
            with progress(f"{precision}: export"):
                write_graph(export(model), precision, work / "model.onnx")
            shutil.copy(directory / "tokenizer.json", work)
            check = compare(work / "model.onnx", tokenizer, inputs, reference, precision)
            report(f"{target.name}: {source} against torch", check)
            judge(target.name, precision, check, options.min_cosine)
            made = Manifest(
                task="embedding",
                runtime="onnxruntime",
                runtime_version=importlib.metadata.version("onnxruntime"),
                precision=precision,
                **origin(directory, source, "embedding_onnx"),
                shapes={"dimension": dimension, "max_length": max_length},
                check=check,
            )
            write_manifest(work, made)
        print(f"wrote {target}")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("source", help="checkpoint directory or hub id")
    parser.add_argument("--precision", action="append", choices=PRECISIONS, help="repeatable; fp32")
    parser.add_argument("--min-cosine", type=float, default=0.9, help="lowest cosine with torch (0.9)")
    default = artefact_root("embedding")
    parser.add_argument("--out-dir", type=Path, default=default, help="where onnx-<precision> is put")
    options = parser.parse_args()
    options.precision = list(dict.fromkeys(options.precision or ["fp32"]))
    return options


def write_graph(model: onnx.ModelProto, precision: str, path: Path) -> None:
    """The FP32 graph, in that precision, in `path`."""
    import onnx
    from steps.embedding.checkpoint import OUTPUT, pooling
    from steps.onnx.fp16 import to_fp16

    if precision == "fp16":
        model = to_fp16(model, keep=[OUTPUT], keep_nodes=pooling(model))
    onnx.save(model, path)


if __name__ == "__main__":
    with operator_errors():
        main()
