"""Makes short recordings in voices that the demo speech model never heard, with what is said and when.

16 kHz mono 16-bit WAV files and samples.json. Some hold several sentences with pauses, as a live stream does;
one has noise 10 dB below the speech. They do not depend on the model.
"""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import soundfile
from speech_training.features import noise
from speech_training.voices import HELD_OUT_VARIANTS, RATE, Floats, Utterance, Voice, speak

# A name, sentences, and how much louder than the noise they are (None: no noise).
Recordings = tuple[tuple[str, tuple[str, ...], float | None], ...]
SAMPLES: Recordings = (
    ("lambda", ("what is a lambda",), None),
    ("while", ("explain the while statement",), None),
    ("coroutine", ("could you explain a coroutine",), None),
    ("generator", ("do you know what a generator is",), None),
    ("json", ("tell me about the json module in python",), None),
    ("tuple", ("give me the definition of a tuple",), None),
    ("context-manager", ("what is a context manager used for",), None),
    ("enumerate", ("how can i use the enumerate function",), None),
    ("exception", ("i want to know about an exception",), None),
    ("pickle", ("help with the pickle module",), None),
    ("digits-short", ("three one four",), None),
    ("digits", ("two seven one eight two eight one eight",), None),
    ("digits-groups", ("zero four one", "nine nine two", "five six"), None),
    ("numbers", ("twenty three", "fifteen", "one hundred and six"), None),
    ("meeting", ("good morning", "the meeting is at nine today", "call me tomorrow at ten"), None),
    ("server", ("please stop the test", "turn off the server now", "thank you"), None),
    (
        "dialogue",
        ("hello what can you do", "could you explain the yield statement", "thank you it works"),
        None,
    ),
    ("python", ("in python what is a set", "and what does a slice mean"), None),
    ("noisy", ("could you explain the return statement",), 10.0),
)  # fmt: skip
# Asked about a picture; in a folder of their own, because benchmarks read the other one.
QUESTIONS: Recordings = (
    ("what-digit", ("what digit is this",), None),
    ("which-number", ("which number do you see",), None),
    ("is-it-seven", ("is it a seven",), None),
    ("how-sure", ("how sure are you",), None),
    ("what-picture", ("what is in the picture",), None),
    ("three-or-eight", ("is this a three or an eight",), None),
    ("read-number", ("can you read this number",), None),
    ("are-you-sure", ("are you sure",), None),
    ("is-this-three", ("is this a three",), None),
    ("what-see", ("what do you see",), None),
)  # fmt: skip
LEAD_S, TAIL_S, LOUDNESS = 0.35, 0.45, 0.5


def spoken(parts: tuple[str, ...], voice: Voice, random_: random.Random) -> Utterance:
    """Sentences one after the other with pauses of 0.3 to 0.7 s, between silences; the peak is LOUDNESS."""
    pieces, words, at = [np.zeros(round(LEAD_S * RATE), np.float32)], [], round(LEAD_S * RATE)
    for index, part in enumerate(parts):
        said = speak(part, voice)
        words += [
            (word, round(start + at / RATE, 3), round(end + at / RATE, 3)) for word, start, end in said.words
        ]
        last = index == len(parts) - 1
        pause = np.zeros(round((TAIL_S if last else random_.uniform(0.3, 0.7)) * RATE), np.float32)
        pieces += [said.audio, pause]
        at += len(said.audio) + len(pause)
    audio = np.concatenate(pieces)
    return Utterance(" ".join(parts), voice, audio * (LOUDNESS / np.abs(audio).max()), tuple(words))


def with_noise(audio: Floats, decibels: float, generator: np.random.Generator) -> Floats:
    """Adds noise of a random colour so that the speech (its loud half) is so many dB above it."""
    energy = audio[: len(audio) // 160 * 160].reshape(-1, 160) ** 2
    loud = np.sort(energy.mean(1))[-len(energy) // 2 :].mean()
    added = noise(len(audio) / RATE + 0.01, generator)[: len(audio)]
    mixed: Floats = np.clip(audio + added * np.sqrt(loud / 10 ** (decibels / 10)), -1, 1).astype(np.float32)
    return mixed


def write_samples(out: Path, seed: int, recordings: Recordings = SAMPLES) -> float:
    """Writes the recordings and samples.json. Returns their seconds in all."""
    random_, generator = random.Random(seed), np.random.default_rng(seed)
    out.mkdir(parents=True, exist_ok=True)
    entries, seconds = [], 0.0
    for index, (name, parts, decibels) in enumerate(recordings):
        variant = HELD_OUT_VARIANTS[index % len(HELD_OUT_VARIANTS)]
        accent = ("en-us", "en-gb-x-rp", "en-us-nyc", "en-029")[index % 4]
        voice = Voice(f"{accent}+{variant}", random_.randint(140, 180), random_.randint(35, 65))
        said = spoken(parts, voice, random_)
        audio = said.audio if decibels is None else with_noise(said.audio, decibels, generator)
        file = f"{index + 1:02}-{name}.wav"
        soundfile.write(out / file, audio, RATE, subtype="PCM_16")
        seconds += len(audio) / RATE
        entries.append(
            {
                "file": file, "text": said.text, "voice": voice.name,
                "rate_wpm": voice.rate, "pitch": voice.pitch,
                "noise_db": decibels, "seconds": round(len(audio) / RATE, 3), "words": said.words,
            }
        )  # fmt: skip
    lines = ",\n ".join(json.dumps(entry) for entry in entries)
    (out / "samples.json").write_text(f"[\n {lines}\n]\n", encoding="utf-8")
    return seconds
