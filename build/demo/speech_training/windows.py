"""Makes training windows of the demo speech model: what a live recogniser gets and what it should write.

A window is cut from running speech at any time, or holds some utterances with pauses, or nothing but noise. A
word belongs to the label when at least KEPT of it lies inside. Not responsible for the spectra
(features.py).
"""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from speech_training.features import FRAMES_A_SECOND, Spoken, dc_power, noise_bank, normalised, speech_bank
from speech_training.voices import Floats

KEPT = 0.6
EMPTY_SHARE = 0.045


@dataclass
class Window:
    """Features [80, context]; words with the frames they last from and to; words said before the window."""

    features: Floats
    words: list[tuple[str, float, float]]
    before: list[str]


class WindowMaker:
    """Draws windows from banks of speech and noise; the same seed draws the same."""

    def __init__(self, utterances: int, seed: int, held_out: bool = False) -> None:
        self.random = random.Random(seed)
        self.generator = np.random.default_rng(seed)
        self.noises = noise_bank(48, self.generator)
        by_voice: dict[str, list[Spoken]] = defaultdict(list)
        for name, spoken in speech_bank(utterances, seed, held_out):
            by_voice[name].append(spoken)
        self.voices = list(by_voice.values())

    def make(self, context: int) -> Window:
        """One window for a context of so many frames (10 ms each)."""
        random_ = self.random
        frames = context
        # The engine takes the shortest context that a window fits in; whole files come with the longest.
        if random_.random() < 0.4:
            shortest = 0.4 * FRAMES_A_SECOND if random_.random() < 0.4 or context <= 500 else context / 3
            frames = int(random_.uniform(shortest, context))
        power = np.zeros((80, frames), np.float32)
        words: list[tuple[str, float, float]] = []
        before: list[str] = []
        if random_.random() >= EMPTY_SHARE:
            words, before = self._speak(power)
        loud = self._degrade(power)
        features = normalised(power, context)
        if not loud and random_.random() < 0.1 and frames < context:
            # transformers pads the sound with silence instead of the features with zeros.
            features[:, frames:] = features[:, :frames].min()
        return Window(features, words, before)

    def _speak(self, power: Floats) -> tuple[list[tuple[str, float, float]], list[str]]:
        """Adds utterances to a silent window. Returns its words and those that ended before it."""
        random_ = self.random
        frames = power.shape[1]
        cut = random_.random() < 0.6
        voice = random_.choice(self.voices)
        one_voice = random_.random() < 0.7
        level = random_.uniform(-2.5, 0.2)  # log10 of the power: up to 25 dB below what espeak-ng speaks
        words: list[tuple[str, float, float]] = []
        before: list[str] = []
        place = 0.0
        first = True
        while place < frames:
            spoken = random_.choice(voice if one_voice else random_.choice(self.voices))
            logs, stretch = self._varied(spoken.logs)
            if first:
                begins_inside = not cut or random_.random() < 0.25
                place = random_.uniform(0, 120) if begins_inside else -random_.uniform(0, logs.shape[1])
                if frames < 150:
                    place = min(place, 20.0)
            elif not cut and place + logs.shape[1] > frames:
                break
            first = False
            start = round(place)
            left, right = max(0, start), min(frames, start + logs.shape[1])
            if left < right:
                power[:, left:right] += 10 ** (logs[:, left - start : right - start] + level)
            for word, begin, end in spoken.words:
                begin, end = start + begin * stretch, start + end * stretch
                inside = min(end, frames) - max(begin, 0)
                if inside >= KEPT * (end - begin):
                    words.append((word, max(begin, 0.0), min(end, float(frames))))
                elif begin < 0:
                    before.append(word)
            pause = random_.uniform(20, 150) if random_.random() < 0.6 else random_.uniform(2, 40)
            place += logs.shape[1] + pause
        return words, before

    def _varied(self, halves: NDArray[np.float16]) -> tuple[Floats, float]:
        """Log powers of another speed, vocal tract and loudness; and by how much time stretched."""
        random_ = self.random
        bands, frames = halves.shape
        longer = max(2, round(frames * random_.uniform(0.88, 1.12)))
        stretch = longer / frames
        at = np.minimum(np.arange(longer) / stretch, frames - 1.001)
        low = at.astype(int)
        share = (at - low).astype(np.float32)
        logs = halves.astype(np.float32)
        logs = logs[:, low] * (1 - share) + logs[:, low + 1] * share
        at = np.minimum(np.arange(bands) * random_.uniform(0.92, 1.08), bands - 1.001)
        low = at.astype(int)
        share = (at - low).astype(np.float32)[:, None]
        logs = logs[low] * (1 - share) + logs[low + 1] * share
        return logs + random_.uniform(-0.3, 0.3), stretch

    def _degrade(self, power: Floats) -> bool:
        """Adds tilt, noise and a DC offset in place. Returns whether there is noise."""
        random_ = self.random
        frames = power.shape[1]
        power *= 10 ** np.linspace(0, random_.uniform(-0.8, 0.8), 80, dtype=np.float32)[:, None]
        noisy = random_.random() < 0.7
        if noisy:
            spectrum = random_.choice(self.noises)
            start = random_.randint(0, spectrum.shape[1] - frames)
            spectrum = spectrum[:, start : start + frames]
            loudest = np.percentile(power.sum(0), 90)
            ratio = random_.uniform(0.8, 4.0)  # log10: 8 to 40 dB below the speech
            if loudest > 0:
                scale = loudest / spectrum.sum(0).mean() * 10**-ratio
            else:
                scale = 10 ** random_.uniform(-7, -1)
            spectrum = spectrum * np.float32(scale)
            # Powers do not just add: the two interfere by the cosine of their phases.
            phases = self.generator.standard_normal(power.shape, np.float32) * 0.5
            power += spectrum + 2 * np.sqrt(power * spectrum) * np.clip(phases, -0.7, 0.7)
        if random_.random() < 0.15:
            power += dc_power() * np.float32(10 ** random_.uniform(-6, -2))
        if random_.random() < 0.25:  # a band that a telephone or a codec took out
            band, width = random_.randint(0, 79), random_.randint(1, 10)
            power[band : band + width] *= 10 ** random_.uniform(-2, 0)
        return noisy
