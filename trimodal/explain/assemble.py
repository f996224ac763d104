"""Puts the waterfall of one request together out of what client, Triton and models tell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trimodal import trace
from trimodal.explain import steps
from trimodal.explain.exchange import Exchange, clock_offset
from trimodal.explain.requests import DescribedRequest, Kind, answer_of, stage_of, text_of, usage_of
from trimodal.explain.triton_trace import TraceRecord
from trimodal.explain.values import TRITON, Piece, Span, Waterfall

UNKNOWN = "the ways to the server and back are in its bar: only Triton's trace tells them apart"
CUT_SHORT = "Triton's trace of this request lacks its begin or its end: the client's own is taken"


@dataclass(frozen=True)
class Sources:
    """What is known of a request beside its exchange.

    Attributes:
        records: Triton's traces.
        notes: why they are missing.
    """

    records: Sequence[TraceRecord] = ()
    notes: Sequence[str] = ()


def assemble(kind: Kind, described: DescribedRequest, exchange: Exchange, sources: Sources) -> Waterfall:
    """The waterfall of a request that was sent and answered."""
    return _Assembly(kind, described, exchange, sources).waterfall()


class _Assembly:
    def __init__(self, kind: Kind, described: DescribedRequest, exchange: Exchange, sources: Sources) -> None:
        self._kind = kind
        self._asked = described.words
        self._exchange = exchange
        self._sources = sources
        self._total = (exchange.received - exchange.sent) / 1e9
        self._own = trace.read(exchange.responses[-1].outputs)
        self._records = [one for one in sources.records if one.request_id == described.request.id]
        self._root = next(
            (one for one in self._records if not one.parent and one.model == described.request.name), None
        )
        self._made = self._texts_made()
        self._clock = self._compare_clocks()
        self._notes = list(sources.notes)
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
        clock = None if self._clock is None else (self._clock[0] / 1e9, self._clock[1] / 1e9)
        last = self._exchange.responses[-1].outputs
        return Waterfall(
            self._kind,
            self._asked,
            answer_of(self._kind, [one.outputs for one in self._exchange.responses]),
            self._total,
            [one.within(0.0, self._total) for one in steps.worth_showing(spans)],
            self._pieces(),
            self._used,
            self._notes,
            moved,
            clock,
            usage_of(last),
        )

    def _scale(self, at: int) -> float:
        offset = self._clock[0] if self._clock else 0
        return (at - offset - self._exchange.sent) / 1e9

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
            steps_ = steps.of_ensemble(self._sources.records, self._root.id, self._scale, 1)
            spans = steps_ or steps.of_record(self._root, self._scale, 1)
        if not self._own:
            return spans
        self._used.append(f"the model {self._kind}'s own times")
        # Where a model tells of itself, its computing as Triton sees it is only how long it took to start.
        spans = [one for one in spans if one.name == "queue"]
        if self._kind == "assistant":
            of_model = self._of_assistant()
        else:
            of_model = steps.of_model(self._own, self._kind, self._scale, 1)
        first = min(one.begin for one in of_model)
        entered = max([begin, *(one.end for one in spans)])
        spans.append(Span("hand over to the model", entered, first, "processing", self._kind, 1))
        last = max(one.end for one in of_model)
        return [*spans, *of_model, Span("hand back to Triton", last, ready, "response", self._kind, 1)]

    def _of_assistant(self) -> list[Span]:
        """Its stages, and in each what the model that it calls tells."""
        stages = steps.of_model([one for one in self._own if "of" not in one], "assistant", self._scale, 1)
        spans: list[Span] = []
        for stage in stages:
            spans.append(stage)
            inside = self._of_llm(stage) if stage.name == "answer" else []
            if stage.name == "hear":
                inside = steps.of_model(self._of("heard"), "speech", self._scale, 2)
            spans += [one.within(stage.begin, stage.end) for one in inside]
        return spans

    def _of_llm(self, stage: Span) -> list[Span]:
        """The assistant's call of the llm: a request of its own with the same id, over gRPC."""
        own = steps.of_model(self._of("answer"), "llm", self._scale, 2)
        called = [
            one
            for one in self._records
            if one.model == "llm" and stage.begin <= self._scale(one.first("REQUEST_START") or 0) <= stage.end
        ]
        if not own:
            return []
        before = steps.of_record(called[0], self._scale, 2)[:1] if len(called) == 1 else []
        until = before[0].begin if before else own[0].begin
        call = Span("prompt, call of llm", stage.begin, until, "processing", "assistant", 2)
        if not before:
            return [call, *own]
        hand_over = Span("hand over to the model", before[-1].end, own[0].begin, "processing", "llm", 2)
        return [call, *before, hand_over, *own]

    def _of(self, stage: str) -> list[dict[str, Any]]:
        return [one for one in self._own if one.get("of") == stage]

    # The answer

    def _texts_made(self) -> list[tuple[int, int]]:
        """Completion tokens so far, and when their text was made (server's clock), for each text."""
        texts = [one for one in self._own if one["name"] == "text" and (self._kind == "llm" or "of" in one)]
        return [(one["tokens"], one["begin"]) for one in texts]

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

    def _compare_clocks(self) -> tuple[int, int] | None:
        events = [one["begin"] for one in self._own]
        arrivals = [
            (made, one.received)
            for one in self._exchange.responses
            if (made := self._made_at(one.outputs)) is not None
        ]
        arrivals += [(one["end"], self._exchange.received) for one in self._own]
        if self._root:
            received = self._root.first("REQUEST_START")
            sent = self._root.last("GRPC_SEND_START")
            events += [received] if received else []
            arrivals += [(sent, self._exchange.received)] if sent else []
        if not events or not arrivals:
            return None
        return clock_offset(self._exchange.sent, events, arrivals)
