"""Compares a built Whisper with the torch checkpoint that it came from, on the same audio.

Torch decodes every window once, greedily; each artefact is then compared in what its
runtime encodes and writes, and in the words that the serving engine makes of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from steps.artefact import refuse_below, tell_check
from steps.speech.audio import Recording
from steps.speech.checkpoint import Checkpoint

from trimodal.audio.values import Samples
from trimodal.audio.word_errors import normalise, word_error_rate
from trimodal.build_support import progress
from trimodal.errors import ArtefactError
from trimodal.manifest import Manifest
from trimodal.speech.engines.protocol import SpeechEngine
from trimodal.speech.values import Window
from trimodal.speech.whisper.features import Features, log_mel_batch, smallest_context

# What a sound build reaches on clear speech; a wrong tokenizer or graph falls far below.
MIN_AGREEMENT = 0.9
# INT8 stays below 0.1 in models of all sizes, also with random weights, which are judged by it alone.
MAX_ENCODER_ERROR = 0.25
BATCH = 8
ENCODED_BATCHES = 1  # of each context: the encoder's outputs are large.

# Features [batch, mel, frames] and one prompt for all → encoder output, and the ids written for each row.
Encode = Callable[[Features], npt.NDArray[np.float32]]
Write = Callable[[Features, list[int]], list[list[int]]]


@dataclass(frozen=True)
class Batch:
    """Windows of one context with torch's results: ids without the end token, encoder output if kept."""

    features: Features
    ids: list[list[int]]
    encoded: npt.NDArray[np.float32] | None


@dataclass(frozen=True)
class Reference:
    """What torch makes of the recordings: `texts` are one a window, in the recordings' order."""

    recordings: list[Recording]
    language: str
    batches: list[Batch]
    texts: list[str]

    @property
    def windows(self) -> list[Samples]:
        return [window for recording in self.recordings for window in recording.windows]


def reference(
    checkpoint: Checkpoint, recordings: list[Recording], contexts_s: list[float], language: str
) -> Reference:
    """Decodes all windows with torch, those of one context in batches; `language` is a code, "" the first."""
    import torch

    windows = [window for recording in recordings for window in recording.windows]
    texts, batches = [""] * len(windows), []
    of_context: dict[float, list[int]] = {}
    for index, window in enumerate(windows):
        of_context.setdefault(smallest_context(contexts_s, len(window)), []).append(index)
    with progress("Hearing the audio with torch", total=len(windows)) as advance, torch.inference_mode():
        for context_s, indices in of_context.items():
            for start in range(0, len(indices), BATCH):
                part = indices[start : start + BATCH]
                features = log_mel_batch(
                    [windows[index] for index in part],
                    context_s,
                    checkpoint.config.num_mel_bins,
                    checkpoint.padding,
                )
                hidden = encode_with_torch(checkpoint, features)
                ids = [_before_end(row, checkpoint) for row in greedy(checkpoint, hidden, language)]
                kept = hidden.numpy() if start < ENCODED_BATCHES * BATCH else None
                batches.append(Batch(features, ids, kept))
                for index, row in zip(part, ids, strict=True):
                    texts[index] = str(checkpoint.tokenizer.decode(row, skip_special_tokens=True))
                advance(len(part))
    return Reference(recordings, language or checkpoint.languages[0], batches, texts)


def encode_with_torch(checkpoint: Checkpoint, features: Any) -> Any:
    """Encoder output [batch, frames / 2, width] of features [batch, mel, frames], at most 30 s long.

    transformers insists on 30 s: here, a shorter context uses the first positions.
    """
    import torch
    from torch.nn.functional import gelu

    encoder = checkpoint.model.model.encoder
    hidden = gelu(encoder.conv2(gelu(encoder.conv1(torch.as_tensor(features))))).permute(0, 2, 1)
    hidden = hidden + encoder.embed_positions.weight[: hidden.shape[1]]
    for layer in encoder.layers:
        hidden = layer(hidden, None)
    return encoder.layer_norm(hidden)


