"""Puts a Hugging Face checkpoint in place for vLLM and TensorRT-LLM's PyTorch runtime: nothing is converted.

    python build/llm_place.py CHECKPOINT
    python build/llm_place.py meta-llama/Llama-3.1-8B-Instruct --copy
    python build/llm_place.py EAGLE3_HEADS --draft

Weights, configuration and tokenizer are linked (or copied), checked for being complete, and
described by a manifest as every built engine is. It needs neither torch nor a GPU, and runs
no code of the checkpoint; a GGUF file is converted first, with torch, to FP16 weights.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import typer
from steps.artefact import origin, read_json, target, tell_built
from steps.llm.checkpoint import check_causal, dimensions, end_ids, read_config
from steps.llm.gguf import resolve_model

from trimodal.build_support import operator_errors, progress
from trimodal.errors import ArtefactError
from trimodal.manifest import MANIFEST, Manifest, atomic_directory, check_room, write_manifest

INDEX = "model.safetensors.index.json"
TOKENIZER = "tokenizer.json"
DTYPES = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}


def main(
    source: str = typer.Argument(..., help="directory, GGUF file or hub id of a causal language model"),
    copy: bool = typer.Option(False, "--copy", help="copy the files: for a volume, or a source that may go"),
    draft: bool = typer.Option(False, "--draft", help="EAGLE-3 heads, which have no tokenizer: speculation"),
    name: str = typer.Option("", help="directory among the model's artefacts: checkpoint, or draft"),
    out: Path = typer.Option(None, help="directory of the artefact, in place of --name"),
) -> None:
    """Put SOURCE in place for engines vllm and tensorrt_llm_pytorch."""
    with operator_errors():
        place = target("llm", "", name or ("draft" if draft else "checkpoint"), str(out or ""))
        directory = resolve_model(source).resolve()
        if directory == place:
            raise ArtefactError(f"{source} is the artefact itself: name the checkpoint that it came from")
        if not draft:
            check_causal(directory, source)
        config = read_config(directory, directory.name)
        files = checkpoint_files(directory, tokenizer=not draft)
        if copy:
            check_room(place.parent, sum(file.stat().st_size for file in files))
        with progress("Hashing the checkpoint"):
            made_of = origin(directory, source, "llm_place")
        manifest = Manifest(
            task="llm",
            runtime="checkpoint",
            runtime_version="",
            precision=precision(directory),
            **made_of,
            shapes={} if draft else dimensions(_text(config).get, directory.name),
            extra={} if draft else special_ids(directory),
        )
        with atomic_directory(place) as work:
            with progress("Copying" if copy else "Linking", total=len(files)) as advance:
                for file in files:
                    if copy:
                        shutil.copyfile(file, work / file.name)
                    else:
                        (work / file.name).symlink_to(file.resolve())
                    advance()
            with progress("Hashing what was put in place"):
                write_manifest(work, manifest)
        tell_built(place)


def checkpoint_files(directory: Path, *, tokenizer: bool = True) -> list[Path]:
    """The weights that belong together, and every file of configuration, tokenizer and template.

    Raises:
        ArtefactError: no safetensors, a part of them is missing, or no tokenizer.json.
    """
    if tokenizer and not (directory / TOKENIZER).is_file():
        raise ArtefactError(
            f"{directory.name} has no {TOKENIZER}: load its tokenizer with transformers' AutoTokenizer, and "
            "save_pretrained() it there"
        )
    if (directory / INDEX).is_file():
        places = _part(read_json(directory / INDEX), "weight_map")
        names = sorted({str(name) for name in places.values()})
        # A checkpoint that somebody else made could have any file of this machine put into the artefact.
        if elsewhere := [name for name in names if Path(name).name != name]:
            raise ArtefactError(f"{INDEX} of {directory.name} names '{elsewhere[0]}', which is not in it")
        weights = [directory / name for name in names]
        missing = [file.name for file in weights if not file.is_file()]
        if missing or not weights:
            raise ArtefactError(
                f"{directory.name} lacks {', '.join(missing[:3]) or 'weights'}, which {INDEX} names"
            )
    else:
        # Mistral's checkpoints hold the same weights a second time under this name.
        found = sorted(directory.glob("*.safetensors"))
        weights = [file for file in found if not file.name.startswith("consolidated")]
        if not weights:
            raise ArtefactError(
                f"{directory.name} holds no *.safetensors: save it with transformers' save_pretrained(); "
                "pickled weights are not served"
            )
    others = [*directory.glob("*.json"), *directory.glob("*.jinja"), *directory.glob("*.model")]
    return weights + sorted(file for file in others if file.name != MANIFEST)


def precision(directory: Path) -> str:
    """Of the weights: the method of a quantised checkpoint in its own word, else fp16, bf16 or fp32."""
    quantised = _part(read_json(directory / "hf_quant_config.json"), "quantization").get("quant_algo")
    config = read_json(directory / "config.json")
    if method := quantised or _part(config, "quantization_config").get("quant_method"):
        return str(method).lower()
    dtype = str(_text(config).get("dtype") or _text(config).get("torch_dtype") or config.get("torch_dtype"))
    return DTYPES.get(dtype.removeprefix("torch."), "unknown")


def special_ids(directory: Path) -> dict[str, Any]:
    """`eos_token_ids`: every id that ends an answer, by generation config, model or tokenizer."""
    import tokenizers

    names = ("config.json", "tokenizer_config.json", "generation_config.json")
    config, of_tokenizer, generation = (read_json(directory / name) for name in names)
    ends = [owner.get("eos_token_id") for owner in (generation, config, _text(config))]
    token = of_tokenizer.get("eos_token")
    text = token.get("content") if isinstance(token, dict) else token
    if text:
        try:
            tokenizer = tokenizers.Tokenizer.from_file(str(directory / TOKENIZER))
        except Exception as error:  # `tokenizers` raises plain Exception.
            raise ArtefactError(f"{TOKENIZER} of {directory.name} cannot be read ({error})") from None
        ends.append(tokenizer.token_to_id(str(text)))
    ids = end_ids(ends)
    if not ids:
        raise ArtefactError(f"{directory.name} names no eos_token_id: its answers would never end")
    template = "chat_template" in of_tokenizer or (directory / "chat_template.jinja").is_file()
    return {
        "eos_token_ids": ids,
        "has_chat_template": template,
        "random_weights": bool(config.get("random_weights")),
    }


def _text(config: dict[str, Any]) -> dict[str, Any]:
    """The language model's part of a configuration that has several."""
    return _part(config, "text_config") or config


def _part(content: dict[str, Any], key: str) -> dict[str, Any]:
    """The object under `key`; empty when there is none."""
    part = content.get(key)
    return part if isinstance(part, dict) else {}


if __name__ == "__main__":
    typer.run(main)
