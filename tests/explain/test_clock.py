from trimodal.explain.clock import clock_offset


def test_one_clock_needs_no_offset() -> None:
    assert clock_offset(1_000, [2_000, 5_000], [(6_000, 7_000)]) is None
    # Taken a moment before and after by different processes, they may seem to be out of order.
    assert clock_offset(1_000_000, [990_000], [(2_010_000, 2_000_000)]) is None


def test_another_machine_s_offset_is_the_middle_of_its_bounds() -> None:
    ahead = 7_000_000_000
    sent, arrived, made, received = 0, 1_000_000, 9_000_000, 11_000_000
    found = clock_offset(sent, [arrived + ahead, made + ahead], [(made + ahead, received)])
    # 1 ms there and 2 ms back: the offset is known to half of the sum.
    assert found == (ahead - 500_000, 1_500_000)


def test_a_clock_that_is_behind() -> None:
    offset = clock_offset(5_000_000_000, [1_000_000], [(2_000_000, 5_002_000_000)])
    assert offset == (-4_999_500_000, 500_000)


def test_the_tightest_of_many_arrivals_counts() -> None:
    ahead = 10**12
    arrivals = [(ahead + 2_000_000, 9_000_000), (ahead + 8_000_000, 8_100_000)]
    assert clock_offset(0, [ahead + 100_000], arrivals) == (ahead, 100_000)