def greedy(checkpoint: Checkpoint, hidden: Any, language: str = "") -> list[list[int]]:
    """The ids that torch writes for each row of encoder output, the end token included where it came.

    Without the rules that transformers' `generate` adds.
    """
    import torch
    from transformers.cache_utils import DynamicCache, EncoderDecoderCache

    never, not_first = checkpoint.suppressed()
    end = checkpoint.token_id("<|endoftext|>")
    ids = torch.tensor([checkpoint.prompt(language)] * len(hidden))
    cache = EncoderDecoderCache(
        DynamicCache(config=checkpoint.config), DynamicCache(config=checkpoint.config)
    )
    written: list[list[int]] = [[] for _ in hidden]
    # Half of the decoder's places, as CTranslate2 and openai-whisper allow beside a prompt.
    for step in range(checkpoint.config.max_target_positions // 2):
        out = checkpoint.model.model.decoder(
            input_ids=ids, encoder_hidden_states=hidden, past_key_values=cache, use_cache=True
        )
        logits = checkpoint.model.proj_out(out.last_hidden_state[:, -1])
        logits[:, never + (not_first if step == 0 else [])] = -torch.inf
        ids = logits.argmax(-1, keepdim=True)
        for row, token in zip(written, ids[:, 0].tolist(), strict=True):
            if not row or row[-1] != end:
                row.append(token)
        if all(row[-1] == end for row in written):
            break
    return written


def compare(checkpoint: Checkpoint, reference: Reference, encode: Encode, write: Write) -> dict[str, Any]:
    """Figures of the runtime itself: relative error of the encoder's output, agreement of the ids."""
    error = norm = 0.0
    expected: list[str] = []
    found: list[str] = []
    total = sum(len(batch.ids) for batch in reference.batches)
    with progress("Comparing with torch", total=total) as advance:
        for batch in reference.batches:
            if batch.encoded is not None:
                difference = encode(batch.features) - batch.encoded
                error += float(np.square(difference, dtype=np.float64).sum())
                norm += float(np.square(batch.encoded, dtype=np.float64).sum())
            rows = write(batch.features, checkpoint.prompt(reference.language))
            expected += [" ".join(map(str, row)) for row in batch.ids]
            found += [" ".join(map(str, _before_end(row, checkpoint))) for row in rows]
            advance(len(rows))
    return {
        "windows": total,
        "tokens": sum(len(row.split()) for row in expected),
        "encoder_relative_error": (error / norm) ** 0.5,
        "token_agreement": agreement(expected, found),
        "windows_identical": sum(a == b for a, b in zip(expected, found, strict=True)) / total,
    }


def compare_words(reference: Reference, engine: SpeechEngine, *, random_weights: bool) -> dict[str, Any]:
    """Figures of a serving engine: its words against torch's, and error rates where the truth is known.

    Closes the engine.
    """
    windows = [Window(samples, reference.language) for samples in reference.windows]
    heard = hear(engine, windows)
    figures: dict[str, Any] = {"word_agreement": agreement(reference.texts, heard)}
    if random_weights:
        return figures
    texts = {"torch": reference.texts, "built": heard}
    return figures | error_rates(reference.recordings, texts, engine.contexts_s)


def error_rates(
    recordings: Sequence[Recording], texts: Mapping[str, Sequence[str]], contexts_s: Sequence[float]
) -> dict[str, Any]:
    """Word error rates where the truth is known: who heard → one text a window, in the recordings' order.

    With several contexts also those of the recordings that are heard in each, by their longest window.
    """
    truth: list[str] = []
    found: dict[str, list[str]] = {who: [] for who in texts}
    contexts: list[float] = []
    start = 0
    for recording in recordings:
        end = start + len(recording.windows)
        if recording.text is not None:
            truth.append(recording.text)
            contexts.append(smallest_context(contexts_s, max(map(len, recording.windows))))
            for who, heard in texts.items():
                found[who].append(" ".join(heard[start:end]))
        start = end
    if not any(map(normalise, truth)):
        return {}
    figures = {f"word_error_rate_{who}": word_errors(truth, heard) for who, heard in found.items()}
    for context_s in contexts_s if len(contexts_s) > 1 else ():
        chosen = [at for at, context in enumerate(contexts) if context == context_s]
        for who, heard in found.items():
            if any(normalise(truth[at]) for at in chosen):
                rate = word_errors([truth[at] for at in chosen], [heard[at] for at in chosen])
                figures[f"word_error_rate_{who}_{context_s:g}s"] = rate
    return figures


def word_errors(truth: Sequence[str], heard: Sequence[str]) -> float:
    """Wrong, missing and added words over those that were said; above 1 where more were added."""
    return 1 - agreement(truth, heard, least=-np.inf)


def hear(engine: SpeechEngine, windows: list[Window]) -> list[str]:
    """The text of each window; closes the engine."""
    heard: list[str] = []
    with progress("Hearing it in the serving engine", total=len(windows)) as advance:
        for start in range(0, len(windows), BATCH):
            heard += [result.text for result in engine.recognise(windows[start : start + BATCH])]
            advance(len(heard) - start)
    engine.close()
    return heard


def agreement(expected: Sequence[str], found: Sequence[str], least: float = 0.0) -> float:
    """1 less the edits for each expected word, at least `least`; 1 where nothing is expected and found."""
    pairs = [(a, b) for a, b in zip(map(normalise, expected), map(normalise, found), strict=True) if a or b]
    if not pairs:
        return 1.0
    references, hypotheses = zip(*pairs, strict=True)
    if not any(references):
        return least if np.isfinite(least) else 0.0
    return max(least, 1 - word_error_rate(references, hypotheses))


def judge(manifest: Manifest, asked: float | None, name: str) -> None:
    """Prints figures and limits. Raises: ArtefactError: the encoder errs, or too few tokens agree."""
    check = manifest.check
    check["max_encoder_error"] = MAX_ENCODER_ERROR
    tell_check(manifest, name, asked, MIN_AGREEMENT)
    if not check["encoder_relative_error"] <= MAX_ENCODER_ERROR:  # so that NaN is above every limit
        raise ArtefactError(
            f"{manifest.precision} encodes audio with an error of {check['encoder_relative_error']:.1%}, "
            f"more than {MAX_ENCODER_ERROR:.0%}: nothing was replaced"
        )
    refuse_below(manifest)


def _before_end(ids: Sequence[int], checkpoint: Checkpoint) -> list[int]:
    end = checkpoint.token_id("<|endoftext|>")
    return list(ids[:-1] if ids and ids[-1] == end else ids)
