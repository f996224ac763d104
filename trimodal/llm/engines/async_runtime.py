"""Declares what AsyncEngine needs of an asyncio library, and runs the library's event loop in a thread."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import threading
from collections.abc import AsyncGenerator, Container, Coroutine, Mapping, Sequence
from concurrent.futures import TimeoutError as FutureTimeoutError  # not the built-in one before Python 3.11
from contextlib import aclosing
from typing import Any, Protocol, TypeVar

from trimodal.errors import OperatorError
from trimodal.llm.engines.protocol import (
    MAX_TOP_LOGPROBS,
    EngineCall,
    EngineRequest,
    Logprobs,
    Output,
    Sampling,
)

logger = logging.getLogger(__name__)

T = TypeVar("T")
_END_SECONDS = 2.0
_NONE = -9000.0  # vLLM's servers say -9999 for a probability of 0, its engine minus infinity
# What is asked for when an engine opens; the first is a plain one.
_KINDS: tuple[dict[str, Any], ...] = (
    {},
    {"logprobs": MAX_TOP_LOGPROBS, "prompt_logprobs": MAX_TOP_LOGPROBS},
    {"presence_penalty": 0.5, "frequency_penalty": 0.5, "repetition_penalty": 1.1},
    {"temperature": 1.0, "top_p": 0.9, "top_k": 20, "min_p": 0.05, "seed": 1, "logprobs": 1},
    {"min_tokens": 1, "logit_bias": {1: 0.5}},
    {"grammar": 'root ::= "a" | "b"'},
)


class LoopThread:
    """An event loop that runs from here to close()."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="llm-loop", daemon=True)
        self._thread.start()

    def run(self, coroutine: Coroutine[Any, Any, T], seconds: float | None = None) -> T:
        """The coroutine's result, from any other thread.

        Raises:
            TimeoutError: none after `seconds`; the coroutine is cancelled.
        """
        future = asyncio.run_coroutine_threadsafe(coroutine, self.loop)
        try:
            return future.result(seconds)
        except FutureTimeoutError:
            future.cancel()
            raise TimeoutError from None

    def close(self, runtime: AsyncRuntime | None = None) -> None:
        """Cancels all tasks, closes the runtime that lives here, and stops the loop.

        A thread that hangs in a library's call is left to the end of the process.
        """
        with contextlib.suppress(TimeoutError):
            self.run(_cancel_all(), _END_SECONDS)
        if runtime:
            try:
                runtime.close()
            except Exception:
                logger.exception("the engine's library did not close")
        with contextlib.suppress(TimeoutError):  # what closing began
            self.run(_cancel_all(), _END_SECONDS)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(_END_SECONDS)
        if not self._thread.is_alive():
            self.loop.close()


async def _cancel_all() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


class AsyncRuntime(Protocol):
    """One opened library."""

    def stream(self, request: EngineRequest) -> AsyncGenerator[Output, None]:
        """Runs a sequence, on the loop. Closed or cancelled before its end, it aborts it in the library.

        "error" is for one that the library ended for a reason of its own; `cached_tokens` is 0 as long as it
        is not known.

        Raises:
            Refused: the library does not take the request; what else it raises is a failure.
        """

    async def call(self, call: EngineCall) -> None:
        """Does one of the calls that the engine's info names, on the loop."""

    def alive(self) -> bool:
        """Whether the library can still serve; false is for good. From any thread."""

    def kv_usage(self) -> float:
        """Share of the KV blocks that running sequences hold, 0 to 1, as last reported. From any thread."""

    def drafts(self) -> tuple[int, int] | None:
        """Tokens drafted and of them accepted, of all requests so far; None: it does not tell."""

    def close(self) -> None:
        """Ends the library and its processes; not on the loop, and it may take its time."""


class Refused(Exception):
    """A request that the library does not take: its own sentence."""


def finish_reason(reason: str | None) -> str | None:
    """Ours for a library's: what nobody asked for (its own abort, a timeout, a repetition) is an error."""
    return reason if reason in (None, "stop", "length") else "error"


def ranked(
    token_ids: Sequence[int], logprobs: Sequence[Mapping[int, Any]] | None, top: int | None
) -> tuple[Logprobs, ...]:
    """Ours for a library's.

    Args:
        logprobs: of each token, id → what has a `logprob`. Where the chosen token's id is not among them, its
            own is -inf, which is told as OpenAI has it.
        top: how many were asked for; None: none at all.
    """
    if top is None:
        return ()
    made = []
    for id, candidates in zip(token_ids, logprobs or (), strict=True):
        # A token that a grammar forbids has no probability: it is no candidate.
        possible = [(other, float(one.logprob)) for other, one in candidates.items() if one.logprob > _NONE]
        best = sorted(possible, key=lambda pair: -pair[1])
        own = float(candidates[id].logprob) if id in candidates else -math.inf
        made.append(Logprobs(own, tuple(best[:top])))
    return tuple(made)


async def warm_up(runtime: AsyncRuntime, unsupported: Container[str] = ()) -> None:
    """Short requests of every kind, so that no client pays for first use, nor those who stream beside it.

    Libraries compile and import when a thing is first asked for: vLLM 0.32 on a CPU took 0.4 to 5 s for log
    probabilities, penalties and grammars each, during which every stream stood still.

    Args:
        unsupported: fields of `Sampling` that the library does not honour.

    Raises:
        OperatorError: the library does not answer a plain one; what it raises then goes on.
    """
    for kind in _KINDS:
        taken = {name: value for name, value in kind.items() if name not in unsupported}
        if kind and not taken:
            continue
        request = EngineRequest(0, [1] * 8, Sampling(4, **taken))
        reason, problem = None, "its log says why"
        try:
            async with aclosing(runtime.stream(request)) as outputs:
                async for output in outputs:
                    reason = output.finish_reason or reason
        except Refused as error:
            problem = str(error)
        except Exception:
            # One kind that fails is no reason to serve nothing, unless the library ended with it.
            if not kind or not runtime.alive():
                raise
            logger.warning("the engine failed on a request with %s", ", ".join(taken), exc_info=True)
            continue
        if reason in ("stop", "length"):
            continue
        if not kind:
            raise OperatorError(f"the engine opened, but did not answer a short prompt: {problem}")
        logger.warning("the engine did not answer a request with %s: %s", ", ".join(taken), problem)
