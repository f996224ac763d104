"""Sets the budgets that an operator left open, by the manifest of the built engine."""

from __future__ import annotations

from trimodal.errors import SettingsError
from trimodal.host import host_memory
from trimodal.llm.engines.protocol import KV_BLOCK_TOKENS
from trimodal.llm.settings import FAKE_BUDGETS, GPU_ENGINES, LlmSettings
from trimodal.manifest import Manifest, read_manifest

_LEAST_POOL = 16_384  # tokens: sixteen requests of 1,024
_BYTES = {"u8": 1, "f16": 2, "f32": 4}
_SHARE = 4  # of the machine's memory a KV pool of its own choice takes at most one part in so many


def fitted(settings: LlmSettings) -> LlmSettings:
    """The settings with numbers for all budgets that are 0.

    A prompt and an answer may each take the model's whole length but for one token, and so may an answer of
    no asked length: a request's own prompt shortens it. The KV pool of a CPU
    engine then holds two sequences of that length, and 16,384 tokens at least, within a quarter of the
    memory.

    Raises:
        ArtefactError: there is no artefact.
        SettingsError: a budget is set that its model does not take.
    """
    if settings.engine == "fake":
        unset = {name: value for name, value in FAKE_BUDGETS.items() if not getattr(settings, name)}
        return settings.model_copy(update=unset)
    runtime = "openvino" if settings.engine == "openvino" else "checkpoint"
    manifest = read_manifest(settings.artefact_directory, task="llm", runtime=runtime)
    size = manifest.shapes.get("max_position_embeddings")
    built = [size] if isinstance(size, int) else []
    if settings.max_model_len:
        built.append(settings.max_model_len)
    if not built:
        return settings  # a damaged manifest: the engine says which key
    length = min(built)
    for name in ("max_prompt_tokens", "max_output_tokens"):
        if (wanted := getattr(settings, name)) >= length:
            raise SettingsError(
                f"parameter '{name}' = {wanted}: the model of artefact '{settings.artefact}' takes {length} "
                "tokens, prompt and answer together; 0 is as many as it takes"
            )
    output = settings.max_output_tokens or length - 1
    values = {
        "max_prompt_tokens": settings.max_prompt_tokens or length - 1,
        "max_output_tokens": output,
        "default_max_tokens": min(settings.default_max_tokens or output, output),
    }
    if not settings.num_kv_blocks and settings.engine not in GPU_ENGINES:
        token = token_bytes(manifest, _BYTES[settings.kv_cache_precision])
        values["num_kv_blocks"] = pool_tokens(length, token) // KV_BLOCK_TOKENS
    return settings.model_copy(update=values)


def token_bytes(manifest: Manifest, size: int) -> int:
    """Bytes of one token in a KV pool whose values have `size`."""
    layers, heads, width = (
        int(str(manifest.shapes.get(name, 1)))
        for name in ("num_hidden_layers", "num_key_value_heads", "head_dim")
    )
    return 2 * layers * heads * width * size


def pool_tokens(length: int, token: int) -> int:
    """Tokens of a pool in the machine's memory, for sequences of `length`; `token`: bytes of one."""
    memory, _ = host_memory()
    return max(4 * KV_BLOCK_TOKENS, min(max(2 * length, _LEAST_POOL), memory // _SHARE // token))
