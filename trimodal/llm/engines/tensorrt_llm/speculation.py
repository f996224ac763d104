"""Configures speculative decoding: as a compiled engine was built with, or as set for a checkpoint.

Of a compiled engine the method is a part; only lookahead's sizes may be chosen smaller. The manifest's
`extra.speculation` is written by build/steps/llm/speculation.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from trimodal.errors import ArtefactError
from trimodal.llm.engines.artefact import GpuArtefact
from trimodal.llm.settings import LlmSettings

if TYPE_CHECKING:
    from tensorrt_llm.llmapi import (
        EagleDecodingConfig,
        LookaheadDecodingConfig,
        MedusaDecodingConfig,
        NGramDecodingConfig,
    )

    Config: TypeAlias = EagleDecodingConfig | LookaheadDecodingConfig | MedusaDecodingConfig

_DYNAMIC_TOPK = 10


def lookahead_tokens(window: int, ngram: int, verification: int) -> int:
    """Tokens that lookahead decoding drafts in a step at most; an engine is built for no more."""
    return max(0, ngram - 2) + (window - 1 + verification) * (ngram - 1)


def drafted_tokens(artefact: GpuArtefact, wanted: tuple[int, int, int] | None) -> int:
    """Tokens drafted in a step, 0 without speculation; with lookahead for sizes `wanted`, None: as built.

    Raises:
        ArtefactError: the engine was built without lookahead, or for smaller sizes.
    """
    figures = _figures(artefact)
    built = int(figures.get("max_draft_len", 0))
    if wanted is None:
        return built
    if figures.get("method") != "lookahead":
        raise ArtefactError(
            f"the engine in {artefact.directory} was built without lookahead: take 'lookahead' out, or add "
            f"--speculation lookahead and build again with: {artefact.manifest.command}"
        )
    drafted = lookahead_tokens(*wanted)
    if drafted > built:
        sizes = ",".join(map(str, wanted))
        raise ArtefactError(
            f"lookahead {sizes} drafts {drafted} tokens, and the engine in {artefact.directory} was built "
            f"for {built}: add --lookahead {sizes} and build again with: {artefact.manifest.command}"
        )
    return drafted


def speculative_config(artefact: GpuArtefact, wanted: tuple[int, int, int] | None) -> Config | None:
    """What the LLM class has to be told of an engine that drafts; imports TensorRT-LLM."""
    from tensorrt_llm.llmapi import EagleDecodingConfig, LookaheadDecodingConfig, MedusaDecodingConfig

    figures = _figures(artefact)
    method = figures.get("method", "none")
    if method == "lookahead":
        window, ngram, verification = wanted or figures["lookahead"]
        return LookaheadDecodingConfig(
            max_window_size=window, max_ngram_size=ngram, max_verification_set_size=verification
        )
    if method == "medusa":
        return MedusaDecodingConfig(
            max_draft_len=figures["max_draft_len"],
            num_medusa_heads=figures["heads"],
            medusa_choices=figures["choices"],
        )
    if method == "eagle":
        choices = figures["choices"] or None
        return EagleDecodingConfig(
            # It wants a path; the weights of the heads are in the engine.
            speculative_model=str(artefact.directory),
            max_draft_len=figures["max_draft_len"],
            num_eagle_layers=figures["heads"],
            max_non_leaves_per_layer=_DYNAMIC_TOPK,
            eagle_choices=choices,
            use_dynamic_tree=choices is None,
            dynamic_tree_max_topK=_DYNAMIC_TOPK if choices is None else None,
        )
    return None


def checkpoint_speculation(
    settings: LlmSettings, artefact: GpuArtefact
) -> EagleDecodingConfig | NGramDecodingConfig | None:
    """What the PyTorch runtime's LLM class drafts with; imports TensorRT-LLM."""
    from tensorrt_llm.llmapi import EagleDecodingConfig, NGramDecodingConfig

    if settings.speculation == "eagle3":
        # Heads that are a part of the model answer sampled requests greedily (1.2): here they are apart.
        return EagleDecodingConfig(
            max_draft_len=settings.num_assistant_tokens,
            speculative_model=str(artefact.draft),
            eagle3_one_model=False,
        )
    if settings.speculation == "prompt_lookup":
        return NGramDecodingConfig(
            max_draft_len=settings.num_assistant_tokens,
            max_matching_ngram_size=settings.max_ngram_size,
            is_public_pool=False,  # what one client wrote must not be drafted from for another
        )
    return None


def _figures(artefact: GpuArtefact) -> dict[str, Any]:
    figures: dict[str, Any] = artefact.manifest.extra.get("speculation") or {"method": "none"}
    return figures
