"""Builds language models as TensorRT-LLM engines: checkpoint → artefact directory, on the GPUs that serve it.

    python build/llm_tensorrt_llm.py CHECKPOINT --precision fp8 --kv-precision fp8 --calibration texts.txt

Sizes, GPUs, versions and combinations are checked first; the engine is compared with the torch
model before it replaces an older one. `trimodal plan llm` says the same beforehand, on any machine.
For other runtimes, llm_place.py puts a checkpoint in place.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import typer
from steps.artefact import origin, target
from steps.limits import WARNING, hold_agreement
from steps.llm.calibration import MODEL_WORDS, check_path, read_calibration, write_dataset
from steps.llm.check import GREEDY_TOKENS, PROMPTS, compare_answers, load_reference
from steps.llm.checkpoint import Checkpoint, check_causal, quiet
from steps.llm.engine_build import built_engine, greedy_answers, save_engine
from steps.llm.engine_plan import EnginePlan, check_disk, check_machine, check_plan, check_runtime
from steps.llm.gguf import resolve_model
from steps.llm.speculation import Lookahead, Method

from trimodal.build_support import operator_errors, progress, report
from trimodal.llm.engines.artefact import card_limits
from trimodal.manifest import GpuTarget, Manifest, atomic_directory, write_manifest
from trimodal.paths import STARTER
from trimodal.plan.architecture import find_config, read_architecture
from trimodal.plan.memory import KvPrecision, Precision
from trimodal.runtimes.gpu_device import current_gpu

# What llm_openvino.py asks of its builds; a wrong graph or tokenizer falls far below.
MIN_AGREEMENT = {each: 0.5 if each is Precision.int4_awq else 0.9 for each in Precision}


def main(
    source: str = typer.Argument(..., help="directory, GGUF file or hub id of a causal language model"),
    precision: Precision = typer.Option(Precision.fp16, help="of the weights"),
    kv_precision: KvPrecision = typer.Option(KvPrecision.auto, help="of the KV cache; auto: 16 bits"),
    tp: int = typer.Option(1, min=1, help="tensor parallel GPUs"),
    pp: int = typer.Option(1, min=1, help="pipeline parallel stages"),
    max_batch_size: int = typer.Option(0, min=0, help="sequences in a step; 0: by the card, 256 to 1024"),
    max_num_tokens: int = typer.Option(
        0, min=0, help="tokens in a step, prefill is cut to it; 0: by the card, 2048 to 16384"
    ),
    max_seq_len: int = typer.Option(0, min=0, help="prompt and answer; 0: 8192, or the model's most"),
    calibration: Path = typer.Option(None, help="128 to 512 texts: a file, or a directory of .txt, .jsonl"),
    multiple_profiles: bool = typer.Option(False, help="kernels for several step sizes: a longer build"),
    speculation: Method = typer.Option("none", help="tokens guessed ahead"),
    lookahead: str = typer.Option("4,3,4", help="lookahead: window,ngram,verification"),
    name: str = typer.Option("tensorrt-llm-{precision}", help="directory among the model's artefacts"),
    out: str = typer.Option("", help="directory of the artefact, in place of --name"),
    min_agreement: float = typer.Option(
        None,
        min=0,
        max=1,
        help="refuse a lower token agreement with torch (it warns below 0.9, int4-awq 0.5)",
    ),
) -> None:
    """Build SOURCE for TensorRT-LLM, compare it with torch, and put it in place."""
    with operator_errors():
        place = target("llm", precision.value, name, out)
        converted = source.endswith(".gguf") or source.startswith(STARTER)  # has no config.json before
        model = read_architecture(find_config(str(resolve_model(source)) if converted else source))
        card = card_limits([gpu] if (gpu := current_gpu()) else [])
        plan = EnginePlan(
            model=model,
            precision=precision,
            kv_precision=kv_precision,
            tp=tp,
            pp=pp,
            max_batch_size=max_batch_size or card.max_num_seqs,
            max_num_tokens=max_num_tokens or card.max_num_batched_tokens,
            max_seq_len=max_seq_len or min(8192, model.max_positions or 8192),
            multiple_profiles=multiple_profiles,
            lookahead=Lookahead.parse(lookahead) if speculation == "lookahead" else None,
            calibration=read_calibration(calibration) if calibration else None,
        )
        check_plan(plan)
        check_runtime()
        built_for = check_machine(plan)
        check_disk(plan, place.parent)
        directory = resolve_model(source)
        check_causal(directory, source)
        if plan.calibration:
            check_path(directory.absolute(), MODEL_WORDS, "the checkpoint")
        quiet()
        checkpoint = Checkpoint(directory, load=False)  # The engine needs the memory first.
        with atomic_directory(place) as work:
            answers = _build(plan, checkpoint, work, built_for.sm)
            checkpoint.write_tokenizer(work)
            manifest = _manifest(plan, checkpoint, built_for, source)
            load_reference(checkpoint)
            manifest.check = compare_answers(checkpoint, _prompts(checkpoint), answers)
            report(f"{place.name}: {manifest.source} against torch", manifest.check)
            usual = 0.0 if manifest.extra.get("random_weights") else MIN_AGREEMENT[precision]
            who = "nothing was replaced: the engine agrees with torch's tokens"
            hold_agreement(manifest.check, "token_agreement", usual, min_agreement, who=who)
            if warning := manifest.check.get(WARNING):
                print(f"warning: {warning}")
            write_manifest(work, manifest)
        size = sum(path.stat().st_size for path in place.rglob("*") if path.is_file()) / 2**30
        report("Built", {"artefact": place, "size": f"{size:.2f} GiB"})


def _build(plan: EnginePlan, checkpoint: Checkpoint, work: Path, sm: str) -> list[list[int]]:
    """Puts the engine into `work` and returns its answers to the check prompts."""
    ends = checkpoint.special_ids()["eos_token_ids"]
    # Beside the artefact: engines are large, and /tmp may be small.
    with tempfile.TemporaryDirectory(prefix=".build-", dir=work.parent) as scratch:
        dataset = write_dataset(plan.calibration, Path(scratch)) if plan.calibration else None
        workspace = Path(scratch) / "workspace"
        workspace.mkdir()
        with built_engine(plan, checkpoint.directory, dataset, workspace, sm) as llm:
            with progress("Answering the check prompts"):
                answers = greedy_answers(llm, _prompts(checkpoint), ends, GREEDY_TOKENS)
            with progress("Saving the engine"):
                save_engine(llm, work)
    return answers


def _prompts(checkpoint: Checkpoint) -> list[list[int]]:
    return [checkpoint.encode_prompt(each) for each in PROMPTS]


def _manifest(plan: EnginePlan, checkpoint: Checkpoint, gpu: GpuTarget, source: str) -> Manifest:
    import tensorrt_llm

    with progress("Hashing the checkpoint"):
        made_of = origin(checkpoint.directory, source, "llm_tensorrt_llm")
    drafted = plan.lookahead.figures() if plan.lookahead else {"method": "none"}
    return Manifest(
        task="llm",
        runtime="tensorrt_llm",
        runtime_version=tensorrt_llm.__version__,
        precision=plan.precision.value,
        **made_of,
        shapes=checkpoint.shapes() | plan.shapes(),
        gpu=gpu,
        calibration=plan.calibration.figures() if plan.calibration else {},
        extra=checkpoint.described() | {"multiple_profiles": plan.multiple_profiles, "speculation": drafted},
    )


if __name__ == "__main__":
    typer.run(main)
