from tests.regress.runs import record
from trimodal.regress.compare.answers import compare_cache, compare_prompt


def hits(*kinds):
    return record(cache=kinds)


def compared(before, after, alpha=0.05):
    return [(one.verdict, one.detail) for one in compare_cache("c", before, after, alpha)]


def test_the_last_request_decides():
    assert compared(hits("", "exact"), hits("", "exact")) == []
    assert compared(hits("", ""), hits("", "")) == []
    assert compared(hits("exact", "exact"), hits("", "exact")) == []
    assert compared(hits("", "exact"), hits("", "")) == [("worse", "exact → generated")]
    assert compared(hits("", ""), hits("", "exact")) == [("better", "generated → exact")]
    assert compared(hits("exact"), hits("semantic")) == [("changed", "exact → semantic")]


def test_fewer_hits_are_worse_when_it_is_no_chance():
    before = hits(*["exact"] * 10)
    assert compared(before, hits(*[""] * 9, "exact")) == [("worse", "fewer hits")]
    assert compared(before, hits("", "", *["exact"] * 8)) == []


def test_the_counts_are_told():
    (found,) = compare_cache("c", hits("exact", "coalesced"), hits("", ""), 0.05)
    assert (found.before, found.after) == ("1 coalesced, 1 exact, 1 generated", "3 generated")


def test_prompts():
    before, after = record(prompt=5), record(prompt=9)
    assert compare_prompt("c", before, before) == []
    (found,) = compare_prompt("c", before, after)
    assert (found.verdict, found.before, found.after) == ("changed", "5 tokens", "9 tokens")
    assert compare_prompt("c", before, record(prompt=0)) == []  # a task that has none, or all were refused
