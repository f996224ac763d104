"""Generates answers for the cache's audits while the server has nothing else to do.

An audit is no request: neither scheduler nor admission know of it. It begins when no client's request was
there for a moment, alone in the engine, and ends at once when one comes: its cancellation goes to the engine
before anything of that request does, so a client waits for the step under way at most.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from trimodal.cache.audit.auditor import Auditor
from trimodal.cache.values import Entry
from trimodal.llm.detokenizer import TextStream, said
from trimodal.llm.engine_core.supervisor import EngineSupervisor
from trimodal.llm.engines.protocol import EngineRequest, Output
from trimodal.llm.frontend.request_state import RequestState
from trimodal.llm.tokenizer import Tokenizer

logger = logging.getLogger(__name__)

IDLE_S = 0.1
"""For so long no request was there when an audit begins."""
MAX_WAITING = 16
PATIENCE_S = 60.0
"""How long an audit waits for an idle server."""
MAX_TRIES = 3


@dataclass
class _Audit:
    """A question that is generated once more; `until` as of `clock`."""

    entry: Entry
    request: EngineRequest
    stops: tuple[str, ...]
    context: Sequence[int]
    until: float
    tries: int = 0
    texts: list[str] = field(default_factory=list)
    tokens: int = 0


class IdleAudits:
    """Audits that wait, and the one that runs. Guarded by the service's lock.

    Args:
        ids: numbers of sequences. clock: seconds.
    """

    def __init__(
        self,
        audits: Auditor,
        engine: EngineSupervisor,
        tokenizer: Tokenizer,
        ids: Iterator[int],
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._audits, self._engine, self._tokenizer = audits, engine, tokenizer
        self._ids, self._clock = ids, clock
        self._waiting: deque[_Audit] = deque()
        self._running: _Audit | None = None
        self._text: TextStream
        self._quiet_since: float | None = clock()  # None: not since the last request

    def offer(self, state: RequestState, entry: Entry) -> None:
        """Takes a question that a stored answer has served."""
        if len(self._waiting) >= MAX_WAITING:
            self._audits.dropped("queue")
            return
        until = self._clock() + PATIENCE_S
        stops, context = state.request.stops, state.context
        self._waiting.append(_Audit(entry, state.engine_request(0), stops, context, until))

    def interrupt(self) -> None:
        """Ends what runs: a request is there. It is tried again when none is."""
        self._quiet_since = None
        if not (running := self._running):
            return
        self._engine.client.cancel(running.request.id)
        self._spent(running)
        running.tries += 1
        if running.tries < MAX_TRIES:
            self._waiting.appendleft(running)
        else:
            self._audits.dropped("interrupted")

    def begin(self) -> None:
        """Begins one when the server is idle. To be called while no request is there, but an engine is."""
        now = self._clock()
        while self._waiting and self._waiting[0].until < now:
            # Those behind it came later.
            self._waiting.popleft()
            self._audits.dropped("busy")
        if self._quiet_since is None:
            self._quiet_since = now
        if self._running or not self._waiting or now < self._quiet_since + IDLE_S:
            return
        audit = self._waiting.popleft()
        audit.request, audit.texts, audit.tokens = replace(audit.request, id=next(self._ids)), [], 0
        whole = bool(audit.request.sampling.grammar)
        self._text = TextStream(self._tokenizer, audit.stops, whole=whole, context=audit.context)
        self._running = audit
        self._engine.client.add(audit.request)

    def take(self, outputs: Iterable[Output]) -> None:
        """Takes what a step gave to the one that runs."""
        for output in outputs:
            if (running := self._running) and output.id == running.request.id:
                try:
                    self._push(running, output)
                except Exception:
                    # An exception here would count as the loss of the engine, for all clients.
                    logger.exception("an audit's output failed")
                    if self._running:
                        self._spent(running)
                    self._engine.client.cancel(running.request.id)
                    self._audits.dropped("failed")

    def lost(self) -> None:
        """The engine is gone with what ran in it."""
        if self._running:
            self._spent(self._running)
            self._audits.dropped("failed")

    def _push(self, running: _Audit, output: Output) -> None:
        running.tokens += len(output.token_ids)
        told = said(output.token_ids, output.finish_reason, self._tokenizer.ends)
        text, stopped = self._text.push(told, last=output.finish_reason is not None)
        running.texts.append(text)
        if not (stopped or output.finish_reason):
            return
        self._spent(running)
        if output.finish_reason in ("error", "refused"):
            self._audits.dropped("failed")
            return
        if output.finish_reason is None:  # a stop string, which the engine does not know
            self._engine.client.cancel(running.request.id)
        finish_reason = "stop" if stopped else output.finish_reason or ""
        self._audits.finish(running.entry, "".join(running.texts), finish_reason)

    def _spent(self, running: _Audit) -> None:
        """Counts the tokens of what ends; of its prompt all, whatever was computed of it."""
        self._running = None
        self._audits.spent(len(running.request.prompt_ids) + running.tokens)
