"""Measures the language model: our engine on vLLM beside vLLM alone."""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.gpu_check.measure import percentiles
from benchmarks.gpu_check.steps import Options, Skipped, Step
from trimodal.errors import ServerError

if TYPE_CHECKING:
    from trimodal.llm.engines.protocol import Engine

STREAMS = (1, 8, 64, 256)
PROMPT_TOKENS, ANSWER_TOKENS = 128, 128
MEMORY = 0.9  # vLLM's share of the GPU
LIMIT_S = 300.0  # for streams that run together
VOCABULARY = 30_000  # ids below which every tokenizer has texts


@dataclass
class Stream:
    """One sequence: when its tokens came (seconds), and how many in all."""

    id: int
    prompt: list[int]
    began: float
    times: list[float] = field(default_factory=list)
    tokens: int = 0
    ended: bool = False

    def took(self, tokens: int) -> None:
        """Notes tokens that have just come."""
        if tokens:
            self.times.append(time.perf_counter())
        self.tokens += tokens


def begin(count: int, seed: int, vocabulary: int = VOCABULARY) -> list[Stream]:
    """Streams with random prompts that share no beginning."""
    rng = random.Random(seed)
    prompts = [[rng.randrange(3, vocabulary) for _ in range(PROMPT_TOKENS)] for _ in range(count)]
    return [
        Stream(1000 * seed + number, prompt, time.perf_counter()) for number, prompt in enumerate(prompts)
    ]


def figures(streams: Sequence[Stream]) -> dict[str, Any]:
    """Tokens a second of streams that ran together, times to first token and between tokens (ms)."""
    began = min(stream.began for stream in streams)
    seconds = max(stream.times[-1] for stream in streams) - began
    gaps = [later - at for stream in streams for at, later in itertools.pairwise(stream.times)] or [0.0]
    ttft = percentiles([stream.times[0] - stream.began for stream in streams])
    return {
        "tokens_s": sum(stream.tokens for stream in streams) / seconds,
        **{f"ttft_{name}": value for name, value in ttft.items()},
        **{f"itl_{name}": value for name, value in percentiles(gaps).items()},
    }


def through_ours(engine: Engine, streams: Sequence[Stream], max_tokens: int) -> dict[str, Any]:
    """Streams through our engine's protocol. Raises ServerError: it fails on one, or takes too long."""
    from trimodal.llm.engines.protocol import EngineRequest, Sampling

    known = {stream.id: stream for stream in streams}
    for stream in streams:
        engine.add(EngineRequest(stream.id, stream.prompt, Sampling(max_tokens)))
    limit = time.perf_counter() + LIMIT_S
    while not all(stream.ended for stream in streams):
        for output in engine.step():
            if output.finish_reason == "error":
                raise ServerError(f"the engine failed on a sequence: {output.error}")
            known[output.id].took(len(output.token_ids))
            known[output.id].ended = output.finish_reason is not None
        if time.perf_counter() > limit:
            raise ServerError(f"the engine is not done after {LIMIT_S:g} s")
    return figures(streams)


def through_vllm(engine: Any, streams: Sequence[Stream], max_tokens: int) -> dict[str, Any]:
    """The same through vLLM's own generate(), on the very engine that ours drives, in its loop."""
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    library, loop = engine._runtime._engine, engine._loop  # a second one would not fit the GPU
    sampling = SamplingParams(
        max_tokens=max_tokens, temperature=0.0, detokenize=False, output_kind=RequestOutputKind.DELTA
    )

    async def follow(stream: Stream) -> None:
        prompt = {"prompt_token_ids": stream.prompt}
        async for update in library.generate(prompt, sampling, f"bare-{stream.id}"):
            stream.took(len(update.outputs[0].token_ids))

    async def together() -> None:
        await asyncio.gather(*map(follow, streams))

    loop.run(together())
    return figures(streams)


@contextmanager
def opened(options: Options, changes: Mapping[str, str]) -> Iterator[Engine]:
    """Our engine on vLLM: 256 sequences at once, 2,048 tokens in a step. Raises Skipped: no checkpoint."""
    if not options.llm:
        raise Skipped("--llm names no checkpoint that build/llm_place.py has put in place")
    from trimodal.llm.engines.vllm import open_vllm
    from trimodal.llm.settings import LlmSettings

    given: dict[str, Any] = {
        "engine": "vllm", "artefact": str(Path(options.llm).resolve()), "max_num_seqs": 256,
        "max_num_batched_tokens": 2048, "gpu_memory_utilization": MEMORY,
    }  # fmt: skip
    with closing(open_vllm(LlmSettings.model_validate({**given, **changes}))) as engine:
        yield engine


def beside_vllm(options: Options, **changes: str) -> Mapping[str, Any]:
    """1 to 256 streams, ours and vLLM alone in turn, and the tokens of the KV pool."""
    with opened(options, changes) as engine:
        found: dict[str, Any] = {"pool_tokens": engine.info.num_kv_blocks * engine.info.block_tokens}
        for count in STREAMS:
            for tokens in (16, ANSWER_TOKENS):  # the first warms up
                ours = through_ours(engine, begin(count, 2 * tokens + count), tokens)
                theirs = through_vllm(engine, begin(count, 3 * tokens + count), tokens)
            ratio = ours["tokens_s"] / theirs["tokens_s"]
            found |= {f"ours_{count}": ours, f"vllm_{count}": theirs, f"ratio_{count}": ratio}
    return found


VLLM = ("torch", "pydantic", "tokenizers", "vllm")

STEPS = (
    Step("vllm", beside_vllm, VLLM, gpu=True),
    Step("vllm_fp8", partial(beside_vllm, quantization="fp8"), VLLM, gpu=True),
)
