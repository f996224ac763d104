"""Builds language models for OpenVINO's continuous-batching pipeline: checkpoint → artefact directory.

    python build/llm_openvino.py CHECKPOINT --precision int8 --precision int4

The torch model is exported once and compressed to each precision. Every artefact
is compared with the torch model before it replaces an older one, and it holds all
that the server needs, so serving takes neither torch nor transformers.
"""

from __future__ import annotations

import tempfile
from enum import Enum
from importlib.metadata import version
from pathlib import Path

import typer
from steps.llm.check import check, reference_samples
from steps.llm.checkpoint import Checkpoint, check_causal, quiet, read_texts
from steps.llm.export import SAMPLE_TOKENS, Compression, compress, export, group_size, import_converters

from trimodal.build_support import build_command, operator_errors, progress, report, resolve_checkpoint
from trimodal.errors import ArtefactError
from trimodal.manifest import Manifest, atomic_directory, checkpoint_sha256, write_manifest
from trimodal.paths import artefact_root

REPOSITORY = artefact_root("llm")
FEWEST_SAMPLES, MOST_SAMPLES = 16, 512  # Fewer mislead; more cost time and change little. Use 128 or more.


class Precision(str, Enum):
    fp32 = "fp32"
    fp16 = "fp16"
    int8 = "int8"
    int4 = "int4"


# What a sound build reaches on ordinary text; a wrong graph or tokenizer falls far below.
MIN_AGREEMENT = {Precision.fp32: 0.9, Precision.fp16: 0.9, Precision.int8: 0.9, Precision.int4: 0.5}


def main(
    source: str = typer.Argument(..., help="checkpoint directory or hub id of a causal language model"),
    precision: list[Precision] = typer.Option(["int8"], help="of the weights; repeat it to build several"),
    name: str = typer.Option("openvino-{precision}", help="directory under model_repository/llm/1"),
    out: str = typer.Option("", help="directory of the artefact, in place of --name"),
    calibration: Path = typer.Option(None, help="int4: text file, one sample a line or paragraph"),
    awq: bool = typer.Option(False, help="int4: activation-aware scaling of the weights first"),
    ratio: float = typer.Option(1.0, min=0, max=1, help="int4: share of layers; the others get int8"),
    check_file: Path = typer.Option(None, help="check on these texts, not on greedy answers"),
    min_agreement: float = typer.Option(
        None,
        min=0,
        max=1,
        help="refuse a lower token agreement with torch (default 0.9; int4 0.5; 0 for random weights)",
    ),
) -> None:
    """Build SOURCE for OpenVINO, compare it with torch, and put it in place."""
    with operator_errors():
        targets = {each: _target(each, name, out) for each in precision}
        if len(set(targets.values())) < len(targets):
            raise ArtefactError(
                "each precision needs its own directory: put {precision} into --name or --out"
            )
        if Precision.int4 not in targets and (calibration or awq or ratio < 1):
            raise ArtefactError("--calibration, --awq and --ratio apply to --precision int4 only")
        samples = read_texts(calibration, at_least=FEWEST_SAMPLES) if calibration else []
        texts = read_texts(check_file, at_least=1) if check_file else []
        directory = resolve_checkpoint(source)
        check_causal(directory, source)
        quiet()
        with progress("Loading torch, the converters and the checkpoint"):
            import_converters()
            checkpoint = Checkpoint(directory)
        reference = reference_samples(checkpoint, texts)
        folder = next(iter(targets.values())).parent
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".export-", dir=folder) as scratch:
            with progress("Exporting"):
                export(checkpoint, Path(scratch))
            data = [checkpoint.encode(text)[:SAMPLE_TOKENS] for text in _spread(samples, MOST_SAMPLES)]
            for each, target in targets.items():
                limit = _limit(each, min_agreement, checkpoint)
                manifest = Manifest(
                    task="llm",
                    runtime="openvino",
                    runtime_version=version("openvino"),
                    precision=each.value,
                    source=directory.name if Path(source).is_dir() else source,
                    source_sha256=checkpoint_sha256(directory),
                    command=build_command("build/llm_openvino.py"),
                    shapes=checkpoint.shapes(),
                    extra=checkpoint.special_ids()
                    | {
                        "has_chat_template": checkpoint.has_chat_template,
                        "random_weights": checkpoint.random_weights,
                    },
                )
                with atomic_directory(target) as work:
                    with progress(f"Writing {each.value}"):
                        compression = Compression(each.value, group_size(checkpoint), ratio, awq, data)
                        manifest.extra |= compress(Path(scratch), work, compression)
                        checkpoint.write_tokenizer(work)
                    if each is Precision.int4 and calibration:
                        manifest.calibration = {"file": calibration.name, "samples": len(data)}
                    manifest.check = check(checkpoint, work, reference) | {"min_agreement": limit}
                    report(f"{target.name}: {manifest.source} against torch", manifest.check)
                    _refuse_below(limit, manifest)
                    write_manifest(work, manifest)
                size = sum(path.stat().st_size for path in target.iterdir()) / 1e6
                report("Built", {"artefact": target, "size": f"{size:.1f} MB"})


def _target(precision: Precision, name: str, out: str) -> Path:
    if out:
        return Path(out.replace("{precision}", precision.value)).resolve()
    if Path(name).name != name:
        raise ArtefactError(f"--name {name!r} is not a plain directory name: use --out for a path")
    return REPOSITORY / name.replace("{precision}", precision.value)


def _limit(precision: Precision, asked: float | None, checkpoint: Checkpoint) -> float:
    if asked is not None:
        return asked
    return 0.0 if checkpoint.random_weights else MIN_AGREEMENT[precision]


def _spread(samples: list[str], most: int) -> list[str]:
    """At most `most` samples, evenly over the file."""
    if len(samples) <= most:
        return samples
    return [samples[index * len(samples) // most] for index in range(most)]


def _refuse_below(limit: float, manifest: Manifest) -> None:
    agreement = manifest.check["token_agreement"]
    if agreement < limit:
        raise ArtefactError(
            f"{manifest.precision} agrees with torch on {agreement:.1%} of the tokens, less than "
            f"--min-agreement {limit:g}: nothing was replaced"
        )


if __name__ == "__main__":
    typer.run(main)
