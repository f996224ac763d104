"""Reads a sentence embedder's checkpoint, its torch model with pooling on top, and exports it in FP32.

BERT encoders that pool by the mean are taken. Precisions are made in `embedding_onnx.py`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from steps.artefact import read_json, reason
from steps.llm.checkpoint import quiet, refuse_missing, unreadable

from trimodal.errors import ArtefactError

if TYPE_CHECKING:
    import onnx
    import torch
    from tokenizers import Tokenizer

INPUTS, OUTPUT = ("input_ids", "attention_mask"), "sentence_embedding"
Inputs = dict[str, npt.NDArray[np.int64]]


def read_contract(directory: Path) -> tuple[int, int]:
    """Longest sequence and vector size. Raises: ArtefactError: no BERT encoder with mean pooling."""
    for name in ("config.json", "tokenizer.json"):
        if not (directory / name).is_file():
            raise ArtefactError(f"{directory} is not a sentence embedder: it lacks {name}")
    config = read_json(directory / "config.json")
    if config.get("model_type") != "bert":
        raise ArtefactError(
            f"{directory}/config.json: model_type {config.get('model_type')!r}; bert is supported"
        )
    _check_modules(directory)
    try:
        longest, size = int(config["max_position_embeddings"]), int(config["hidden_size"])
        told = read_json(directory / "sentence_bert_config.json").get("max_seq_length") or longest
        return min(int(told), longest), size
    except (KeyError, TypeError, ValueError) as error:
        raise ArtefactError(f"{directory}: its configuration lacks or garbles a size ({error})") from None


def _check_modules(directory: Path) -> None:
    """Refuses by name what sentence-transformers would compute otherwise. Raises: ArtefactError."""
    file = directory / "modules.json"
    folders: dict[str, str] = {}  # kind → where it lies
    try:
        for module in json.loads(file.read_bytes()) if file.is_file() else ():
            folders[module["type"].rpartition(".")[2]] = module.get("path") or ""
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise ArtefactError(f"{file} is no readable list of modules") from None
    if others := sorted(set(folders) - {"Transformer", "Pooling", "Normalize"}):
        raise ArtefactError(f"{file}: a module {others[0]!r} is not supported")
    pooling = directory / folders.get("Pooling", "1_Pooling") / "config.json"
    modes = [name for name, chosen in read_json(pooling).items() if "pooling_mode" in name and chosen]
    if pooling.is_file() and modes != ["pooling_mode_mean_tokens"]:
        raise ArtefactError(f"{pooling}: only pooling by the mean is supported")
    if read_json(directory / "sentence_bert_config.json").get("do_lower_case"):
        normalizer = read_json(directory / "tokenizer.json").get("normalizer") or {}
        if not _lowers(normalizer):  # else it does so itself
            raise ArtefactError(f"{directory}/sentence_bert_config.json: do_lower_case is not supported")
    prompts = read_json(directory / "config_sentence_transformers.json")
    if (prompts.get("prompts") or {}).get(prompts.get("default_prompt_name")):
        raise ArtefactError(
            f"{directory}/config_sentence_transformers.json: default_prompt_name is not supported: "
            "clients put a prompt before their texts"
        )


def _lowers(normalizer: dict[str, Any]) -> bool:
    """Whether a tokenizer's normalizer, or one that it consists of, makes letters small."""
    if normalizer.get("type") == "Lowercase" or normalizer.get("lowercase"):
        return True
    return any(_lowers(one) for one in normalizer.get("normalizers", ()))


def open_tokenizer(directory: Path, max_length: int) -> Tokenizer:
    """The tokenizer, which cuts at `max_length` and pads. Raises: ArtefactError: damaged."""
    from tokenizers import Tokenizer

    try:
        tokenizer = Tokenizer.from_file(str(directory / "tokenizer.json"))
    except Exception as error:  # The library has no base for its errors.
        raise ArtefactError(f"{directory}/tokenizer.json cannot be read: {reason(error)}") from None
    tokenizer.enable_truncation(max_length)
    tokenizer.enable_padding()
    return tokenizer


def load(directory: Path) -> torch.nn.Module:
    """BERT with mean pooling and normalisation on top: (input_ids, attention_mask) → unit vectors.

    Raises: ArtefactError: its weights are damaged, or none are there.
    """
    quiet()
    import torch
    from transformers import BertModel

    class SentenceEmbedder(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            loaded: Any = BertModel.from_pretrained(
                directory, add_pooling_layer=False, attn_implementation="eager", dtype=torch.float32,
                output_loading_info=True,
            )  # fmt: skip
            self.bert, loading = loaded
            refuse_missing(directory.name, loading)

        def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
            mask = attention_mask
            if torch.onnx.is_in_onnx_export():
                # Written out for the exporter, which cannot follow transformers' own way to this mask.
                mask = (1.0 - mask[:, None, None, :].float()) * torch.finfo(torch.float32).min
            hidden = self.bert(input_ids=input_ids, attention_mask=mask).last_hidden_state
            weight = attention_mask.unsqueeze(-1).to(hidden.dtype)
            mean = (hidden * weight).sum(1) / weight.sum(1).clamp(min=1e-9)
            return torch.nn.functional.normalize(mean, dim=1)

    try:
        return SentenceEmbedder().eval()
    except ArtefactError:
        raise
    except Exception as error:  # Of many kinds.
        raise unreadable(directory, error) from None


def encode(tokenizer: Tokenizer, texts: Sequence[str]) -> Inputs:
    """`input_ids` and `attention_mask` int64[N, T], padded to the longest."""
    encodings = tokenizer.encode_batch(list(texts))
    return {
        "input_ids": np.array([encoding.ids for encoding in encodings], np.int64),
        "attention_mask": np.array([encoding.attention_mask for encoding in encodings], np.int64),
    }


def export(model: torch.nn.Module) -> onnx.ModelProto:
    """Inputs int64 [batch, length] → `sentence_embedding` float32 [batch, d]; batch and length free."""
    import torch
    from steps.onnx.trace import trace

    example = torch.ones(2, 7, dtype=torch.int64)
    axes = {name: {0: "batch", 1: "length"} for name in INPUTS} | {OUTPUT: {0: "batch"}}
    return trace(model, (example, example), (INPUTS, [OUTPUT]), axes, opset=17)


def pooling(model: onnx.ModelProto) -> list[str]:
    """Names of the nodes behind the encoder, and of those that only they use: sums over a whole text.

    They are few, and cheap: in FP32 their sums and tiny bounds (1e-12) stay what they are.
    """
    graph = model.graph
    last = [node for node in graph.node if node.op_type == "LayerNormalization"][-1]
    reached, chosen = {last.output[0]}, set()
    for node in graph.node:  # in the order of computation
        if reached & set(node.input):
            reached |= set(node.output)
            chosen.add(node.name)
    users: dict[str, set[str]] = {}
    for node in graph.node:
        for name in node.input:
            users.setdefault(name, set()).add(node.name)
    for node in reversed(graph.node):
        used_by = {user for name in node.output for user in users.get(name, set())}
        if used_by and used_by <= chosen and node is not last:
            chosen.add(node.name)
    return [node.name for node in graph.node if node.name in chosen and node.name != last.name]
