"""Whatever one key floods with, another key's chats are answered; the memory stays bounded."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from tests.redteam.floods import FLOODS, LIMITS, flood, hostile
from tests.redteam.stack import Stack, stack


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Stack, Connection]]:
    folder: Path = tmp_path_factory.mktemp("stack")
    with stack(folder, **LIMITS) as running, hostile(running) as bert:
        yield running, bert


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # sockets that were cut off
@pytest.mark.parametrize("name", FLOODS)
def test_another_key_is_answered(served: tuple[Stack, Connection], name: str) -> None:
    outcome = asyncio.run(flood(*served, name, calm_s=1.0))
    assert outcome.holds, outcome
