import io

from rich.console import Console

from tests.regress.runs import case, record, run
from trimodal.regress.compare import compare
from trimodal.regress.report import print_comparison, summary
from trimodal.regress.values import Finding

SLOW = [20.0 + place / 10 for place in range(10)]


def printed(show, width=140):
    file = io.StringIO()
    show(Console(file=file, width=width, highlight=False, markup=False))
    return file.getvalue()


def found(before, after, *cases):
    return compare(cases, before, after), before, after


def test_what_changed_and_the_times_by_task():
    before = run(case_1=record("[bold]x", ttft=SLOW), case_2=record("y", ttft=SLOW))
    after = run(
        case_1=record("[red]z", ttft=[2 * one for one in SLOW]),
        case_2=record("y", ttft=[2 * one for one in SLOW]),
    )
    comparison = found(before, after, case(1), case(2))
    text = printed(lambda console: print_comparison(*comparison, console))
    assert "baseline of 2026-11-21T12:00:00+00:00: 2 cases; now 2 cases" in text
    assert "[bold]x" in text
    assert "[red]z" in text
    (group,) = [line for line in text.splitlines() if line.startswith("llm")]
    assert group.split()[:7] == ["llm", "ttft", "20.45", "ms", "40.90", "ms", "2.00"]
    assert group.split()[-1] == "<0.001"
    assert text.endswith("2 cases compared: 4 worse\n")


def test_the_last_line():
    def some(**counts):
        return [
            Finding("c", "answer", verdict, "", "") for verdict, count in counts.items() for _ in range(count)
        ]

    assert summary(some(better=2, worse=10), 7) == "7 cases compared: 10 worse, 2 better"
    assert summary([], 1) == "1 cases compared: nothing changed"


def test_too_few_requests_to_find_a_change_are_told():
    """Three on each side have p 0.1 at least: whatever the times were, nothing was worse, without a word."""

    def said(repeat, stored=0):
        before, after = (
            run(**{f"case_{number}": record(ttft=[scale * one for one in SLOW[:of]]) for number in (1, 2)})
            for scale, of in ((1.0, stored or repeat), (9.0, repeat))
        )
        comparison = found(before, after, case(1), case(2))
        return comparison[0].note, printed(lambda console: print_comparison(*comparison, console))

    note, text = said(3)
    assert note == "no change of 3 times could be found, however large: that takes --repeat 5 of both runs"
    assert note in text
    assert said(5, stored=3)[0] == note, "the stored run has too few, too"
    note, text = said(5)
    assert (note, "3 worse" in text) == ("", True)
    assert said(2)[0] == "times were not compared: that takes --repeat 3 of both runs, more to find a change"
