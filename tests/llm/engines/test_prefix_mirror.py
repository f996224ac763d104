from trimodal.llm.engines.prefix_mirror import PrefixMirror


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


def test_prompts_of_other_salts_share_nothing_nor_do_their_answers() -> None:
    mirror = PrefixMirror(100, 4)
    prompt = list(range(8))
    mirror.add(1, prompt, "acme")
    mirror.prefilled(1, 8)
    mirror.finish(1, [8, 9, 10, 11, 12])
    found = {
        salt: mirror.add(place, [*range(13)], salt) for place, salt in enumerate(("", "acme", "umbrella"), 2)
    }
    assert found == {"": 0, "acme": 12, "umbrella": 0}
