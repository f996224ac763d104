"""Fixture of the tests of AnswerCache: rigs that are closed when the test is over."""

from __future__ import annotations

import pytest

from tests.cache.doubles import Rig


@pytest.fixture
def rig():
    rigs = []

    def make(*arguments, **options):
        rigs.append(Rig(*arguments, **options))
        return rigs[-1]

    yield make
    for one in rigs:
        one.cache.close()
