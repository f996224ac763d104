"""Builds Whisper models for CTranslate2, faster-whisper's runtime: checkpoint → artefact directory.

    python build/speech_ctranslate2.py openai/whisper-base --precision int8

Any Whisper goes in: tiny to large-v3-turbo, the distilled ones, fine-tunes. Every artefact is
compared with the torch model on the same audio before it replaces an older one, and faster-whisper
opens it too.
"""

from __future__ import annotations

from copy import deepcopy
from enum import Enum
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import typer
from steps.speech.audio import DEMO_SAMPLES, read_recordings
from steps.speech.check import compare, compare_words, judge, reference, target
from steps.speech.checkpoint import Checkpoint, load, parse_contexts

from trimodal.build_support import build_command, operator_errors, progress, report, resolve_checkpoint
from trimodal.errors import ArtefactError
from trimodal.manifest import Manifest, atomic_directory, checkpoint_sha256, write_manifest


class Precision(str, Enum):
    int8 = "int8"
    float32 = "float32"
    float16 = "float16"
    int8_float16 = "int8_float16"


def main(
    source: str = typer.Argument(..., help="checkpoint directory or hub id of a Whisper"),
    precision: list[Precision] = typer.Option(
        ["int8"], help="of the weights; repeat it to build several; float16 and int8_float16 are for GPUs"
    ),
    name: str = typer.Option(
        "ctranslate2-{precision}", help="directory under model_repository/speech_recognize/1"
    ),
    out: str = typer.Option("", help="directory of the artefact, in place of --name"),
    contexts: str = typer.Option(
        "",
        help="encoder lengths in seconds, as 5,10,30, in place of the checkpoint's own (30): shorter is "
        "cheaper, but a Whisper that was not trained for it gets worse, so measure it on your audio",
    ),
    padding: str = typer.Option(
        "", help="silence or zeros: what follows shorter audio, in place of the checkpoint's own (silence)"
    ),
    audio: Path = typer.Option(
        DEMO_SAMPLES, help="check on this folder of wav, flac and ogg files (samples.json: their texts)"
    ),
    language: str = typer.Option(
        "", help="of that audio, as an ISO 639-1 code; the model's first if not told"
    ),
    min_agreement: float = typer.Option(
        None,
        min=0,
        max=1,
        help="refuse a lower token agreement with torch (default 0.9; 0 for random weights)",
    ),
) -> None:
    """Build SOURCE for CTranslate2, compare it with torch, and put it in place."""
    with operator_errors():
        targets = {each: target(each.value, name, out) for each in precision}
        if len(set(targets.values())) < len(targets):
            raise ArtefactError(
                "each precision needs its own directory: put {precision} into --name or --out"
            )
        directory = resolve_checkpoint(source)
        with progress("Loading torch and the checkpoint"):
            checkpoint = load(directory, source)
        checkpoint.override(padding=padding)
        contexts_s = checkpoint.contexts_s(parse_contexts(contexts) if contexts else None)
        recordings = read_recordings(audio, contexts_s[-1])
        torch_heard = reference(checkpoint, recordings, contexts_s, language)
        checkpoint.tell()
        for each, place in targets.items():
            manifest = Manifest(
                task="speech",
                runtime="ctranslate2",
                runtime_version=version("ctranslate2"),
                precision=each.value,
                source=directory.resolve().name if Path(source).is_dir() else source,
                source_sha256=checkpoint_sha256(directory),
                command=build_command("build/speech_ctranslate2.py"),
                shapes=checkpoint.shapes(contexts_s),
                extra=checkpoint.described(),
            )
            with atomic_directory(place) as work:
                with progress(f"Writing {each.value}"):
                    convert(checkpoint, work, each.value)
                    checkpoint.write_files(work)
                write_manifest(work, manifest)  # The serving engine reads it.
                manifest.check = compare(checkpoint, torch_heard, *runtime(work, checkpoint, each.value))
                manifest.check |= compare_words(
                    torch_heard, work, "ctranslate2", random_weights=checkpoint.random_weights
                )
                judge(manifest, checkpoint, min_agreement, place.name)
                write_manifest(work, manifest)
            size = sum(path.stat().st_size for path in place.iterdir()) / 1e6
            report("Built", {"artefact": place, "size": f"{size:.1f} MB"})


def convert(checkpoint: Checkpoint, directory: Path, precision: str) -> None:
    """Writes CTranslate2's model.bin, config.json and vocabulary.json into `directory`.

    Raises:
        ArtefactError: the vocabulary does not say that it is multilingual in the way CTranslate2 needs.
    """
    import torch
    from ctranslate2.converters.converter import Converter
    from ctranslate2.converters.transformers import WhisperLoader

    class Loaded(Converter):  # type: ignore[misc]  # CTranslate2 declares no types.
        def _load(self) -> Any:
            model = deepcopy(checkpoint.model)  # The converter quantises some weights in place.
            generation: Any = model.generation_config  # Takes names of its own beside the declared ones.
            never, not_first = checkpoint.suppressed()  # Lists, also where a fine-tune has null.
            generation.suppress_tokens, generation.begin_suppress_tokens = never, not_first
            generation.alignment_heads = checkpoint.alignment_heads
            with torch.no_grad():
                return WhisperLoader()(model, checkpoint.tokenizer)

    # CTranslate2 knows a multilingual Whisper by the empty token that only its vocabulary has.
    if checkpoint.multilingual != ("" in checkpoint.tokenizer.get_vocab()):
        raise ArtefactError(
            "CTranslate2 takes a vocabulary for multilingual by its empty token (id 50256), and this "
            f"{'multilingual one lacks' if checkpoint.multilingual else 'English-only one has'} it"
        )
    Loaded().convert(str(directory), quantization=precision, force=True)


def runtime(directory: Path, checkpoint: Checkpoint, precision: str) -> tuple[Any, Any]:
    """The built model's encoder, and its greedy decoder without the serving engine's own limits."""
    import ctranslate2
    import torch

    try:
        model = ctranslate2.models.Whisper(
            str(directory), device="cpu", intra_threads=torch.get_num_threads()
        )
    except (RuntimeError, ValueError) as error:
        raise ArtefactError(f"CTranslate2 does not take this model: {str(error)[:200]}") from None
    never, _ = checkpoint.suppressed()

    def encode(features: Any) -> Any:
        encoded = model.encode(ctranslate2.StorageView.from_array(features), to_cpu=True)
        return np.array(encoded.to(ctranslate2.DataType.float32), np.float32)

    def write(features: Any, prompt: list[int]) -> list[list[int]]:
        view = ctranslate2.StorageView.from_array(features)
        results = model.generate(view, [prompt] * len(features), beam_size=1, suppress_tokens=never)
        return [list(result.sequences_ids[0]) for result in results]

    return encode, write


if __name__ == "__main__":
    typer.run(main)
