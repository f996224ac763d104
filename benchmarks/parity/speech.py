"""Compares recordings as they are served with faster-whisper and its batched pipeline.

    python -m benchmarks.parity.speech
    python -m benchmarks.parity.speech --most 3 --long-s 60   # quickly

Five sentences of a reading, the same as one recording with pauses, telephone prompts, clips in nine languages
(fetched: recordings.py; of the prompts, 60 whose file names are nearly their texts), and ten minutes of the
readings with noise between. Each recording is given to each in turn, at the same beam, precision and threads,
so that a busy machine is busy for all; who is first changes. Seconds are those of the processor, *ratio* is
to the batched pipeline's. What the models compute is counted: seconds encoded, steps of the decoder, tokens
decoded (of all beams), tokens whose times were found. On several threads the same tokens cost more in more
steps. Ours goes through the session and the policy that serve recordings, in blocks as a client sends them
meanwhile, one window or two at a time as served (--at-once: others), and always finds the times of words.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import ctranslate2
import numpy as np
import typer
from rich.console import Console

from benchmarks.common import run_command
from benchmarks.parity import recordings
from benchmarks.parity.contexts import SAMPLES, UNSPACED, Recording, errors, read
from benchmarks.tables import NARROW, make_table
from trimodal.audio.files import read_blocks
from trimodal.audio.values import SAMPLE_RATE
from trimodal.client.client import BLOCK_S, FILE_LISTENING
from trimodal.metrics import MemoryMetrics
from trimodal.paths import artefact_root, default_repository
from trimodal.repository import select_models
from trimodal.speech.engines.openvino import engine
from trimodal.speech.engines.openvino.encoder import Encoder
from trimodal.speech.live.request import RECORDED_WINDOWS, StreamOptions
from trimodal.speech.recognise.service import RecogniseService
from trimodal.speech.session.session import LiveSession, PlannedWindow
from trimodal.speech.session.vad import detectors
from trimodal.speech.settings import RecogniseSettings, SpeechSettings

AT_ONCE = "ours with so many windows of a recording at once, too; 1: as beside live streams"
SHORT_PAUSES_S, LONG_S = (0.8, 2.0), 600.0
NOISE = 0.003  # of the long recording: its level where nobody speaks, -50 dB
# Beginnings of the prompts' names that are not spoken.
UNSPOKEN = ("vm", "conf", "confbridge", "queue", "dir", "priv", "privacy", "agent", "demo", "spy", "screen")
MOST_PROMPTS = 60
SENTENCES = 5  # that the samples begin with

Hear = Callable[[Recording], str]


# Seconds that were encoded, padding included; steps of the decoder, each
# for all rows of a run; tokens that were decoded, each beam and draw counted; tokens whose times were found.
DONE: Counter[str] = Counter()
FRAMES_PER_S = 100


class CountedWhisper(ctranslate2.models.Whisper):  # type: ignore[misc]
    """Counts what Whisper computes: the same on a busy machine as on a quiet one."""

    def encode(self, features: Any, **options: Any) -> Any:
        rows, _, frames = features.shape
        DONE["encoded"] += rows * frames // FRAMES_PER_S
        return super().encode(features, **options)

    def generate(self, features: Any, prompts: Any, **options: Any) -> Any:
        results = super().generate(features, prompts, **options)
        DONE["steps"] += max(max(map(len, one.sequences_ids)) + 1 for one in results)
        wide = max(options.get("beam_size", 5), options.get("num_hypotheses", 1))
        DONE["decoded"] += wide * sum(max(map(len, one.sequences_ids)) + 1 for one in results)
        return results

    def align(self, features: Any, start: Any, tokens: Any, frames: Any, **options: Any) -> Any:
        DONE["aligned"] += sum(map(len, tokens))
        return super().align(features, start, tokens, frames, **options)


class CountedEncoder(Encoder):
    """Counts what OpenVINO encodes in its place."""

    def encode(self, features: Any) -> Any:
        rows, _, frames = features.shape
        DONE["encoded"] += rows * frames // FRAMES_PER_S
        return super().encode(features)


def joined(spoken: Sequence[Recording], seconds: float, noise: float) -> Recording:
    """The recordings one after another, again and again up to `seconds`, with pauses of noise between."""
    rng, texts, parts, length = np.random.default_rng(7), [], [], 0
    for n in range(10_000):
        one = spoken[n % len(spoken)]
        if (n >= len(spoken) and not seconds) or (seconds and length > seconds * SAMPLE_RATE):
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
    return found


def ours(
    artefact: Path, beam: int, threads: int, settings: SpeechSettings, most: int = RECORDED_WINDOWS
) -> Hear:
    """The recogniser behind the session that serves recordings.

    Args:
        most: windows at once where they are known, as while nobody speaks.
    """
    asked = RecogniseSettings(artefact=str(artefact), beam_size=beam, intra_op_threads=threads)
    service, make = RecogniseService.open(artefact, asked, MemoryMetrics()), detectors(settings.vad)
    policy = FILE_LISTENING["policy"]
    assert policy
    ahead_s = (most + 0.5) * settings.file_window_s  # as of RECORDED_WINDOWS
    settings = settings.model_copy(update={"max_pending_s": max(settings.max_pending_s, ahead_s)})

    def hear(one: Recording) -> str:
        session = LiveSession(settings, policy=policy, language=one.language, detector=make(settings))
        texts: list[str] = []
        planned: list[PlannedWindow] = []
        for at in range(0, len(one.samples), BLOCK_S * SAMPLE_RATE):
            session.feed(one.samples[at : at + BLOCK_S * SAMPLE_RATE])
            ended = at + BLOCK_S * SAMPLE_RATE >= len(one.samples)
            if ended:
                session.end()
            # The client sends on while windows are heard, until its answers wait.
            while planned := planned or session.next_windows(most):
                if not ended and session.unsent_s <= session.max_pending_s:
                    break
                heard = service.recognise_windows([each.window for each in planned])
                session.accept_windows(planned, heard)
                planned = []
            texts += [word.text for word in session.take().committed]
        return "".join(texts)

    return hear


def theirs(model: Any, beam: int, **options: Any) -> Hear:
    """faster-whisper, or its batched pipeline, with its own defaults at this beam."""

    def hear(one: Recording) -> str:
        segments, _ = model.transcribe(one.samples, language=one.language, beam_size=beam, **options)
        return "".join(segment.text for segment in segments)

    return hear


def letters(chosen: Sequence[Recording], texts: Sequence[str]) -> float:
    """Character error rate in per cent."""
    return errors([replace(one, language=UNSPACED[0]) for one in chosen], texts)


def main(
    artefact: Annotated[Path | None, typer.Option(help="of CTranslate2")] = None,
    beam: Annotated[int, typer.Option(min=1, max=10)] = 5,
    threads: Annotated[int, typer.Option(min=1)] = 2,
    fetch: Annotated[bool, typer.Option(help="prompts and clips, where they are not yet")] = True,
    most: Annotated[int, typer.Option(min=1, help="recordings of each set")] = MOST_PROMPTS,
    long_s: Annotated[float, typer.Option(min=0, help="of the long recording; 0 for none")] = LONG_S,
    at_once: Annotated[list[int] | None, typer.Option(min=1, help=AT_ONCE)] = None,
) -> None:
    """Measure errors and processor time of each way to hear each set of recordings."""
    from faster_whisper import BatchedInferencePipeline, WhisperModel

    ctranslate2.models.Whisper = CountedWhisper  # of all that are opened from now on, whoever asks them
    engine.Encoder = CountedEncoder  # type: ignore[attr-defined]
    place = (artefact or artefact_root("speech_recognize") / "ctranslate2-int8").resolve()
    model = WhisperModel(str(place), device="cpu", compute_type="int8", cpu_threads=threads)
    settings = select_models(default_repository(), ("speech",), "cpu")["speech"].settings(SpeechSettings)
    settings = StreamOptions(recording=True).on(settings)
    samples = list(read(SAMPLES))
    sentences = samples[:SENTENCES]
    sets = {"sentences": sentences, "joined, with pauses": [joined(sentences, 0, 0)]}
    sets["telephone samples"] = samples[SENTENCES:]
    if fetch:
        sets["telephone prompts"] = prompts(recordings.telephone())
        clips = list(read(recordings.languages()))
        sets["languages"] = [one for one in clips if model.model.is_multilingual or one.language == "en"]
    sets = {name: each[:most] for name, each in sets.items()}
    if long_s:
        sets[f"{long_s / 60:g} minutes with noise"] = [joined(samples, long_s, NOISE)]
    ways = {
        "ours": ours(place, beam, threads, settings),
        "faster-whisper": theirs(model, beam),
        "batched": theirs(BatchedInferencePipeline(model), beam, batch_size=8),
        "with times": theirs(BatchedInferencePipeline(model), beam, batch_size=8, word_timestamps=True),
    }
    for windows in at_once or ():
        ways[f"{windows} at once"] = ours(place, beam, threads, settings, windows)
    for name, chosen in sets.items():
        heard: dict[str, list[str]] = {way: [] for way in ways}
        spent = dict.fromkeys(ways, 0.0)
        done: dict[str, Counter[str]] = {way: Counter() for way in ways}
        order = list(ways)
        for hear in ways.values():  # what is allocated once counts for none
            hear(sentences[0])
        for one in chosen:
            for way in order:
                DONE.clear()
                started = time.process_time()
                heard[way].append(ways[way](one))
                spent[way] += time.process_time() - started
                done[way] += DONE
            order = [*order[1:], order[0]]
        seconds = sum(len(one.samples) for one in chosen) / SAMPLE_RATE
        title = f"{len(chosen)}: {name}, {seconds:.0f} s; {place.name}, beam {beam}"
        columns = "way|WER %|CER %|empty|CPU s|ratio|encoded|steps|decoded|aligned"
        table = make_table(title, columns, **NARROW)
        for way, texts in heard.items():
            empty = sum(not text.strip() for text in texts)
            cells = [f"{errors(chosen, texts):.1f}", f"{letters(chosen, texts):.1f}", str(empty)]
            cells += [f"{spent[way]:.1f}", f"{spent[way] / spent['batched']:.2f}"]
            counted = ("encoded", "steps", "decoded", "aligned")
            table.add_row(way, *cells, *(str(done[way][each]) for each in counted))
        Console().print(table)


if __name__ == "__main__":
    run_command(main)
