from trimodal.llm.scheduler.estimators.prefix_hits import PrefixHits


def test_what_was_spared_once_is_foreseen_again() -> None:
    prefixes = PrefixHits()
    assert prefixes.uncached(7, 100) == 100
    prefixes.learn(7, 64)
    assert prefixes.uncached(7, 100) == 36
    assert prefixes.uncached(8, 100) == 100


def test_a_shorter_prompt_still_has_one_token_to_compute() -> None:
    prefixes = PrefixHits()
    prefixes.learn(7, 64)
    assert prefixes.uncached(7, 10) == 1


def test_an_unnamed_beginning_teaches_nothing() -> None:
    prefixes = PrefixHits()
    prefixes.learn(0, 64)
    assert prefixes.uncached(0, 100) == 100


def test_it_keeps_the_latest_only() -> None:
    prefixes = PrefixHits()
    for prefix in range(1, 10_000):
        prefixes.learn(prefix, 50)
    assert prefixes.uncached(1, 100) == 100
    assert prefixes.uncached(9_999, 100) == 50
    prefixes.clear()
    assert prefixes.uncached(9_999, 100) == 100
