from __future__ import annotations

import pytest

from trimodal.bench.load.plan import LoadPlan
from trimodal.bench.scenarios.server import LoadTest, ServerUnderTest, facts
from trimodal.errors import SettingsError

CHANGES = {"llm": {"engine": "fake"}}


def test_what_a_running_server_does_not_have_is_not_told_of_it() -> None:
    with pytest.raises(SettingsError, match="--set changes a server that is started for the test"):
        LoadTest(LoadPlan(), url="127.0.0.1:8001", changes=CHANGES)
    told = dict(facts(LoadTest(LoadPlan(), url="127.0.0.1:8001"), ServerUnderTest("127.0.0.1:8001")))
    assert told["server"] == "127.0.0.1:8001"
    assert "settings" not in told
    assert dict(facts(LoadTest(LoadPlan(), changes=CHANGES), ServerUnderTest("here:1")))["settings"] == (
        "llm.engine=fake"
    )
