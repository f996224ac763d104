"""The simulator of `trimodal plan fleet` beside a real server, in a short run."""

from __future__ import annotations

import pytest

from tests.e2e.fleet.simulator import compare_loads, requests_of


@pytest.mark.slow
@pytest.mark.e2e
@pytest.mark.usefixtures("_environment")
async def test_a_real_server_and_its_simulation_are_asked_the_same() -> None:
    fast = {"fake_step_ms": "5", "fake_prefill_us": "20"}
    async for _, _, figures in compare_loads([1], [0.5], 4.0, fast):
        real, played = figures["hit rate"]
        assert played == pytest.approx(real, abs=0.1)
        assert all(value > 0 for pair in figures.values() for value in pair)


def test_requests_are_the_same_for_a_seed_and_begin_with_their_document() -> None:
    asked = requests_of(20.0, 30.0, "a")
    assert asked == requests_of(20.0, 30.0, "a")
    assert len(asked) == pytest.approx(600, rel=0.15)
    documents = {one.messages[0]["content"] for one in asked}
    assert len(documents) <= 24
    assert not documents & {one.messages[0]["content"] for one in requests_of(20.0, 30.0, "b")}
