"""Compares recordings as they are served with faster-whisper and its batched pipeline.

    python -m benchmarks.parity.speech
    python -m benchmarks.parity.speech --languages pytest_audioeval/samples/audio --telephone sounds/en

Five sentences of a reading, the same as one recording with pauses, telephone prompts, and ten minutes of all
of it with noise between; with their folders also clips in other languages, and prompts whose file names
are nearly their texts. Each recording is given to each in turn, at the same beam, precision and threads, so
that a busy machine is busy for all; seconds are those of the processor. Ours goes through the session and
the policy that serve recordings, in blocks as a client sends them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console

from benchmarks.parity.contexts import SAMPLES, UNSPACED, Recording, errors, read, recognise
from trimodal.audio.files import read_blocks
from trimodal.audio.values import SAMPLE_RATE
from trimodal.bench.common.serving import settings_of
from trimodal.client.client import BLOCK_S, FILE_LISTENING
from trimodal.metrics import MemoryMetrics
from trimodal.paths import artefact_root, default_repository
from trimodal.report.console import NARROW, make_table
from trimodal.repository import select_models
from trimodal.speech.recognise.service import RecogniseService
from trimodal.speech.session.session import LiveSession
from trimodal.speech.session.vad import detectors
from trimodal.speech.settings import RecogniseSettings, SpeechSettings

SHORT_PAUSES_S, LONG_S = (0.8, 2.0), 600.0
NOISE = 0.003  # of the long recording: its level where nobody speaks, -50 dB
# Beginnings of the prompts' names that are not spoken.
UNSPOKEN = ("vm", "conf", "confbridge", "queue", "dir", "priv", "privacy", "agent", "demo", "spy", "screen")
MOST_PROMPTS = 60
SENTENCES = 5  # that the samples begin with

Hear = Callable[[Recording], str]


def joined(recordings: Sequence[Recording], seconds: float, noise: float) -> Recording:
    """The recordings one after another, again and again up to `seconds`, with pauses of noise between."""
    rng, texts, parts, length = np.random.default_rng(7), [], [], 0
    for n in range(10_000):
        one = recordings[n % len(recordings)]
        if (n >= len(recordings) and not seconds) or (seconds and length > seconds * SAMPLE_RATE):
            break
        pause = round(rng.uniform(*SHORT_PAUSES_S) * (4 if noise and n % 5 == 4 else 1) * SAMPLE_RATE)
        parts += [one.samples, rng.normal(0, noise, pause).astype(np.float32)]
        length += len(one.samples) + pause
        texts.append(one.text)
    return Recording(np.concatenate(parts), " ".join(texts), "en")


def prompts(folder: Path) -> list[Recording]:
    """Recordings whose names of three or more words are nearly what is said."""
    found = []
    for file in sorted(folder.glob("*.wav")):
        words = file.stem.replace("_", "-").split("-")
        words = words[1:] if words[0] in UNSPOKEN else words
        if len(words) >= 3:
            found.append(Recording(next(read_blocks(file, 30.0)), " ".join(words), "en"))
    return found[:MOST_PROMPTS]


def ours(artefact: Path, beam: int, threads: int, settings: SpeechSettings) -> Hear:
    """The recogniser behind the session that serves recordings."""
    asked = RecogniseSettings(artefact=str(artefact), beam_size=beam, intra_op_threads=threads)
    service, make = RecogniseService.open(artefact, asked, MemoryMetrics()), detectors(settings.vad)
    policy = FILE_LISTENING["policy"]
    assert policy

    def hear(one: Recording) -> str:
        session = LiveSession(settings, policy=policy, language=one.language, detector=make(settings))
        texts = []
        for at in range(0, len(one.samples), BLOCK_S * SAMPLE_RATE):
            session.feed(one.samples[at : at + BLOCK_S * SAMPLE_RATE])
            if at + BLOCK_S * SAMPLE_RATE >= len(one.samples):
                session.end()
            while planned := session.next_window():
                session.accept(planned, recognise(service, planned.window))
            texts += [word.text for word in session.take().committed]
        return "".join(texts)

    return hear


def theirs(model: Any, beam: int, **options: Any) -> Hear:
    """faster-whisper, or its batched pipeline, with its own defaults at this beam."""

    def hear(one: Recording) -> str:
        segments, _ = model.transcribe(one.samples, language=one.language, beam_size=beam, **options)
        return "".join(segment.text for segment in segments)

    return hear


def letters(recordings: Sequence[Recording], texts: Sequence[str]) -> float:
    """Character error rate in per cent."""
    return errors([replace(one, language=UNSPACED[0]) for one in recordings], texts)


def main(
    artefact: Annotated[Path | None, typer.Option(help="of CTranslate2")] = None,
    beam: Annotated[int, typer.Option(min=1, max=10)] = 5,
    threads: Annotated[int, typer.Option(min=1)] = 2,
    languages: Annotated[Path | None, typer.Option(help="folders of clips, named by languages")] = None,
    telephone: Annotated[Path | None, typer.Option(help="prompts, named by their texts")] = None,
    long_s: Annotated[float, typer.Option(min=0, help="of the long recording; 0 for none")] = LONG_S,
    show: Annotated[bool, typer.Option(help="print what each heard")] = False,
) -> None:
    """Measure errors and processor time of each way to hear each set of recordings."""
    from faster_whisper import BatchedInferencePipeline, WhisperModel

    place = (artefact or artefact_root("speech_recognize") / "ctranslate2-int8").resolve()
    model = WhisperModel(str(place), device="cpu", compute_type="int8", cpu_threads=threads)
    settings = settings_of(SpeechSettings, select_models(default_repository(), ("speech",), "cpu")["speech"])
    samples = list(read(SAMPLES))
    sentences = samples[:SENTENCES]
    sets = {"sentences": sentences, "joined, with pauses": [joined(sentences, 0, 0)]}
    sets["telephone samples"] = samples[SENTENCES:]
    if telephone:
        sets["telephone prompts"] = prompts(telephone)
    if languages:
        clips = [one for one in read(languages) if model.model.is_multilingual or one.language == "en"]
        sets["languages"] = clips
    if long_s:
        sets[f"{long_s / 60:g} minutes with noise"] = [joined(samples, long_s, NOISE)]
    ways = {
        "ours": ours(place, beam, threads, settings),
        "faster-whisper": theirs(model, beam),
        "batched": theirs(BatchedInferencePipeline(model), beam, batch_size=8),
    }
    for name, recordings in sets.items():
        heard: dict[str, list[str]] = {way: [] for way in ways}
        spent = dict.fromkeys(ways, 0.0)
        for one in recordings:
            for way, hear in ways.items():
                started = time.process_time()
                heard[way].append(hear(one))
                spent[way] += time.process_time() - started
            if show:
                print(f"said {one.text}\n" + "\n".join(f"  {way}: {heard[way][-1].strip()}" for way in ways))
        seconds = sum(len(one.samples) for one in recordings) / SAMPLE_RATE
        title = f"{len(recordings)}: {name}, {seconds:.0f} s; {place.name}, beam {beam}"
        table = make_table(title, "way|WER|CER|empty|CPU s|of batched", **NARROW)
        for way, texts in heard.items():
            wer, cer = errors(recordings, texts), letters(recordings, texts)
            empty = sum(not text.strip() for text in texts)
            ratio = spent[way] / spent["batched"]
            cells = [f"{wer:.1f} %", f"{cer:.1f} %", str(empty), f"{spent[way]:.1f}", f"{ratio:.2f}"]
            table.add_row(way, *cells)
        Console().print(table)


if __name__ == "__main__":
    typer.run(main)
