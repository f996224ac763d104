from trimodal.runtimes.text_batches import groups


def test_lengths_that_differ_much_are_run_apart():
    assert list(groups([50, 3, 4, 200, 3, 60])) == [[1, 4, 2], [0, 5], [3]]
    assert list(groups([7])) == [[0]]
    assert list(groups([])) == []
