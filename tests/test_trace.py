import json

import numpy as np
import pytest

from trimodal import trace
from trimodal.errors import InvalidArgument


def test_a_request_wants_its_trace_or_not() -> None:
    assert trace.wanted({"tier": "gold"}) == (False, {"tier": "gold"})
    assert trace.wanted({"trace": True, "tier": "gold"}) == (True, {"tier": "gold"})
    assert trace.wanted({"trace": False}) == (False, {})


@pytest.mark.parametrize("value", [1, "true", "x" * 500])
def test_anything_but_true_and_false_is_refused(value: object) -> None:
    with pytest.raises(InvalidArgument, match="^trace is .{1,62}: true or false is needed$"):
        trace.wanted({"trace": value})


def test_spans_of_another_clock_end_when_they_came() -> None:
    spans = [trace.span("decode", 7.0, 7.5, rows=2), trace.span("classify", 7.5, 9.0)]
    moved = [trace.span("decode", 1.0, 1.5, rows=2), trace.span("classify", 1.5, 3.0)]
    assert trace.shifted(spans, 3.0) == moved
    assert trace.shifted([], 3.0) == []


def test_spans_survive_their_tensor() -> None:
    spans = [trace.span("queue", 1.5, 2.25, tokens=3)]
    assert spans == [{"name": "queue", "begin": 1_500_000_000, "end": 2_250_000_000, "tokens": 3}]
    (array,) = trace.column(spans).values()
    assert json.loads(array[0]) == spans
    assert trace.read({"trace": array}) == trace.read({"trace": array[None]}) == spans
    assert trace.read({"text_output": np.array([b""], object)}) == []
