"""OpenVINO GenAI's continuous-batching pipeline behind the engine Protocol.

It runs only inside the engine's own process, on its one thread: the pipeline's
`step()` keeps the global lock, and a `read()` with nothing to read never returns.
"""

from __future__ import annotations

import os
import secrets
import time
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from trimodal.errors import ArtefactError
from trimodal.llm.engine import KV_BLOCK_TOKENS, EngineInfo, EngineRequest, EngineStats, Output, Sampling
from trimodal.llm.prefix import PrefixMirror
from trimodal.llm.settings import LlmSettings
from trimodal.llm.speculation import SpeculationJudge
from trimodal.manifest import Manifest, read_manifest

_CALIBRATION_STEPS = 16

# What makes an answer independent of the requests beside it. Each of the three was seen to change greedy
# tokens between a solo run and a batch of 16: bf16 sums (the default on CPUs with AMX), activations
# quantised to INT8 on the fly, and a KV scale per channel, which depends on how a prompt was cut into steps.
_REPRODUCIBLE = {
    "INFERENCE_PRECISION_HINT": "f32",
    "DYNAMIC_QUANTIZATION_GROUP_SIZE": 0,
    "KEY_CACHE_QUANT_MODE": "BY_TOKEN",
}


@dataclass
class _Sequence:
    request: EngineRequest
    handle: Any
    cached: int
    made: list[int] = field(default_factory=list)


