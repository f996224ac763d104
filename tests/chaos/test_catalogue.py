"""The command: names and beginnings of names."""

from __future__ import annotations

import pytest

from tests.chaos import __main__ as command
from tests.chaos import catalogue


def test_faults_are_chosen_by_the_beginnings_of_their_names() -> None:
    every = list(catalogue.faults())
    assert catalogue.named([]) == every
    assert catalogue.named(["kill-l"]) == ["kill-llm", "kill-launcher"]
    assert catalogue.named(["clock", "full-disk"]) == ["full-disk", "clock+48h", "clock-48h"]
    assert catalogue.named(["nothing"]) == []


def test_the_list(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.argv", ["chaos", "vanish", "--list"])
    assert command.main() == 0
    assert "kill-llm\n" in capsys.readouterr().out
    monkeypatch.setattr("sys.argv", ["chaos", "nothing"])
    assert command.main() == 2
