"""`trimodal bench …`: side-by-side measurements, see trimodal.bench."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, cast

import typer

from trimodal.cli.bench.common import check_peer, pair, run
from trimodal.cli.bench.load import LoadOptions, lengths, mix_of, run_load, with_load
from trimodal.cli.bench.overload import overload
from trimodal.cli.common import API_KEY, ApiKeyFile, one_sentence, read_key

if TYPE_CHECKING:
    from trimodal.audio.values import PolicyName
    from trimodal.bench.peers.process import PeerName

bench = typer.Typer(
    help="Measure the served models, side by side with their bare engines.", no_args_is_help=True
)
bench.command()(overload)


@bench.command()
@with_load
def llm(
    streams: list[int] = typer.Option([1, 8, 16], help="Concurrent streams; repeatable."),
    prompt_tokens: list[str] = typer.Option(
        ["64"], help="Tokens of a prompt; repeatable. In a load test also uniform:32-256, lognormal:400,0.6."
    ),
    max_tokens: str = typer.Option("64", help="Tokens of an answer; in a load test also a distribution."),
    rounds: int = typer.Option(3, min=1, max=50, help="Counted rounds for each number of streams."),
    bare: bool = typer.Option(False, help="Take turns with the bare engine and print the ratio."),
    prefix: int = typer.Option(0, min=0, help="Also TTFT warm against cold with a shared prefix this long."),
    prompts: Path | None = typer.Option(None, help="Ask the lines of this file, not random words."),
    artefact: Path | None = typer.Option(None, help="Another built engine than the config's."),
    set_: list[str] = typer.Option([], "--set", help="parameter=value of llm's config; repeatable."),
    versus: list[str] = typer.Option([], help="parameter=value for one more bare engine; repeatable."),
    peer: str = typer.Option("", help="fastapi: take turns with FastAPI + transformers on the checkpoint."),
    peer_dtype: list[str] = typer.Option(["bfloat16", "float32"], help="Of the peer's weights; repeatable."),
    peer_checkpoint: Path | None = typer.Option(None, help="Other than the artefact's manifest names."),
    http: bool = typer.Option(False, help="Load test over HTTP's generate_stream, not gRPC."),
    api_key_file: ApiKeyFile = None,
    ignore_eos: bool = typer.Option(False, help="Ask servers that know it for answers of full length."),
    shared_prefix: str = typer.Option("", help="SHARE:TOKENS: so many prompts begin alike, as 0.5:400."),
    cancel_share: float = typer.Option(0.0, min=0, max=1, help="Of requests that the client leaves."),
    json_: Path | None = typer.Option(None, "--json", help="Also write the figures to this file."),
    *,
    load: LoadOptions,
) -> None:
    """Throughput, TTFT and ITL of the llm model: in rounds side by side, or as a load test.

    Typical: trimodal bench llm --bare --streams 8

    Load: trimodal bench llm --load poisson --rate 2 --slo "ttft_ms<=500,itl_ms<=60" --html report.html
    """
    from typing import get_args

    from trimodal.bench.llm.bench import Plan, measure
    from trimodal.bench.llm.peer import Dtype

    check_peer(peer)
    for name in peer_dtype:
        if name not in get_args(Dtype):
            raise typer.BadParameter(f"--peer-dtype {name}: known are {', '.join(get_args(Dtype))}")

    changes = dict(pair(text) for text in set_)
    if artefact:
        changes["artefact"] = str(artefact.resolve())
    prompt_lengths = lengths(prompt_tokens, "--prompt-tokens", 8)
    (answer_lengths,) = lengths([max_tokens], "--max-tokens", 2)
    if load.wanted:
        from trimodal.bench.drive.llm import LlmDrive, drive_llm

        if len(prompt_lengths) > 1 or versus or prefix:
            raise typer.BadParameter("a load test takes one --prompt-tokens, and no --versus or --prefix")
        with one_sentence("bench"):
            load_plan = load.plan(streams)
            key = read_key(api_key_file, API_KEY)
            mix = mix_of(load, prompt_lengths[0], answer_lengths, shared_prefix, cancel_share, prompts)
        wanted = LlmDrive(
            mix,
            bare,
            tuple(cast("list[Dtype]", peer_dtype)) if peer else (),
            peer_checkpoint,
            ignore_eos,
        )
        more = {"http": http, "key": key, "changes": {"llm": changes}}
        run_load("llm", load, load_plan, lambda drive: drive_llm(drive, wanted), json_, **more)
        return
    if any(one.kind != "fixed" for one in (*prompt_lengths, answer_lengths)):
        raise typer.BadParameter("distributions of lengths are of a load test: say --load closed, or which")
    plan = Plan(
        streams=tuple(streams),
        prompt_tokens=tuple(one.typical for one in prompt_lengths),
        max_tokens=answer_lengths.typical,
        rounds=rounds,
        bare=bare,
        prefix_tokens=prefix,
        prompts=prompts,
        changes=changes,
        versus=dict(pair(text) for text in versus),
        peer=cast("PeerName", peer),
        peer_dtypes=tuple(cast("list[Dtype]", peer_dtype)),
        peer_checkpoint=peer_checkpoint,
    )
    run(lambda console: measure(plan, console), json_)


@bench.command()
@with_load
def vision(
    concurrency: list[int] = typer.Option(
        [1, 4, 8, 16], min=1, help="Clients with single images; repeatable."
    ),
    batch: list[int] = typer.Option([8], min=1, max=64, help="Images a request of 3 clients; repeatable."),
    max_batch: int = typer.Option(
        0, min=0, max=256, help="Serve in batches of up to so many images; 0: as configured."
    ),
    seconds: float = typer.Option(3.0, min=0.05, max=60, help="For each case in each round."),
    rounds: int = typer.Option(3, min=1, max=50, help="Counted rounds."),
    bare: bool = typer.Option(False, help="Take turns with the bare engine and print the ratios."),
    peer: str = typer.Option("", help="fastapi: take turns with FastAPI + torch on the checkpoint."),
    peer_checkpoint: Path | None = typer.Option(None, help="Other than the artefact's manifest names."),
    torch: bool = typer.Option(False, help="Also the network in torch: FP16 with CUDA graphs, CPU: FP32."),
    pixels: bool = typer.Option(
        False, help="Profile tensorrt: also its classifier alone, served pixels that lie ready."
    ),
    image_size: str = typer.Option("224", help="Pixels of the JPEGs: 224 or 640x480."),
    profile: str = typer.Option("cpu", help="cpu, cuda or tensorrt."),
    artefact: Path | None = typer.Option(None, help="Another built classifier than the config's."),
    set_: list[str] = typer.Option([], "--set", help="model.parameter=value; repeatable."),
    json_: Path | None = typer.Option(None, "--json", help="Also write the figures to this file."),
    *,
    load: LoadOptions,
) -> None:
    """Images a second and latency of the vision model.

    Typical: trimodal bench vision --bare --concurrency 16 --batch 16
    """
    from trimodal.bench.vision.bench import measure
    from trimodal.bench.vision.tables import Plan
    from trimodal.server.options import parse_profile
    from trimodal.server.overlay import parse_changes

    check_peer(peer)
    width, height = _size(image_size)

    with one_sentence("bench"):
        changes, chosen = parse_changes(set_), parse_profile(profile)
    if artefact:
        changes.setdefault("vision", {})["artefact"] = str(artefact.resolve())
    if load.wanted:
        from trimodal.bench.drive.others import drive_vision

        if peer or torch or pixels:
            raise typer.BadParameter("--peer, --torch and --pixels are no load tests: leave them out")
        if len(batch) > 1:
            raise typer.BadParameter("a load test takes one --batch")
        with one_sentence("bench"):
            load_plan = load.plan(concurrency)
        each = batch[0] if batch != [8] else 1
        more = {"profile": chosen, "changes": changes}
        measuring = partial(drive_vision, width=width, height=height, batch=each, bare=bare)
        run_load("vision", load, load_plan, measuring, json_, **more)
        return
    plan = Plan(
        concurrency=tuple(concurrency),
        batches=tuple(batch),
        rounds=rounds,
        seconds=seconds,
        bare=bare,
        width=width,
        height=height,
        changes=changes,
        profile=chosen,
        torch=torch,
        pixels=pixels,
        max_batch=max_batch,
        peer=cast("PeerName", peer),
        peer_checkpoint=peer_checkpoint,
    )
    run(lambda console: measure(plan, console), json_)


@bench.command()
@with_load
def embedding(
    concurrency: list[int] = typer.Option([1, 8, 16], min=1, help="Clients with single texts; repeatable."),
    words: int = typer.Option(16, min=1, max=2000, help="Words of a text."),
    text_words: str = typer.Option("", help="In a load test: a distribution of them, as uniform:4-200."),
    seconds: float = typer.Option(3.0, min=0.05, max=60, help="For each case in each round."),
    rounds: int = typer.Option(3, min=1, max=50, help="Counted rounds."),
    bare: bool = typer.Option(False, help="Take turns with the bare engine and print the ratios."),
    profile: str = typer.Option("cpu", help="cpu, cuda or tensorrt."),
    set_: list[str] = typer.Option([], "--set", help="parameter=value of embedding's config; repeatable."),
    json_: Path | None = typer.Option(None, "--json", help="Also write the figures to this file."),
    *,
    load: LoadOptions,
) -> None:
    """Texts a second and latency of the embedding model.

    Typical: trimodal bench embedding --bare --concurrency 8
    """
    from trimodal.bench.embedding import Plan, measure
    from trimodal.server.options import parse_profile

    with one_sentence("bench"):
        chosen = parse_profile(profile)
    changes = dict(pair(text) for text in set_)
    if load.wanted:
        from trimodal.bench.drive.others import drive_embedding

        (words_each,) = lengths([text_words or str(words)], "--text-words")
        with one_sentence("bench"):
            load_plan = load.plan(concurrency)
        more = {"profile": chosen, "changes": {"embedding": changes}}
        run_load(
            "embedding",
            load,
            load_plan,
            partial(drive_embedding, lengths=words_each, bare=bare),
            json_,
            **more,
        )
        return
    plan = Plan(tuple(concurrency), words, rounds, seconds, bare, changes, chosen)
    run(lambda console: measure(plan, console), json_)


@bench.command()
@with_load
def speech(
    streams: list[int] = typer.Option([1, 2, 4, 8], min=1, max=64, help="Live streams; repeatable."),
    policy: list[str] = typer.Option(
        ["live", "agreement", "vad", "window"], help="Policy of the streams; repeatable."
    ),
    seconds: float = typer.Option(30.0, min=1, max=3600, help="Length of a stream."),
    pace: float = typer.Option(
        1.0, min=0, max=100, help="In a load test: 4 plays four times as fast; 0 as fast as it is taken."
    ),
    chunk_ms: int = typer.Option(100, min=20, max=30_000, help="Audio in a chunk."),
    samples: Path = typer.Option("build/demo/speech/samples", help="Recordings, with samples.json."),
    capacity: bool = typer.Option(False, help="Instead: how many streams it carries, batched and not."),
    direct: bool = typer.Option(False, help="Instead: beside its bare engine and faster-whisper."),
    versus: list[Path] = typer.Option([], help="Instead: beside this built recogniser; repeatable."),
    peer: str = typer.Option("", help="fastapi: instead: beside FastAPI + faster-whisper on the same model."),
    peer_checkpoint: Path | None = typer.Option(None, help="Another CTranslate2 model for the peer."),
    window_s: list[float] = typer.Option([5.0, 30.0], min=1, max=30, help="Of the four above; repeatable."),
    batch: int = typer.Option(
        8, min=1, max=64, help="Windows of a batch with --direct, --peer and --versus."
    ),
    rounds: int = typer.Option(3, min=1, max=50, help="Counted rounds of the four above."),
    loop_seconds: float = typer.Option(4.0, min=0.05, max=120, help="For each case in each round of them."),
    profile: str = typer.Option("cpu", help="cpu, cuda or tensorrt."),
    artefact: Path | None = typer.Option(None, help="Another built recogniser than the config's."),
    set_: list[str] = typer.Option([], "--set", help="model.parameter=value; repeatable."),
    json_: Path | None = typer.Option(None, "--json", help="Also write the figures to this file."),
    *,
    load: LoadOptions,
) -> None:
    """Word error rate and lag of live streams, batches and compute of the recogniser.

    Typical: trimodal bench speech --policy live --streams 4 --seconds 60
    """
    from typing import get_args

    from trimodal.audio.values import PolicyName
    from trimodal.bench.speech.bench import measure
    from trimodal.bench.speech.figures import Plan
    from trimodal.server.options import parse_profile
    from trimodal.server.overlay import parse_changes

    check_peer(peer)
    for name in policy:
        if name not in get_args(PolicyName):
            raise typer.BadParameter(f"--policy {name}: known are {', '.join(get_args(PolicyName))}")

    with one_sentence("bench"):
        changes, chosen = parse_changes(set_), parse_profile(profile)
    if artefact:
        changes.setdefault("speech_recognize", {})["artefact"] = str(artefact.resolve())
    if load.wanted:
        from trimodal.bench.drive.others import SpeechDrive, drive_speech

        if capacity or direct or versus or peer:
            raise typer.BadParameter("--capacity, --direct, --versus and --peer are no load tests")
        with one_sentence("bench"):
            load_plan = load.plan(streams)
        chosen_policy = cast("PolicyName", policy[0]) if len(policy) == 1 else None
        wanted = SpeechDrive(samples, seconds, chosen_policy, chunk_ms / 1e3, pace)
        more = {"profile": chosen, "changes": changes}
        run_load("speech", load, load_plan, lambda drive: drive_speech(drive, wanted), json_, **more)
        return
    plan = Plan(
        streams=tuple(streams),
        policies=tuple(cast("list[PolicyName]", policy)),
        seconds=seconds,
        chunk_s=chunk_ms / 1e3,
        samples=samples,
        capacity=capacity,
        direct=direct,
        versus=tuple(versus),
        window_s=tuple(window_s),
        batch=batch,
        rounds=rounds,
        loop_s=loop_seconds,
        changes=changes,
        profile=chosen,
        peer=cast("PeerName", peer),
        peer_checkpoint=peer_checkpoint,
    )
    run(lambda console: measure(plan, console), json_)


@bench.command()
@partial(with_load, always=True)
def assistant(
    concurrency: list[int] = typer.Option([1, 4], min=1, help="Clients; repeatable."),
    prompt_tokens: str = typer.Option("32", help="Tokens of a question's text, or a distribution."),
    max_tokens: str = typer.Option("32", help="Tokens of an answer, or a distribution."),
    image_size: str = typer.Option("224", help="Pixels of the image in each question; 0: none."),
    speech_s: float = typer.Option(0.0, min=0, max=30, help="Seconds of speech in each; 0: none."),
    samples: Path = typer.Option("build/demo/speech/samples", help="Recordings, with samples.json."),
    cancel_share: float = typer.Option(0.0, min=0, max=1, help="Of requests that the client leaves."),
    profile: str = typer.Option("cpu", help="cpu, cuda or tensorrt."),
    set_: list[str] = typer.Option([], "--set", help="model.parameter=value; repeatable."),
    json_: Path | None = typer.Option(None, "--json", help="Also write the figures to this file."),
    *,
    load: LoadOptions,
) -> None:
    """Load on the assistant: questions with an image, speech or both.

    Typical: trimodal bench assistant --load poisson --rate 1 --slo "ttft_ms<=1500"
    """
    from trimodal.bench.drive.others import drive_assistant
    from trimodal.server.options import parse_profile
    from trimodal.server.overlay import parse_changes

    size = None if image_size == "0" else _size(image_size)
    (prompt_lengths,) = lengths([prompt_tokens], "--prompt-tokens")
    (answer_lengths,) = lengths([max_tokens], "--max-tokens")
    with one_sentence("bench"):
        changes, chosen = parse_changes(set_), parse_profile(profile)
        plan = load.plan(concurrency)
        mix = mix_of(load, prompt_lengths, answer_lengths, cancel_share=cancel_share)
    heard = samples if speech_s else None
    more = {"profile": chosen, "changes": changes}
    run_load(
        "assistant",
        load,
        plan,
        lambda drive: drive_assistant(drive, mix, image=size, samples=heard, seconds=speech_s),
        json_,
        **more,
    )


@bench.command()
def stall(
    requests: int = typer.Option(3000, min=1, max=1_000_000, help="Sent one after the other."),
    json_: Path | None = typer.Option(None, "--json", help="Also write the figures to this file."),
) -> None:
    """Sequential requests to a trivial model: none may take about 500 ms (exit code 1).

    Typical: trimodal bench stall
    """
    from trimodal.bench.stall import measure

    figures = run(lambda console: measure(requests, console), json_)
    if figures["stalled"]:
        raise typer.Exit(1)


@bench.command()
@with_load
def cache(
    streams: list[int] = typer.Option([8], min=1, help="Clients; repeatable."),
    repeat_share: float = typer.Option(0.5, min=0, max=1, help="Were asked before."),
    layer: str = typer.Option("exact", help="exact, or semantic too."),
    prompt_tokens: str = typer.Option("64", help="In a load test: a number or a distribution."),
    max_tokens: str = typer.Option("32", help="In a load test: a number or a distribution."),
    set_: list[str] = typer.Option([], "--set", help="In a load test: parameter=value of llm's config."),
    json_: Path | None = typer.Option(None, "--json", help="Also write the figures to this file."),
    *,
    load: LoadOptions,
) -> None:
    """Answers from the llm's cache under load: hits and misses told apart.

    Typical: trimodal bench cache --rate 20 --repeat-share 0.8
    """
    from trimodal.bench.drive.llm import LlmDrive, drive_cache

    if layer not in ("exact", "semantic"):
        raise typer.BadParameter(f"--layer {layer}: known are exact, semantic")
    (prompt_lengths,) = lengths([prompt_tokens], "--prompt-tokens", 8)
    (answer_lengths,) = lengths([max_tokens], "--max-tokens", 2)
    with one_sentence("bench"):
        load_plan = load.plan(streams)
        mix = mix_of(load, prompt_lengths, answer_lengths, repeat_share=repeat_share)
    more = {"changes": {"llm": dict(pair(text) for text in set_)}}
    run_load("llm", load, load_plan, lambda drive: drive_cache(drive, LlmDrive(mix), layer), json_, **more)


def _size(text: str) -> tuple[int, int]:
    width, _, height = text.partition("x")
    if not (width.isdigit() and (height or width).isdigit()):
        raise typer.BadParameter(f"--image-size {text}: 224 or 640x480 is needed")
    size = int(width), int(height or width)
    if not 16 <= min(size) <= max(size) <= 4096:
        raise typer.BadParameter(f"--image-size {text}: 16 to 4096 pixels a side")
    return size