class OpenVinoEngine:
    """A CPU engine with paged KV, prefix caching and optional speculation."""

    def __init__(self, settings: LlmSettings) -> None:
        self._settings = settings
        self._manifest = read_manifest(settings.artefact_directory, task="llm", runtime="openvino")
        self._threads = settings.threads or len(os.sched_getaffinity(0))
        self._sequences: dict[int, _Sequence] = {}
        self._judge: SpeculationJudge | None = None
        self._pipeline: Any = None
        self._stats = EngineStats()
        if settings.speculation == "none":
            self._open(speculate=False)
        else:
            self._open_speculating()

    @property
    def info(self) -> EngineInfo:
        settings = self._settings
        return EngineInfo(
            name="openvino",
            precision=self._manifest.precision,
            num_kv_blocks=settings.num_kv_blocks,
            block_tokens=KV_BLOCK_TOKENS,
            max_num_seqs=settings.max_num_seqs,
            max_model_len=int(self._manifest.shapes["max_position_embeddings"]),
            lookahead=settings.num_assistant_tokens + 1 if settings.speculation != "none" else 0,
            extra={"source": self._manifest.source, "kv_cache_precision": settings.kv_cache_precision},
        )

    def add(self, request: EngineRequest) -> None:
        handle = self._pipeline.add_request(request.id, _tensor(request.prompt_ids), self._config(request))
        cached = 0
        if self._settings.enable_prefix_caching:
            cached = self._prefix.add(request.id, request.prompt_ids)
        self._sequences[request.id] = _Sequence(request, handle, cached)

    def cancel(self, id: int) -> None:
        sequence = self._sequences.pop(id, None)
        if sequence:
            sequence.handle.cancel()
            self._prefix.drop(id)

    def has_work(self) -> bool:
        return bool(self._pipeline.has_non_finished_requests())

    def step(self) -> list[Output]:
        began = time.perf_counter()
        decoding = [id for id, sequence in self._sequences.items() if sequence.made]
        prefilling = len(self._sequences) - len(decoding)
        self._pipeline.step()
        outputs = [output for id in list(self._sequences) if (output := self._read(id))]
        seconds = time.perf_counter() - began
        self._count(outputs, decoding, prefilling, seconds)
        if self._judge and self._judge.loses and not self.has_work():
            self._stop_speculating()
        return outputs

    def stats(self) -> EngineStats:
        # The pipeline's own figure is as old as its last step and still holds what ended in it.
        usage = self._pipeline.get_metrics().cache_usage / 100 if self._sequences else 0.0
        return replace(self._stats, running=len(self._sequences), kv_usage=usage)

    def close(self) -> None:
        self._sequences.clear()
        self._pipeline = None

    def _read(self, id: int) -> Output | None:
        from openvino_genai import GenerationFinishReason, GenerationStatus

        sequence = self._sequences[id]
        tokens: list[int] = []
        reason = GenerationFinishReason.NONE
        while sequence.handle.can_read():  # read() without it never returns
            for output in sequence.handle.read().values():
                tokens += output.generated_ids
                reason = output.finish_reason
        if tokens and not sequence.made:
            self._prefix.prefilled(id)
        sequence.made += tokens
        finish, error = None, ""
        if reason == GenerationFinishReason.STOP:
            finish = "stop"
        elif reason == GenerationFinishReason.LENGTH:
            finish = "length"
        elif sequence.handle.get_status() == GenerationStatus.IGNORED:
            finish, error = "error", "the engine ran out of KV blocks for this request"
        if finish:
            del self._sequences[id]
            self._prefix.finish(id, sequence.made)
        if not tokens and not finish:
            return None
        return Output(id, tokens, finish, sequence.cached, error)

    def _count(self, outputs: list[Output], decoding: list[int], prefilling: int, seconds: float) -> None:
        made = {output.id: len(output.token_ids) for output in outputs}
        slots = [made[id] for id in decoding if id in made]
        stats = self._stats
        drafted = len(slots) * self._settings.num_assistant_tokens if self._judge else 0
        self._stats = replace(
            stats,
            steps=stats.steps + 1,
            decode_slots=stats.decode_slots + len(slots),
            decoded_tokens=stats.decoded_tokens + sum(slots),
            drafted_tokens=stats.drafted_tokens + drafted,
            accepted_tokens=stats.accepted_tokens + (sum(slots) - len(slots) if self._judge else 0),
            step_seconds=seconds,
        )
        if self._judge and slots and not prefilling:
            self._judge.observe(len(slots), sum(slots), seconds)
            self._stats = replace(self._stats, speculation_note=self._judge.note)

    def _config(self, request: EngineRequest) -> Any:
        from openvino_genai import GenerationConfig

        sampling = request.sampling
        config = GenerationConfig()
        config.max_new_tokens = sampling.max_tokens
        config.eos_token_id = self._eos[0] if self._eos else -1
        config.stop_token_ids = set(self._eos)
        config.apply_chat_template = False
        if sampling.temperature > 0:
            config.do_sample = True
            config.temperature = sampling.temperature
            config.top_p = sampling.top_p
            if sampling.top_k:
                config.top_k = sampling.top_k
            # The pipeline's own default is one fixed seed: every unseeded answer would be the same.
            config.rng_seed = secrets.randbits(32) if sampling.seed is None else sampling.seed
        else:
            config.do_sample = False
        if self._judge:
            # Once it is known to lose, drafting is kept to the least that the pipeline takes
            # until no request runs and it can be opened anew without.
            config.num_assistant_tokens = 1 if self._judge.loses else self._settings.num_assistant_tokens
            if self._settings.speculation == "prompt_lookup":
                config.max_ngram_size = self._settings.max_ngram_size
        return config

    def _open(self, *, speculate: bool) -> None:
        import openvino_genai as genai

        settings = self._settings
        scheduler = genai.SchedulerConfig()
        scheduler.num_kv_blocks = settings.num_kv_blocks
        scheduler.max_num_batched_tokens = settings.max_num_batched_tokens
        scheduler.max_num_seqs = settings.max_num_seqs
        scheduler.enable_prefix_caching = settings.enable_prefix_caching
        properties: dict[str, Any] = {
            "INFERENCE_NUM_THREADS": self._threads,
            "KV_CACHE_PRECISION": settings.kv_cache_precision,
        }
        if settings.numerics == "reproducible":
            properties |= _REPRODUCIBLE
        if speculate and settings.speculation == "draft":
            draft = read_manifest(settings.draft_directory, task="llm", runtime="openvino")
            _check_draft(self._manifest, draft, settings)
            properties["draft_model"] = genai.draft_model(str(settings.draft_directory), "CPU", **properties)
        elif speculate:
            properties["prompt_lookup"] = True
        self._pipeline = None  # the old one's memory goes before the new one's comes
        self._pipeline = genai.ContinuousBatchingPipeline(
            str(settings.artefact_directory), scheduler, "CPU", properties
        )
        self._prefix = PrefixMirror(settings.num_kv_blocks, KV_BLOCK_TOKENS)
        self._eos = [int(id) for id in self._manifest.extra.get("eos_token_ids", [])]
        self._stats = replace(self._stats, speculating=speculate)

    def _open_speculating(self) -> None:
        """Times plain decoding first, so that speculation can be judged against it."""
        self._open(speculate=False)
        plain = {batch: self._time_step(batch) for batch in _calibration_batches(self._settings.max_num_seqs)}
        self._judge = SpeculationJudge(plain)
        self._open(speculate=True)

    def _time_step(self, batch: int) -> float:
        """Seconds of a plain decoding step of `batch` sequences (median)."""
        handles = []  # a dropped handle stops its request
        for index in range(batch):
            # Distinct short prompts: a shared one would be served by the prefix cache.
            request = EngineRequest(index, [index + 1] * 8, Sampling(max_tokens=_CALIBRATION_STEPS + 2))
            config = self._config_without_eos(request)
            handles.append(self._pipeline.add_request(index, _tensor(request.prompt_ids), config))
        times = []
        while self._pipeline.has_non_finished_requests():
            began = time.perf_counter()
            self._pipeline.step()
            times.append(time.perf_counter() - began)
        return float(np.median(times[2:]))

    def _config_without_eos(self, request: EngineRequest) -> Any:
        config = self._config(request)
        config.ignore_eos = True
        config.stop_token_ids = set()
        return config

    def _stop_speculating(self) -> None:
        self._judge = None
        note = self._stats.speculation_note
        self._open(speculate=False)
        self._stats = replace(self._stats, speculation_note=f"switched off: {note}")


def _tensor(token_ids: list[int]) -> Any:
    import openvino

    return openvino.Tensor(np.asarray([token_ids], dtype=np.int64))


def _calibration_batches(max_num_seqs: int) -> list[int]:
    return sorted({1, min(4, max_num_seqs), min(16, max_num_seqs)})


def _check_draft(main: Manifest, draft: Manifest, settings: LlmSettings) -> None:
    """A draft with another vocabulary would propose other words."""
    ours, theirs = (manifest.shapes.get("vocab_size") for manifest in (main, draft))
    if ours != theirs:
        raise ArtefactError(
            f"draft_artefact '{settings.draft_artefact}' has a vocabulary of {theirs}, "
            f"artefact '{settings.artefact}' of {ours}: a draft must share the tokenizer"
        )
