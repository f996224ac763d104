"""Drives a language model's engine through its protocol: streams, aborts, prefixes, stalls."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from trimodal.bench.gpu_check.timing import percentiles
from trimodal.errors import ServerError
from trimodal.llm.engines.protocol import Engine, EngineRequest, Output, Sampling

LIMIT_S = 300.0
FREED_S = 5.0
IDS = itertools.count(1)


@dataclass
class Stream:
    """One sequence: when its tokens came (seconds), and how many in all."""

    id: int
    began: float
    times: list[float] = field(default_factory=list)
    tokens: int = 0
    cached: int = 0
    ended: bool = False

    @property
    def gaps(self) -> list[float]:
        return [later - at for at, later in itertools.pairwise(self.times)]


def prompts(count: int, tokens: int, vocabulary: int, seed: int = 0) -> list[list[int]]:
    """Random prompts that share no beginning."""
    rng = random.Random(seed)
    return [[rng.randrange(3, vocabulary) for _ in range(tokens)] for _ in range(count)]


def add(engine: Engine, prompt: Sequence[int], max_tokens: int) -> Stream:
    """Hands a sequence to the engine, greedy."""
    stream = Stream(next(IDS), time.perf_counter())
    engine.add(EngineRequest(stream.id, list(prompt), Sampling(max_tokens)))
    return stream


def steps(engine: Engine, streams: Sequence[Stream]) -> Iterator[list[Output]]:
    """Steps the engine until every stream has ended, and files what comes.

    Raises:
        ServerError: the engine failed on a sequence, or takes too long.
    """
    known = {stream.id: stream for stream in streams}
    limit = time.perf_counter() + LIMIT_S
    while not all(stream.ended for stream in streams):
        outputs = engine.step()
        at = time.perf_counter()
        for output in outputs:
            if output.finish_reason == "error":
                raise ServerError(f"the engine failed on a sequence: {output.error}")
            stream = known.get(output.id)
            if stream is None:
                continue
            stream.tokens += len(output.token_ids)
            stream.cached = max(stream.cached, output.cached_tokens)
            if output.token_ids:
                stream.times.append(at)
            stream.ended = stream.ended or output.finish_reason is not None
        if at > limit:
            raise ServerError(f"the engine is not done after {LIMIT_S:g} s")
        yield outputs


def together(
    engine: Engine, count: int, prompt_tokens: int, max_tokens: int, vocabulary: int, seed: int
) -> dict[str, Any]:
    """`count` streams at once: tokens a second, times to first token and between tokens in milliseconds."""
    asked = prompts(count, prompt_tokens, vocabulary, seed)
    streams = [add(engine, prompt, max_tokens) for prompt in asked]
    for _ in steps(engine, streams):
        pass
    return figures(streams)


def figures(streams: Sequence[Stream]) -> dict[str, Any]:
    """Of streams that ran together."""
    began = min(stream.began for stream in streams)
    seconds = max(stream.times[-1] for stream in streams) - began
    gaps = [gap for stream in streams for gap in stream.gaps] or [0.0]
    ttft = percentiles([stream.times[0] - stream.began for stream in streams])
    return {
        "tokens_s": sum(stream.tokens for stream in streams) / seconds,
        **{f"ttft_{name}": value for name, value in ttft.items()},
        **{f"itl_{name}": value for name, value in percentiles(gaps).items()},
    }


def abort(engine: Engine, prompt_tokens: int, vocabulary: int) -> dict[str, Any]:
    """Share of the KV pool in use by 8 streams, and when 7 are cancelled; milliseconds until it is free."""
    streams = [add(engine, prompt, 4096) for prompt in prompts(8, prompt_tokens, vocabulary, seed=77)]
    for _ in steps(engine, streams):
        if all(stream.times for stream in streams):
            break
    _settle(engine, streams, 0.3)
    before = engine.stats().kv_usage
    for stream in streams[1:]:
        engine.cancel(stream.id)
    at = time.perf_counter()
    freed = None
    while time.perf_counter() - at < FREED_S and freed is None:
        engine.step()
        if engine.stats().kv_usage < before / 2:
            freed = 1e3 * (time.perf_counter() - at)
    after = engine.stats().kv_usage
    engine.cancel(streams[0].id)
    return {"kv_usage_before": before, "kv_usage_after": after, "freed_ms": freed, "freed": freed is not None}


def _settle(engine: Engine, streams: Sequence[Stream], seconds: float) -> None:
    """Goes on until the figures of the pool, which come with a step, are new."""
    until = time.perf_counter() + seconds
    for _ in steps(engine, streams):
        if time.perf_counter() > until:
            return


def prefix(engine: Engine, tokens: int, vocabulary: int) -> dict[str, Any]:
    """The same prompt twice: tokens that the second took from the cache, and both times to first token."""
    (prompt,) = prompts(1, tokens, vocabulary, seed=99)
    found: dict[str, Any] = {"prompt_tokens": tokens}
    for name in ("first", "second"):
        stream = add(engine, prompt, 4)
        for _ in steps(engine, [stream]):
            pass
        found[f"{name}_cached"] = stream.cached
        found[f"{name}_ttft_ms"] = 1e3 * (stream.times[0] - stream.began)
    return found


def stall(engine: Engine, prompt_tokens: int, vocabulary: int) -> dict[str, Any]:
    """A stream's longest wait for a token while a long prompt is computed, beside its usual one."""
    short, long = prompts(1, 16, vocabulary, 5)[0], prompts(1, prompt_tokens, vocabulary, 6)[0]
    stream, late = add(engine, short, 512), None
    for _ in steps(engine, [stream]):
        if late is None and stream.tokens >= 64:
            usual = percentiles(stream.gaps)["p50"]
            late = add(engine, long, 4)
            streams = [stream, late]
            break
    else:
        raise ServerError("the engine ended a stream before its prompt came")
    until = len(stream.times)
    for _ in steps(engine, streams):
        if late.ended:
            break
    engine.cancel(stream.id)
    waits = stream.gaps[until - 1 :] or [0.0]
    took = 1e3 * (late.times[0] - late.began)
    return {
        "prompt_tokens": prompt_tokens,
        "usual_ms": usual,
        "longest_ms": 1e3 * max(waits),
        "prompt_ms": took,
    }
