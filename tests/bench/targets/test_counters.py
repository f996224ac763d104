from __future__ import annotations

import pytest

from trimodal.bench.targets.counters import between, read_page

PAGE = """# HELP trimodal_llm_tokens_total tokens
trimodal_llm_tokens_total{kind="prompt",model="llm"} %d
trimodal_llm_tokens_total{kind="cached",model="llm"} %d
trimodal_cache_lookups_total{layer="exact",outcome="hit",model="llm"} %d
trimodal_cache_lookups_total{layer="exact",outcome="miss",model="llm"} 3
trimodal_llm_tokens_per_step{model="llm"} 1.5
trimodal_llm_speculation_acceptance_ratio{model="llm"} 0.7
trimodal_llm_speculation_active{model="llm"} %d
trimodal_vision_classify_batch_size_sum %d
trimodal_vision_classify_batch_size_count %d
"""


def test_figures_are_of_what_was_counted_in_between() -> None:
    before, after = read_page(PAGE % (100, 0, 1, 1, 4, 2)), read_page(PAGE % (300, 50, 5, 1, 20, 6))
    found = between(before, after)
    assert found["prefix_cached_share"] == pytest.approx(0.25)
    assert found["exact_hit_rate"] == 1.0
    assert found["images_per_run"] == pytest.approx(4.0)
    assert found["speculation_acceptance"] == pytest.approx(0.7)
    assert "semantic_hit_rate" not in found


def test_speculation_that_is_off_has_no_acceptance() -> None:
    page = read_page(PAGE % (1, 0, 1, 0, 0, 0))
    assert "speculation_acceptance" not in between(page, page)
