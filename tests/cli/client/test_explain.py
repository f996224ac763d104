import asyncio

import pytest
from typer.testing import CliRunner

from tests.explain.test_show import WATERFALL
from trimodal.cli.app import app
from trimodal.errors import InvalidArgument


def run(*arguments):
    return CliRunner().invoke(app, ["explain", *map(str, arguments)], env={"COLUMNS": "100"})


@pytest.fixture
def asked(monkeypatch):
    given = []

    async def explain(question, server, *, warm_up):
        given.append((question, server, warm_up))
        if question.text == "refused":
            raise InvalidArgument("text_input is refused")
        return WATERFALL

    monkeypatch.setattr("trimodal.explain.run.explain", explain)
    return given


def test_a_running_server_is_asked_with_its_key(asked, tmp_path):
    (tmp_path / "key").write_text("secret\n")
    ended = run(
        *("llm", "a prompt", "--url", "there:8001", "--operator-key-file", tmp_path / "key", "--warm-up", 3),
        *("--json", tmp_path / "a.json"),
    )
    assert ended.exit_code == 0, ended.output
    ((question, server, warm_up),) = asked
    assert (question.kind, question.text, warm_up) == ("llm", "a prompt", 3)
    assert (server.url, server.operator_key) == ("there:8001", "secret")
    assert "network          10.00 ms" in ended.output
    assert (tmp_path / "a.json").is_file()


def test_ctrl_c_while_its_own_server_starts_is_not_taken_by_an_event_loop(asked, monkeypatch):
    """It was, and nothing happened until the models were loaded."""

    class Loading:
        def __init__(self, options: object) -> None:
            pass

        def __enter__(self) -> None:
            with pytest.raises(RuntimeError, match="no running event loop"):
                asyncio.get_running_loop()
            raise KeyboardInterrupt

        def __exit__(self, *error: object) -> None:
            pass

    monkeypatch.setattr("trimodal.server.process.TritonServer", Loading)
    ended = run("llm")
    assert (ended.exit_code, asked) == (130, [])


def test_a_full_disk_is_one_sentence_after_the_figures(asked):
    """It was a traceback."""
    ended = run("llm", "--url", "there:8001", "--json", "/dev/full")
    assert ended.exit_code == 1
    assert "network          10.00 ms" in ended.output
    assert ended.output.endswith("explain: --json /dev/full: cannot be written: No space left on device\n")


def test_what_is_refused_is_one_sentence(asked):
    ended = run("llm", "refused", "--url", "there:8001")
    assert (ended.exit_code, ended.output) == (1, "explain: text_input is refused\n")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["llm", "--url", "there:8001", "--set", "llm.cache=exact"], "--set changes a server"),
        (["llm", "--url", "there"], "host:port of Triton's gRPC endpoint is needed"),
        (["llm", "--json", "/no/such/folder/a.json"], "no file can be written there"),
        (["video"], "video"),
        (["llm", "--set", "nonsense", "--warm-up", "0"], "nonsense"),
        (["llm", "--profile", "gpu"], "gpu is not a profile"),
    ],
)
def test_a_wrong_command_line_starts_nothing(arguments, told):
    ended = run(*arguments)
    assert ended.exit_code in (1, 2)
    assert told in " ".join(ended.output.replace("│", " ").split()), ended.output
    assert ended.exception is None or isinstance(ended.exception, SystemExit)
