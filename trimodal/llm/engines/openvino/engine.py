"""Adapts OpenVINO GenAI's continuous-batching pipeline to the engine Protocol.

It runs only inside the engine's own process, on its one thread: the pipeline's
`step()` keeps the global lock, and a `read()` with nothing to read never returns.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field, replace
from typing import Any

from trimodal.llm.engines.budgets import fitted
from trimodal.llm.engines.openvino.pipeline import (
    FEWEST_STEP_TOKENS,
    choose_step_tokens,
    generation_config,
    open_pipeline,
    time_plain_steps,
    token_tensor,
    warm_up,
)
from trimodal.llm.engines.openvino.speculation import SpeculationJudge
from trimodal.llm.engines.prefix_mirror import PrefixMirror
from trimodal.llm.engines.protocol import (
    KV_BLOCK_TOKENS,
    EngineInfo,
    EngineRequest,
    EngineStats,
    Logprobs,
    Output,
)
from trimodal.llm.settings import LlmSettings
from trimodal.manifest import read_manifest

logger = logging.getLogger(__name__)


@dataclass
class _Sequence:
    request: EngineRequest
    handle: Any
    cached: int
    made: list[int] = field(default_factory=list)
    begun: bool = False  # whether a step ran since it was added: the pipeline may have taken blocks for it


class OpenVinoEngine:
    """A CPU engine with paged KV, prefix caching and optional speculation."""

    def __init__(self, settings: LlmSettings) -> None:
        self._settings = settings = fitted(settings)
        self._manifest = read_manifest(settings.artefact_directory, task="llm", runtime="openvino")
        self._eos = [int(id) for id in self._manifest.extra.get("eos_token_ids", [])]
        self._sequences: dict[int, _Sequence] = {}
        self._leaving: list[_Sequence] = []
        self._judge: SpeculationJudge | None = None
        self._pipeline: Any = None
        self._stats = EngineStats()
        self._open(speculate=False)
        if not settings.max_num_batched_tokens:
            tokens = choose_step_tokens(self._pipeline, settings)
            self._settings = settings = settings.model_copy(update={"max_num_batched_tokens": tokens})
            if tokens != FEWEST_STEP_TOKENS:
                self._open(speculate=False)
        if settings.speculation != "none":
            # Plain decoding is timed first, so that speculation can be judged against it.
            self._judge = SpeculationJudge(time_plain_steps(self._pipeline, settings.max_num_seqs))
            self._open(speculate=True)

    @property
    def info(self) -> EngineInfo:
        settings = self._settings
        return EngineInfo(
            name="openvino",
            num_kv_blocks=settings.num_kv_blocks,
            block_tokens=KV_BLOCK_TOKENS,
            max_num_seqs=settings.max_num_seqs,
            max_num_batched_tokens=settings.max_num_batched_tokens,
            max_model_len=int(self._manifest.shapes["max_position_embeddings"]),
            vocab_size=int(self._manifest.shapes["vocab_size"]),
            unsupported={"logit_bias": "OpenVINO GenAI has none"},
            lookahead=settings.num_assistant_tokens + 1 if settings.speculation != "none" else 0,
        )

    def add(self, request: EngineRequest) -> None:
        handle = self._pipeline.add_request(
            request.id, token_tensor(request.prompt_ids), self._config(request)
        )
        cached = (
            self._prefix.add(request.id, request.prompt_ids) if self._settings.enable_prefix_caching else 0
        )
        self._sequences[request.id] = _Sequence(request, handle, cached)

    def cancel(self, id: int) -> None:
        sequence = self._sequences.pop(id, None)
        if sequence is None:
            return
        self._prefix.drop(id)
        if self._settings.enable_prefix_caching and sequence.begun and not sequence.made:
            # The pipeline files a block under the hash of all its tokens as soon as the first of them is
            # computed. Dropped within its prompt, a sequence would leave blocks in the prefix cache that
            # were never filled, and later prompts would be answered from them. So the prompt is finished.
            self._leaving.append(sequence)
        else:
            sequence.handle.cancel()

    def has_work(self) -> bool:
        return bool(self._pipeline.has_non_finished_requests())

    def step(self) -> list[Output]:
        began = time.perf_counter()
        decoding = [id for id, sequence in self._sequences.items() if sequence.made]
        prefilling = len(self._sequences) + len(self._leaving) - len(decoding)
        self._pipeline.step()
        for sequence in self._sequences.values():
            sequence.begun = True
        self._let_go()
        outputs = [output for id in list(self._sequences) if (output := self._read(id))]
        seconds = time.perf_counter() - began
        self._count(outputs, decoding, prefilling, seconds)
        if self._judge and self._judge.loses and not self.has_work():
            self._stop_speculating()
        return outputs

    def stats(self) -> EngineStats:
        # The pipeline's own figure is as old as its last step and still holds what ended in it.
        running = len(self._sequences) + len(self._leaving)
        usage = self._pipeline.get_metrics().cache_usage / 100 if running else 0.0
        return replace(self._stats, running=running, kv_usage=usage)

    def check(self) -> None:
        """The pipeline lives in this process: a loss ends it without being asked."""

    def close(self) -> None:
        self._sequences.clear()
        self._leaving.clear()
        self._pipeline = None

    def _let_go(self) -> None:
        """Drops the cancelled sequences whose prompt is computed by now."""
        from openvino_genai import GenerationStatus

        staying = []
        for sequence in self._leaving:
            if not sequence.handle.can_read() and sequence.handle.get_status() == GenerationStatus.RUNNING:
                staying.append(sequence)
            else:
                sequence.handle.cancel()
        self._leaving = staying

    def _read(self, id: int) -> Output | None:
        from openvino_genai import GenerationFinishReason, GenerationStatus

        sequence = self._sequences[id]
        tokens: list[int] = []
        logprobs: tuple[Logprobs, ...] = ()
        with_logprobs = sequence.request.sampling.logprobs is not None
        stop, length = GenerationFinishReason.STOP, GenerationFinishReason.LENGTH
        reason = GenerationFinishReason.NONE
        while sequence.handle.can_read():  # read() without it never returns
            for output in sequence.handle.read().values():
                tokens += output.generated_ids
                if with_logprobs:
                    logprobs += tuple(map(Logprobs, output.generated_log_probs))
                reason = output.finish_reason
        if tokens and not sequence.made:
            self._prefix.prefilled(id)
        sequence.made += tokens
        finish, error = {stop: "stop", length: "length"}.get(reason), ""
        if not finish and sequence.handle.get_status() == GenerationStatus.IGNORED:
            finish, error = "error", "the engine ran out of KV blocks for this request"
        if finish:
            del self._sequences[id]
            self._prefix.finish(id, sequence.made)
        if not tokens and not finish:
            return None
        return Output(id, tokens, finish, sequence.cached, error, logprobs)

    def _count(self, outputs: list[Output], decoding: list[int], prefilling: int, seconds: float) -> None:
        made = {output.id: len(output.token_ids) for output in outputs}
        slots = [made[id] for id in decoding if id in made]
        stats = self._stats
        drafted = len(slots) * self._settings.num_assistant_tokens if self._judge else 0
        self._stats = replace(
            stats,
            decode_slots=stats.decode_slots + len(slots),
            decoded_tokens=stats.decoded_tokens + sum(slots),
            drafted_tokens=stats.drafted_tokens + drafted,
            accepted_tokens=stats.accepted_tokens + (sum(slots) - len(slots) if self._judge else 0),
        )
        if self._judge and slots and not prefilling:
            self._judge.observe(len(slots), sum(slots), seconds)

    def _config(self, request: EngineRequest) -> Any:
        if not self._judge:
            return generation_config(request.sampling, self._eos)
        # Once it is known to lose, drafting is kept to the least that the pipeline takes
        # until no request runs and it can be opened anew without.
        settings = self._settings
        return generation_config(
            request.sampling,
            self._eos,
            drafted=1 if self._judge.loses else settings.num_assistant_tokens,
            max_ngram_size=settings.max_ngram_size,
        )

    def _open(self, *, speculate: bool) -> None:
        self._pipeline = None  # the old one's memory goes before the new one's comes
        self._pipeline = open_pipeline(self._settings, speculate=speculate)
        if not speculate:
            warm_up(self._pipeline)
        self._prefix = PrefixMirror(self._settings.num_kv_blocks, KV_BLOCK_TOKENS)
        self._stats = replace(self._stats, speculating=speculate)

    def _stop_speculating(self) -> None:
        if self._judge:
            logger.info("speculation is switched off: %s", self._judge.note)
        self._judge = None
        self._open(speculate=False)
