"""Runs the assistant's requests: lets them in, puts each through the pipeline in a thread, ends late ones.

A watcher thread looks for clients that left and for deadlines that passed.
"""

from __future__ import annotations

import threading
import time

from trimodal.assistant.metrics import AssistantMetrics
from trimodal.assistant.models import Models
from trimodal.assistant.pipeline import Pipeline
from trimodal.assistant.request import AskRequest
from trimodal.assistant.request_state import RequestState, Sink
from trimodal.assistant.settings import AssistantSettings
from trimodal.cache.bounded_calls import DaemonThreads
from trimodal.errors import Cancelled, Unavailable

# Streams of speech that are being stopped; each takes about a millisecond.
STOPPERS = 4
JOIN_S = 5.0  # for calls of other models that may never return


class AssistantService:
    """All requests of one assistant. Raises SettingsError: the prompt template cannot be used."""

    def __init__(self, settings: AssistantSettings, models: Models, metrics: AssistantMetrics) -> None:
        self._settings = settings
        self._metrics = metrics
        # A request has a thread of its own, and one beside it while it hears and sees. As many again may be
        # kept by calls of other models that never return, though their clients have been told the end.
        self._threads = DaemonThreads(4 * settings.max_requests, "assistant", 4 * settings.max_requests)
        self._stoppers = DaemonThreads(STOPPERS, "assistant-stop", 4 * settings.max_requests)
        self._pipeline = Pipeline(settings, models, metrics, self._threads, self._stoppers)
        self._lock = threading.Lock()
        self._requests: dict[RequestState, None] = {}  # in their order of coming
        self._busy = threading.Event()  # a request is there, or all ends
        self._closing = threading.Event()
        self._watch = threading.Thread(target=self._look, name="assistant-watch", daemon=True)
        self._watch.start()

    def submit(self, request: AskRequest, sink: Sink) -> None:
        """Takes a question in; `sink` gets what comes of it. Raises Unavailable: no room, or unloading."""
        state = RequestState(request, sink, self._metrics)
        most = self._settings.max_requests
        with self._lock:
            if self._closing.is_set():
                raise Unavailable("the server is shutting down")
            told = sum(other.done for other in self._requests)
            if len(self._requests) - told >= most:
                raise Unavailable(f"{most} requests are under way, as many as max_requests allows")
            if told >= most:
                raise Unavailable(f"{most} requests that have ended wait for models that do not answer")
            self._requests[state] = None
            self._busy.set()
            self._metrics.active.set(len(self._requests))
            if not self._threads.submit(self._run, state):
                self._ended(state)
                raise Unavailable("the system lets the assistant have no thread; try again later")

    def close(self) -> None:
        """Fails what is left with UNAVAILABLE, stops it at the other models, and ends the threads."""
        with self._lock:
            self._closing.set()
            self._busy.set()
            states = list(self._requests)
        for state in states:
            state.fail(Unavailable("the server is shutting down"))
        self._watch.join(10.0)
        self._threads.close(JOIN_S)
        self._stoppers.close(JOIN_S)

    def _run(self, state: RequestState) -> None:
        try:
            self._pipeline.run(state)
        finally:
            with self._lock:
                self._ended(state)

    def _ended(self, state: RequestState) -> None:
        self._requests.pop(state, None)
        self._metrics.active.set(len(self._requests))

    def _look(self) -> None:
        while self._busy.wait() and not self._closing.wait(self._settings.cancel_poll_ms / 1e3):
            with self._lock:
                states = list(self._requests)
                if not states and not self._closing.is_set():
                    self._busy.clear()
            now = time.perf_counter()
            for state in states:
                if state.done:
                    continue  # its stages are on their way out
                if state.sink.is_cancelled():
                    state.fail(Cancelled("the client cancelled the request"))
                elif late := state.overdue(now):
                    state.fail(late)
