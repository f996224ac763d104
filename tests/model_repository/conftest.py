"""Imports the model.py that a test module names by its MODEL, on a fake stub."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.doubles import pb_utils


@pytest.fixture
def module(request: pytest.FixtureRequest) -> Iterator[Any]:
    with pb_utils.glue(request.module.MODEL / "1" / "model.py") as module:
        yield module
