"""Speaks sentences with espeak-ng (the library in the wheel espeakng-loader); tells when each word is said.

Voices are an accent and a variant ("en-us+f2"). Some variants and one accent are kept out of training. Not
responsible for what is said (phrases.py).
"""

from __future__ import annotations

import ctypes
import random
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import espeakng_loader
import numpy as np
import soxr
from numpy.typing import NDArray

Floats = NDArray[np.float32]

RATE = 16000
ACCENTS = ("en-us", "en-gb-x-rp", "en-029", "en-us-nyc")
UNSEEN_ACCENT = "en-gb-scotland"
TRAINED_VARIANTS = (
    "m1", "m2", "m3", "m4", "m6", "m8", "f1", "f2", "f3", "f5", "Alex", "Alicia", "Andrea", "Annie",
    "Denis", "Diogo", "Gene", "Henrique", "Hugo", "Jacky", "Lee", "Marco", "Mario", "Mike", "Nguyen",
    "adam", "anika", "antonio", "aunty", "belinda", "benjamin", "boris", "caleb", "david", "ed", "edward",
    "grandma", "gustave", "ian", "john", "klatt", "klatt3", "max", "miguel", "norbert", "pablo", "paul",
    "quincy", "rob", "robert", "sandro", "shelby", "steph", "steph3", "travis", "victor",
)  # fmt: skip
HELD_OUT_VARIANTS = ("m5", "m7", "f4", "Andy", "Michael", "linda", "zac", "michel", "steph2", "marcelo")
# What espeak-ng is given to say where it would spell the word out.
SPOKEN = {"json": "jason"}


@dataclass(frozen=True)
class Voice:
    """A speaker: an espeak-ng voice name, words a minute, and pitch from 0 to 100."""

    name: str
    rate: int
    pitch: int


@dataclass(frozen=True)
class Utterance:
    """What was said: 16 kHz mono samples (float32, at most 1), and each word with its times in seconds."""

    text: str
    voice: Voice
    audio: Floats
    words: tuple[tuple[str, float, float], ...]


class _Id(ctypes.Union):
    _fields_ = (("number", ctypes.c_int), ("name", ctypes.c_char_p), ("string", ctypes.c_char * 8))


class _Event(ctypes.Structure):
    _fields_ = (
        ("type", ctypes.c_int), ("unique_identifier", ctypes.c_uint), ("text_position", ctypes.c_int),
        ("length", ctypes.c_int), ("audio_position", ctypes.c_int), ("sample", ctypes.c_int),
        ("user_data", ctypes.c_void_p), ("id", _Id),
    )  # fmt: skip


_CALLBACK = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.POINTER(_Event)
)
_SYNCHRONOUS, _NO_EXIT = 2, 0x8000
_RATE, _PITCH = 1, 3
_UTF8 = 1
_LIST_END, _WORD = 0, 1


@cache
def _library() -> tuple[ctypes.CDLL, int, dict[str, list[Any]], Any]:
    """The library, its sample rate, what the last call said, and the callback (kept from collection)."""
    library = ctypes.CDLL(espeakng_loader.get_library_path())
    home = str(Path(espeakng_loader.get_data_path()).parent)
    rate = library.espeak_Initialize(_SYNCHRONOUS, 0, home.encode(), _NO_EXIT)
    if rate <= 0:
        raise RuntimeError(f"espeak-ng did not start (code {rate})")
    said: dict[str, list[Any]] = {"pieces": [], "starts": []}

    def receive(samples, count, events) -> int:  # type: ignore[no-untyped-def]
        if samples and count > 0:
            said["pieces"].append(np.ctypeslib.as_array(samples, (count,)).copy())
        index = 0
        while events[index].type != _LIST_END:
            if events[index].type == _WORD:
                event = events[index]
                said["starts"].append((event.text_position - 1, event.audio_position / 1000))
            index += 1
        return 0

    callback = _CALLBACK(receive)
    library.espeak_SetSynthCallback(callback)
    return library, rate, said, callback


def speak(text: str, voice: Voice) -> Utterance:
    """Speaks lower-case words.

    Raises:
        RuntimeError: espeak-ng refused the voice or the text, or its word events do not fit the words.
    """
    library, rate, said, _ = _library()
    said["pieces"].clear()
    said["starts"].clear()
    names = text.split()
    spoken = [SPOKEN.get(word, word) for word in names]
    encoded = " ".join(spoken).encode() + b"\0"
    codes = [
        library.espeak_SetVoiceByName(voice.name.encode()),
        library.espeak_SetParameter(_RATE, voice.rate, 0),
        library.espeak_SetParameter(_PITCH, voice.pitch, 0),
        library.espeak_Synth(encoded, len(encoded), 0, 1, 0, _UTF8, None, None),
    ]
    if any(codes) or not said["pieces"]:
        raise RuntimeError(f"espeak-ng failed on {text!r} as {voice}: codes {codes}")
    audio = np.concatenate(said["pieces"]).astype(np.float32) / 32768
    audio = soxr.resample(audio, rate, RATE).astype(np.float32)
    # The last word ends where the sound does; espeak-ng adds silence after it.
    loud = np.flatnonzero(np.abs(audio) > 0.01 * np.abs(audio).max())
    end = (int(loud[-1]) + 1) / RATE
    times = _word_times(names, spoken, said["starts"], end)
    audio = audio[: int((end + 0.03) * RATE)]
    return Utterance(text, voice, np.clip(audio, -1, 1), times)


def _word_times(
    names: list[str], spoken: list[str], starts: list[tuple[int, float]], end: float
) -> tuple[tuple[str, float, float], ...]:
    """Each word with its start and end, from (place in the text, seconds) of each event.

    A few pairs ("of the") are one event to espeak-ng: their time is divided by their letters.
    """
    places = np.cumsum([0, *(len(word) + 1 for word in spoken[:-1])])
    # The place of some ("the while") lies inside the word before: then the next word is meant.
    firsts = [int(np.searchsorted(places, place)) for place, _ in starts]
    if firsts[:1] != [0] or firsts != sorted(set(firsts)) or firsts[-1] >= len(names):
        raise RuntimeError(f"espeak-ng's word events {starts} do not fit {names}")
    groups = [
        (start, range(first, last))
        for (_, start), first, last in zip(starts, firsts, [*firsts[1:], len(names)], strict=True)
    ]
    times = []
    stops = [*(start for start, _ in groups[1:]), end]
    for (start, group), stop in zip(groups, stops, strict=True):
        letters = np.cumsum([0, *(len(spoken[index]) for index in group)])
        edges = start + (stop - start) * letters / letters[-1]
        times += [
            (names[index], round(float(edges[k]), 3), round(float(edges[k + 1]), 3))
            for k, index in enumerate(group)
        ]
    return tuple(times)


def random_voice(
    random_: random.Random, variants: tuple[str, ...], accents: tuple[str, ...] = ACCENTS
) -> Voice:
    """A speaker of one of the accents and variants, at 130 to 200 words a minute."""
    name = f"{random_.choice(accents)}+{random_.choice(variants)}"
    return Voice(name, random_.randint(130, 200), random_.randint(25, 75))
