import json

import pytest
from typer.testing import CliRunner

from tests.gateway.conftest import with_note
from trimodal.cli import common
from trimodal.cli.app import app
from trimodal.client import Client, FakeTransport
from trimodal.client.transports.fake import llm_outputs, scripted
from trimodal.errors import InternalError, InvalidArgument


@pytest.fixture
def fake(monkeypatch):
    """The transport that commands get; a test says what its models do."""
    transport = FakeTransport(llm=scripted("Ein kürzeres 日本 answer."))
    monkeypatch.setattr(common, "connect", lambda url, silence: Client(transport=transport))
    monkeypatch.delenv("TRIMODAL_URL", raising=False)
    return transport


def run(*arguments, stdin=""):
    return CliRunner().invoke(app, ["chat", *arguments], input=stdin)


def messages_of(request):
    return json.loads(request.inputs["messages"][0])


def test_an_answer_streams_to_stdout(fake):
    result = run(
        "hi", "--max-tokens", "9", "--temperature", "0.5", "--stop", "a", "--stop", "b", "--seed", "3"
    )
    assert (result.exit_code, result.stdout) == (0, "Ein kürzeres 日本 answer.\n")
    assert result.stderr == ""
    inputs = fake.requests[0].inputs
    assert set(inputs) == {"text_input", "max_tokens", "temperature", "stop", "seed"}
    assert inputs["text_input"].tolist() == [b"hi"]
    assert inputs["stop"].tolist() == [b"a", b"b"]


def test_a_system_message_makes_it_a_chat(fake):
    assert run("hi", "--system", "be brief").exit_code == 0
    assert messages_of(fake.requests[0]) == [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "hi"},
    ]


@pytest.mark.parametrize("arguments", [["-"], []])
def test_the_prompt_comes_from_a_pipe(fake, arguments):
    assert run(*arguments, stdin="two\nlines é\n").exit_code == 0
    assert fake.requests[0].inputs["text_input"].tolist() == ["two\nlines é".encode()]


def test_what_is_no_text_is_refused(fake):
    """It was a traceback."""
    refused = run("-", stdin=b"\xff\xfe")
    assert (refused.exit_code, fake.requests) == (2, [])
    assert "standard input is no text in UTF-8" in refused.stderr


def test_json_lines_are_json_on_a_stdout_of_another_encoding(fake):
    """What it lacks was written as \\xfc and \\U0001f600, which JSON does not know."""
    fake.functions["llm"] = scripted("Él Ã 日本 😀")
    result = CliRunner(charset="cp437").invoke(app, ["chat", "hi", "--json"])
    assert json.loads(result.stdout.splitlines()[-1])["text"] == "Él Ã 日本 😀"


def test_json_lines(fake):
    result = run("hi", "--json")
    *deltas, summary = [json.loads(line) for line in result.stdout.splitlines()]
    assert "".join(delta["delta"] for delta in deltas) == summary["text"] == "Ein kürzeres 日本 answer."
    assert "日本" in result.stdout
    assert summary["finish_reason"] == "stop"
    assert summary["usage"] == {"prompt_tokens": 8, "cached_tokens": 0, "completion_tokens": 4}
    assert 0 <= summary["ttft_ms"] <= summary["latency_ms"]
    assert summary["itl_p50_ms"] <= summary["itl_p99_ms"]


def test_stats_go_to_stderr(fake):
    result = run("hi", "--stats")
    assert result.stdout == "Ein kürzeres 日本 answer.\n"
    assert "prompt 8 tokens (0 cached) · answer 4 tokens ·" in result.stderr
    assert "first text after" in result.stderr


def test_nobody_there(fake):
    fake.reachable = False
    result = run("hi")
    assert result.exit_code == 1
    assert result.stderr == "trimodal: no server at nowhere: start one with `trimodal serve`\n"


async def refuse(request):
    yield llm_outputs("so far")
    raise InvalidArgument("max_tokens is 0: it must be between 1 and 1024")


def test_a_refusal_is_one_sentence(fake, monkeypatch):
    monkeypatch.setitem(fake.functions, "llm", refuse)
    result = run("hi")
    assert (result.exit_code, result.stdout) == (1, "so far\n")
    assert result.stderr == "trimodal: max_tokens is 0: it must be between 1 and 1024\n"
    error = json.loads(run("hi", "--json").stdout.splitlines()[-1])
    assert error == {"error": "max_tokens is 0: it must be between 1 and 1024", "code": "INVALID_ARG"}


class TestConversation:
    @pytest.fixture(autouse=True)
    def _terminal(self, fake, monkeypatch):
        monkeypatch.setattr(common, "is_terminal", lambda: True)

    def test_it_remembers_until_reset(self, fake):
        result = run("--system", "s", stdin="one\n\ntwo\n/reset\nthree\n/help\n/quit\nnot read\n")
        assert result.exit_code == 0
        said = [[message["content"] for message in messages_of(request)] for request in fake.requests]
        answer = "Ein kürzeres 日本 answer."
        assert said == [["s", "one"], ["s", "one", answer, "two"], ["s", "three"]]
        assert result.stdout.count(answer) == 3
        assert result.stderr.count("/reset") == 2
        assert fake.closed

    def test_a_talk_that_is_too_long_says_what_was_left_out(self, fake, monkeypatch):
        trims = with_note("fine", b'{"messages": 4, "tokens": 812}')
        monkeypatch.setitem(fake.functions, "llm", trims)
        result = run(stdin="one\n")
        assert "fine" in result.stdout
        assert "its oldest 4 messages were left out" in result.stderr
        assert fake.requests[0].inputs["truncation"].tolist() == [b"auto"]

    def test_an_error_ends_the_answer_and_not_the_conversation(self, fake, monkeypatch):
        answers = iter([fail, scripted("fine")])
        monkeypatch.setitem(fake.functions, "llm", lambda request: next(answers)(request))
        result = run(stdin="one\ntwo\n")
        assert result.exit_code == 0
        assert "trimodal: the engine stopped" in result.stderr
        assert "fine" in result.stdout
        assert [message["content"] for message in messages_of(fake.requests[1])] == ["two"]


async def fail(request):
    raise InternalError("the engine stopped")
    yield


def test_what_a_model_writes_does_not_steer_the_terminal():
    assert common.plain("a\x1b[2Jb\x07\x9b1m\tc\nd\r") == "a[2Jb1m\tc\nd"
