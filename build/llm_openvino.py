"""Builds language models for OpenVINO's continuous-batching pipeline: checkpoint → artefact directory.

    python build/llm_openvino.py CHECKPOINT --precision int8 --precision int4

The torch model is exported once and compressed to each precision. Every artefact
is compared with the torch model before it replaces an older one, and it holds all
that the server needs, so serving takes neither torch nor transformers.
"""

from __future__ import annotations

from enum import Enum
from importlib.metadata import version
from pathlib import Path

import typer
from steps.artefact import (
    WEIGHT_BYTES,
    check_weights_fit,
    evenly,
    origin,
    refuse_below,
    refuse_perplexity,
    targets,
    tell_built,
    tell_check,
)
from steps.llm.check import check, reference_samples
from steps.llm.checkpoint import Checkpoint, check_causal, quiet, read_texts
from steps.llm.export import SAMPLE_TOKENS, compress, export, group_size, import_converters
from steps.llm.gguf import resolve_model
from steps.llm.groups import GROUP

from trimodal.build_support import operator_errors, progress
from trimodal.errors import ArtefactError, legible
from trimodal.manifest import (
    Manifest,
    atomic_directory,
    scratch_directory,
    told_when_full,
    write_manifest,
)

FEWEST_SAMPLES, MOST_SAMPLES = 16, 512  # Fewer mislead; more cost time and change little. Use 128 or more.


class Precision(str, Enum):
    fp32 = "fp32"
    fp16 = "fp16"
    int8 = "int8"
    int4 = "int4"


# What a sound build reaches on ordinary text; a wrong graph or tokenizer falls far below.
MIN_AGREEMENT = {"fp32": 0.9, "fp16": 0.9, "int8": 0.9, "int4": 0.5}
# Of the built graph to torch; the answers of a model beyond it are visibly worse.
MAX_PERPLEXITY_RATIO = {"fp32": 1.01, "fp16": 1.02, "int8": 1.1, "int4": 1.5}


def main(
    source: str = typer.Argument(..., help="directory, GGUF file or hub id of a causal language model"),
    precision: list[Precision] = typer.Option(["int8"], help="of the weights; repeat it to build several"),
    name: str = typer.Option("openvino-{precision}", help="directory under model_repository/llm/1"),
    out: str = typer.Option("", help="directory of the artefact, in place of --name"),
    calibration: Path = typer.Option(None, help="int4: text file, one sample a line or paragraph"),
    awq: bool = typer.Option(False, help="int4: activation-aware scaling of the weights first"),
    ratio: float = typer.Option(1.0, min=0, max=1, help="int4: share of layers; the others get int8"),
    int8_group: int = typer.Option(GROUP, min=0, help="int8: weights that share a scale; 0: a row"),
    min_agreement: float = typer.Option(
        None,
        min=0,
        max=1,
        help="refuse a lower token agreement with torch (default 0.9; int4 0.5; 0 for random weights)",
    ),
    max_perplexity_ratio: float = typer.Option(
        None,
        min=1,
        help="refuse a higher perplexity, as a ratio to torch's (default 1.01 to 1.1; int4 1.5)",
    ),
) -> None:
    """Build SOURCE for OpenVINO, compare it with torch, and put it in place."""
    with operator_errors():
        places = targets("llm", [each.value for each in precision], name, out)
        if "int4" not in places and (calibration or awq or ratio < 1):
            raise ArtefactError("--calibration, --awq and --ratio apply to --precision int4 only")
        samples = read_texts(calibration, at_least=FEWEST_SAMPLES) if calibration else []
        directory = resolve_model(source)
        check_causal(directory, source)
        quiet()
        with progress("Loading torch, the converters and the checkpoint"):
            import_converters()
            checkpoint = Checkpoint(directory)
        check_weights_fit(checkpoint.model, places, beside=WEIGHT_BYTES["fp32"])
        answers = reference_samples(checkpoint)
        folder = next(iter(places.values())).parent
        folder.mkdir(parents=True, exist_ok=True)
        with scratch_directory(folder, ".export-") as scratch, told_when_full(folder):
            with progress("Exporting"):
                export(checkpoint, scratch)
            data = [checkpoint.encode(text)[:SAMPLE_TOKENS] for text in evenly(samples, MOST_SAMPLES)]
            int4 = {"group_size": group_size(checkpoint), "ratio": ratio, "awq": awq}
            for each, place in places.items():
                manifest = Manifest(
                    task="llm",
                    runtime="openvino",
                    runtime_version=version("openvino"),
                    precision=each,
                    **origin(directory, source, "llm_openvino"),
                    shapes=checkpoint.shapes(),
                    extra=checkpoint.described(),
                )
                with atomic_directory(place) as work:
                    with progress(f"Writing {each}"):
                        manifest.extra |= compress(scratch, work, each, int4, data, int8_group)
                        checkpoint.write_tokenizer(work)
                    if each == "int4" and calibration:
                        manifest.calibration = {"file": legible(calibration.name), "samples": len(data)}
                    manifest.check = check(checkpoint, work, answers)
                    tell_check(manifest, place.name, min_agreement, MIN_AGREEMENT[each])
                    refuse_below(manifest)
                    refuse_perplexity(manifest, max_perplexity_ratio or MAX_PERPLEXITY_RATIO[each])
                    write_manifest(work, manifest)
                tell_built(place)


if __name__ == "__main__":
    typer.run(main)
