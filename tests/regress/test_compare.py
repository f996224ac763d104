from tests.regress.runs import case, record, run
from trimodal.regress.compare import check, compare


def cases(*numbers, **line):
    return [case(number, **line) for number in numbers]


def test_worse_comes_first():
    before = run(
        case_1=record("x", cache=["semantic"]),
        case_2=record("x"),
        case_3=record("x", cache=[""]),
        case_4=record("no"),
    )
    after = run(
        case_1=record("x", cache=["exact"]),
        case_2=record("y"),
        case_3=record("x", cache=["exact"]),
        case_4=record("no"),
    )
    wanted = [*cases(1, 2, 3), case(4, expect={"exact": "yes"})]
    found = compare(wanted, before, after)
    assert [(one.case, one.what, one.verdict) for one in found.findings] == [
        ("case-2", "answer", "worse"),
        ("case-4", "expectation", "known"),
        ("case-1", "cache", "changed"),
        ("case-3", "cache", "better"),
    ]
    assert found.worse


def test_an_expectation_judges_its_case():
    before, after = run(case_1=record("yes, it is")), run(case_1=record("yes indeed"))
    assert compare(cases(1), before, after).worse
    found = compare(cases(1, expect={"contains": "yes"}), before, after)
    assert [(one.what, one.verdict) for one in found.findings] == [("answer", "changed")]
    found = compare(cases(1, expect={"contains": "it is"}), before, after)
    assert [(one.what, one.verdict) for one in found.findings] == [
        ("expectation", "worse"),
        ("answer", "changed"),
    ]


def test_cases_that_only_one_run_has():
    before = run(case_1=record("x"), gone=record("x"), case_3=record("x", digest="e" * 64))
    after = run(case_1=record("x"), case_2=record("y"), case_3=record("other", total=[9.0] * 9))
    found = compare(cases(1, 2, 3), before, after)
    assert [(one.case, one.after) for one in found.findings] == [
        ("case-2", "new"),
        ("case-3", "changed since"),
        ("gone", "gone"),
    ]
    assert not found.worse
    assert found.compared == 1
    assert found.latencies == []


def test_a_run_that_is_recorded_is_checked():
    wanted = [case(1, expect={"exact": "yes"}), case(2)]
    assert check(wanted, run(case_1=record("yes"), case_2=record("x"))) == []
    (found,) = check(wanted, run(case_1=record("no"), case_2=record("x")))
    assert (found.case, found.verdict) == ("case-1", "worse")
