"""The search for how much is held: made-up edges, no load."""

from __future__ import annotations

import asyncio

import pytest

from trimodal.tune.edge import HIGHEST, LOWEST, MOST_STREAMS, find_edge, find_most
from trimodal.tune.search import Round


@pytest.mark.parametrize(("edge", "found"), [(1e-9, LOWEST), (1e9, HIGHEST)])
def test_the_search_for_the_edge_is_bounded(edge: float, found: float) -> None:
    tried = []

    async def probe(factor: float) -> Round:
        tried.append(factor)
        return Round(factor, float(factor > edge))

    assert asyncio.run(find_edge(probe)).gain == found
    assert len(tried) <= 8


@pytest.mark.parametrize("edge", [0.126, 0.4, 1.0, 1.7, 9.0, 63.9])
@pytest.mark.parametrize("guess", [None, 0.125, 1.0, 64.0])
def test_any_edge_is_found_from_any_guess(edge: float, guess: float | None) -> None:
    async def probe(factor: float) -> Round:
        return Round(factor, max(0.0, factor - edge))

    found = asyncio.run(find_edge(probe, guess))
    assert 0.95 * edge <= found.gain <= edge
    assert found.violation == 0


@pytest.mark.parametrize("edge", [1, 2, 3, 7, 64, 100, MOST_STREAMS])
@pytest.mark.parametrize("guess", [None, 1.0, 3.0, 90.0])
def test_the_most_streams_are_kept_and_one_more_is_not(edge: int, guess: float | None) -> None:
    tried = []

    async def probe(number: float) -> Round:
        tried.append(number)
        return Round(number, max(0.0, number - edge))

    assert asyncio.run(find_most(probe, guess)).gain == edge
    assert edge in tried
    assert edge == MOST_STREAMS or edge + 1 in tried
    assert len(tried) == len(set(tried)) <= 24


def test_where_one_stream_is_too_much_none_is_held() -> None:
    async def probe(number: float) -> Round:
        return Round(number, number)

    found = asyncio.run(find_most(probe, 5.0))
    assert (found.gain, found.violation) == (0, 1)
