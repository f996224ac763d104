"""Checks an artefact against the settings and the GPUs, before a GPU engine's library is imported.

Where the settings leave batch and step open, the card chooses them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from trimodal.errors import ArtefactError, OperatorError, SettingsError
from trimodal.llm.settings import LlmSettings
from trimodal.manifest import MANIFEST, Manifest, read_manifest
from trimodal.runtimes import gpu_fit
from trimodal.runtimes.gpu_device import Gpu, visible_gpus

_PLAIN = ("bf16", "fp16", "fp32")  # precisions that can be quantised while they are loaded


@dataclass(frozen=True)
class CardLimits:
    """Sequences in a batch and tokens in a step."""

    max_num_seqs: int
    max_num_batched_tokens: int


# A row holds from its memory on; the first that fits counts. The figures are vLLM 0.33.0's own for its server
# (arg_utils.get_batch_defaults): a larger step holds up every stream that decodes beside it, and on the cards
# of the last row, A100s of any size included (vLLM pull 17885), it is slower besides. On Hopper vLLM would
# take 1024 sequences; it has CUDA graphs for 512 there and for 1024 from Blackwell on (config/vllm.py), so a
# row takes no more than that. TensorRT-LLM is given the same, and graphs for all of it.
_ROWS = (  # GPU memory in GiB at least
    (160, CardLimits(1024, 16384)),  # B200
    (70, CardLimits(512, 8192)),  # H100, H200
    (0, CardLimits(256, 2048)),  # L4, A10, L40S, RTX 4090, A100 40GB
)
_SMALLEST = _ROWS[-1][1]
# Without a card: a step of 2048 tokens would hold up the others for a second.
_PROCESSOR = CardLimits(16, 512)
_SLOWER_THAN_THEIR_MEMORY = ("a100", "gb10")


@dataclass(frozen=True)
class GpuArtefact:
    """A directory that fits its settings, and the limits that the settings leave to card and engine.

    Attributes:
        max_model_len: tokens of a sequence, prompt and answer together.
        max_num_seqs: sequences in a batch. max_num_batched_tokens: tokens in a step.
        gpus: how many it runs on.
        draft: checkpoint of the heads that draft for it; None: there are none.
    """

    directory: Path
    manifest: Manifest
    max_model_len: int
    max_num_seqs: int
    max_num_batched_tokens: int
    gpus: int = 1
    draft: Path | None = None

    @property
    def eos_ids(self) -> list[int]:
        """Every id that ends an answer."""
        return [int(id) for id in self.manifest.extra.get("eos_token_ids", [])]


def checkpoint(settings: LlmSettings) -> GpuArtefact:
    """A Hugging Face checkpoint in place, and as many GPUs as the settings spread it over.

    Raises:
        OperatorError: it is missing or another one, or GPUs are.
    """
    directory = settings.artefact_directory
    manifest = read_manifest(directory, task="llm", runtime="checkpoint")
    gpu_fit.check_precision(directory, manifest, settings.precision)
    gpu_fit.check_checkpoint(directory, manifest, settings.checkpoint_sha256)
    limit = "max_position_embeddings"
    gpu_fit.check_limit(directory, manifest, limit, "max_model_len", settings.max_model_len)
    wanted = settings.tensor_parallel_size * settings.pipeline_parallel_size
    on_gpu = settings.device == "cuda"
    gpus = visible_gpus() if on_gpu else []
    if len(gpus) < wanted and (on_gpu or wanted > 1):
        raise OperatorError(
            f"tensor_parallel_size {settings.tensor_parallel_size} × pipeline_parallel_size "
            f"{settings.pipeline_parallel_size} needs {wanted} GPUs, "
            f"and {len(gpus) or 'none'} can be seen here"
        )
    if settings.quantization and manifest.precision not in _PLAIN:
        raise ArtefactError(
            f"the checkpoint in {directory} is {manifest.precision} already: take 'quantization' out, or "
            f"name one of {', '.join(_PLAIN)}"
        )
    draft = None
    if settings.speculation == "eagle3":
        draft = settings.draft_directory
        read_manifest(draft, task="llm", runtime="checkpoint")
    length = settings.max_model_len or manifest.shapes.get(limit)
    if not isinstance(length, int):
        raise ArtefactError(
            f"{directory / MANIFEST} is damaged (shapes.{limit}): build again with: {manifest.command}"
        )
    limits = _limits(settings, length, card_limits(gpus[:wanted]) if on_gpu else _PROCESSOR)
    return GpuArtefact(directory, manifest, length, *limits, wanted, draft)


def card_limits(gpus: Sequence[Gpu]) -> CardLimits:
    """The limits of the weakest of these GPUs; without any the smallest row."""
    return min((_card_row(gpu) for gpu in gpus), key=lambda row: row.max_num_seqs, default=_SMALLEST)


def _card_row(gpu: Gpu) -> CardLimits:
    if any(name in gpu.name.lower() for name in _SLOWER_THAN_THEIR_MEMORY):
        return _SMALLEST
    return next(limits for gib, limits in _ROWS if gpu.memory >= gib << 30)


def _limits(settings: LlmSettings, max_model_len: int, card: CardLimits) -> tuple[int, int]:
    """Batch and step: as set, else by the card."""
    batch = settings.max_num_seqs or card.max_num_seqs
    # Every sequence decodes in a step, and a prompt that is not cut has to fit into one.
    decoding = batch * (1 + settings.drafted_tokens)
    prompt = 0 if settings.enable_chunked_prefill else max_model_len
    step = settings.max_num_batched_tokens
    if step and settings.engine == "vllm" and step < decoding:
        each = f" × {1 + settings.drafted_tokens} tokens, {settings.drafted_tokens} of them drafted"
        raise SettingsError(
            f"parameter 'max_num_batched_tokens' = {step}: a step of max_num_seqs {batch}"
            f"{each if settings.drafted_tokens else ''} needs {decoding} at least; 0 is by the machine"
        )
    if step and settings.engine == "vllm" and step < prompt:
        raise SettingsError(
            f"parameter 'max_num_batched_tokens' = {step}: a prompt of max_model_len {max_model_len} is "
            "computed in one step, without enable_chunked_prefill"
        )
    return batch, step or max(card.max_num_batched_tokens, decoding, prompt)
