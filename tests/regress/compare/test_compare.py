from tests.regress.runs import case, record, run
from trimodal.regress.compare.compare import check, compare
from trimodal.regress.compare.findings import Limits
from trimodal.regress.values import ServedModel, Server


def compared(cases, before, after, **limits):
    return compare(cases, before, after, Limits(**limits))


def cases(*numbers, **line):
    return [case(number, **line) for number in numbers]


def test_nothing_changed():
    same = run(case_1=record("x", ttft=[5.0] * 8), case_2=record("y", ttft=[6.0] * 8))
    found = compared(cases(1, 2), same, same)
    assert (found.findings, found.worse, found.compared, found.knobs) == ([], False, 2, [])
    assert [one.name for one in found.latencies] == ["all llm", "case-1", "case-2"]


def test_worse_comes_first():
    before = run(case_1=record("x"), case_2=record("x"), case_3=record("x", cache=[""]), case_4=record("no"))
    after = run(
        case_1=record("x", prompt=6),
        case_2=record("y"),
        case_3=record("x", cache=["exact"]),
        case_4=record("no"),
    )
    wanted = [*cases(1, 2, 3), case(4, expect={"exact": "yes"})]
    found = compared(wanted, before, after)
    assert [(one.case, one.what, one.verdict) for one in found.findings] == [
        ("case-2", "answer", "worse"),
        ("case-4", "expectation", "known"),
        ("case-1", "prompt", "changed"),
        ("case-3", "cache", "better"),
    ]
    assert found.worse


def test_an_expectation_judges_its_case():
    before, after = run(case_1=record("yes, it is")), run(case_1=record("yes indeed"))
    assert compared(cases(1), before, after).worse
    found = compared(cases(1, expect={"contains": "yes"}), before, after)
    assert [(one.what, one.verdict) for one in found.findings] == [("answer", "changed")]
    found = compared(cases(1, expect={"contains": "it is"}), before, after)
    assert [(one.what, one.verdict) for one in found.findings] == [
        ("expectation", "worse"),
        ("answer", "changed"),
    ]


def test_cases_that_only_one_run_has():
    before = run(case_1=record("x"), gone=record("x"), case_3=record("x", digest="e" * 64))
    after = run(case_1=record("x"), case_2=record("y"), case_3=record("other", total=[9.0] * 9))
    found = compared(cases(1, 2, 3), before, after)
    assert [(one.case, one.after) for one in found.findings] == [
        ("case-2", "new"),
        ("case-3", "changed since"),
        ("gone", "gone"),
    ]
    assert not found.worse
    assert found.compared == 1
    assert found.latencies == []


def test_a_new_case_must_keep_its_expectation():
    found = compared(cases(1, expect={"exact": "yes"}), run(), run(case_1=record("no")))
    assert found.worse
    assert [one.what for one in found.findings] == ["expectation", "case"]


def test_what_the_servers_differ_in():
    def server(size):
        return Server(
            name="triton", models={"llm": ServedModel(version="1", parameters={"max_num_seqs": size})}
        )

    found = compared(cases(1), run(server("16"), case_1=record("x")), run(server("32"), case_1=record("x")))
    assert found.knobs == ["llm.max_num_seqs 16 → 32"]
    assert not found.worse


def test_a_run_that_is_recorded_is_checked():
    wanted = [case(1, expect={"exact": "yes"}), case(2)]
    assert check(wanted, run(case_1=record("yes"), case_2=record("x"))) == []
    (found,) = check(wanted, run(case_1=record("no"), case_2=record("x")))
    assert (found.case, found.verdict) == ("case-1", "worse")


def timed(factor, *control, concurrency=1):
    times = [factor * (20 + place / 10) for place in range(10)]
    found = run(concurrency=concurrency, case_1=record("x", ttft=times))
    return found.model_copy(update={"control": control})


QUIET, BUSY = (5.0, 5.1, 5.2, 5.3, 5.4), (9.0, 9.1, 9.2, 9.3, 9.4)


def verdict(before, after):
    found = compared(cases(1), before, after)
    assert [one.what for one in found.findings] == ["ttft"]
    return found.findings[0].verdict, found.worse, found.doubtful, found.doubt


def test_a_machine_that_is_not_as_it_was_makes_times_doubtful():
    assert verdict(timed(1, *QUIET), timed(2, *QUIET)) == ("worse", True, False, "")
    told = "work without any model took 1.77 times as long as when it was recorded"
    assert verdict(timed(1, *QUIET), timed(2, *BUSY)) == ("doubtful", False, True, told)
    assert verdict(timed(2, *BUSY), timed(1, *QUIET))[:3] == ("changed", False, False)


def test_a_machine_that_is_all_but_as_it_was_does_not():
    near = tuple(one * 1.08 for one in QUIET)
    assert verdict(timed(1, *QUIET), timed(2, *near)) == ("worse", True, False, "")
    assert verdict(timed(1, *QUIET), timed(2, *BUSY[:2])) == ("worse", True, False, "")  # too few to tell
    assert verdict(timed(1), timed(2)) == ("worse", True, False, "")


def test_another_concurrency_makes_times_doubtful():
    told = "1 requests at once were recorded, 4 are sent now"
    assert verdict(timed(1), timed(2, concurrency=4)) == ("doubtful", False, True, told)


def test_doubt_without_a_time_that_changed_is_no_matter():
    found = compared(cases(1), timed(1, *QUIET), timed(1, *BUSY))
    assert (found.findings, found.doubtful) == ([], False)
