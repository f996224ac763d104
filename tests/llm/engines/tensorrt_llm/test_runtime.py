"""TensorRT-LLM's requests, on doubles of its stubs: played in the real core loop, cancelled, failed, lost."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.llm.doubles.sinks import eventually
from tests.llm.engine_core.rig import Loop
from tests.llm.engines.tensorrt_llm.rig import KV, PlayedLlm, ask, settings
from trimodal.errors import OperatorError
from trimodal.llm.engines.protocol import Engine, EngineRequest, Logprobs, Sampling, open_engine
from trimodal.llm.engines.tensorrt_llm import runtime


def test_streams_interleave_cancel_and_end(llm: PlayedLlm, engine: Engine) -> None:
    loop = Loop(engine)
    for id in (1, 2, 3):
        loop.link.add(ask(id, 100 + id))
    eventually(lambda: len(llm.prompts()) == 3)
    llm.say(101, [11])
    llm.say(102, [21, 22])
    eventually(lambda: loop.tokens(1) == [11] and loop.tokens(2) == [21, 22])
    eventually(lambda: loop.steps[-1].stats.kv_usage == 0.25)
    loop.link.cancel(2)
    eventually(lambda: llm.aborted() == [102])
    llm.say(102, [23], "cancelled")
    llm.say(101, [12], "stop", cached_tokens=2)
    llm.say(103, [31, 32], "length")
    assert (loop.end(1).finish_reason, loop.end(1).cached_tokens) == ("stop", 2)
    assert loop.end(3).finish_reason == "length"
    assert (loop.tokens(1), loop.tokens(2), loop.tokens(3)) == ([11, 12], [21, 22], [31, 32])
    eventually(lambda: not loop.steps[-1].working)
    assert loop.steps[-1].stats.kv_usage == 0.0
    assert llm.aborted() == [102]
    assert len(llm.threads) == 1, "all requests live on one loop"
    loop.link.close()


def test_a_stop_token_that_the_library_takes_back_is_no_token(llm: PlayedLlm, engine: Engine) -> None:
    loop = Loop(engine)
    loop.link.add(ask(1, 101))
    eventually(lambda: len(llm.prompts()) == 1)
    llm.say(101, [11])
    eventually(lambda: loop.tokens(1) == [11])
    llm.say(101, [], "stop", token_ids=[])
    assert loop.end(1).token_ids == []
    loop.link.close()


def test_a_library_that_shut_itself_down_is_a_lost_engine(
    llm: PlayedLlm, engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    loop = Loop(engine)
    loop.link.add(ask(1, 101))
    eventually(lambda: len(llm.prompts()) == 1)
    llm.healthy = False
    llm.recorder.raises("RequestOutput.abort", RuntimeError("no executor"))
    llm.say(101, RuntimeError("MPI rank 0 died"))
    assert loop.died.wait(10)
    assert f"{engine.info.name} ended during a request: MPI rank 0 died" in caplog.text
    eventually(lambda: len(llm.recorder.named("BaseLLM.shutdown")) == 1)
    loop.link.close()


def test_cached_tokens_are_no_more_than_the_prompt_has(llm: PlayedLlm, engine: Engine) -> None:
    loop = Loop(engine)
    loop.link.add(EngineRequest(1, [101] * 70, Sampling(20)))
    loop.link.add(EngineRequest(2, [102] * 40, Sampling(20)))
    eventually(lambda: len(llm.prompts()) == 2)
    for first in (101, 102):
        llm.say(first, [5], cached_tokens=64)
        llm.say(first, [6], "stop")
    assert (loop.end(1).cached_tokens, loop.end(2).cached_tokens) == (64, 40)
    loop.link.close()


def test_figures_are_waited_for_as_long_as_the_library_takes(llm: PlayedLlm, tmp_path: Path) -> None:
    """They come 0.4 s after an iteration; who once waited in vain gets no more before the next request."""
    late, asked = 0.4, llm.recorder.named
    ended_after: list[int] = []

    async def stats(instance: object) -> AsyncIterator[dict[str, Any]]:
        requests = len(asked("BaseLLM.generate_async"))
        if requests in ended_after:
            return
        timeout: Any = asked("BaseLLM.get_stats_async")[-1].arguments["timeout"]
        await asyncio.sleep(min(late, timeout))
        if timeout <= late:
            ended_after.append(requests)
            return
        yield {"kvCacheStats": dict(KV)}

    llm.recorder.returns("IterationResult.__aiter__", stats)
    engine = open_engine(settings(tmp_path))
    assert engine.info.num_kv_blocks == KV["maxNumBlocks"]
    eventually(lambda: len(asked("BaseLLM.get_stats_async")) > 1)
    engine.close()
    assert not ended_after


def test_without_figures_the_pool_must_be_set(
    llm: PlayedLlm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtime, "_FIRST_STATS_SECONDS", 0.05)
    llm.kv = None
    with pytest.raises(OperatorError, match="does not tell how many KV blocks it has: set num_kv_blocks"):
        open_engine(settings(tmp_path))
    eventually(lambda: len(llm.recorder.named("BaseLLM.shutdown")) == 1)
    engine = open_engine(settings(tmp_path, num_kv_blocks=77))
    assert (engine.info.num_kv_blocks, engine.info.block_tokens) == (77, 32)
    engine.close()


def test_a_library_that_answers_nothing_is_not_opened(llm: PlayedLlm, tmp_path: Path) -> None:
    def nothing(instance: object) -> Any:
        raise RuntimeError("CUDA out of memory")

    llm.recorder.returns("RequestOutput.__aiter__", nothing)
    threads = set(threading.enumerate())
    with pytest.raises(RuntimeError, match="out of memory"):
        open_engine(settings(tmp_path))
    eventually(lambda: len(llm.recorder.named("BaseLLM.shutdown")) == 1)
    eventually(lambda: set(threading.enumerate()) <= threads)


def test_log_probabilities_in_the_librarys_words_and_back(llm: PlayedLlm, engine: Engine) -> None:
    from tensorrt_llm.executor.result import Logprob

    loop = Loop(engine)
    loop.link.add(ask(1, 101, logprobs=1))
    eventually(lambda: len(llm.prompts()) == 1)
    given: Any = llm.recorder.named("BaseLLM.generate_async")[-1].arguments["sampling_params"]
    assert given.logprobs == 20
    told = [{11: Logprob(-0.5, 1)}, {13: Logprob(-0.75, 1), 12: Logprob(-2.0, 5)}, {2: Logprob(0.0, 1)}]
    llm.say(101, [11], logprobs=told[:1])
    llm.say(101, [12], logprobs=told[:2])
    # It takes the stop token back, not what it has told of it.
    llm.say(101, [2], "stop", token_ids=[11, 12], logprobs=told)
    assert loop.end(1).finish_reason == "stop"
    logprobs = [one for output in loop.outputs(1) for one in output.logprobs]
    assert logprobs == [Logprobs(-0.5, ((11, -0.5),)), Logprobs(-2.0, ((13, -0.75),))]
    loop.link.close()


def test_a_drawn_token_whose_probability_is_not_told_is_least_likely(llm: PlayedLlm, engine: Engine) -> None:
    """1.2.1 tells those of the most likely alone: it was an internal error. OpenAI's own says -9999 then."""
    from tensorrt_llm.executor.result import Logprob

    loop = Loop(engine)
    loop.link.add(ask(1, 101, logprobs=1, temperature=1.0))
    eventually(lambda: len(llm.prompts()) == 1)
    llm.say(101, [11], "length", logprobs=[{13: Logprob(-0.75, 1)}])
    assert loop.end(1).finish_reason == "length"
    logprobs = [one for output in loop.outputs(1) for one in output.logprobs]
    assert logprobs == [Logprobs(-math.inf, ((13, -0.75),))]
    loop.link.close()


@pytest.mark.parametrize("healthy", [True, False])
def test_a_kind_of_request_that_fails_leaves_the_engine_closed_only_if_the_library_ended(
    llm: PlayedLlm, tmp_path: Path, caplog: pytest.LogCaptureFixture, healthy: bool
) -> None:
    play = llm._play

    async def fail(instance: Any) -> AsyncIterator[Any]:
        asked: Any = llm.recorder.named("BaseLLM.generate_async")[-1].arguments["sampling_params"]
        if asked.logprobs:
            llm.healthy = healthy
            raise KeyError(5)
        async for one in play(instance):
            yield one

    llm.recorder.returns("RequestOutput.__aiter__", fail)
    if healthy:
        open_engine(settings(tmp_path)).close()
        assert "the engine failed on a request with logprobs" in caplog.text
    else:
        with pytest.raises(KeyError):
            open_engine(settings(tmp_path))
    eventually(lambda: len(llm.recorder.named("BaseLLM.shutdown")) == 1)
