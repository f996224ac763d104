"""The build's own modules can be imported in all tests of the judge's build."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.builders.scripts import importable


@pytest.fixture(scope="module", autouse=True)
def _scripts() -> Iterator[None]:
    with importable():
        yield
