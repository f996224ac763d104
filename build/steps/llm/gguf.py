"""Turns a GGUF file into a Hugging Face checkpoint, which every build script takes.

transformers reads the weights and the configuration. Its tokenizer is not taken where the file holds one of
byte-level BPE: transformers 5.5 chooses the converter by the architecture, so that a `llama` file with
GPT-2's kind of vocabulary (SmolLM2, Llama 3) gets SentencePiece's rules and other token ids. That one is
rebuilt here from the file's own tokens, merges and the name of its splitting rule.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from steps.llm.checkpoint import quiet, unreadable

from trimodal.build_support import progress, resolve_checkpoint
from trimodal.errors import ArtefactError
from trimodal.manifest import atomic_directory, sha256
from trimodal.paths import cache_directory

ARCHITECTURES = ("llama", "qwen2", "qwen3", "gemma3")
_CONTROL, _USER_DEFINED = 3, 4  # of tokenizer.ggml.token_type
# What llama.cpp's src/llama-vocab.cpp has under these names, written as in the checkpoints' tokenizer.json.
_WORDS = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|%s| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"
)
SPLITS = {
    "gpt-2": "",
    "default": "",
    "smollm": "digits",
    "llama-bpe": _WORDS % r"\p{N}{1,3}",
    "llama3": _WORDS % r"\p{N}{1,3}",
    "qwen2": _WORDS % r"\p{N}",
}


def resolve_model(source: str) -> Path:
    """The checkpoint's directory; converts a GGUF file, also the only one of a directory without config.json.

    Raises:
        ArtefactError: there is none, or it cannot be read.
    """
    if (file := Path(source).expanduser()).is_file() and file.suffix == ".gguf":
        return checkpoint_from_gguf(file)
    directory = resolve_checkpoint(source)
    files = sorted(directory.glob("*.gguf"))
    if not files or (directory / "config.json").is_file():
        return directory
    if len(files) > 1:
        names = ", ".join(file.name for file in files)
        raise ArtefactError(f"{source} has {len(files)} GGUF files: name one of {names}")
    return checkpoint_from_gguf(files[0])


def checkpoint_from_gguf(file: Path) -> Path:
    """The checkpoint made of `file`, in this user's cache under the file's hash; made where it is missing.

    Raises:
        ArtefactError: no GGUF file, of an architecture or a tokenizer that is not known here, or damaged.
    """
    fields = read_fields(file)
    check_known(file, fields)
    directory = cache_directory() / "checkpoints" / f"{file.stem}-{sha256(file)[:12]}"
    if not (directory / "config.json").is_file():
        quiet()
        with progress(f"Converting {file.name}"), atomic_directory(directory) as work:
            _write(file, fields, work)
    return directory


def read_fields(file: Path) -> dict[str, Any]:
    """The file's metadata: `general.architecture`, `tokenizer.ggml.tokens`, … Raises: ArtefactError."""
    from gguf import GGUFReader

    try:
        return {name: field.contents() for name, field in GGUFReader(file).fields.items()}
    except Exception as error:  # A damaged file ends in errors of numpy, mmap and the reader itself.
        reason = str(error).strip().split("\n")[0][:200]
        raise ArtefactError(f"{file} cannot be read as GGUF: {reason}") from None


def check_known(file: Path, fields: dict[str, Any]) -> None:
    """Raises: ArtefactError naming what is not known here, and the way round."""
    way = "build from the checkpoint that the file was made of, which is on the hub"
    architecture = fields.get("general.architecture")
    if architecture not in ARCHITECTURES:
        raise ArtefactError(
            f"{file.name} is of the architecture {architecture!r}; GGUF is read for "
            f"{', '.join(ARCHITECTURES)}: {way}"
        )
    kind, split = fields.get("tokenizer.ggml.model"), fields.get("tokenizer.ggml.pre", "default")
    if kind == "gpt2" and split not in SPLITS:
        raise ArtefactError(
            f"{file.name} splits text by the rule {split!r}; known are {', '.join(SPLITS)}: {way}"
        )
    if kind not in ("gpt2", "llama"):
        raise ArtefactError(f"{file.name} has a tokenizer of the kind {kind!r}; known are gpt2, llama: {way}")


def _write(file: Path, fields: dict[str, Any], directory: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    try:
        # Halves hold what four- and eight-bit weights are scaled to; of FP32 weights this rounds.
        model = AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype=torch.float16)
        tokenizer = (
            byte_level_tokenizer(fields)
            if fields["tokenizer.ggml.model"] == "gpt2"
            else AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
        )
    except ArtefactError:
        raise
    except Exception as error:  # A tensor that is missing, a quantisation that gguf does not know, …
        raise unreadable(file, error) from None
    if template := fields.get("tokenizer.chat_template"):
        tokenizer.chat_template = template
    ends = [fields.get(f"tokenizer.ggml.{name}_token_id") for name in ("eos", "eot", "eom")]
    ends = sorted({end for end in ends if end is not None})
    model.config.eos_token_id = ends[0] if ends else None
    model.generation_config.eos_token_id = ends or None
    model.save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    (directory / "origin.json").write_text(json.dumps({"gguf": file.name, "sha256": sha256(file)}) + "\n")


def byte_level_tokenizer(fields: dict[str, Any]) -> Any:
    """transformers' fast tokenizer of a file whose `tokenizer.ggml.model` is gpt2."""
    from tokenizers import AddedToken, Tokenizer, decoders, normalizers, pre_tokenizers, processors
    from tokenizers.models import BPE
    from transformers import PreTrainedTokenizerFast

    tokens: list[str] = fields["tokenizer.ggml.tokens"]
    kinds: list[int] = fields["tokenizer.ggml.token_type"]
    merges = [tuple(merge.split(" ", 1)) for merge in fields["tokenizer.ggml.merges"]]
    rule = fields.get("tokenizer.ggml.pre", "default")
    split = SPLITS[rule]
    # Llama 3's own: a word that is one token needs no merges, and some of its tokens have none.
    whole = rule in ("llama-bpe", "llama3")
    bpe = BPE({token: id for id, token in enumerate(tokens)}, merges, ignore_merges=whole)
    tokenizer = Tokenizer(bpe)
    if split == "digits":
        digits = pre_tokenizers.Digits(individual_digits=True)
        steps = [digits, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)]
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps)
    elif split:
        from tokenizers import Regex

        words = pre_tokenizers.Split(Regex(split), "isolated")
        steps = [words, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps)
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    if rule == "qwen2":
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_tokens(
        [
            AddedToken(token, special=kind == _CONTROL, normalized=False)
            for token, kind in zip(tokens, kinds, strict=True)
            if kind in (_CONTROL, _USER_DEFINED)
        ]
    )
    named = {}
    for name, role in (("bos", "bos"), ("eos", "eos"), ("padding", "pad"), ("unknown", "unk")):
        if (id := fields.get(f"tokenizer.ggml.{name}_token_id")) is not None:
            named[f"{role}_token"] = tokens[id]
    begin = named.get("bos_token")
    if fields.get("tokenizer.ggml.add_bos_token") and begin:
        first = (begin, tokens.index(begin))
        single, pair = f"{begin} $A", f"{begin} $A {begin}:1 $B:1"
        tokenizer.post_processor = processors.TemplateProcessing(single, pair, [first])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, clean_up_tokenization_spaces=False, **named)
