"""Writes tiny GGUF files from a checkpoint with random weights, as llama.cpp's converter does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

CORPUS = [
    "The quick brown fox jumps over the lazy dog. It's 1234567 times as quick!",
    "def main(arguments):\n    return [each for each in arguments if each]\n\n\n# 3.14159",
    "naïve café, Überraschung, 日本語のテキスト, Привет мир, 😀 🇩🇪 e\u0301",
    "SELECT name, COUNT(*) FROM orders GROUP BY name;  -- two  spaces\tand a tab\r\n",
] * 8
TEXTS = [
    *CORPUS[:4],
    "",
    " leading and trailing ",
    "a  b   c    d\n\n \n\te",
    "2024-11-26T05:36:00 costs 1,234.56 and 007",
    "I'll, we've, THEY'RE, it's 'quoted'",
    "unseen ✓ ⌘ ಠ_ಠ \U0001f9d1\u200d\U0001f680 \x00\x7f",
    "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n",
    "<s>user  text</s> more",
]
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
TEMPLATE = "{% for message in messages %}<|im_start|>{{ message.content }}<|im_end|>{% endfor %}"
# How the checkpoints' own tokenizer.json splits text: meta-llama/Meta-Llama-3-8B, Qwen/Qwen2-0.5B.
_LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)
_QWEN2 = _LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
_SPACE = "\u2581"


def byte_level(rule: str) -> Any:
    """A byte-level BPE with the splitting of `rule`, trained on the corpus."""
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE(ignore_merges=rule == "llama-bpe"))
    split = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=rule == "smollm")
    first = {
        "smollm": lambda: pre_tokenizers.Digits(individual_digits=True),
        "llama-bpe": lambda: pre_tokenizers.Split(Regex(_LLAMA3), "isolated"),
        "qwen2": lambda: pre_tokenizers.Split(Regex(_QWEN2), "isolated"),
    }[rule]()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([first, split])
    if rule == "qwen2":
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=500,
        special_tokens=SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    return tokenizer


def sentencepiece(*, prefix: bool) -> tuple[Any, list[float], list[int]]:
    """SentencePiece's BPE as transformers writes it, trained on the corpus; scores and kinds of its tokens.

    With `prefix` as Llama 2's, without as Gemma's, which also has runs of spaces and lines as symbols.
    """
    from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, trainers
    from transformers.convert_slow_tokenizer import generate_merges

    spaces = [normalizers.Prepend(_SPACE)] if prefix else []
    normalizer = normalizers.Sequence([*spaces, normalizers.Replace(" ", _SPACE)])
    trained = Tokenizer(models.BPE())
    trained.normalizer = normalizer
    trained.train_from_iterator(CORPUS, trainers.BpeTrainer(vocab_size=200, show_progress=False))
    special = ["<unk>", "<s>", "</s>"]
    symbols = [] if prefix else ["  ", "   ", "\n\n", "\n\n\n"]
    in_bytes = [f"<0x{byte:02X}>" for byte in range(256)]
    learnt = {piece: id for piece, id in trained.get_vocab().items() if piece not in symbols}
    pieces = sorted(learnt, key=lambda piece: (len(piece) == 1, learnt[piece]))  # single ones last, as there
    tokens = [*special, *symbols, *in_bytes, *pieces]
    kinds = [2, 3, 3] + [4] * len(symbols) + [6] * 256 + [1] * len(pieces)
    scores = [0.0] * (len(tokens) - len(pieces)) + [-float(rank) for rank in range(len(pieces))]
    vocabulary = {token: id for id, token in enumerate(tokens)}
    ranked = [(piece, scores[vocabulary[piece]]) for piece in pieces]
    merges = generate_merges({piece: vocabulary[piece] for piece in pieces}, ranked)
    bpe = models.BPE(vocabulary, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    tokenizer = Tokenizer(bpe)
    tokenizer.normalizer = normalizer
    strip = [decoders.Strip(" ", 1, 0)] if prefix else []
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace(_SPACE, " "), decoders.ByteFallback(), decoders.Fuse(), *strip]
    )
    tokenizer.add_special_tokens(special)
    tokenizer.add_tokens([AddedToken(symbol, normalized=False) for symbol in symbols])
    return tokenizer, scores, kinds


def random_model(architecture: str, vocabulary: int) -> Any:
    """A causal language model of a few thousand random weights."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    kind = {"gemma3": "gemma3_text"}.get(architecture, architecture)
    # Qwen 3 and Gemma 3 do not say their heads' size, or all models have the same.
    heads = {"qwen3": {"head_dim": 128}, "gemma3": {"head_dim": 32, "sliding_window": 16}}.get(
        architecture, {}
    )
    config = AutoConfig.for_model(
        kind, vocab_size=vocabulary, hidden_size=64, intermediate_size=96, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=256, rms_norm_eps=1e-5,
        tie_word_embeddings=True, bos_token_id=None, pad_token_id=None, eos_token_id=None, **heads,
    )  # fmt: skip
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config).eval()
    for name, weight in model.named_parameters():
        if "norm" in name:  # they begin as constants, which would hide a mistake
            torch.nn.init.uniform_(weight, 0.5, 1.5)
        elif "bias" in name:
            torch.nn.init.uniform_(weight, -0.5, 0.5)
        else:
            torch.nn.init.normal_(weight, std=0.1)
    return model


