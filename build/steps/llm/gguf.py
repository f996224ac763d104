"""Turns a GGUF file into a Hugging Face checkpoint, which every build script takes.

transformers reads the weights and the configuration. Its tokenizer is not taken: transformers 5.5 chooses the
converter by the architecture, so that a `llama` file with GPT-2's kind of vocabulary (SmolLM2, Llama 3) gets
SentencePiece's rules and other token ids, and one of SentencePiece is searched token by token, for minutes.
Both kinds are rebuilt here: byte-level BPE from the file's own tokens, merges and the name of its splitting
rule, SentencePiece's BPE from its tokens and scores.
"""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import Any

from steps.artefact import WEIGHT_BYTES, reason, resolve_converted
from steps.llm.checkpoint import quiet, refuse_missing, unreadable

from trimodal.build_support import progress
from trimodal.errors import ArtefactError
from trimodal.manifest import atomic_directory, check_room, sha256
from trimodal.paths import cache_directory

ARCHITECTURES = ("llama", "qwen2", "qwen3", "gemma3")
_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED = 1, 2, 3, 4  # of tokenizer.ggml.token_type
_TENSORS, _WEIGHTS = "tensors", "weights"
_SPACE = "\u2581"
# What llama.cpp's src/llama-vocab.cpp has under these names, written as in the checkpoints' tokenizer.json.
# Not "default", as llama.cpp takes a file that says nothing: it has a rule for those that is no model's own.
_WORDS = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|%s| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"
)
SPLITS = {
    "gpt-2": "",
    "smollm": "digits",
    "llama-bpe": _WORDS % r"\p{N}{1,3}",
    "llama3": _WORDS % r"\p{N}{1,3}",
    "qwen2": _WORDS % r"\p{N}",
}


def resolve_model(source: str) -> Path:
    """The checkpoint's directory; a GGUF file is converted. Raises: ArtefactError: none, or unreadable."""
    return resolve_converted(source, ".gguf", checkpoint_from_gguf)


def checkpoint_from_gguf(file: Path) -> Path:
    """The checkpoint made of `file`, in this user's cache under the file's hash; made where it is missing.

    Raises:
        ArtefactError: no GGUF file, of an architecture or a tokenizer that is not known here, or damaged.
    """
    directory = cache_directory() / "checkpoints" / f"{file.stem}-{sha256(file)[:12]}"
    if not (directory / "config.json").is_file():
        fields = read_fields(file)
        check_known(file, fields)
        check_room(directory.parent, fields[_WEIGHTS] * WEIGHT_BYTES["fp16"])
        quiet()
        with progress(f"Converting {file.name}"), atomic_directory(directory) as work:
            _write(file, fields, work)
    return directory


def read_fields(file: Path) -> dict[str, Any]:
    """The file's metadata, `general.architecture`, …, its tensors' names, and how many weights they have.

    Raises: ArtefactError: it cannot be read.
    """
    from gguf import GGUFReader

    try:
        reader = GGUFReader(file)
        fields = {name: field.contents() for name, field in reader.fields.items()}
        weights = sum(int(tensor.n_elements) for tensor in reader.tensors)
        return fields | {_TENSORS: {tensor.name for tensor in reader.tensors}, _WEIGHTS: weights}
    except Exception as error:  # A damaged file ends in errors of numpy, mmap and the reader itself.
        raise ArtefactError(f"{file} cannot be read as GGUF: {reason(error)}") from None


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
    lists = ("tokens", "token_type", "merges" if kind == "gpt2" else "scores")
    if missing := [f"tokenizer.ggml.{name}" for name in lists if not fields.get(f"tokenizer.ggml.{name}")]:
        raise ArtefactError(f"{file.name} lacks {', '.join(missing)}, which its tokenizer is made of: {way}")
    # transformers 5.5 passes over both, and would compute with other positions.
    scaled = fields.get(f"{architecture}.rope.scaling.type", "none") != "none"
    if scaled or f"{architecture}.rope.scaling.factor" in fields or "rope_freqs.weight" in fields[_TENSORS]:
        raise ArtefactError(
            f"{file.name} scales its rotary embedding, which is not read from GGUF (Llama 3.1 and later, "
            f"Gemma 3 from 4B): {way}"
        )


def name_version() -> None:
    """Has the package gguf name its version, which it does not.

    Where Python 3.10 does not know whose a module is (gguf 0.19 has no top_level.txt), transformers asks the
    module itself, and stumbles over "N/A".
    """
    import gguf

    gguf.__version__ = version("gguf")  # type: ignore[attr-defined]


