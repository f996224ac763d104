"""Declares the speech model's metric families."""

from __future__ import annotations

from trimodal.metrics import Metric, Metrics, counters

SECONDS = (0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 8.0, 13.0, 30.0)


class SpeechMetrics:
    """What the speech service counts. `model` labels the gauges that the drain looks at."""

    def __init__(self, metrics: Metrics, model: str = "speech") -> None:
        label = {"model": model}

        def counter(name: str, description: str) -> Metric:
            return metrics.counter(f"trimodal_speech_{name}", description, {})

        self.active_streams = metrics.gauge(
            "trimodal_speech_active_streams", "Live streams that are open", label
        )
        # END requests and answers held back: what the drain waits for.
        self.active_requests = metrics.gauge(
            "trimodal_speech_active_requests", "Chunks whose answer is not out", label
        )
        self.windows_in_flight = metrics.gauge(
            "trimodal_speech_windows_in_flight", "Windows of live streams at the recogniser", label
        )
        outcomes = ("finished", "refused", "idle", "restarted", "failed", "left")
        self.streams = counters(
            "trimodal_speech_streams_total", metrics, "Streams by how they ended", "outcome", outcomes
        )
        self.chunks = counters(
            "trimodal_speech_chunks_total", metrics, "Chunks by outcome", "outcome", ("taken", "refused")
        )
        self.received = counter("received_seconds_total", "Audio taken in")
        self.voiced = counter("voiced_seconds_total", "Audio that voice activity detection took for speech")
        self.retries = counter(
            "window_retries_total", "Windows of live streams that the recogniser failed on"
        )
        self.lag = metrics.histogram(
            "trimodal_speech_lag_seconds",
            "Of live streams: audio received minus the end of a committed word, when its client is told",
            {},
            SECONDS,
        )
        self.turnaround = metrics.histogram(
            "trimodal_speech_turnaround_seconds",
            "Of live streams: from the moment that a window is due to its words",
            {},
            SECONDS,
        )
