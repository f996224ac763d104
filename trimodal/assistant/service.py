"""The assistant's whole behaviour behind two calls: submit a question, and close.

It lets requests in, runs each through the pipeline in a thread of its own, and watches
for clients that left and for time that is up. It does not know Triton: the glue gives it
a request and a sink, and `Models` calls the others.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from trimodal.assistant.metrics import AssistantMetrics
from trimodal.assistant.models import Models
from trimodal.assistant.pipeline import Pipeline
from trimodal.assistant.prompt import Prompt
from trimodal.assistant.request import AskRequest
from trimodal.assistant.request_state import Job, Sink
from trimodal.assistant.settings import AssistantSettings
from trimodal.errors import Cancelled, RequestError, Unavailable, as_request_error

# Cancellations under way at the other models; each takes about a millisecond.
STOPPERS = 4


class AssistantService:
    """All requests of one assistant.

    Args:
        settings: the model's parameters.
        models: the models that it asks.
        metrics: where to count.

    Raises:
        SettingsError: the prompt template cannot be used.
    """

    def __init__(self, settings: AssistantSettings, models: Models, metrics: AssistantMetrics) -> None:
        self._settings = settings
        self._metrics = metrics
        prompt = Prompt(settings.template_file)
        # A request has a thread of its own, and one beside it while it hears and sees.
        self._threads = ThreadPoolExecutor(2 * settings.max_requests, thread_name_prefix="assistant")
        self._stoppers = ThreadPoolExecutor(STOPPERS, thread_name_prefix="assistant-stop")
        self._pipeline = Pipeline(settings, models, prompt, metrics, self._threads)
        self._lock = threading.Lock()
        self._jobs: set[Job] = set()
        self._closing = threading.Event()
        self._watch = threading.Thread(target=self._look, name="assistant-watch", daemon=True)
        self._watch.start()

    @property
    def active(self) -> int:
        """Requests with a stage under way, also of clients that have left."""
        return len(self._jobs)

    def submit(self, request: AskRequest, sink: Sink) -> None:
        """Takes a question in; what comes of it goes to `sink`, from other threads.

        Raises:
            Unavailable: no room, or the model is being unloaded; `sink` is not called.
        """
        job = Job(request, sink, stopper=self._stop, on_end=self._ended)
        most = self._settings.max_requests
        with self._lock:
            if self._closing.is_set():
                raise Unavailable("the server is shutting down")
            if len(self._jobs) >= most:
                raise Unavailable(f"{most} requests are under way, as many as max_requests allows")
            self._jobs.add(job)
            self._metrics.active.set(len(self._jobs))
            self._threads.submit(self._run, job)

    def refused(self, error: RequestError) -> None:
        """Counts a request that did not get in."""
        self._metrics.ended(error)

    def close(self) -> None:
        """Fails what is left with UNAVAILABLE, stops it at the other models, and ends all threads."""
        with self._lock:
            self._closing.set()
            jobs = list(self._jobs)
        for job in jobs:
            self._fail(job, Unavailable("the server is shutting down"))
        self._watch.join(10.0)
        self._threads.shutdown(wait=True)
        self._stoppers.shutdown(wait=True)

    def _run(self, job: Job) -> None:
        try:
            self._pipeline.run(job)
        finally:
            with self._lock:
                self._jobs.discard(job)
                self._metrics.active.set(len(self._jobs))

    def _look(self) -> None:
        while not self._closing.wait(self._settings.cancel_poll_ms / 1e3):
            with self._lock:
                jobs = list(self._jobs)
            now = time.perf_counter()
            for job in jobs:
                if job.over:
                    continue  # its stages are on their way out
                if job.sink.is_cancelled():
                    self._fail(job, Cancelled("the client cancelled the request"))
                elif late := job.look(now):
                    self._fail(job, late)

    @staticmethod
    def _fail(job: Job, error: RequestError) -> None:
        try:
            job.fail(error)
        except Exception as defect:  # only logged: the watch must go on
            as_request_error(defect)

    def _stop(self, stop: Callable[[], None]) -> None:
        self._stoppers.submit(_logged, stop)

    def _ended(self, job: Job, reason: str | RequestError) -> None:
        self._metrics.ended(reason)
        self._metrics.e2e.observe(time.perf_counter() - job.arrived)
        if (ttft := job.timing["ttft"]) is not None:
            self._metrics.ttft.observe(ttft / 1e3)


def _logged(stop: Callable[[], None]) -> None:
    try:
        stop()
    except Exception as error:  # the other model failed: so did what was to be stopped there
        as_request_error(error)
