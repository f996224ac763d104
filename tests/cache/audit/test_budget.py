"""Audits take at most their share of what clients took."""

from trimodal.cache.audit.budget import TokenBudget


def test_audits_take_at_most_their_share() -> None:
    budget = TokenBudget(0.02)
    assert not budget.reserve(1)
    budget.served(5000)
    assert budget.reserve(100)
    assert not budget.reserve(1)
    budget.give_back(40)
    assert (budget.left, budget.audits) == (40, 60)
    assert budget.reserve(40)
