"""Turns tokens and their times into words, and computes the figures that the hallucination filter looks at.

Every engine that runs Whisper ends here. The rules for punctuation and for words that are too long are those
of openai-whisper and faster-whisper.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from trimodal.audio.values import SAMPLE_RATE, Samples, Word
from trimodal.speech.whisper.tokens import Piece

# Alignment steps of the encoder's output: 20 ms.
STEPS_PER_S = 50
# Fast speech has 5 words a second, a word 1 to 2 tokens, in languages that the vocabulary was made for.
TOKENS_PER_S, SPARE_TOKENS = 10, 16
FEW_TOKENS = frozenset(
    ("en", "de", "es", "fr", "it", "pt", "nl", "ca", "gl", "sv", "da", "no", "id", "ms", "ru", "pl", "tr")
)
# Others are spelled in parts of letters: a word of Hindi or Telugu is 5 to 10 tokens.
SPELLED_PER_S = 25
SENTENCE_ENDS = frozenset(".。!！?？")
OPENING = frozenset("\"'“¿([{-")
CLOSING = frozenset("\"'.。,，!！?？:：”)]}、")
# A word's usual length is taken to be at most this; twice as long is too long.
USUAL_S = 0.7
# Levels are taken over 10 ms; silence shorter than 5 of them is part of a word.
LEVEL, MIN_FRAMES = SAMPLE_RATE // 100, 5
# What speech stands above its own quietest sounds, and noise above its mean, at most.
LOUDNESS_DB, NOISE_DB = 50.0, 6.0


def most_tokens(seconds: float, language: str = "en") -> int:
    """Tokens that speech of this length cannot exceed, so that a loop ends early."""
    return int((TOKENS_PER_S if language in FEW_TOKENS else SPELLED_PER_S) * seconds) + SPARE_TOKENS


def compression_ratio(text: str) -> float:
    """UTF-8 bytes to zlib bytes; 0 for no text."""
    data = text.encode()
    return len(data) / len(zlib.compress(data)) if data else 0.0


def token_starts(
    text_indices: Sequence[int], time_indices: Sequence[int], tokens: int
) -> NDArray[np.float64]:
    """Seconds float64[tokens + 1] at which each token, then the end of text, begins.

    Args:
        text_indices, time_indices: a path of dynamic time warping, both ascending, one pair a step:
            the token (tokens stands for the end) and the alignment step.
    """
    texts = np.asarray(text_indices, np.int64)
    times = np.asarray(time_indices, np.float64) / STEPS_PER_S
    first = np.searchsorted(texts, np.arange(tokens + 1))
    return times[np.minimum(first, len(times) - 1)] if len(times) else np.zeros(tokens + 1)


def timed_words(
    pieces: Sequence[Piece],
    starts: NDArray[np.float64],
    probabilities: Sequence[float] | NDArray[np.float32],
    samples: int,
    tokens: Sequence[int] = (),
) -> tuple[Word, ...]:
    """Words in order, within the window, none beginning before the one before it ended.

    `pieces` are words with their numbers of tokens, n in all; `starts` those of
    `token_starts`, float64[n + 1]; `probabilities` float[n]; `samples` the length of the window;
    `tokens` int[n] if the words shall have them.
    """
    if not pieces:
        return ()
    texts = [text for text, _ in pieces]
    edges = np.concatenate([[0], np.cumsum([count for _, count in pieces])])
    begins, ends = starts[edges[:-1]].copy(), starts[edges[1:]].copy()
    ranges = list(zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True))
    chances = [float(np.mean(probabilities[low:high])) for low, high in ranges]
    spelled = [tuple(tokens[low:high]) for low, high in ranges]
    _shorten(texts, begins, ends)
    duration = samples / SAMPLE_RATE
    words: list[Word] = []
    earliest = 0.0
    for word in _with_punctuation(texts, begins, ends, chances, spelled):
        start = min(max(word.start, earliest), duration)
        end = min(max(word.end, start), duration)
        words.append(Word(word.text, start, end, min(max(word.probability, 0.0), 1.0), word.tokens))
        earliest = end
    return tuple(words)


def without_silence_before(words: tuple[Word, ...], samples: Samples) -> tuple[Word, ...]:
    """The same words, the first of them beginning where sound begins.

    Alignment begins the first word with the window, whatever is heard there: too early
    by the whole pause, where all other times are right to 20 ms.
    """
    if not words:
        return words
    first = words[0]
    heard = samples[round(first.start * SAMPLE_RATE) : round(first.end * SAMPLE_RATE)]
    frames = len(heard) // LEVEL
    if frames < MIN_FRAMES:
        return words
    power = np.square(heard[: frames * LEVEL]).reshape(frames, LEVEL).mean(1)
    levels = 10 * np.log10(power + 1e-12)
    loudest = float(levels.max())
    quiet = max(float(np.percentile(levels, 10)), loudest - LOUDNESS_DB)
    sounding = levels > quiet + max(NOISE_DB, 0.3 * (loudest - quiet))
    lasting = sounding[:-2] & sounding[1:-1] & sounding[2:]
    silent = int(lasting.argmax()) - 1 if lasting.any() else 0
    if silent < MIN_FRAMES:
        return words
    return (replace(first, start=first.start + silent * LEVEL / SAMPLE_RATE), *words[1:])


def _shorten(texts: Sequence[str], begins: NDArray[np.float64], ends: NDArray[np.float64]) -> None:
    """Takes pauses out of words: alignment gives every instant to some word."""
    lengths = ends - begins
    if not lengths.any():
        return
    # The pauses at the window's edges say nothing of the speaker, if there are words enough between them.
    inner = lengths[1:-1] if len(lengths) > 4 and lengths[1:-1].any() else lengths
    usual = min(USUAL_S, float(np.median(inner[inner > 0])))
    longest = 2 * usual
    for index in range(1, len(texts)):
        if ends[index] - begins[index] > longest:
            if texts[index].strip() in SENTENCE_ENDS:
                ends[index] = begins[index] + longest
            elif texts[index - 1].strip() in SENTENCE_ENDS:
                begins[index] = ends[index] - longest
    # A window begins and ends somewhere in a pause, too.
    outermost = max(longest, USUAL_S)
    begins[0] = max(begins[0], ends[0] - outermost)
    ends[-1] = min(ends[-1], begins[-1] + outermost)


def _with_punctuation(
    texts: Sequence[str],
    begins: NDArray[np.float64],
    ends: NDArray[np.float64],
    chances: Sequence[float],
    spelled: Sequence[tuple[int, ...]],
) -> list[Word]:
    """Opening marks go to the word after, closing ones to the word before; times stay the word's own."""
    words: list[Word] = []
    opening, held = "", ()  # type: tuple[str, tuple[int, ...]]
    rows = zip(texts, begins.tolist(), ends.tolist(), chances, spelled, strict=True)
    for text, start, end, chance, tokens in rows:
        if words and not opening and (text in CLOSING or not text.strip()):
            last = words[-1]
            words[-1] = replace(last, text=last.text + text, tokens=last.tokens + tokens)
        elif not text.strip() or (text.startswith(" ") and text.strip() in OPENING):
            opening, held = opening + text, held + tokens
        else:
            if words and text.startswith(" "):  # whisper-base writes two spaces now and then
                words[-1] = replace(words[-1], text=words[-1].text.rstrip())
            words.append(Word(opening + text, start, end, chance, held + tokens))
            opening, held = "", ()
    if opening.strip():
        words.append(Word(opening, float(begins[-1]), float(ends[-1]), chances[-1], held))
    return words
