"""Measures the demo speech model as it is served: as CTranslate2 INT8, on voices that it never heard.

Floors are word error rates that a committed model keeps; the rest is printed for information. Greedy
decoding, windows padded with zero features to the shortest context that holds them, as the server does.
Not responsible for the recordings that are committed (samples.py).
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ctranslate2
import jiwer
import numpy as np
from ctranslate2.converters import TransformersConverter
from speech_training.features import noise, window_features
from speech_training.phrases import digits, held_out, held_out_picture, numbers, sentence, words
from speech_training.samples import spoken, with_noise
from speech_training.tokens import CONTEXTS_S, load_ids
from speech_training.voices import (
    ACCENTS,
    HELD_OUT_VARIANTS,
    RATE,
    TRAINED_VARIANTS,
    UNSEEN_ACCENT,
    Floats,
    Utterance,
    random_voice,
)  # fmt: skip
from speech_training.windows import KEPT

SEED = 97
UTTERANCES = 150
FLOORS = {
    "number sequences": 4.0,
    "templates never trained on": 5.0,
    "questions about a picture, templates never trained on": 5.0,
}
# An aligned word's edges are moved over what is this much quieter than the window's loudest 10 ms.
QUIET_DB = 35.0


@dataclass(frozen=True)
class Heard:
    """What was written for a window: words with start and end in seconds, and how sure it is of silence."""

    words: list[tuple[str, float, float]]
    no_speech: float

    @property
    def text(self) -> str:
        return " ".join(word for word, _, _ in self.words)


class Served:
    """The converted model, called with batches of features."""

    def __init__(self, checkpoint: Path) -> None:
        self.ids = load_ids(words(), checkpoint)
        self.word_of = {token: word for word, token in self.ids.words.items()}
        with tempfile.TemporaryDirectory() as directory:
            TransformersConverter(str(checkpoint)).convert(directory, quantization="int8", force=True)
            self.size = sum(path.stat().st_size for path in Path(directory).iterdir())
            self.model = ctranslate2.models.Whisper(directory, compute_type="int8", intra_threads=1)

    def hear(self, audios: list[Floats], context_s: int | None = None, timed: bool = False) -> list[Heard]:
        """Transcribes windows of at most 30 s; `timed` also aligns the words."""
        heard: list[Heard | None] = [None] * len(audios)
        needed = [context_s or next(c for c in CONTEXTS_S if len(audio) <= c * RATE) for audio in audios]
        for context in sorted(set(needed)):
            chosen = [index for index, needs in enumerate(needed) if needs == context]
            for begin in range(0, len(chosen), 16):
                part = chosen[begin : begin + 16]
                for index, result in zip(
                    part, self._batch([audios[i] for i in part], context, timed), strict=True
                ):
                    heard[index] = result
        return [one for one in heard if one is not None]

    def _batch(self, audios: list[Floats], context_s: int, timed: bool) -> list[Heard]:
        features = np.stack([window_features(audio, context_s * 100) for audio in audios])
        encoded = self.model.encode(ctranslate2.StorageView.from_array(features))
        prompt = [self.ids.sot, self.ids.no_timestamps]
        results = self.model.generate(
            encoded, [prompt] * len(audios), beam_size=1, return_no_speech_prob=True, suppress_tokens=[]
        )
        texts = [[token for token in result.sequences_ids[0] if token < self.ids.eot] for result in results]
        times: list[list[tuple[float, float]]] = [[(0.0, 0.0)] * len(text) for text in texts]
        if timed:
            frames = [min(context_s * 100, len(audio) // 160) for audio in audios]
            aligned = self.model.align(encoded, [self.ids.sot], texts, frames)
            times = [
                word_times(result.alignments, len(text), audio)
                for result, text, audio in zip(aligned, texts, audios, strict=True)
            ]
        return [
            Heard(
                [(self.word_of.get(t, "?"), *span) for t, span in zip(text, spans, strict=True)],
                result.no_speech_prob,
            )
            for text, spans, result in zip(texts, times, results, strict=True)
        ]


def word_times(path: list[tuple[int, int]], count: int, audio: Floats) -> list[tuple[float, float]]:
    """Start and end of each word on the path of (token, position of 20 ms), its quiet edges taken off."""
    first: dict[int, int] = {}
    for token, position in path:
        first.setdefault(token, position)
    last = path[-1][1] if path else 0
    energy = (audio[: len(audio) // 160 * 160].reshape(-1, 160) ** 2).mean(1)
    loud = energy > energy.max() * 10 ** (-QUIET_DB / 10)
    spans = []
    for index in range(count):
        start, end = 2 * first.get(index, last), 2 * first.get(index + 1, last)
        sounding = np.flatnonzero(loud[start:end])
        if sounding.size:
            start, end = start + int(sounding[0]), start + int(sounding[-1]) + 1
        spans.append((start / 100, end / 100))
    return spans


def error_rate(heard: list[Heard], truth: list[str]) -> float:
    """Word error rate in percent."""
    return round(100 * float(jiwer.wer(truth, [one.text for one in heard])), 2)


def recordings(
    make: Callable[[random.Random], str], seed: int, accents: tuple[str, ...] = ACCENTS,
    variants: tuple[str, ...] = HELD_OUT_VARIANTS, decibels: float | None = None, parts: int = 1,
    count: int = UTTERANCES,
) -> list[Utterance]:  # fmt: skip
    """Sentences spoken by held-out voices, with silence around them."""
    random_, generator = random.Random(seed), np.random.default_rng(seed)
    said = []
    for _ in range(count):
        texts = tuple(make(random_) for _ in range(parts))
        one = spoken(texts, random_voice(random_, variants, accents), random_)
        audio = one.audio if decibels is None else with_noise(one.audio, decibels, generator)
        said.append(Utterance(one.text, one.voice, audio, one.words))
    return said


def running_windows(seed: int, seconds: float = 5.0) -> tuple[list[Floats], list[str]]:
    """Windows of so many seconds cut from running speech at any time, and the words that lie in each."""
    audios, truth = [], []
    for said in recordings(held_out, seed, parts=40, count=5):
        step = int(seconds * RATE)
        for begin in range(step // 3, len(said.audio) - step, step):
            audios.append(said.audio[begin : begin + step])
            left, right = begin / RATE, (begin + step) / RATE
            inside = [
                w
                for w, start, end in said.words
                if min(end, right) - max(start, left) >= KEPT * (end - start)
            ]
            truth.append(" ".join(inside))
    return audios, truth


def timing(served: Served, said: list[Utterance]) -> dict[str, int]:
    """How far word starts and ends are from the truth, in milliseconds, in utterances heard right."""
    errors: dict[str, list[float]] = {"start": [], "end": []}
    for one, heard in zip(said, served.hear([one.audio for one in said], timed=True), strict=True):
        if heard.text == one.text:
            for (_, start, end), (_, at, to) in zip(one.words, heard.words, strict=True):
                errors["start"].append(1000 * abs(at - start))
                errors["end"].append(1000 * abs(to - end))
    if not errors["start"]:
        return {"words timed": 0}
    return {"words timed": len(errors["start"])} | {
        f"word {edge} error, {name} ms": round(float(np.percentile(values, q)))
        for edge, values in errors.items()
        for name, q in (("median", 50), ("p95", 95))
    }


def nothing_said(served: Served, seed: int) -> dict[str, Any]:
    """Windows without speech: how many got words, and the lowest no-speech probability."""
    generator = np.random.default_rng(seed)
    beeps = [0.3 * np.sin(2 * np.pi * pitch * np.arange(5 * RATE) / RATE) for pitch in (220, 440, 1000, 2500)]
    kinds = {
        "silence": [np.zeros(int(s * RATE), np.float32) for s in (0.5, 2, 5)],
        "noise": [noise(5, generator) * 10 ** generator.uniform(-4, -0.7) for _ in range(60)],
        "steady tones": beeps,
    }
    found: dict[str, Any] = {}
    for kind, audios in kinds.items():
        heard = served.hear([np.clip(audio, -1, 1).astype(np.float32) for audio in audios])
        found[f"{kind}: windows with words"] = f"{sum(bool(one.words) for one in heard)} of {len(heard)}"
        found[f"{kind}: lowest no-speech probability"] = round(min(one.no_speech for one in heard), 3)
    said = served.hear([one.audio for one in recordings(held_out, seed)])
    found["speech: highest no-speech probability"] = round(max(one.no_speech for one in said), 3)
    return found


def measure(checkpoint: Path) -> dict[str, Any]:
    """All figures of a checkpoint; "passed" tells whether the floors hold."""
    served = Served(checkpoint)

    def run(said: list[Utterance], context_s: int | None = None) -> float:
        return error_rate(served.hear([one.audio for one in said], context_s), [one.text for one in said])

    def digit_run(random_: random.Random) -> str:
        return digits(random_, 3, 8)

    unseen = recordings(held_out, SEED)
    wer = {
        "number sequences": run(recordings(digit_run, SEED)),
        "numbers with teens and tens": run(recordings(numbers, SEED)),
        "templates never trained on": run(unseen),
        "questions about a picture, templates never trained on": run(recordings(held_out_picture, SEED)),
        "trained templates and scrambled words": run(recordings(sentence, SEED)),
        "trained voices, trained templates": run(recordings(sentence, SEED, variants=TRAINED_VARIANTS)),
        "unseen accent": run(recordings(held_out, SEED, (UNSEEN_ACCENT,))),
        "unseen accent, number sequences": run(recordings(digit_run, SEED, (UNSEEN_ACCENT,))),
        "10 dB noise": run(recordings(held_out, SEED, decibels=10)),
        "10 dB noise, number sequences": run(recordings(digit_run, SEED, decibels=10)),
        "padded to 10 s": run(unseen, 10),
        "padded to 30 s": run(unseen, 30),
    }
    for seconds in (5.0, 10.0, 30.0):
        audios, truth = running_windows(SEED, seconds)
        wer[f"running speech, {seconds:.0f} s windows cut anywhere"] = error_rate(served.hear(audios), truth)
    failed = [name for name, floor in FLOORS.items() if wer[name] > floor]
    return {
        "word_error_rate_percent": wer,
        "times": timing(served, recordings(held_out, SEED)),
        "nothing_said": nothing_said(served, SEED),
        "converted_bytes": served.size,
        "passed": not failed,
    }
