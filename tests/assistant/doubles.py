"""Models and a sink for tests of the assistant: each stage can be held, fail, and tells what it was asked."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import numpy as np

from trimodal.assistant.values import Columns, Label, Labels, Piece
from trimodal.errors import Cancelled, RequestError

BOUND = 10.0
WORDS = ("An", " answer", " of", " words")


class Models:
    """Stands in for `models.Models`: `go` holds a stage, `errors` fails it, `reached` says it is there."""

    def __init__(self) -> None:
        self.go = {stage: _set() for stage in ("heard", "saw", "answer")}
        self.reached = {stage: threading.Event() for stage in self.go}
        self.errors: dict[str, Exception] = {}
        self.heard = "what is said"
        self.saw = labelled(("seven", 0.9), ("one", 0.1))
        self.pieces = [*(piece(word) for word in WORDS), piece("", "stop", (9, 3, len(WORDS)), **note())]
        self.asked: list[dict[str, np.ndarray]] = []
        self.headers: list[object] = []
        self.versions: list[object] = []  # as each call of a stage had them
        self.cancelled: list[int] = []
        self.stopped: list[int] = []
        self._ended = threading.Event()

    def hear(self, samples, stream, check, spans=None, versions=None) -> str:
        self.versions.append(versions)
        self._work("heard")
        check()
        return self.heard

    def stop_hearing(self, stream, versions=None) -> None:
        self.stopped.append(stream)
        self.go["heard"].set()

    def see(self, image, check, versions=None) -> Labels:
        self.versions.append(versions)
        self._work("saw")
        return self.saw

    def answer(
        self, inputs, on_cancel, versions=None, *, trace=False, headers=None, request_id=""
    ) -> Iterator[Piece]:
        number = len(self.asked)
        self.headers.append(headers)
        self.versions.append(versions)
        with on_cancel(lambda: self.cancel(number)):
            self.asked.append(dict(inputs))
            for at, piece in enumerate(self.pieces):
                if at == 2:
                    self._work("answer")
                if self._ended.is_set():
                    raise Cancelled("the client cancelled the request")
                yield piece

    def cancel(self, number) -> None:
        self.cancelled.append(number)
        self._ended.set()
        self.go["answer"].set()

    def hold(self, *stages: str) -> None:
        for stage in stages:
            self.go[stage].clear()

    def _work(self, stage: str) -> None:
        self.reached[stage].set()
        assert self.go[stage].wait(BOUND)
        if stage in self.errors:
            raise self.errors[stage]


class Sink:
    """Keeps what a client would get; whatever comes after the end is a defect."""

    def __init__(self) -> None:
        self.responses: list[Columns] = []
        self.error: RequestError | None = None
        self.cancelled = False
        self.ends = 0
        self.late: list[object] = []
        self.broken = False
        self._ended = threading.Event()

    def send(self, columns, *, final) -> None:
        if self.ends:
            self.late.append(columns)
        if self.broken:
            raise MemoryError("no room for the tensor")
        self.responses.append(columns)
        if final:
            self._end()

    def fail(self, error) -> None:
        if self.ends:
            self.late.append(error)
        self.error = error
        self._end()

    def is_cancelled(self) -> bool:
        return self.cancelled and not self.ends  # the real one asks Triton nothing after the end

    def wait(self) -> Sink:
        assert self._ended.wait(BOUND), "no end"
        return self

    def column(self, name: str, stage: str = "answer") -> list:
        rows = [row for row in self.responses if row["stage"][0] == stage.encode() and name in row]
        return [row[name].tolist() for row in rows]

    @property
    def stages(self) -> list[str]:
        return [row["stage"][0].decode() for row in self.responses]

    @property
    def text(self) -> str:
        return b"".join(text for (text,) in self.column("text_output")).decode()

    def _end(self) -> None:
        self.ends += 1
        self._ended.set()


def labelled(*found: tuple[str, float]) -> Labels:
    """Labels with their scores."""
    return tuple(Label(label=label, score=score) for label, score in found)


def piece(text: str, finish_reason: str = "", usage=(0, 0, 0), **note: np.ndarray) -> Piece:
    """What the llm's outputs become."""
    texts = {"text_output": text, "finish_reason": finish_reason}
    counts = zip(("prompt_tokens", "cached_tokens", "completion_tokens"), usage, strict=True)
    columns = {name: np.array([value.encode()], object) for name, value in texts.items()}
    columns |= {name: np.array([count], np.int32) for name, count in counts}
    return Piece(text, finish_reason, columns | note)


def note(**changes) -> dict[str, np.ndarray]:
    """The llm's last outputs."""
    values = {
        "cache": np.array([b"exact"], object),
        "similarity": np.array([1.0], np.float32),
        "trimmed": np.array([b""], object),
        "queue_ms": np.array([2.5], np.float32),
        "predicted_ttft_ms": np.array([np.nan], np.float32),
    }
    return values | changes


def _set() -> threading.Event:
    event = threading.Event()
    event.set()
    return event
