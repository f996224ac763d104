"""Ways to run OpenVINO's pipeline, in turns."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer import Typer
from typer.testing import CliRunner

from trimodal.bench.llm.variants import VARIANTS, main

DEMO = Path(__file__).parents[3] / "model_repository" / "llm" / "1" / "openvino-int8"
app = Typer()
app.command()(main)


@pytest.mark.slow
@pytest.mark.build
@pytest.mark.parametrize(
    "names", [["shipped", "xattention"], pytest.param(list(VARIANTS), marks=pytest.mark.slow)]
)
def test_each_way_answers_and_is_held_against_the_first(
    monkeypatch: pytest.MonkeyPatch, names: list[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    given = [*names, "--artefact", str(DEMO), "--prompt-tokens", "40", "--streams", "2"]
    result = CliRunner().invoke(app, [*given, "--max-tokens", "3", "--rounds", "1"])

    assert result.exit_code == 0, result.output
    rows = [line.split() for line in result.output.splitlines() if line.strip().startswith("40")]
    assert [row[2] for row in rows] == names
    assert rows[0][-2:] == ["1.00", "1.00"]
    assert all(float(value) > 0 for row in rows for value in row[3:])


def test_a_missing_engine_is_one_sentence(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["shipped", "--artefact", str(tmp_path)])
    assert result.exit_code == 1
    assert "no built llm engine in" in result.output
