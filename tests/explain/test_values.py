import pytest

from trimodal.explain.values import Span, Waterfall, four_parts, overlapping, owners


def span(name: str, begin: float, end: float, depth: int = 0, part: str = "processing") -> Span:
    return Span(name, begin, end, part, "llm", depth)  # type: ignore[arg-type]


def test_the_deepest_span_counts_and_what_is_around_it_gets_the_rest() -> None:
    spans = [span("out", 0, 1), span("server", 1, 9), span("queue", 2, 4, 1), span("in", 5, 8, 1)]
    assert owners(spans, 10) == [1, 3, 2, 3]


def test_of_branches_side_by_side_the_one_that_ends_last_counts() -> None:
    hear, see = span("hear", 0, 6, 1), span("see", 1, 4, 1)
    inside_hear, inside_see = span("window", 3, 5, 2), span("compute", 1, 4, 2)
    spans = [span("server", 0, 7), hear, inside_hear, see, inside_see]
    # What it sees is done while it still hears: it does not make the request longer.
    assert owners(spans, 7) == [1, 4, 2, 0, 0]
    assert overlapping(spans) == [False, True, False, True, False]


def test_a_step_that_begins_a_moment_early_does_not_overlap() -> None:
    assert overlapping([span("a", 0, 1.0001), span("b", 1, 2)]) == [False, False]
    assert overlapping([span("a", 0, 1.001), span("b", 1, 2)]) == [True, True]


def test_the_four_parts_add_up_to_the_total_and_a_hole_is_not_made_up() -> None:
    spans = [
        span("out", 0, 1, part="network"),
        span("server", 1, 8),
        span("queue", 1, 3, 1, "queue"),
        span("back", 8, 10, part="response"),
    ]
    waterfall = Waterfall("llm", "", "", 10.0, spans)
    parts = {"network": 1, "queue": 2, "processing": 5, "response": 2}
    assert four_parts(waterfall) == pytest.approx(parts)
    holed = Waterfall("llm", "", "", 11.0, spans)
    assert sum(four_parts(holed).values()) == pytest.approx(10)
