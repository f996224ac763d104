"""`trimodal tune`: what is wrong on the command line is one sentence, before a server is started."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.tune.test_report import RESULT, TUNED
from trimodal.cli.app import app
from trimodal.tune import session
from trimodal.tune.knobs import Pipeline

REPOSITORY = Path(__file__).parents[3] / "model_repository"


def invoke(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["tune", "--model-repository", str(REPOSITORY), *arguments])
    return result.exit_code, result.output


@pytest.fixture
def no_server(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(*_: object, **__: object) -> None:
        raise AssertionError("a server was started")

    monkeypatch.setattr(session, "TunedServer", start)


@pytest.mark.usefixtures("no_server")
@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("vision", "--slo", "nonsense<=3"), "'nonsense' is no metric"),
        (("vision", "--maximize", "speed"), "--maximize speed: known are"),
        (("vision", "--minimize", "cost"), "known are statistics"),
        (("speech", "--maximize", "streams"), "--maximize streams needs a bound to keep"),
        (
            ("speech", "--maximize", "streams", "--slo", "p95_lag_ms<=900", "--rate", "2"),
            "--rate is of an open loop: leave it or --maximize streams out",
        ),
        (("vision", "--list-knobs", "--knob", "nothing=1"), "which 'nothing' is meant"),
        (("nothing", "--list-knobs"), "no model 'nothing'"),
        ((), "name one model, or several by --mix"),
        (("llm", "--mix", "vision@2:p99_ms<=50"), "name one model, or several by --mix"),
        (("--mix", "vision@2"), "a form as llm@2:"),
        (("--mix", "vision@2:p99_ms<=50", "--rate", "3"), "--rate is of one model"),
        (("--mix", "nothing@2:p99_ms<=50", "--list-knobs"), "no model 'nothing'"),
        (("--mix", "assistant@2:p99_ms<=50", "--list-knobs"), "no load is known for it"),
    ],
)
def test_one_sentence(arguments: tuple[str, ...], why: str) -> None:
    code, output = invoke(*arguments)
    assert code == 1
    assert why in " ".join(output.split())


@pytest.mark.usefixtures("no_server")
@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (
            ("speech", "--maximize", "streams", "--slo", "p95_lag_ms<=900", "--concurrency", "8"),
            "--concurrency is of a closed loop: leave it or --maximize streams out",
        ),
        (("llm", "--rate", "2", "--concurrency", "8"), "a closed loop: leave it or --rate out"),
        (("--mix", "vision@2:p99_ms<=50", "--concurrency", "8"), "a closed loop: leave it or --mix out"),
        # Its requests were all due at once, so that no round ended.
        (("llm", "--rate", "inf"), "Invalid value for '--rate'"),
        # It was told after a quarter of an hour, and nothing was written.
        (("vision", "--json", "/nowhere/figures.json"), "no file can be written there"),
    ],
)
def test_an_option_that_cannot_be(arguments: tuple[str, ...], why: str) -> None:
    code, output = invoke(*arguments)
    assert code == 2
    assert why in " ".join(output.replace("│", " ").split())


@pytest.mark.usefixtures("no_server")
def test_lists_the_knobs() -> None:
    code, output = invoke("llm", "--list-knobs", "--knob", "max_num_seqs=1,2")
    assert code == 0
    assert "llm.max_num_seqs=1,2  (now 16)" in output
    assert "llm.threads=" in output


@pytest.mark.parametrize("write", [False, True])
def test_shows_the_diff_and_writes_only_when_told(
    write: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.tune.doubles import parsed
    from trimodal.repository import Model

    (tmp_path / "m").mkdir()
    file = tmp_path / "m" / "config.pbtxt"
    text = (
        "name: 'm'\nbackend: 'python'\nparameters { key: 'threads' value { string_value: '1' } }  # cores\n"
    )
    file.write_text(text + "parameters { key: 'delay' value { string_value: '9' } }\n")
    before = file.read_text()
    pipeline = Pipeline("m", {"m": Model("m", tmp_path / "m", file, parsed(before))})

    def tune(settings: object, *, tell: object, began: object) -> session.Tuned:
        began(pipeline, list(TUNED.knobs))  # type: ignore[operator]
        for one in RESULT.trials:
            tell(one, RESULT.start)  # type: ignore[operator]
        return TUNED

    monkeypatch.setattr(session, "tune", tune)
    figures = tmp_path / "out.json"
    arguments = ["tune", "m", "--model-repository", str(tmp_path), "--json", str(figures)]
    result = CliRunner().invoke(app, [*arguments, *(["--write"] if write else [])])
    assert result.exit_code == 0, result.output
    assert "+parameters { key: 'threads' value { string_value: \"2\" } }  # cores" in result.output
    assert '"chosen"' in figures.read_text()
    if write:
        assert file.read_text() != before
        assert "Written:" in result.output
    else:
        assert file.read_text() == before
        assert "--write changes them" in result.output
