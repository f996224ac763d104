"""Says how many live streams of speech this machine holds: `trimodal plan speech`."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from trimodal.cli.common import one_sentence, with_settings

HEARD_S = 45.0


@dataclass(frozen=True)
class StreamsCommand:
    """The options of `trimodal plan speech`."""

    profile: Annotated[str, typer.Option(help="Whose config files: cpu, cuda or tensorrt.")] = "cpu"
    artefact: Annotated[Path | None, typer.Option(help="Of speech_recognize; else the config's.")] = None
    lag_s: Annotated[float, typer.Option(min=0.1, help="From a word's end to its commitment, p95.")] = 3.0
    json_: Annotated[bool, typer.Option("--json", help="Machine-readable.")] = False


@with_settings(StreamsCommand)
def speech(settings: StreamsCommand) -> None:
    """Time the built recogniser on people's speech, here and now: how many live streams keep the lag.

    Windows count one at a time, as a processor takes them; a GPU, which takes batches, holds more.
    """
    with one_sentence("plan"):
        from trimodal.bench.common.samples import read_utterances, speak
        from trimodal.bench.common.serving import settings_of
        from trimodal.metrics import MemoryMetrics
        from trimodal.paths import artefact_root, data_directory, default_repository
        from trimodal.plan.streams import lag_s, most_streams, play
        from trimodal.repository import select_models
        from trimodal.server.options import parse_profile
        from trimodal.speech.recognise.service import RecogniseService
        from trimodal.speech.session.vad import detectors
        from trimodal.speech.settings import RecogniseSettings, SpeechSettings

        models = select_models(default_repository(), ("speech",), parse_profile(settings.profile))
        listening = settings_of(SpeechSettings, models["speech"])
        changes = {"artefact": str(settings.artefact.resolve())} if settings.artefact else {}
        recogniser = settings_of(RecogniseSettings, models[listening.recognizer], changes)
        service = RecogniseService.open(artefact_root(listening.recognizer), recogniser, MemoryMetrics())
        spoken = speak(read_utterances(data_directory() / "samples" / "speech"), HEARD_S, seed=0)
        detector = detectors(listening.vad)(listening)
        played = play(spoken.samples, listening, detector, service.recognise_one)
        service.close()
        most = listening.max_streams
        held = most_streams(played, settings.lag_s, limit=most)
        lags = {count: lag_s(played, count, 0.95) for count in (held, held + 1) if 0 < count <= most}
        busy = sum(step.seconds for step in played.steps) / played.length_s
    if settings.lag_s > listening.refuse_lag_s:
        late = f"refuse_lag_s ({listening.refuse_lag_s:g} s)"
        typer.echo(f"plan: while a stream is heard later than {late}, the server takes no new ones", err=True)
    if settings.json_:
        told = {"streams": held, "max_streams": most, "p95_lag_s": lags, "recogniser_s_per_s": round(busy, 3)}
        typer.echo(json.dumps(told))
        return
    bound = ", as many as max_streams of speech allows" if held == most else ""
    typer.echo(f"{held} live streams{bound}; one keeps the recogniser busy for {busy:.2f} s a second")
    for count, lag in lags.items():
        typer.echo(f"lag p95 of {count}: {lag:.2f} s (at most {settings.lag_s:g} s)")
    command = ["trimodal", "bench", "speech", "--profile", settings.profile]
    for count in lags:
        command += ["--streams", str(count)]
    for name, text in changes.items():
        command += ["--set", f"{listening.recognizer}.{name}={text}"]
    typer.echo(f"Served: {shlex.join([*command, '--slo', f'p95_lag_ms<={1000 * settings.lag_s:g}'])}")
