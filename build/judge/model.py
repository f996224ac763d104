"""Holds the judge as a torch module, from an encoder that is to be trained or a published cross-encoder.

One output: the logit of `same`. One that is trained here is told of each token whether the other question has
it (`trimodal/judge/alignment.py`). A published one may tell it with one label, or with two or three of which
one is `same`; its logit is then that label's against all others, so that sigmoid gives its softmax.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from transformers import AutoConfig, AutoModel, AutoModelForSequenceClassification
from transformers.utils import logging as transformers_logging

from trimodal.errors import ArtefactError
from trimodal.judge.alignment import TYPES, token_types
from trimodal.judge.readings import known_words, read

if TYPE_CHECKING:
    import onnx
    from tokenizers import Tokenizer

INPUTS, OUTPUT = ("input_ids", "attention_mask", "token_type_ids"), "logit"
MAX_LENGTH = 160
KINDS = ("bert", "electra", "roberta", "xlm-roberta", "distilbert", "mpnet")
WITHOUT_TYPES = ("roberta", "xlm-roberta", "distilbert", "mpnet")
NAMES_OF_SAME = ("entailment", "duplicate", "paraphrase", "equivalent", "same")
Inputs = dict[str, npt.NDArray[np.int64]]
Texts = tuple[str, str]


class CrossEncoder(torch.nn.Module):
    """An encoder with a linear head on the first token, or a published classifier as it is: → logits [N].

    Attributes:
        aligned: whether its token types are those of `trimodal/judge/alignment.py`.
    """

    def __init__(self, network: Any, config: Any, same: int | None = None) -> None:
        super().__init__()
        self.network, self.same, self.config = network, same, config
        self.published = same is not None
        self.aligned = not self.published and config.model_type not in WITHOUT_TYPES
        if not self.published:
            self.head = torch.nn.Linear(config.hidden_size, 1)
        if self.aligned:
            network.embeddings.token_type_embeddings = _more_types(network.embeddings.token_type_embeddings)
        if not self.published and config.model_type == "bert":
            network.encoder.layer[-1] = FirstToken(network.encoder.layer[-1])

    def forward(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor, token_type_ids: torch.Tensor
    ) -> torch.Tensor:
        mask = attention_mask
        if torch.onnx.is_in_onnx_export():
            # Written out for the exporter, which cannot follow transformers' own way to this mask.
            mask = (1.0 - mask[:, None, None, :].float()) * torch.finfo(torch.float32).min
        given: dict[str, torch.Tensor] = {"input_ids": input_ids, "attention_mask": mask}
        if self.config.model_type not in WITHOUT_TYPES:
            given["token_type_ids"] = token_type_ids
        found = self.network(**given)
        if not self.published:
            logits: torch.Tensor = self.head(found.last_hidden_state[:, 0]).squeeze(-1)
            return logits
        scores: torch.Tensor = found.logits
        if scores.shape[1] == 1:
            return scores[:, 0]
        others = [label for label in range(scores.shape[1]) if label != self.same]
        return scores[:, self.same] - scores[:, others].logsumexp(1)


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
    return CrossEncoder(_read(AutoModel, directory, values), config)


def _more_types(known: torch.nn.Embedding) -> torch.nn.Embedding:
    """The vectors of both sides for aligned tokens, and beside them for moved and lacking ones."""
    more = torch.nn.Embedding(TYPES, known.embedding_dim)
    with torch.no_grad():
        sides = known.weight[[0, min(1, known.num_embeddings - 1)]]
        apart = 0.02 * torch.randn(TYPES // 2 - 1, 1, known.embedding_dim)
        more.weight.copy_(torch.cat([sides, *(sides + each for each in apart)]))
    return more


def load_published(directory: Path, same: str | None) -> CrossEncoder:
    """A published classifier; `same`: name or number of the label that says so.

    Raises:
        ArtefactError: it is none, or which of its labels is `same` cannot be told.
    """
    config = _config(directory)
    if not any("SequenceClassification" in name for name in config.architectures or ()):
        raise ArtefactError(f"--cross-encoder {directory.name}: its config.json names no sequence classifier")
    label = _label_of_same({int(key): str(name) for key, name in config.id2label.items()}, same)
    return CrossEncoder(_read(AutoModelForSequenceClassification, directory, {}), config, label).eval()


def _label_of_same(names: dict[int, str], asked: str | None) -> int:
    if len(names) == 1:
        return 0
    told = ", ".join(f"{number} {name}" for number, name in sorted(names.items()))
    if len(names) > 3:
        raise ArtefactError(f"--cross-encoder: {len(names)} labels ({told}); 1, 2 or 3 are supported")
    wanted = (asked,) if asked is not None else NAMES_OF_SAME
    found = [
        number for number, name in names.items() if name.lower() in wanted or asked in (name, str(number))
    ]
    if len(found) != 1:
        raise ArtefactError(f"--same-label {asked or ''}: say which label is same: {told}")
    return found[0]


def _config(directory: Path) -> Any:
    try:
        values = json.loads((directory / "config.json").read_text())
        kind = values.get("model_type")
    except (OSError, ValueError, AttributeError):
        raise ArtefactError(f"{directory} is not a checkpoint: it lacks a readable config.json") from None
    if kind not in KINDS:
        raise ArtefactError(f"{directory}/config.json: model_type {kind!r}; supported are {', '.join(KINDS)}")
    if not (directory / "tokenizer.json").is_file():
        raise ArtefactError(f"{directory} is not a checkpoint: it lacks tokenizer.json")
    return AutoConfig.from_pretrained(directory)


def _read(kind: Any, directory: Path, values: dict[str, Any]) -> torch.nn.Module:
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    try:
        found: torch.nn.Module = kind.from_pretrained(
            directory, attn_implementation="eager", dtype=torch.float32, **values
        )
    except (OSError, ValueError, RuntimeError) as error:
        raise ArtefactError(f"{directory}: its weights cannot be read ({type(error).__name__})") from None
    return found


def longest(config: Any) -> int:
    """Tokens of a pair: 160, or what the checkpoint has positions for."""
    held = config.max_position_embeddings - (2 if "roberta" in config.model_type else 0)
    return int(min(MAX_LENGTH, held))


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


def encode(tokenizer: Tokenizer, pairs: Sequence[Texts], aligned: bool) -> Inputs:
    """The three inputs, int64 [N, T], of pairs of texts as they were asked."""
    found = tokenizer.encode_batch(as_read(tokenizer, pairs))
    return {
        "input_ids": np.array([each.ids for each in found], np.int64),
        "attention_mask": np.array([each.attention_mask for each in found], np.int64),
        "token_type_ids": np.array(
            [token_types(each) if aligned else each.type_ids for each in found], np.int64
        ),
    }


def export(model: CrossEncoder) -> onnx.ModelProto:
    """Inputs int64 [batch, length] → `logit` float32 [batch]; batch and length free."""
    from onnx import TensorProto, helper
    from steps.onnx.trace import trace

    example = torch.ones(2, 7, dtype=torch.int64)
    axes = {name: {0: "batch", 1: "length"} for name in INPUTS} | {OUTPUT: {0: "batch"}}
    graph = trace(model.eval(), (example, example, example), (INPUTS, [OUTPUT]), axes, opset=17)
    present = {value.name for value in graph.graph.input}
    for name in INPUTS:
        if name not in present:  # A kind without token types: the caller gives them nevertheless.
            graph.graph.input.append(
                helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "length"])
            )
    return graph
