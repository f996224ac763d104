import runpy

from trimodal.llm.engines import prefix_mirror
from trimodal.llm.engines.prefix_mirror import PrefixMirror, salted


def test_a_prompt_is_shared_once_it_was_computed() -> None:
    mirror = PrefixMirror(100, 4)
    prompt = list(range(10))
    assert mirror.add(1, prompt) == 0
    assert mirror.add(2, prompt) == 0
    mirror.prefilled(1, 7)
    assert mirror.cached(2) == 4
    mirror.prefilled(1, 10)
    assert mirror.add(3, prompt) == 8


def test_a_wholly_cached_prompt_still_computes_its_last_token() -> None:
    mirror = PrefixMirror(100, 4)
    mirror.add(1, list(range(8)))
    mirror.prefilled(1, 8)
    assert mirror.add(2, list(range(8))) == 7


def test_an_answer_serves_the_next_turn_without_its_last_token() -> None:
    mirror = PrefixMirror(100, 4)
    mirror.add(1, [1, 2, 3, 4])
    mirror.finish(1, [5, 6, 7, 8])
    assert mirror.add(2, [1, 2, 3, 4, 5, 6, 7, 8, 9]) == 4


def test_cancelled_prompts_promise_nothing() -> None:
    mirror = PrefixMirror(100, 2)
    mirror.add(1, [1, 2, 3, 4])
    mirror.drop(1)
    mirror.finish(1, [])
    assert mirror.add(2, [1, 2, 3, 4]) == 0


def test_the_least_recently_used_blocks_go_first() -> None:
    mirror = PrefixMirror(2, 2)
    for id, prompt in enumerate(([1, 1, 0], [2, 2, 0], [3, 3, 0])):
        mirror.add(id, prompt)
        mirror.prefilled(id, 3)
    assert mirror.add(9, [1, 1, 0]) == 0
    assert mirror.add(10, [3, 3, 0]) == 2


def test_a_salt_is_above_the_bits_of_an_id() -> None:
    assert salted([7, 8], "") == [7, 8]
    first, second = salted([7, 8], "anna"), salted([7, 8], "bert")
    assert [one & 0xFFFFFFFF for one in first] == [one & 0xFFFFFFFF for one in second] == [7, 8]
    assert 7 < first[0] != second[0] < 2**63
    mirror = PrefixMirror(100, 2)
    mirror.add(1, first)
    mirror.finish(1, [9])
    assert (mirror.add(2, salted([7, 8, 9], "anna")), mirror.add(3, salted([7, 8, 9], "bert"))) == (2, 0)


def test_nobody_can_compute_anothers_salt() -> None:
    """It has 31 bits: a `cache_salt` with those of another tenant was a matter of minutes."""
    other_process = runpy.run_path(str(prefix_mirror.__file__))["salted"]
    assert other_process([7, 8], "anna") != salted([7, 8], "anna") == salted([7, 8], "anna")
