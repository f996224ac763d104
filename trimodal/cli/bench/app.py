"""`trimodal bench …`: side-by-side measurements, see trimodal.bench."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, cast

import typer

from trimodal.cli.bench.common import check_writable, pair, run
from trimodal.cli.bench.overload import overload
from trimodal.cli.common import one_sentence

if TYPE_CHECKING:
    from trimodal.audio.values import PolicyName

bench = typer.Typer(
    help="Measure the served models, side by side with their bare engines.", no_args_is_help=True
)
bench.command()(overload)


@bench.command()
def llm(
    streams: list[int] = typer.Option([1, 8, 16], help="Concurrent streams; repeatable."),
    prompt_tokens: int = typer.Option(64, min=8, help="Tokens of a prompt."),
    max_tokens: int = typer.Option(64, min=2, help="Tokens of an answer."),
    rounds: int = typer.Option(3, min=1, max=50, help="Counted rounds for each number of streams."),
    bare: bool = typer.Option(False, help="Take turns with the bare engine and print the ratio."),
    prefix: int = typer.Option(0, min=0, help="Also TTFT warm against cold with a shared prefix this long."),
    prompts: Path | None = typer.Option(None, help="Ask the lines of this file, not random words."),
    artefact: Path | None = typer.Option(None, help="Another built engine than the config's."),
    set_: list[str] = typer.Option([], "--set", help="parameter=value of llm's config; repeatable."),
    versus: list[str] = typer.Option([], help="parameter=value for one more bare engine; repeatable."),
    json_: Path | None = typer.Option(None, "--json", help="Also write the figures to this file."),
) -> None:
    """Throughput, TTFT and ITL of the llm model.

    Typical: trimodal bench llm --bare --streams 8
    """
    from trimodal.bench.llm.bench import Plan, measure

    changes = dict(pair(text) for text in set_)
    if artefact:
        changes["artefact"] = str(artefact.resolve())
    plan = Plan(
        streams=tuple(streams),
        prompt_tokens=prompt_tokens,
        max_tokens=max_tokens,
        rounds=rounds,
        bare=bare,
        prefix_tokens=prefix,
        prompts=prompts,
        changes=changes,
        versus=dict(pair(text) for text in versus),
    )
    run(lambda console: measure(plan, console), json_)


@bench.command()
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
    torch: bool = typer.Option(False, help="Also the network in torch: FP16 with CUDA graphs, CPU: FP32."),
    pixels: bool = typer.Option(False, help="Also the classifier alone, served pixels that lie ready."),
    image_size: str = typer.Option("224", help="Pixels of the JPEGs: 224 or 640x480."),
    profile: str = typer.Option("cpu", help="cpu, cuda or tensorrt."),
    artefact: Path | None = typer.Option(None, help="Another built classifier than the config's."),
    set_: list[str] = typer.Option([], "--set", help="model.parameter=value; repeatable."),
    json_: Path | None = typer.Option(None, "--json", help="Also write the figures to this file."),
) -> None:
    """Images a second and latency of the vision ensemble.

    Typical: trimodal bench vision --bare --concurrency 16 --batch 16
    """
    from trimodal.bench.vision.bench import measure
    from trimodal.bench.vision.tables import Plan
    from trimodal.server.options import parse_profile
    from trimodal.server.overlay import parse_changes

    width, height = _size(image_size)

    with one_sentence("bench"):
        changes, chosen = parse_changes(set_), parse_profile(profile)
    if artefact:
        for model, key in (("preprocess", "classifier"), ("classify", "artefact"), ("rank", "classifier")):
            changes.setdefault(f"vision_{model}", {})[key] = str(artefact.resolve())
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
    )
    run(lambda console: measure(plan, console), json_)


@bench.command()
def embedding(
    concurrency: list[int] = typer.Option([1, 8, 16], min=1, help="Clients with single texts; repeatable."),
    words: int = typer.Option(16, min=1, max=2000, help="Words of a text."),
    seconds: float = typer.Option(3.0, min=0.05, max=60, help="For each case in each round."),
    rounds: int = typer.Option(3, min=1, max=50, help="Counted rounds."),
    bare: bool = typer.Option(False, help="Take turns with the bare engine and print the ratios."),
    profile: str = typer.Option("cpu", help="cpu, cuda or tensorrt."),
    set_: list[str] = typer.Option([], "--set", help="parameter=value of embedding's config; repeatable."),
    json_: Path | None = typer.Option(None, "--json", help="Also write the figures to this file."),
) -> None:
    """Texts a second and latency of the embedding model.

    Typical: trimodal bench embedding --bare --concurrency 8
    """
    from trimodal.bench.embedding import Plan, measure
    from trimodal.server.options import parse_profile

    with one_sentence("bench"):
        chosen = parse_profile(profile)
    changes = dict(pair(text) for text in set_)
    plan = Plan(tuple(concurrency), words, rounds, seconds, bare, changes, chosen)
    run(lambda console: measure(plan, console), json_)


@bench.command()
def speech(
    streams: list[int] = typer.Option([1, 2, 4, 8], min=1, max=64, help="Live streams; repeatable."),
    policy: list[str] = typer.Option(
        ["live", "agreement", "vad", "window"], help="Policy of the streams; repeatable."
    ),
    seconds: float = typer.Option(30.0, min=1, max=3600, help="Length of a stream."),
    chunk_ms: int = typer.Option(100, min=20, max=30_000, help="Audio in a chunk."),
    samples: Path = typer.Option("build/demo/speech/samples", help="Recordings, with samples.json."),
    capacity: bool = typer.Option(False, help="Instead: how many streams it carries, batched and not."),
    direct: bool = typer.Option(False, help="Instead: beside its bare engine and faster-whisper."),
    versus: list[Path] = typer.Option([], help="Instead: beside this built recogniser; repeatable."),
    window_s: list[float] = typer.Option([5.0, 30.0], min=1, max=30, help="Of the three above; repeatable."),
    batch: int = typer.Option(8, min=1, max=64, help="Windows of a batch with --direct and --versus."),
    rounds: int = typer.Option(3, min=1, max=50, help="Counted rounds of the three above."),
    loop_seconds: float = typer.Option(4.0, min=0.05, max=120, help="For each case in each round of them."),
    profile: str = typer.Option("cpu", help="cpu, cuda or tensorrt."),
    artefact: Path | None = typer.Option(None, help="Another built recogniser than the config's."),
    set_: list[str] = typer.Option([], "--set", help="model.parameter=value; repeatable."),
    json_: Path | None = typer.Option(None, "--json", help="Also write the figures to this file."),
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

    for name in policy:
        if name not in get_args(PolicyName):
            raise typer.BadParameter(f"--policy {name}: known are {', '.join(get_args(PolicyName))}")

    with one_sentence("bench"):
        changes, chosen = parse_changes(set_), parse_profile(profile)
    if artefact:
        changes.setdefault("speech_recognize", {})["artefact"] = str(artefact.resolve())
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
    )
    run(lambda console: measure(plan, console), json_)


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
def cache(
    part: str = typer.Option("", help="Of the project's pairs: report, or tune (also with --calibrate)."),
    pairs: Path | None = typer.Option(None, help="JSON lines of your own pairs instead."),
    max_false_hit: float = typer.Option(0.01, min=1e-9, max=1, help="Bound that the threshold is to keep."),
    calibration: Path | None = typer.Option(None, help="Another calibration than the shipped one."),
    calibrate: Path | None = typer.Option(None, help="Calibrate on the pairs, and write it to this file."),
    artefact: Path | None = typer.Option(None, help="Another built embedding engine than the config's."),
    accuracy_only: bool = typer.Option(False, help="Without latencies: no server is started."),
    show: int = typer.Option(0, min=0, help="Print at most so many false hits and misses."),
    json_: Path | None = typer.Option(None, "--json", help="Also write the figures to this file."),
) -> None:
    """Right and wrong hits of the semantic cache on labelled pairs, and the latency of a hit.

    Typical: trimodal bench cache --pairs pairs.jsonl --show 20
    """
    from trimodal.bench.cache.bench import Plan, measure

    if part not in ("", "report", "tune"):
        raise typer.BadParameter(f"--part {part}: known are report, tune")
    if part and pairs:
        raise typer.BadParameter("--part and --pairs: one of them")
    if calibrate and part == "report":
        raise typer.BadParameter(
            "--calibrate --part report: what is tuned on cannot be reported on; --part tune"
        )
    if calibrate and calibration:
        raise typer.BadParameter("--calibrate and --calibration: one of them")
    if calibrate:
        check_writable("--calibrate", calibrate)
    plan = Plan(
        part="tune" if part == "tune" or (calibrate and not pairs) else "report",
        pairs=pairs,
        calibration=calibration,
        calibrate=calibrate,
        max_false_hit=max_false_hit,
        artefact=artefact,
        accuracy_only=accuracy_only,
        show=show,
    )
    run(lambda console: measure(plan, console), json_)


def _size(text: str) -> tuple[int, int]:
    width, _, height = text.partition("x")
    if not (width.isdigit() and (height or width).isdigit()):
        raise typer.BadParameter(f"--image-size {text}: 224 or 640x480 is needed")
    size = int(width), int(height or width)
    if not 16 <= min(size) <= max(size) <= 4096:
        raise typer.BadParameter(f"--image-size {text}: 16 to 4096 pixels a side")
    return size
