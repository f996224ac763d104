"""Turns a Whisper of OpenAI's own package, a .pt file of `dims` and `model_state_dict`, into a checkpoint.

Such a file has no tokenizer: it comes from a tokenizer.json beside it, else from the starter set's Whispers,
which have OpenAI's. Large-v3's is that of the multilingual ones with one language more.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from steps.artefact import reason, resolve_converted
from steps.llm.checkpoint import quiet

from trimodal.build_support import progress, resolve_checkpoint
from trimodal.errors import ArtefactError
from trimodal.manifest import atomic_directory, check_room, sha256
from trimodal.paths import STARTER, cache_directory

TOKENIZER, GENERATION = "tokenizer.json", "generation_config.json"
# Ids of a Whisper's vocabulary → the checkpoint of the starter set that has the same, or all but Cantonese.
VOCABULARIES = {51864: "whisper-tiny.en", 51865: "whisper-base", 51866: "whisper-base"}
CANTONESE = 51866
SPECIAL = (
    "startoftranscript",
    "translate",
    "transcribe",
    "startoflm",
    "startofprev",
    "nocaptions",
    "nospeech",
)
# Patterns of OpenAI's names → transformers', each applied wherever it is found, in this order.
NAMES = (
    (r"\.blocks\.", ".layers."),
    (r"\.cross_attn_ln\.", ".encoder_attn_layer_norm."),
    (r"\.attn_ln\.", ".self_attn_layer_norm."),
    (r"\.mlp_ln\.", ".final_layer_norm."),
    (r"\.mlp\.0\.", ".fc1."),
    (r"\.mlp\.2\.", ".fc2."),
    (r"\.cross_attn\.", ".encoder_attn."),
    (r"\.attn\.", ".self_attn."),
    (r"_attn\.(query|key|value)\.", lambda found: f"_attn.{found[1][0]}_proj."),
    (r"_attn\.out\.", "_attn.out_proj."),
    (r"^(encoder\.ln_post|decoder\.ln)\.", lambda found: f"{found[1][:7]}.layer_norm."),
    (r"\.positional_embedding$", ".embed_positions.weight"),
    (r"\.token_embedding\.", ".embed_tokens."),
)


def resolve_whisper(source: str) -> Path:
    """The checkpoint's directory; a .pt file is converted. Raises: ArtefactError: none, or unreadable."""
    return resolve_converted(source, ".pt", checkpoint_from_pt)


def checkpoint_from_pt(file: Path) -> Path:
    """The checkpoint made of `file`, in this user's cache under its hash; made where it is missing.

    Raises:
        ArtefactError: not OpenAI's form, of an unknown vocabulary, or damaged.
    """
    beside = [file.with_name(name) for name in (TOKENIZER, GENERATION)]
    key = "-".join(sha256(each)[:12] for each in (file, *beside) if each.is_file())
    directory = cache_directory() / "checkpoints" / f"{file.stem}-{key}"
    if not (directory / "config.json").is_file():
        check_room(directory.parent, file.stat().st_size)
        quiet()
        with progress(f"Converting {file.name}"), atomic_directory(directory) as work:
            _write(file, work)
    return directory


def _write(file: Path, directory: Path) -> None:
    import torch
    from transformers import GenerationConfig, WhisperConfig, WhisperForConditionalGeneration

    dims, weights = _read(file)
    tokenizer = tokenizer_for(file, dims["n_vocab"])
    ids = {token: int(id) for token, id in tokenizer.get_vocab().items()}
    end, start = ids["<|endoftext|>"], ids["<|startoftranscript|>"]
    special: dict[str, Any] = {
        "bos_token_id": end, "eos_token_id": end, "pad_token_id": end, "decoder_start_token_id": start,
    }  # fmt: skip
    sizes: dict[str, Any] = {
        f"{half}_{name}": value
        for half, part in (("encoder", "audio"), ("decoder", "text"))
        for name, value in (
            ("layers", dims[f"n_{part}_layer"]),
            ("attention_heads", dims[f"n_{part}_head"]),
            ("ffn_dim", 4 * dims[f"n_{part}_state"]),
        )
    }
    sizes |= {
        "vocab_size": dims["n_vocab"], "num_mel_bins": dims["n_mels"], "d_model": dims["n_audio_state"],
        "max_source_positions": dims["n_audio_ctx"], "max_target_positions": dims["n_text_ctx"],
    }  # fmt: skip
    config = WhisperConfig(**sizes, **special)
    with torch.device("meta"):
        model = WhisperForConditionalGeneration(config)
    try:
        missing, unknown = model.load_state_dict(
            {f"model.{renamed(name)}": value for name, value in weights.items()}, strict=False, assign=True
        )
    except RuntimeError as error:  # of another shape
        raise ArtefactError(f"{file.name}: {str(error).strip().splitlines()[-1].strip()[:200]}") from None
    if wrong := [*sorted(set(missing) - {"proj_out.weight"}), *sorted(unknown)]:
        raise ArtefactError(
            f"{file.name} lacks weights, or has others than a Whisper: {', '.join(wrong[:3])}"
        )
    model.tie_weights()
    model.generation_config = GenerationConfig(**generation(ids, dims["n_text_ctx"]), **special)
    model.save_pretrained(directory)
    if (own := file.with_name(GENERATION)).is_file():
        (directory / GENERATION).write_bytes(own.read_bytes())
    tokenizer.save(str(directory / TOKENIZER))
    kind = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|endoftext|>"}
    (directory / "tokenizer_config.json").write_text(json.dumps(kind) + "\n")