def write_gguf(file: Path, architecture: str, tokenizer: Any, model: Any, **fields: Any) -> None:
    """The model with the tokenizer's tokens; `fields`: scores, kinds, and what differs from the usual."""
    import gguf

    writer, config = gguf.GGUFWriter(file, architecture), model.config
    writer.add_context_length(config.max_position_embeddings)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    writer.add_key_length(size)
    writer.add_rope_dimension_count(size)
    if architecture == "gemma3":
        writer.add_sliding_window(config.sliding_window)
        writer.add_rope_freq_base(1e6)
    ids = tokenizer.get_vocab()
    tokens = sorted(ids, key=ids.__getitem__)
    special = {id for id, token in tokenizer.get_added_tokens_decoder().items() if token.special}
    kinds = fields.get("kinds") or [3 if id in special else 1 for id in range(len(tokens))]
    writer.add_tokenizer_model(fields.get("kind", "gpt2"))
    writer.add_tokenizer_pre(fields.get("pre", "default"))
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    if scores := fields.get("scores"):
        writer.add_token_scores(scores)
    else:
        merges = json.loads(tokenizer.to_str())["model"]["merges"]
        writer.add_token_merges([" ".join(pair) for pair in merges])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    for name in ("add_bos_token", "add_space_prefix"):
        if name in fields:
            writer.add_bool(f"tokenizer.ggml.{name}", fields[name])
    if "rope_scaling" in fields:
        writer.add_string(f"{architecture}.rope.scaling.type", fields["rope_scaling"])
    writer.add_chat_template(TEMPLATE)
    for name, tensor in tensors(architecture, model):
        writer.add_tensor(name, tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def tensors(architecture: str, model: Any) -> list[tuple[str, Any]]:
    """The weights under GGUF's names, laid out as llama.cpp reads them."""
    import gguf
    import numpy as np

    arch = {name: key for key, name in gguf.MODEL_ARCH_NAMES.items()}[architecture]
    names = gguf.get_tensor_name_map(arch, model.config.num_hidden_layers)
    heads = {"q_proj": model.config.num_attention_heads, "k_proj": model.config.num_key_value_heads}
    found = []
    for name, weight in model.state_dict().items():
        if name == "lm_head.weight":  # tied
            continue
        values = weight.float().numpy()
        module = name.split(".")[-2]
        if architecture == "llama" and module in heads:
            count = heads[module]
            shape = values.shape
            values = (
                values.reshape(count, 2, shape[0] // count // 2, *shape[1:]).swapaxes(1, 2).reshape(shape)
            )
        if architecture == "gemma3" and "norm" in module:
            values = values + 1
        found.append((names.get_name(name, try_suffixes=(".weight", ".bias")), np.ascontiguousarray(values)))
    return found
