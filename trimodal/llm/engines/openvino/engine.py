"""Adapts OpenVINO GenAI's continuous-batching pipeline to the engine Protocol.

It runs only inside the engine's own process, on its one thread: the pipeline's
`step()` keeps the global lock, and a `read()` with nothing to read never returns.

With prefix caching on, a prompt longer than a step is handed over in pieces, each a request of its own for
one token that nobody sees; the next one finds the blocks of those before. The pipeline files a block under
the hash of all its tokens as soon as the first of them is computed: a sequence dropped within its prompt
would leave blocks that were never filled, and later prompts would be answered from them. A piece ends with a
block and is never dropped, so a client that leaves costs the others one piece at most, and short prompts are
computed between the pieces of long ones.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field, replace
from typing import Any

from trimodal.errors import OperatorError, last_line
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
from trimodal.llm.engines.prefill import PrefillShares
from trimodal.llm.engines.prefix_mirror import PrefixMirror, salted
from trimodal.llm.engines.protocol import (
    KV_BLOCK_TOKENS,
    EngineCall,
    EngineInfo,
    EngineRequest,
    EngineStats,
    Logprobs,
    Output,
    Sampling,
)
from trimodal.llm.settings import LlmSettings
from trimodal.manifest import read_manifest
from trimodal.runtimes.heap import give_back_freed

logger = logging.getLogger(__name__)

_UNSALTED = "this graph reads the bits of token ids that keep tenants' prefixes apart"
_PIECE = Sampling(max_tokens=1, ignore_eos=True)
# The pipeline (GenAI 2026.4) keeps what it made of each grammar for as long as it is open, about a hundred
# times the grammar's bytes: an engine that is asked for ever new schemas grew without end. Of different ones,
# so many bytes: then it is opened anew where nobody waits; else where nothing runs between two requests; at
# the last nothing more is begun until what runs has ended.
IDLE_GRAMMAR_BYTES, BUSY_GRAMMAR_BYTES, MOST_GRAMMAR_BYTES = 512 << 10, 1 << 20, 4 << 20
_GRAMMAR_BYTES = 1 << 10  # what one counts as beside its own: the smallest takes some 70 KiB, too


@dataclass
class _Sequence:
    """A sequence; `handle` is the pipeline's, None while nothing of it is there.

    Attributes:
        computed: prompt tokens whose KV is there. piece: so many there will be after the piece that the
            pipeline has; 0: it has the whole prompt, and answers.
        current: it made a token in the last step, so that all its blocks are filled.
    """

    request: EngineRequest
    config: Any
    handle: Any = None
    piece: int = 0
    computed: int = 0
    cached: int = 0
    made: list[int] = field(default_factory=list)
    current: bool = False

    @property
    def remaining(self) -> int:
        """Prompt tokens that are to be computed."""
        return len(self.request.prompt_ids) - self.computed

    @property
    def underway(self) -> int:
        """Prompt tokens that the pipeline has yet to compute."""
        if self.made or self.handle is None:
            return 0
        return self.piece - self.computed if self.piece else self.remaining


class OpenVinoEngine:
    """A CPU engine with paged KV, prefix caching and optional speculation."""

    def __init__(self, settings: LlmSettings) -> None:
        self._settings = settings = fitted(settings)
        self._manifest = read_manifest(settings.artefact_directory, task="llm", runtime="openvino")
        self._eos = [int(id) for id in self._manifest.extra.get("eos_token_ids", [])]
        self._sequences: dict[int, _Sequence] = {}
        self._leaving: list[_Sequence] = []
        self._shares = PrefillShares(KV_BLOCK_TOKENS)
        self._judge: SpeculationJudge | None = None
        self._grammars: set[int] = set()  # hashes of those that the pipeline has compiled
        self._grammar_bytes = 0  # of these
        self._pipeline: Any = None
        self._stats = EngineStats()
        self._open(speculate=False)
        if not settings.max_num_batched_tokens:
            tokens = choose_step_tokens(self._pipeline, settings)
            self._settings = settings = settings.model_copy(update={"max_num_batched_tokens": tokens})
            # With prefix caching no step is handed more than these (`_feed`), so that a pipeline which would
            # take more is not opened again. Without it, it was opened for the fewest.
            if tokens != FEWEST_STEP_TOKENS and not settings.enable_prefix_caching:
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
            shortest_first=settings.enable_prefix_caching,
            unsupported={
                "logit_bias": "OpenVINO GenAI has none",
                "prompt_logprobs": "OpenVINO GenAI tells the chosen token's alone",
                "lora_name": "OpenVINO GenAI gives one set of adapters to a whole batch",
            },
            unsalted="repetition_penalty",  # GenAI 2026.4 looks up the logits of the prompt's ids for it
            lookahead=settings.num_assistant_tokens + 1 if settings.speculation != "none" else 0,
        )

    def add(self, request: EngineRequest) -> None:
        if not request.prompt_ids:
            raise ValueError("the prompt has no tokens")
        if request.cache_salt and not self._salts:
            raise ValueError(f"{_UNSALTED}, and so a cache_salt")
        config = self._config(request.sampling)
        config.validate()
        request = replace(
            request, prompt_ids=salted(request.prompt_ids, request.cache_salt, request.public_tokens)
        )
        self._sequences[request.id] = _Sequence(request, config)
        if self._settings.enable_prefix_caching:
            self._prefix.add(request.id, request.prompt_ids)

    def call(self, call: EngineCall) -> None:
        """Its info names none."""

    def cancel(self, id: int) -> None:
        sequence = self._sequences.pop(id, None)
        if sequence is None:
            return
        self._prefix.drop(id)
        if sequence.handle is None:
            return
        if self._settings.enable_prefix_caching and not sequence.current:
            self._leaving.append(sequence)  # what the pipeline computes of its prompt is finished
        else:
            sequence.handle.cancel()

    def has_work(self) -> bool:
        return bool(self._sequences) or bool(self._pipeline.has_non_finished_requests())

    def step(self) -> list[Output]:
        began = time.perf_counter()
        if self._grammar_bytes > BUSY_GRAMMAR_BYTES and not self._pipeline.has_non_finished_requests():
            self._open_anew(f"to forget {len(self._grammars)} grammars")
        decoding = [id for id, sequence in self._sequences.items() if sequence.made]
        prefilling = len(self._sequences) + len(self._leaving) - len(decoding)
        outputs = self._feed(len(decoding))
        self._pipeline.step()
        self._leaving = [one for one in self._leaving if not self._let_go(one)]
        outputs += [output for id in list(self._sequences) if (output := self._read(id))]
        seconds = time.perf_counter() - began
        self._count(outputs, decoding, prefilling, seconds)
        if self._judge and self._judge.loses and not self.has_work():
            note, self._judge = self._judge.note, None
            self._open_anew(f"to speculate no more: {note}")
        return outputs

    def watch(self, descriptor: int) -> None:
        """Its steps compute."""

    def stats(self) -> EngineStats:
        # The pipeline's own figure is as old as its last step and still holds what ended in it.
        usage = 0.0
        if self._sequences or self._leaving:
            paused = sum(one.computed for one in self._sequences.values() if one.handle is None)
            usage = self._pipeline.get_metrics().cache_usage / 100
            usage = min(1.0, usage + paused / KV_BLOCK_TOKENS / self._settings.num_kv_blocks)
        return replace(self._stats, kv_usage=usage)

    def check(self) -> None:
        """Forgets grammars while nobody waits. A loss of the pipeline ends this process by itself."""
        if self._grammar_bytes > IDLE_GRAMMAR_BYTES and not self.has_work():
            self._open_anew(f"to forget {len(self._grammars)} grammars")

    def close(self) -> None:
        self._sequences.clear()
        self._leaving.clear()
        self._pipeline = None

    def _feed(self, decoding: int) -> list[Output]:
        """Hands the next pieces of prompts to the pipeline, as many as a step computes."""
        waiting = [one for one in self._sequences.values() if one.handle is None]
        if not waiting or self._grammar_bytes > MOST_GRAMMAR_BYTES:
            return []
        if not self._settings.enable_prefix_caching:  # nothing would find the pieces before
            return [output for one in waiting if (output := self._hand_over(one))]
        for one in waiting:
            cached = self._prefix.cached(one.request.id)
            one.cached = one.cached if one.computed else cached
            one.computed = max(one.computed, cached)
        others = (*self._sequences.values(), *self._leaving)
        underway = sum(one.underway for one in others)
        drafted = self._settings.num_assistant_tokens if self._judge else 0
        least = KV_BLOCK_TOKENS  # a step of fewer tokens takes several for a block
        budget = max(self._settings.max_num_batched_tokens - decoding * (1 + drafted), least) - underway
        tokens = self._shares.share([one.remaining for one in waiting], budget)
        pairs = zip(waiting, tokens, strict=True)
        return [output for one, count in pairs if count and (output := self._hand_over(one, count))]

    def _hand_over(self, sequence: _Sequence, tokens: int | None = None) -> Output | None:
        """Gives the pipeline the next `tokens` of a prompt, or all of it; an error if it takes none."""
        id, prompt, config = sequence.request.id, sequence.request.prompt_ids, sequence.config
        if tokens is not None and tokens < sequence.remaining:
            sequence.piece = sequence.computed + tokens
            prompt, config = prompt[: sequence.piece], self._config(_PIECE)
        else:
            sequence.piece = 0
        try:
            sequence.handle = self._pipeline.add_request(id, token_tensor(prompt), config)
        except RuntimeError as error:
            logger.warning("the pipeline refused sequence %d: %s", id, error)
            return self._broken(sequence, f"the engine refused this request: {last_line(error)}", "refused")
        grammar = sequence.request.sampling.grammar
        if grammar and not sequence.piece and hash(grammar) not in self._grammars:
            self._grammars.add(hash(grammar))
            self._grammar_bytes += _GRAMMAR_BYTES + len(grammar.encode())
        return None

    def _let_go(self, sequence: _Sequence) -> bool:
        """Drops a cancelled sequence if what the pipeline has of its prompt is computed by now."""
        from openvino_genai import GenerationStatus

        handle = sequence.handle
        if not handle.can_read() and handle.get_status() == GenerationStatus.RUNNING:
            return False
        handle.cancel()
        return True

    def _broken(self, sequence: _Sequence, error: str, reason: str = "error") -> Output:
        id = sequence.request.id
        del self._sequences[id]
        self._prefix.drop(id)
        return Output(id, [], reason, sequence.cached, error)

    def _read(self, id: int) -> Output | None:
        from openvino_genai import GenerationFinishReason, GenerationStatus

        sequence = self._sequences[id]
        if sequence.handle is None:
            return None
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
        sequence.current = bool(tokens)
        if sequence.handle.get_status() == GenerationStatus.IGNORED:
            return self._broken(sequence, "the engine ran out of KV blocks for this request")
        if tokens and not sequence.made:
            self._prefix.prefilled(id, sequence.piece or len(sequence.request.prompt_ids))
        if sequence.piece:
            if tokens:
                sequence.handle, sequence.computed, sequence.piece = None, sequence.piece, 0
            return None
        sequence.made += tokens
        finish = {stop: "stop", length: "length"}.get(reason)
        if finish:
            del self._sequences[id]
            self._prefix.finish(id, sequence.made)
        if not tokens and not finish:
            return None
        return Output(id, tokens, finish, sequence.cached, logprobs=logprobs)

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

    def _config(self, sampling: Sampling) -> Any:
        if not self._judge:
            return generation_config(sampling, self._eos)
        # Once it is known to lose, drafting is kept to the least that the pipeline takes
        # until no request runs and it can be opened anew without.
        settings = self._settings
        return generation_config(
            sampling,
            self._eos,
            drafted=1 if self._judge.loses else settings.num_assistant_tokens,
            max_ngram_size=settings.max_ngram_size,
        )

    def _open(self, *, speculate: bool) -> None:
        self._pipeline = None  # the old one's memory goes before the new one's comes
        self._pipeline = open_pipeline(self._settings, speculate=speculate)
        if not speculate:
            self._salts = warm_up(self._pipeline)
            apart = self._settings.enable_prefix_caching and self._settings.prefix_cache_scope == "tenant"
            if apart and not self._salts:
                raise OperatorError(f"{_UNSALTED}: set prefix_cache_scope to shared")
        self._prefix = PrefixMirror(self._settings.num_kv_blocks, KV_BLOCK_TOKENS)
        self._grammars.clear()
        self._grammar_bytes = 0
        self._stats = replace(self._stats, speculating=speculate)

    def _open_anew(self, why: str) -> None:
        """Opens the pipeline anew while nothing runs in it; prompts that wait are computed from the first."""
        logger.info("the pipeline is opened anew, %s", why)
        self._open(speculate=self._judge is not None)
        give_back_freed()
        self._stats = replace(self._stats, cache_resets=self._stats.cache_resets + 1)
        for sequence in self._sequences.values():
            sequence.computed = sequence.cached = 0
            if self._settings.enable_prefix_caching:
                self._prefix.add(sequence.request.id, sequence.request.prompt_ids)
