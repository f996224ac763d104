"""Puts the waterfall of one request together out of what client, Triton and models tell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from trimodal import trace
from trimodal.errors import legible
from trimodal.explain.exchange import Exchange, on_one_clock
from trimodal.explain.requests import DescribedRequest, Kind, answer_of, stage_of, text_of, usage_of
from trimodal.explain.triton_trace import TraceRecord
from trimodal.explain.values import TRITON, Part, Piece, Span, Waterfall

UNKNOWN = "the ways to the server and back are in its bar: only Triton's trace tells them apart"
OTHER_CLOCK = "the server's clock is not the client's: the way back is told as part of the way there"
CUT_SHORT = "Triton's trace of this request lacks its begin or its end: the client's own is taken"

_SHOWN_LEAST = 2e-6
# What Triton tells of one model, in order, between its time stamps.
_PHASES = ("queue", "compute input", "compute", "compute output")
_STAMPS = ("QUEUE_START", "COMPUTE_START", "COMPUTE_INPUT_END", "COMPUTE_OUTPUT_START", "COMPUTE_END")
# How our models call what they do → what a reader is told, where that is something else.
_NAMES = {
    "admission": "cache lookup, admission",
    "queue": "wait for the engine",
    "first token": "prefill, first token",
    "answer of another request": "from the cache",
    "take audio in": "find speech in the audio",
    "window waits": "wait for a thread",
    "window": "recognise",
    "take words in": "merge the words",
    "decode": "decode and resize",
    "heard": "hear",
    "saw": "see",
}
_WAITS = ("queue", "window waits")


class Assembly:
    """What is known of a request that was sent and answered.

    Args:
        records: Triton's traces. notes: why they are missing.
    """

    def __init__(
        self,
        kind: Kind,
        described: DescribedRequest,
        exchange: Exchange,
        records: Sequence[TraceRecord] = (),
        notes: Sequence[str] = (),
    ) -> None:
        self._kind = kind
        self._asked = legible(described.words)
        self._exchange = exchange
        self._traced = records
        self._total = (exchange.received - exchange.sent) / 1e9
        told = trace.read(exchange.responses[-1].outputs)
        self._own = on_one_clock(exchange, told)
        self._notes = [*notes, *([OTHER_CLOCK] if self._own is not told else [])]
        self._records = [one for one in records if one.request_id == described.request.id]
        self._root = next(
            (one for one in self._records if not one.parent and one.model == described.request.name), None
        )
        # Completion tokens so far, and when their text was made, for each text.
        texts = [one for one in self._own if one["name"] == "text" and (kind == "llm" or "of" in one)]
        self._made = [(int(one["tokens"]), int(one["begin"])) for one in texts]
        self._used: list[str] = ["the client's clock"]

    def waterfall(self) -> Waterfall:
        begin, ready = self._server()
        inside = [one.within(begin, ready) for one in self._inside(begin, ready)]
        spans = [
            Span("client → server", 0.0, begin, "network", "client"),
            Span("server", begin, ready, "processing", TRITON),
            *inside,
            Span("server → client", ready, self._total, "response", "client"),
        ]
        moved = max([0.0, -begin, ready - self._total])
        last = self._exchange.responses[-1].outputs
        return Waterfall(
            self._kind,
            self._asked,
            answer_of(self._kind, [one.outputs for one in self._exchange.responses]),
            self._total,
            [one.within(0.0, self._total) for one in worth_showing(spans)],
            self._pieces(),
            self._used,
            self._notes,
            moved,
            usage_of(last),
        )

    def _scale(self, at: int) -> float:
        return (at - self._exchange.sent) / 1e9

    # The server's time

    def _server(self) -> tuple[float, float]:
        """When the server got the request, and when its last response was ready."""
        if self._root:
            self._used.append("Triton's trace")
            begin = self._root.first("GRPC_WAITREAD_END") or self._root.first("REQUEST_START")
            # Of a streamed answer the request itself ends long before its last response.
            ready = self._root.last("GRPC_SEND_START") or max((one["end"] for one in self._own), default=None)
            ready = ready or self._root.last("REQUEST_END")
            if begin is None or ready is None:
                self._notes.append(CUT_SHORT)
            return (
                0.0 if begin is None else self._scale(begin),
                self._total if ready is None else self._scale(ready),
            )
        if self._own:
            began, ended = (one["begin"] for one in self._own), (one["end"] for one in self._own)
            return max(0.0, self._scale(min(began))), self._scale(max(ended))
        self._notes.append(UNKNOWN)
        return 0.0, self._total

    def _inside(self, begin: float, ready: float) -> list[Span]:
        """What happened in the server between two times."""
        spans: list[Span] = []
        if self._root:
            spans = self._steps(self._root.id, 1) or self._phases(self._root, 1)
        if not self._own:
            return spans
        self._used.append(f"the model {self._kind}'s own times")
        # Where a model tells of itself, its computing as Triton sees it is only how long it took to start.
        spans = [one for one in spans if one.name == "queue"]
        told = self._of_assistant() if self._kind == "assistant" else self._told(self._own, self._kind, 1)
        first = min(one.begin for one in told)
        entered = max([begin, *(one.end for one in spans)])
        spans.append(Span("hand over to the model", entered, first, "processing", self._kind, 1))
        last = max(one.end for one in told)
        return [*spans, *told, Span("hand back to Triton", last, ready, "response", self._kind, 1)]

    def _of_assistant(self) -> list[Span]:
        """Its stages, and in each what the model that it calls tells."""
        stages = self._told([one for one in self._own if "of" not in one], "assistant", 1)
        spans: list[Span] = []
        for stage in stages:
            spans.append(stage)
            inside = self._of_llm(stage) if stage.name == "answer" else []
            if stage.name == "hear":
                inside = self._told(self._of("heard"), "speech", 2)
            spans += [one.within(stage.begin, stage.end) for one in inside]
        return spans

    def _of_llm(self, stage: Span) -> list[Span]:
        """The assistant's call of the llm: a request of its own with the same id, over gRPC."""
        own = self._told(self._of("answer"), "llm", 2)
        called = [
            one
            for one in self._records
            if one.model == "llm" and stage.begin <= self._scale(one.first("REQUEST_START") or 0) <= stage.end
        ]
        if not own:
            return []
        before = self._phases(called[0], 2)[:1] if len(called) == 1 else []
        until = before[0].begin if before else own[0].begin
        call = Span("prompt, call of llm", stage.begin, until, "processing", "assistant", 2)
        if not before:
            return [call, *own]
        hand_over = Span("hand over to the model", before[-1].end, own[0].begin, "processing", "llm", 2)
        return [call, *before, hand_over, *own]

    def _of(self, stage: str) -> list[dict[str, Any]]:
        return [one for one in self._own if one.get("of") == stage]

    def _phases(self, record: TraceRecord, depth: int) -> list[Span]:
        """Queue and computing of one model that is no ensemble, as Triton tells them."""
        spans = []
        for name, begin, end in zip(_PHASES, _STAMPS, _STAMPS[1:], strict=False):
            low, high = record.first(begin), record.first(end)
            if low is not None and high is not None:
                part: Part = "queue" if name == "queue" else "processing"
                spans.append(Span(name, self._scale(low), self._scale(high), part, record.model, depth))
        return spans

    def _steps(self, parent: int, depth: int) -> list[Span]:
        """Each step of the ensemble with this id, and what stands in it."""
        spans: list[Span] = []
        steps = [one for one in self._traced if one.parent == parent and one.first("REQUEST_START")]
        for step in sorted(steps, key=lambda one: one.first("REQUEST_START") or 0):
            inside = self._phases(step, depth + 1) or self._steps(step.id, depth + 1)
            begin = self._scale(step.first("REQUEST_START") or 0)
            end = max((one.end for one in inside), default=self._scale(step.last("REQUEST_END") or 0))
            spans += [Span(step.model, begin, end, "processing", step.model, depth), *inside]
        return spans

    def _told(self, spans: Sequence[Mapping[str, Any]], place: str, depth: int) -> list[Span]:
        """What a model of ours tells of itself; its texts are left out, as they take no time."""
        found = []
        for one in spans:
            own = str(one["name"])
            if own == "text":
                continue
            name = _NAMES.get(own, own)
            if own == "window":
                name = f"{name} {one['audio_s']:.1f} s"
            if own == "next tokens":
                texts = [text["tokens"] for text in spans if text["name"] == "text"]
                more = texts[-1] - texts[0] if texts else 0
                name = f"{more} more tokens" if more != 1 else "1 more token"
            part: Part = "queue" if own in _WAITS else "processing"
            found.append(Span(name, self._scale(one["begin"]), self._scale(one["end"]), part, place, depth))
        return sorted(found, key=lambda span: span.begin)

    # The answer

    def _made_at(self, outputs: Mapping[str, Any]) -> int | None:
        """When the text of a response was made."""
        if "completion_tokens" not in outputs:
            return None
        tokens = int(outputs["completion_tokens"].reshape(-1)[0])
        return max((at for count, at in self._made if count <= tokens), default=None)

    def _pieces(self) -> list[Piece]:
        if self._kind not in ("llm", "assistant"):
            return []
        pieces = []
        for one in self._exchange.responses:
            made = self._made_at(one.outputs)
            received = (one.received - self._exchange.sent) / 1e9
            text, stage = text_of(self._kind, one.outputs), stage_of(one.outputs)
            if stage:
                pieces.append(Piece(received))
            elif text:
                pieces.append(Piece(received, text, None if made is None else self._scale(made)))
        return pieces


def worth_showing(spans: Sequence[Span]) -> list[Span]:
    """Without those that take no time, unless others stand in them."""
    return [
        one
        for one, after in zip(spans, [*spans[1:], None], strict=True)
        if one.seconds >= _SHOWN_LEAST or (after is not None and after.depth > one.depth)
    ]
