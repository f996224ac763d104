"""Log records as text and as JSON, with level, model and request; configured once a process."""

from __future__ import annotations

import contextvars
import json
import logging
import os
import re
import subprocess
import sys
from collections.abc import Iterator

import pytest

from trimodal import logs

logger = logging.getLogger("trimodal.somewhere")
LINE = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z WARNING llm \[request 17\] the engine is lost: gone\n"


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    root, ours = logging.getLogger(), logging.getLogger("trimodal")
    handlers, level = list(root.handlers), ours.level
    yield
    root.handlers[:] = handlers
    ours.setLevel(level)


def test_text_has_time_level_model_and_request(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("llm")
    logger.warning("the engine is lost: %s", "gone", extra={"request_id": "17"})
    assert re.fullmatch(LINE, capsys.readouterr().err)


def test_a_request_s_id_makes_no_line_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    """The client chooses it, and Triton takes any text."""
    logs.configure("llm")
    logger.warning("it failed", extra={"request_id": "17]\n2026-11-27T00:00:00.000Z ERROR llm forged"})
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith(' llm [request "17]\\n2026-11-27T00:00:00.000Z ERROR llm forged"] it failed')
    logger.warning("it failed", extra={"request_id": "x" * 10_000})
    assert capsys.readouterr().err.endswith(f" llm [request {'x' * 128}] it failed\n")


def test_json_is_an_object_a_line_also_with_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(logs.FORMAT_VARIABLE, "json")
    logs.configure("vision_rank")
    try:
        raise ValueError("two\nlines")
    except ValueError:
        logger.exception("it failed", extra={"request_id": "a"})
    logger.info("plain")
    first, second = map(json.loads, capsys.readouterr().err.splitlines())
    assert (first["level"], first["model"], first["request_id"]) == ("error", "vision_rank", "a")
    assert first["logger"] == "trimodal.somewhere"
    assert "ValueError: two" in first["exception"]
    assert set(second) == {"time", "level", "model", "logger", "message"}


def test_a_second_call_replaces_the_first(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("a")
    logs.configure("b")
    logger.error("once")
    assert capsys.readouterr().err.count("once") == 1


@pytest.mark.parametrize(
    ("level", "shown"), [("", "IWE"), ("debug", "DIWE"), ("WARNING", "WE"), ("loud", "IWE")]
)
def test_the_level_comes_from_the_environment(
    level: str, shown: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(logs.LEVEL_VARIABLE, level)
    logs.configure()
    for number, letter in ((10, "D"), (20, "I"), (30, "W"), (40, "E")):
        logger.log(number, letter)
    assert "".join(line[-1] for line in capsys.readouterr().err.splitlines()) == shown


def test_other_libraries_are_shown_from_warning_on(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure()
    other = logging.getLogger("another.library")
    other.info("quiet")
    other.warning("heard")
    assert [line.split()[-1] for line in capsys.readouterr().err.splitlines()] == ["heard"]


def test_a_trace_is_named_beside_the_request_in_its_own_task(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("gateway")

    def work() -> None:
        logs.trace_id.set("0af7")
        logger.warning("it is late", extra={"request_id": "17"})

    contextvars.copy_context().run(work)
    logger.warning("another")
    first, second = capsys.readouterr().err.splitlines()
    assert first.endswith(" gateway [request 17] [trace 0af7] it is late")
    assert second.endswith(" gateway another")


def test_a_server_outlives_a_full_disk_and_a_reader_that_ended() -> None:
    program = (
        "import sys; from trimodal import logs; logs.configure(); logs.outlive_output(); "
        "[print('said', n, file=to) for n in range(2000) for to in (sys.stdout, sys.stderr)]; "
        "logs.logging.getLogger('trimodal').warning('logged'); sys.exit(7)"
    )
    reader, writer = os.pipe()
    os.close(reader)
    with open("/dev/full", "wb") as full:
        for out, err in ((full, writer), (writer, full)):
            ended = subprocess.run([sys.executable, "-c", program], stdout=out, stderr=err, timeout=60)
            assert ended.returncode == 7
    os.close(writer)
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert told.stdout.splitlines() == [f"said {n}" for n in range(2000)]
    assert told.stderr.splitlines()[-1].endswith("logged")


def test_what_fails_at_each_turn_of_a_loop_is_told_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0
    failures = logs.LoopFailures(logger, lambda: now)
    for _ in range(10):
        for error in (KeyError("host"), ValueError("port")):
            failures.tell("a look failed", error)
    assert [str(one.exc_info[1]) for one in caplog.records if one.exc_info] == ["'host'", "port"]
    now = 60.0
    failures.tell("a look failed", KeyError("host"))
    assert len(caplog.records) == 3
