"""Checks an artefact against the settings and the GPUs, before a GPU engine's library is imported."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from trimodal.errors import ArtefactError, OperatorError
from trimodal.llm.engines.protocol import KV_BLOCK_TOKENS
from trimodal.llm.settings import LlmSettings
from trimodal.manifest import MANIFEST, Manifest, read_manifest
from trimodal.runtimes import gpu_fit
from trimodal.runtimes.gpu_device import visible_gpus


@dataclass(frozen=True)
class GpuArtefact:
    """A directory that fits its settings. `max_model_len` is in tokens, prompt and answer together."""

    directory: Path
    manifest: Manifest
    max_model_len: int

    @property
    def eos_ids(self) -> list[int]:
        """Every id that ends an answer."""
        return [int(id) for id in self.manifest.extra.get("eos_token_ids", [])]

    @property
    def block_tokens(self) -> int:
        """Tokens of one KV block, as an engine was compiled; the library's default where it can choose."""
        return int(self.manifest.shapes.get("tokens_per_block", KV_BLOCK_TOKENS))


def compiled(settings: LlmSettings) -> GpuArtefact:
    """A compiled engine of TensorRT-LLM, checked against the settings and the GPUs that can be seen.

    Raises:
        OperatorError: it is missing, or does not fit; one sentence with the command that builds it again.
    """
    directory, manifest = _read(settings, "tensorrt_llm")
    for limit, parameter in (
        ("max_batch_size", "max_num_seqs"),
        ("max_num_tokens", "max_num_batched_tokens"),
        ("max_seq_len", "max_model_len"),
    ):
        gpu_fit.check_limit(directory, manifest, limit, parameter, getattr(settings, parameter))
    gpu_fit.check_gpu(directory, manifest, visible_gpus())
    return GpuArtefact(directory, manifest, _longest(settings, directory, manifest, "max_seq_len"))


def checkpoint(settings: LlmSettings) -> GpuArtefact:
    """A Hugging Face checkpoint in place, and as many GPUs as the settings spread it over.

    Raises:
        OperatorError: it is missing or another one, or GPUs are.
    """
    directory, manifest = _read(settings, "checkpoint")
    limit = "max_position_embeddings"
    gpu_fit.check_limit(directory, manifest, limit, "max_model_len", settings.max_model_len)
    wanted, found = settings.tensor_parallel_size * settings.pipeline_parallel_size, len(visible_gpus())
    if found < wanted:
        raise OperatorError(
            f"tensor_parallel_size {settings.tensor_parallel_size} × pipeline_parallel_size "
            f"{settings.pipeline_parallel_size} needs {wanted} GPUs, and {found or 'none'} can be seen here"
        )
    return GpuArtefact(directory, manifest, _longest(settings, directory, manifest, limit))


def _read(settings: LlmSettings, runtime: str) -> tuple[Path, Manifest]:
    directory = settings.artefact_directory
    manifest = read_manifest(directory, task="llm", runtime=runtime)
    gpu_fit.check_precision(directory, manifest, settings.precision)
    gpu_fit.check_checkpoint(directory, manifest, settings.checkpoint_sha256)
    return directory, manifest


def _longest(settings: LlmSettings, directory: Path, manifest: Manifest, limit: str) -> int:
    """Tokens of a sequence: as set, else as the manifest's shapes say."""
    length = settings.max_model_len or manifest.shapes.get(limit)
    if not isinstance(length, int):
        raise ArtefactError(
            f"{directory / MANIFEST} is damaged (shapes.{limit}): build again with: {manifest.command}"
        )
    return length
