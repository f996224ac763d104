"""`trimodal bench …`: load tests of the served models, see trimodal.bench."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, cast, get_args

import typer

from trimodal.cli.bench.options import SIDES, LoadOptions, size
from trimodal.cli.common import API_KEY, ApiKeyFile, is_typed, one_sentence, read_key, with_settings
from trimodal.paths import data_directory

if TYPE_CHECKING:
    from trimodal.audio.values import PolicyName

bench = typer.Typer(help="Send load to the served models, and say what came of it.", no_args_is_help=True)

BARE = "Take turns with the engine without a server, and print the ratio."
SAMPLES = typer.Option(
    data_directory() / "samples" / "speech",
    show_default="samples/speech",
    help="Recordings, with samples.json.",
)
DISTRIBUTION = "a number, or as uniform:8-64, lognormal:40,0.6."


@bench.command()
@with_settings(LoadOptions)
def llm(
    context: typer.Context,
    streams: list[int] = typer.Option([1, 8, 16], help="Clients of a closed loop; repeatable."),
    prompts: Path | None = typer.Option(
        None, show_default="samples/questions.txt", help="Ask the lines of this file."
    ),
    prompt_tokens: str = typer.Option("", help=f"Ask random words, so many tokens each: {DISTRIBUTION}"),
    max_tokens: str = typer.Option("64", help="Of an answer, in the same forms."),
    bare: bool = typer.Option(False, help=BARE, rich_help_panel=SIDES),
    beside: list[str] = typer.Option(
        [],
        help="Take turns with this server: http://…/v1 of OpenAI's API, or generate_stream; repeatable.",
        rich_help_panel=SIDES,
    ),
    api_key_file: ApiKeyFile = None,
    *,
    settings: LoadOptions,
) -> None:
    """Throughput, TTFT and ITL of the language model.

    Typical: trimodal bench llm --bare --streams 8

    Open loop: trimodal bench llm --rate 2 --slo "ttft_ms<=500,itl_ms<=60"
    """
    from trimodal.bench.scenarios.llm import LlmScenario, run_llm

    if prompts and prompt_tokens:
        raise typer.BadParameter("--prompts has its own texts: leave --prompt-tokens out")
    file = prompts or (None if prompt_tokens else data_directory() / "samples" / "questions.txt")
    mix = settings.mix(prompt_tokens or "64", max_tokens, prompts=file)
    over_http = settings.url.startswith("http") or beside
    if api_key_file and not over_http and is_typed(context, "api_key_file"):
        raise typer.BadParameter("--api-key-file is of HTTP: it goes with --url http://… or --beside")
    with one_sentence("bench"):
        key = read_key(api_key_file, API_KEY)
    measure = partial(run_llm, scenario=LlmScenario(mix, bare, tuple(beside)))
    settings.run(context, streams, measure, "llm", sides=bare or bool(beside), key=key)


@bench.command()
@with_settings(LoadOptions)
def vision(
    context: typer.Context,
    concurrency: list[int] = typer.Option([1, 4, 8, 16], min=1, help="Clients of a closed loop; repeatable."),
    batch: int = typer.Option(1, min=1, max=64, help="Images in a request."),
    image_size: str = typer.Option("224", help="Pixels of the JPEGs: 224 or 640x480."),
    bare: bool = typer.Option(False, help=BARE, rich_help_panel=SIDES),
    *,
    settings: LoadOptions,
) -> None:
    """Images a second and latency of the vision model.

    Typical: trimodal bench vision --bare --concurrency 16
    """
    from trimodal.bench.scenarios.media import run_vision

    width, height = size(image_size)
    measure = partial(run_vision, width=width, height=height, batch=batch, bare=bare)
    settings.run(context, concurrency, measure, "vision", sides=bare)


@bench.command()
@with_settings(LoadOptions)
def embedding(
    context: typer.Context,
    concurrency: list[int] = typer.Option([1, 8, 16], min=1, help="Clients of a closed loop; repeatable."),
    batch: int = typer.Option(1, min=1, max=64, help="Texts in a request."),
    words: str = typer.Option("16", help=f"Of a text: {DISTRIBUTION}"),
    *,
    settings: LoadOptions,
) -> None:
    """Texts a second and latency of the embedding model.

    Typical: trimodal bench embedding --concurrency 8
    """
    from trimodal.bench.load.lengths import parse_lengths
    from trimodal.bench.scenarios.media import run_embedding

    with one_sentence("bench"):
        drawn = parse_lengths(words, "--words")
    settings.run(context, concurrency, partial(run_embedding, words=drawn, batch=batch), "embedding")


@bench.command()
@with_settings(LoadOptions)
def speech(
    context: typer.Context,
    streams: list[int] = typer.Option([1, 2, 4, 8], min=1, max=4096, help="Streams at once; repeatable."),
    policy: str = typer.Option("", help="Of the streams: edge, vad or file; else the model's."),
    stream_seconds: float = typer.Option(20.0, min=1, max=3600, help="Length of a stream."),
    pace: float = typer.Option(
        1.0, min=0, max=100, help="4: four times as fast as it was spoken; 0: as fast as it is taken."
    ),
    chunk_ms: int = typer.Option(100, min=20, max=30_000, help="Audio in a chunk."),
    samples: Path = SAMPLES,
    *,
    settings: LoadOptions,
) -> None:
    """Lag and word error rate of live streams, and how many a server carries.

    Typical: trimodal bench speech --policy edge --streams 4 --seconds 60
    """
    from trimodal.audio.values import PolicyName
    from trimodal.bench.scenarios.media import run_speech

    if policy and policy not in get_args(PolicyName):
        raise typer.BadParameter(f"--policy {policy}: known are {', '.join(get_args(PolicyName))}")
    chosen = cast("PolicyName | None", policy or None)
    measure = partial(
        run_speech, samples=samples, seconds=stream_seconds, policy=chosen, chunk_s=chunk_ms / 1e3, pace=pace
    )
    # The first streams count: a stream has been played to warm up, and the next begin only when these end.
    settings.run(context, streams, measure, warm_up=0.0)
