"""`trimodal bench …`: load tests of the served models, see trimodal.bench."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, cast

import typer

from trimodal.cli.bench.options import (
    SERVER,
    SIDES,
    LoadOptions,
    lengths,
    shared_prefix,
    size,
    with_load,
)
from trimodal.cli.bench.overload import overload
from trimodal.cli.bench.run import run_load
from trimodal.cli.common import API_KEY, ApiKeyFile, one_sentence, read_key

if TYPE_CHECKING:
    from trimodal.audio.values import PolicyName

bench = typer.Typer(help="Send load to the served models, and say what came of it.", no_args_is_help=True)
bench.command()(overload)

BARE = "Take turns with the engine without a server, and print the ratio."
SAMPLES = "build/demo/speech/samples"
DISTRIBUTION = "a number, or as uniform:8-64, normal:40,8, lognormal:40,0.6."


@bench.command()
@with_load
def llm(
    streams: list[int] = typer.Option([1, 8, 16], help="Clients of a closed loop; repeatable."),
    prompt_tokens: str = typer.Option("64", help=f"Of a prompt: {DISTRIBUTION}"),
    max_tokens: str = typer.Option("64", help="Of an answer, in the same forms."),
    prompts: Path | None = typer.Option(None, help="Ask the lines of this file, not random words."),
    shared: str = typer.Option(
        "", "--shared-prefix", help="SHARE:TOKENS: so many prompts begin alike, as 0.5:400."
    ),
    cancel_share: float = typer.Option(0.0, min=0, max=1, help="Of requests that the client leaves."),
    ignore_eos: bool = typer.Option(False, help="Ask servers that know it for answers of full length."),
    bare: bool = typer.Option(False, help=BARE, rich_help_panel=SIDES),
    beside: list[str] = typer.Option(
        [],
        help="Take turns with this server: http://…/v1 of OpenAI's API, or generate_stream; repeatable.",
        rich_help_panel=SIDES,
    ),
    artefact: Path | None = typer.Option(
        None, help="Another built engine than the config's.", rich_help_panel=SERVER
    ),
    http: bool = typer.Option(False, help="Over HTTP's generate_stream, not gRPC.", rich_help_panel=SERVER),
    api_key_file: ApiKeyFile = None,
    *,
    load: LoadOptions,
) -> None:
    """Throughput, TTFT and ITL of the language model.

    Typical: trimodal bench llm --bare --streams 8

    Open loop: trimodal bench llm --rate 2 --slo "ttft_ms<=500,itl_ms<=60" --html report.html
    """
    from trimodal.bench.scenarios.llm import LlmScenario, run_llm
    from trimodal.bench.scenarios.server import LoadTest

    prompt, answer = lengths(prompt_tokens, "--prompt-tokens", 8), lengths(max_tokens, "--max-tokens", 2)
    mix = load.mix(prompt, answer, prompts, cancel_share=cancel_share, **shared_prefix(shared))
    profile, changes = load.started("llm", artefact)
    with one_sentence("bench"):
        key = read_key(api_key_file, API_KEY)
    plan = load.plan(streams, sides=bare or bool(beside))
    scenario = LlmScenario(mix, http, bare, tuple(beside), ignore_eos)
    test = LoadTest(plan, key=key, profile=profile, changes=changes)
    run_load("llm", load, test, partial(run_llm, scenario=scenario))


@bench.command()
@with_load
def vision(
    concurrency: list[int] = typer.Option([1, 4, 8, 16], min=1, help="Clients of a closed loop; repeatable."),
    batch: int = typer.Option(1, min=1, max=64, help="Images in a request."),
    image_size: str = typer.Option("224", help="Pixels of the JPEGs: 224 or 640x480."),
    bare: bool = typer.Option(False, help=BARE, rich_help_panel=SIDES),
    artefact: Path | None = typer.Option(
        None, help="Another built classifier than the config's.", rich_help_panel=SERVER
    ),
    *,
    load: LoadOptions,
) -> None:
    """Images a second and latency of the vision model.

    Typical: trimodal bench vision --bare --concurrency 16
    """
    from trimodal.bench.scenarios.media import run_vision
    from trimodal.bench.scenarios.server import LoadTest

    width, height = size(image_size)
    profile, changes = load.started("vision", artefact)
    test = LoadTest(load.plan(concurrency, sides=bare), profile=profile, changes=changes)
    run_load("vision", load, test, partial(run_vision, width=width, height=height, batch=batch, bare=bare))


@bench.command()
@with_load
def embedding(
    concurrency: list[int] = typer.Option([1, 8, 16], min=1, help="Clients of a closed loop; repeatable."),
    words: str = typer.Option("16", help=f"Of a text: {DISTRIBUTION}"),
    bare: bool = typer.Option(False, help=BARE, rich_help_panel=SIDES),
    *,
    load: LoadOptions,
) -> None:
    """Texts a second and latency of the embedding model.

    Typical: trimodal bench embedding --bare --concurrency 8
    """
    from trimodal.bench.scenarios.media import run_embedding
    from trimodal.bench.scenarios.server import LoadTest

    measure = partial(run_embedding, words=lengths(words, "--words"), bare=bare)
    profile, changes = load.started("embedding")
    test = LoadTest(load.plan(concurrency, sides=bare), profile=profile, changes=changes)
    run_load("embedding", load, test, measure)


@bench.command()
@with_load
def speech(
    streams: list[int] = typer.Option([1, 2, 4, 8], min=1, max=64, help="Live streams at once; repeatable."),
    policy: str = typer.Option("", help="Of the streams: live, agreement, vad, window; else the model's."),
    stream_seconds: float = typer.Option(20.0, min=1, max=3600, help="Length of a stream."),
    pace: float = typer.Option(
        1.0, min=0, max=100, help="4: four times as fast as it was spoken; 0: as fast as it is taken."
    ),
    chunk_ms: int = typer.Option(100, min=20, max=30_000, help="Audio in a chunk."),
    samples: Path = typer.Option(SAMPLES, help="Recordings, with samples.json."),
    artefact: Path | None = typer.Option(
        None, help="Another built recogniser than the config's.", rich_help_panel=SERVER
    ),
    *,
    load: LoadOptions,
) -> None:
    """Lag and word error rate of live streams, and how many a server carries.

    Typical: trimodal bench speech --policy live --streams 4 --seconds 60
    """
    from typing import get_args

    from trimodal.audio.values import PolicyName
    from trimodal.bench.scenarios.media import SpeechScenario, run_speech
    from trimodal.bench.scenarios.server import LoadTest

    if policy and policy not in get_args(PolicyName):
        raise typer.BadParameter(f"--policy {policy}: known are {', '.join(get_args(PolicyName))}")
    profile, changes = load.started()
    if artefact:
        changes.setdefault("speech_recognize", {})["artefact"] = str(artefact.resolve())
    chosen = cast("PolicyName | None", policy or None)
    scenario = SpeechScenario(samples, stream_seconds, chosen, chunk_ms / 1e3, pace)
    # The first streams count: a stream has been played to warm up, and the next begin only when these end.
    test = LoadTest(load.plan(streams, warm_up=0.0), profile=profile, changes=changes)
    run_load("speech", load, test, partial(run_speech, speech=scenario))


@bench.command()
@with_load
def assistant(
    concurrency: list[int] = typer.Option([1, 4], min=1, help="Clients of a closed loop; repeatable."),
    prompt_tokens: str = typer.Option("32", help=f"Of a question's text: {DISTRIBUTION}"),
    max_tokens: str = typer.Option("32", help="Of an answer, in the same forms."),
    image_size: str = typer.Option("224", help="Pixels of the image in each question; 0: none."),
    speech_s: float = typer.Option(0.0, min=0, max=30, help="Seconds of speech in each; 0: none."),
    samples: Path = typer.Option(SAMPLES, help="Recordings, with samples.json."),
    cancel_share: float = typer.Option(0.0, min=0, max=1, help="Of requests that the client leaves."),
    *,
    load: LoadOptions,
) -> None:
    """TTFT and throughput of the assistant: questions with an image, speech or both.

    Typical: trimodal bench assistant --rate 1 --slo "ttft_ms<=1500"
    """
    from trimodal.bench.scenarios.media import run_assistant
    from trimodal.bench.scenarios.server import LoadTest

    image = None if image_size == "0" else size(image_size)
    prompt, answer = lengths(prompt_tokens, "--prompt-tokens"), lengths(max_tokens, "--max-tokens")
    mix = load.mix(prompt, answer, cancel_share=cancel_share)
    profile, changes = load.started()
    test = LoadTest(load.plan(concurrency), profile=profile, changes=changes)
    heard = samples if speech_s else None
    measure = partial(run_assistant, mix=mix, image=image, samples=heard, seconds=speech_s)
    run_load("assistant", load, test, measure)


@bench.command()
@with_load
def cache(
    streams: list[int] = typer.Option([8], min=1, help="Clients of a closed loop; repeatable."),
    repeat_share: float = typer.Option(0.5, min=0, max=1, help="Of requests that were asked before."),
    layer: str = typer.Option("exact", help="exact, or semantic too."),
    prompt_tokens: str = typer.Option("64", help=f"Of a prompt: {DISTRIBUTION}"),
    max_tokens: str = typer.Option("32", help="Of an answer, in the same forms."),
    *,
    load: LoadOptions,
) -> None:
    """The language model with its answer cache on: hits and misses told apart.

    Typical: trimodal bench cache --rate 10 --repeat-share 0.5
    """
    from trimodal.bench.scenarios.llm import LlmScenario, run_llm
    from trimodal.bench.scenarios.server import LoadTest

    if layer not in ("exact", "semantic"):
        raise typer.BadParameter(f"--layer {layer}: known are exact, semantic")
    prompt, answer = lengths(prompt_tokens, "--prompt-tokens", 8), lengths(max_tokens, "--max-tokens", 2)
    mix = load.mix(prompt, answer, repeat_share=repeat_share)
    profile, changes = load.started("llm")
    test = LoadTest(load.plan(streams), profile=profile, changes=changes)
    run_load("llm", load, test, partial(run_llm, scenario=LlmScenario(mix, cache=layer)))