def _read(file: Path) -> tuple[dict[str, int], dict[str, Any]]:
    """Sizes and weights. Raises: ArtefactError."""
    import torch

    try:
        held = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # no zip archive, code in the pickle, …
        raise ArtefactError(
            f"{file.name} cannot be loaded by torch as plain weights: {reason(error)}"
        ) from None
    if not (isinstance(held, dict) and {"dims", "model_state_dict"} <= held.keys()):
        raise ArtefactError(
            f"{file.name} does not hold dims and model_state_dict, as OpenAI's files do: a fine-tune is "
            "built from its Hugging Face directory"
        )
    return held["dims"], held["model_state_dict"]


def renamed(name: str) -> str:
    """transformers' name of a weight, without the leading `model.`."""
    for pattern, replacement in NAMES:
        name = re.sub(pattern, replacement, name)
    return name


def tokenizer_for(file: Path, size: int) -> Any:
    """The vocabulary, of at most `size` ids. Raises: ArtefactError: it is not known, or does not fit."""
    from tokenizers import AddedToken, Tokenizer

    if (own := file.with_name(TOKENIZER)).is_file():
        place = own
    elif size in VOCABULARIES:
        place = resolve_checkpoint(STARTER + VOCABULARIES[size]) / TOKENIZER
    else:
        raise ArtefactError(
            f"{file.name} has a vocabulary of {size} ids, which is none of OpenAI's "
            f"({', '.join(map(str, VOCABULARIES))}): put its tokenizer.json beside it"
        )
    try:
        tokenizer = Tokenizer.from_file(str(place))
    except Exception as error:  # `tokenizers` raises plain Exception.
        raise ArtefactError(f"{place} cannot be read: {str(error)[:200]}") from None
    if place != own and size == CANTONESE:
        tokenizer = with_language(tokenizer, "yue")
    known = tokenizer.get_vocab()
    for needed in ("<|endoftext|>", "<|startoftranscript|>", "<|notimestamps|>"):
        if needed not in known:
            raise ArtefactError(f"{place} has no token {needed}: it is not a Whisper's")
    if max(known.values()) >= size:
        raise ArtefactError(f"{place} has {max(known.values()) + 1} ids, and {file.name} only {size}")
    first = known["<|notimestamps|>"] + 1
    if len(known) == first:  # The starter set's end there; timestamps fill the rest.
        times = (f"<|{at * 0.02:.2f}|>" for at in range(size - first))
        tokenizer.add_tokens([AddedToken(each, special=False, normalized=False) for each in times])
    return tokenizer


def with_language(tokenizer: Any, code: str) -> Any:
    """The same vocabulary with one more language after the last; what follows moves up by one id."""
    from tokenizers import Tokenizer

    held = json.loads(tokenizer.to_str())
    after = tokenizer.token_to_id("<|translate|>")
    added = [
        token | {"id": token["id"] + (token["id"] >= after), "content": token["content"]}
        for token in held["added_tokens"]
    ]
    model = next(token for token in added if token["content"] == "<|translate|>")
    held["added_tokens"] = sorted(
        [*added, model | {"id": after, "content": f"<|{code}|>"}], key=lambda token: int(token["id"])
    )
    return Tokenizer.from_str(json.dumps(held))


def languages(ids: Mapping[str, int]) -> list[str]:
    """Codes of a vocabulary's languages, in the order of their ids."""
    tokens = sorted((id, token) for token, id in ids.items() if re.fullmatch(r"<\|[a-z]{2,3}\|>", token))
    return [token.strip("<|>") for _, token in tokens]


def generation(ids: Mapping[str, int], room: int) -> dict[str, Any]:
    """What transformers' generation_config.json says: languages, and tokens that are never written."""
    from transformers.models.whisper.configuration_whisper import (
        NON_SPEECH_TOKENS,
        NON_SPEECH_TOKENS_MULTI,
    )

    multilingual = "" in ids
    end = ids["<|endoftext|>"]
    noises = [id for id in (NON_SPEECH_TOKENS_MULTI if multilingual else NON_SPEECH_TOKENS) if id < end]
    names = (f"<|{name}|>" for name in SPECIAL)
    never = sorted({*noises, *(ids[name] for name in names if name in ids)})
    tokens = [f"<|{code}|>" for code in languages(ids)]
    given = {"lang_to_id": {token: ids[token] for token in tokens}} if multilingual else {}
    return {
        "is_multilingual": multilingual,
        "suppress_tokens": never,
        "begin_suppress_tokens": [*([ids["Ġ"]] if "Ġ" in ids else []), end],
        "max_length": room,
        **given,
    }