def _write(file: Path, fields: dict[str, Any], directory: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    name_version()
    try:
        # Halves hold what four- and eight-bit weights are scaled to; of FP32 weights this rounds.
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            file.parent, gguf_file=file.name, dtype=torch.float16, output_loading_info=True
        )
    except Exception as error:  # Of many kinds: a quantisation that gguf does not know, …
        raise unreadable(file, error) from None
    model, loading = loaded
    refuse_missing(file.name, loading)
    byte_level = fields["tokenizer.ggml.model"] == "gpt2"
    tokenizer = byte_level_tokenizer(fields) if byte_level else sentencepiece_tokenizer(fields)
    if template := fields.get("tokenizer.chat_template"):
        tokenizer.chat_template = template
    ends = [fields.get(f"tokenizer.ggml.{name}_token_id") for name in ("eos", "eot", "eom")]
    ends = sorted({end for end in ends if end is not None})
    model.config.eos_token_id = ends[0] if ends else None
    model.generation_config.eos_token_id = ends or None
    model.save_pretrained(directory)
    tokenizer.save_pretrained(directory)


def byte_level_tokenizer(fields: dict[str, Any]) -> Any:
    """transformers' fast tokenizer of a file whose `tokenizer.ggml.model` is gpt2."""
    from tokenizers import Tokenizer, decoders, normalizers, pre_tokenizers
    from tokenizers.models import BPE

    tokens: list[str] = fields["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ", 1)) for merge in fields["tokenizer.ggml.merges"]]
    rule = fields["tokenizer.ggml.pre"]
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
    return _finished(tokenizer, fields, begins=False)


def sentencepiece_tokenizer(fields: dict[str, Any]) -> Any:
    """transformers' fast tokenizer of a file whose `tokenizer.ggml.model` is llama."""
    from tokenizers import Tokenizer, decoders, normalizers
    from tokenizers.models import BPE

    tokens: list[str] = fields["tokenizer.ggml.tokens"]
    kinds: list[int] = fields["tokenizer.ggml.token_type"]
    scores: list[float] = fields["tokenizer.ggml.scores"]
    pieces = {
        token: score for token, score, kind in zip(tokens, scores, kinds, strict=True) if kind == _NORMAL
    }
    unknown = next((token for token, kind in zip(tokens, kinds, strict=True) if kind == _UNKNOWN), None)
    vocabulary = {token: id for id, token in enumerate(tokens)}
    bpe = BPE(vocabulary, _merges(pieces), unk_token=unknown, fuse_unk=True, byte_fallback=True)
    tokenizer = Tokenizer(bpe)
    spaces: list[Any] = [normalizers.Replace(" ", _SPACE)]
    text: list[Any] = [decoders.Replace(_SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    if fields.get("tokenizer.ggml.add_space_prefix", True):
        spaces.insert(0, normalizers.Prepend(_SPACE))
        text.append(decoders.Strip(" ", 1, 0))
    tokenizer.normalizer = normalizers.Sequence(spaces)
    tokenizer.decoder = decoders.Sequence(text)
    return _finished(tokenizer, fields, begins=True)


def _merges(pieces: dict[str, float]) -> list[tuple[str, str]]:
    """SentencePiece joins the neighbours whose whole scores highest: all pairs, by that score."""
    return [
        (whole[:at], whole[at:])
        for whole in sorted(pieces, key=lambda piece: -pieces[piece])
        for at in range(1, len(whole))
        if whole[:at] in pieces and whole[at:] in pieces
    ]


def _finished(tokenizer: Any, fields: dict[str, Any], *, begins: bool) -> Any:
    """With its special tokens. `begins`: whether a text gets bos where the file does not say."""
    from tokenizers import AddedToken, processors
    from transformers import PreTrainedTokenizerFast

    tokens: list[str] = fields["tokenizer.ggml.tokens"]
    kinds: list[int] = fields["tokenizer.ggml.token_type"]
    tokenizer.add_tokens(
        [
            AddedToken(token, special=kind != _USER_DEFINED, normalized=False)
            for token, kind in zip(tokens, kinds, strict=True)
            if kind in (_UNKNOWN, _CONTROL, _USER_DEFINED)
        ]
    )
    named = {}
    for name, role in (("bos", "bos"), ("eos", "eos"), ("padding", "pad"), ("unknown", "unk")):
        if (id := fields.get(f"tokenizer.ggml.{name}_token_id")) is not None:
            named[f"{role}_token"] = tokens[id]
    begin = named.get("bos_token")
    if fields.get("tokenizer.ggml.add_bos_token", begins) and begin:
        first = (begin, tokens.index(begin))
        single, pair = f"{begin} $A", f"{begin} $A {begin}:1 $B:1"
        tokenizer.post_processor = processors.TemplateProcessing(single, pair, [first])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, clean_up_tokenization_spaces=False, **named)
