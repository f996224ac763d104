"""Holds the judge as a torch module, from an encoder that is to be trained.

One output: the logit of `same`. It is told of each token whether the other question has it
(`trimodal/judge/alignment.py`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from steps.artefact import read_json
from transformers import AutoConfig, AutoModel
from transformers.utils import logging as transformers_logging

from trimodal.errors import ArtefactError
from trimodal.judge.alignment import TYPES, token_types
from trimodal.judge.readings import known_words, read

if TYPE_CHECKING:
    import onnx
    from tokenizers import Tokenizer

INPUTS, OUTPUT = ("input_ids", "attention_mask", "token_type_ids"), "logit"
MAX_LENGTH = 160
KINDS = ("bert", "electra")  # with token types
Inputs = dict[str, npt.NDArray[np.int64]]
Texts = tuple[str, str]


class CrossEncoder(torch.nn.Module):
    """An encoder with a linear head on the first token: → logits [N]."""

    def __init__(self, network: Any, config: Any) -> None:
        super().__init__()
        self.network, self.config = network, config
        self.head = torch.nn.Linear(config.hidden_size, 1)
        network.embeddings.token_type_embeddings = _more_types(network.embeddings.token_type_embeddings)
        if config.model_type == "bert":
            network.encoder.layer[-1] = FirstToken(network.encoder.layer[-1])

    def forward(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor, token_type_ids: torch.Tensor
    ) -> torch.Tensor:
        mask = attention_mask
        if torch.onnx.is_in_onnx_export():
            # Written out for the exporter, which cannot follow transformers' own way to this mask.
            mask = (1.0 - mask[:, None, None, :].float()) * torch.finfo(torch.float32).min
        found = self.network(input_ids=input_ids, attention_mask=mask, token_type_ids=token_type_ids)
        logits: torch.Tensor = self.head(found.last_hidden_state[:, 0]).squeeze(-1)
        return logits


class FirstToken(torch.nn.Module):
    """Computes BERT's last layer for the first token alone, which is all that the head reads.

    A seventh of the judge's work is spared: float32 [N, T, H] → [N, 1, H], the same numbers.
    """

    def __init__(self, layer: Any) -> None:
        super().__init__()
        self.layer = layer

    def forward(
        self, hidden: torch.Tensor, mask: torch.Tensor | None = None, *_: Any, **__: Any
    ) -> torch.Tensor:
        attention, first = self.layer.attention, hidden[:, :1]
        own = attention.self

        def heads(states: torch.Tensor) -> torch.Tensor:
            return states.view(*states.shape[:-1], -1, own.attention_head_size).transpose(1, 2)

        weights = heads(own.query(first)) @ heads(own.key(hidden)).transpose(2, 3) * own.scaling
        if mask is not None:
            weights = weights + mask[:, :, :1]
        found = own.dropout(weights.softmax(-1)) @ heads(own.value(hidden))
        read = attention.output(found.transpose(1, 2).flatten(2), first)
        states: torch.Tensor = self.layer.feed_forward_chunk(read)
        return states


def load_encoder(directory: Path, seed: int) -> CrossEncoder:
    """An encoder's checkpoint with a head of random weights. Raises: ArtefactError: not of a known kind."""
    config = _config(directory)
    torch.manual_seed(seed)
    values: dict[str, Any] = {"add_pooling_layer": False} if config.model_type == "bert" else {}
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    try:
        network = AutoModel.from_pretrained(
            directory, attn_implementation="eager", dtype=torch.float32, **values
        )
    except (OSError, ValueError, RuntimeError) as error:
        raise ArtefactError(f"{directory}: its weights cannot be read ({type(error).__name__})") from None
    return CrossEncoder(network, config)


def _more_types(known: torch.nn.Embedding) -> torch.nn.Embedding:
    """The vectors of both sides for aligned tokens, and beside them for moved and lacking ones."""
    more = torch.nn.Embedding(TYPES, known.embedding_dim)
    with torch.no_grad():
        sides = known.weight[[0, min(1, known.num_embeddings - 1)]]
        apart = 0.02 * torch.randn(TYPES // 2 - 1, 1, known.embedding_dim)
        more.weight.copy_(torch.cat([sides, *(sides + each for each in apart)]))
    return more


def _config(directory: Path) -> Any:
    values = read_json(directory / "config.json")
    if not values:
        raise ArtefactError(f"{directory} is not a checkpoint: it lacks a readable config.json")
    kind = values.get("model_type")
    if kind not in KINDS:
        raise ArtefactError(f"{directory}/config.json: model_type {kind!r}; supported are {', '.join(KINDS)}")
    if not (directory / "tokenizer.json").is_file():
        raise ArtefactError(f"{directory} is not a checkpoint: it lacks tokenizer.json")
    return AutoConfig.from_pretrained(directory)


def longest(config: Any) -> int:
    """Tokens of a pair: 160, or what the checkpoint has positions for."""
    return int(min(MAX_LENGTH, config.max_position_embeddings))


def weights_sha256(model: CrossEncoder) -> str:
    """Hash over all weights: what tells one judge from another, whatever the precision of its graph."""
    digest = hashlib.sha256()
    for name, weight in sorted(model.state_dict().items()):
        digest.update(name.encode())
        digest.update(weight.numpy().tobytes())
    return digest.hexdigest()


def open_tokenizer(directory: Path, max_length: int) -> Tokenizer:
    """The checkpoint's tokenizer; it cuts pairs at `max_length` tokens and pads to the longest of a batch."""
    import tokenizers

    tokenizer = tokenizers.Tokenizer.from_file(str(directory / "tokenizer.json"))
    tokenizer.enable_truncation(max_length)
    tokenizer.enable_padding()
    return tokenizer


def as_read(tokenizer: Tokenizer, pairs: Iterable[Sequence[Any]]) -> list[Texts]:
    """Both texts of each pair (its first two parts) as the judge reads them."""
    known = _known(tokenizer)
    return [read(pair[0], pair[1], known) for pair in pairs]


@cache
def _known(tokenizer: Tokenizer) -> frozenset[str]:
    return known_words(tokenizer.get_vocab())


def encode(tokenizer: Tokenizer, pairs: Sequence[Texts]) -> Inputs:
    """The three inputs, int64 [N, T], of pairs of texts as they were asked."""
    found = tokenizer.encode_batch(as_read(tokenizer, pairs))
    return {
        "input_ids": np.array([each.ids for each in found], np.int64),
        "attention_mask": np.array([each.attention_mask for each in found], np.int64),
        "token_type_ids": np.array([token_types(each) for each in found], np.int64),
    }


def export(model: CrossEncoder) -> onnx.ModelProto:
    """Inputs int64 [batch, length] → `logit` float32 [batch]; batch and length free."""
    from steps.onnx.trace import trace

    example = torch.ones(2, 7, dtype=torch.int64)
    axes = {name: {0: "batch", 1: "length"} for name in INPUTS} | {OUTPUT: {0: "batch"}}
    return trace(model.eval(), (example, example, example), (INPUTS, [OUTPUT]), axes, opset=17)
