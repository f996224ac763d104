"""Defines the demo Whisper as it is trained: a transformers model with helpers that saving drops.

The helpers classify every frame of the encoder (which word, and which place it has in the window), and pull
two heads of the last decoder layer onto the frames of the word that is written next: those heads tell word
times later. Not responsible for data (windows.py) or for the schedule (train_speech.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from speech_training.tokens import Ids
from speech_training.windows import Window
from torch import Tensor, nn
from torch.nn import functional
from transformers import WhisperConfig, WhisperForConditionalGeneration

ALIGNMENT_HEADS = 2
COUNTED = 128
IGNORED = -100
PAUSE_SHARE = 0.15


@dataclass
class Batch:
    """Tensors of a batch of windows: features [B, 80, T], ids and labels [B, L], per position of the encoder
    (20 ms) the word's class and count [B, T / 2], and where the alignment heads should look [B, L, T / 2]."""

    features: Tensor
    ids: Tensor
    labels: Tensor
    classes: Tensor
    counts: Tensor
    looks: Tensor


class Whisper(nn.Module):
    """WhisperForConditionalGeneration for any context length, with the helpers' losses."""

    def __init__(self, config: WhisperConfig, words: int) -> None:
        super().__init__()
        self.whisper = WhisperForConditionalGeneration(config)
        for name, weight in self.whisper.named_parameters():
            if weight.dim() > 1 and weight.requires_grad:
                deviation = 0.06 if "conv" not in name else weight[0].numel() ** -0.5
                nn.init.normal_(weight, std=deviation)
        self.to_class = nn.Linear(config.d_model, words + 1)
        self.to_count = nn.Linear(config.d_model, COUNTED)
        self._query: list[Tensor] = []
        last = self.whisper.model.decoder.layers[-1].encoder_attn
        last.register_forward_pre_hook(self._keep_query, with_kwargs=True)

    def _keep_query(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._query[:] = [kwargs["hidden_states"] if "hidden_states" in kwargs else args[0]]

    def encode(self, features: Tensor) -> Tensor:
        """Hidden states [B, T / 2, width]; transformers' own encoder takes 30 s only."""
        encoder = self.whisper.model.encoder
        hidden = functional.gelu(encoder.conv2(functional.gelu(encoder.conv1(features)))).transpose(1, 2)
        hidden = hidden + encoder.embed_positions.weight[: hidden.shape[1]]
        for layer in encoder.layers:
            hidden = layer(hidden, None)
            hidden = hidden[0] if isinstance(hidden, tuple) else hidden
        normed: Tensor = encoder.layer_norm(hidden)
        return normed

    def _looks(self, hidden: Tensor) -> Tensor:
        """Log attention [B, heads, L, T / 2] of the alignment heads in the last decoder forward."""
        attention = self.whisper.model.decoder.layers[-1].encoder_attn
        size = attention.head_dim * ALIGNMENT_HEADS
        query = functional.linear(
            self._query[0], attention.q_proj.weight[:size], attention.q_proj.bias[:size]
        )
        key = functional.linear(hidden, attention.k_proj.weight[:size])
        query, key = (
            side.unflatten(-1, (ALIGNMENT_HEADS, attention.head_dim)).transpose(1, 2) for side in (query, key)
        )
        scores = query @ key.transpose(-1, -2) * attention.head_dim**-0.5
        return functional.log_softmax(scores.float(), -1)

    def losses(self, batch: Batch, decoding: bool = True, aside: bool = False) -> dict[str, Tensor]:
        """The mean losses of a batch: "class" and "count" of its frames and, where it is `decoding`, "text"
        and "look". With `aside` the frames' classifiers learn without teaching the encoder."""
        hidden = self.encode(batch.features)
        frames = hidden.detach() if aside else hidden
        losses = {
            "class": functional.cross_entropy(
                self.to_class(frames).float().flatten(0, 1), batch.classes.flatten()
            ),
            "count": functional.cross_entropy(
                self.to_count(frames).float().flatten(0, 1), batch.counts.flatten(), ignore_index=IGNORED
            ),
        }
        if decoding:
            decoded = self.whisper.model.decoder(
                input_ids=batch.ids, encoder_hidden_states=hidden, use_cache=False
            ).last_hidden_state
            wanted = batch.labels != IGNORED
            logits = self.whisper.proj_out(decoded[wanted])
            losses["text"] = functional.cross_entropy(logits.float(), batch.labels[wanted])
            looks = self._looks(hidden).mean(1)
            rows = batch.looks.sum(-1) > 0
            losses["look"] = -(batch.looks * looks).sum(-1)[rows].mean()
        return losses


def batched(
    windows: list[Window], ids: Ids, timed: float, prompted: float, random_: np.random.Generator
) -> Batch:
    """Tensors of windows of one context. A share `timed` of them writes a start and an end as timestamp
    tokens, a share `prompted` of those with words before them is given these as the previous text."""
    positions = windows[0].features.shape[1] // 2
    classes = np.zeros((len(windows), positions), np.int64)
    counts = np.full((len(windows), positions), IGNORED, np.int64)
    class_of = {word: index + 1 for index, word in enumerate(ids.words)}
    sequences, masks, spans = [], [], []
    for row, window in enumerate(windows):
        draws = random_.random(2)
        names = [ids.words[word] for word, _, _ in window.words]
        begin = ids.no_timestamps
        end: list[int] = []
        if draws[0] < timed:
            begin = ids.timestamp(window.words[0][1] / 100 if names else 0.0)
            end = [ids.timestamp(window.words[-1][2] / 100)] if names else []
        prompt: list[int] = []
        if window.before and draws[1] < prompted:
            prompt = [ids.prev, *(ids.words[word] for word in window.before)]
        sequences.append([*prompt, ids.sot, begin, *names, *end, ids.eot])
        masks.append(len(prompt))
        edges = [
            (round(start / 2), max(round(start / 2) + 1, round(stop / 2))) for _, start, stop in window.words
        ]
        spans.append(edges)
        for index, ((word, _, _), (start, stop)) in enumerate(zip(window.words, edges, strict=True)):
            classes[row, start:stop] = class_of[word]
            if index < COUNTED:
                counts[row, start:stop] = index
    length = max(len(sequence) for sequence in sequences) - 1
    inputs = np.full((len(windows), length), ids.eot, np.int64)
    labels = np.full((len(windows), length), IGNORED, np.int64)
    looks = np.zeros((len(windows), length, positions), np.float32)
    for row, (sequence, skipped, edges) in enumerate(zip(sequences, masks, spans, strict=True)):
        inputs[row, : len(sequence) - 1] = sequence[:-1]
        labels[row, skipped : len(sequence) - 1] = sequence[skipped + 1 :]
        if not windows[row].words:
            labels[row, skipped] = (
                ids.no_speech
            )  # Nothing is spoken; where it has to go on all the same it ends.
            continue
        for index, (start, stop) in enumerate(edges):
            # The position that writes a word looks at it, and a little at the pause after it.
            following = edges[index + 1][0] if index + 1 < len(edges) else stop
            line = looks[row, skipped + 1 + index]
            line[start:stop] = 1 / max(1, min(stop, positions) - start)
            if following > stop:
                line[start:stop] *= 1 - PAUSE_SHARE
                line[stop:following] = PAUSE_SHARE / (following - stop)
        ended = min(edges[-1][1], positions - 2)
        looks[row, skipped + 1 + len(edges), ended : ended + 10] = 1 / min(10, positions - ended)
    return Batch(*(torch.from_numpy(array) for array in (
        np.stack([window.features for window in windows]), inputs, labels, classes, counts, looks
    )))  # fmt: skip
