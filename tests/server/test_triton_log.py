import re
import subprocess

import pytest

from tests.doubles.waiting import wait_until
from tests.server.supervision.descriptors import no_descriptors
from trimodal.server.triton_log import LoadLog, LogReader, sentence

LOG = r"""
I1121 03:31:22.314385 6285 model_lifecycle.cc:472] "loading: broken:1"
I1121 03:31:22.314428 6285 model_lifecycle.cc:472] "loading: echo:1"
I1121 03:31:22.690378 6285 model_lifecycle.cc:839] "successfully loaded 'echo'"
E1121 03:31:22.905420 6285 backend_model.cc:692] "ERROR: Failed to create instance: ArtefactError: no built engine\n\nAt:\n"
E1121 03:31:22.905536 6285 model_lifecycle.cc:642] "failed to load 'broken' version 1: Internal: ArtefactError: no built engine in 1/onnx-int8: build \"it\" first\n\nAt:\n  /r/broken/1/model.py(17): initialize\n"
I1121 03:31:22.905554 6285 model_lifecycle.cc:777] "failed to load 'broken'"
+--------+---------+
error: creating server: Invalid argument - load failed for model 'broken': version 1 is at UNAVAILABLE state
"""  # noqa: E501


def fed(*lines: str) -> LoadLog:
    log = LoadLog()
    for line in lines:
        log.feed(line)
    return log


def test_load_times_and_failures():
    log = fed(*LOG.splitlines())
    assert log.loaded == {"echo"}
    assert round(log.seconds["echo"], 5) == 0.37595
    assert log.failures == {"broken": 'no built engine in 1/onnx-int8: build "it" first'}
    assert log.why() == 'model broken: no built engine in 1/onnx-int8: build "it" first'
    assert not log.serving


def test_a_start_over_midnight():
    log = fed(
        'I1231 23:59:59.500000 1 model_lifecycle.cc:472] "loading: m:1"',
        "I0101 00:00:00.750000 1 model_lifecycle.cc:839] \"successfully loaded 'm'\"",
    )
    assert log.seconds["m"] == 1.25


REFUSED = "E1121 03:31:22.905420 6285 x.cc:1] "
DEPENDS = (
    "\"Invalid argument: ensemble 'vision' depends on 'vision_rank' which has no loaded version. Model\""
)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (
            "error: creating server: Internal - failed to load all",
            "creating server: Internal - failed to load all",
        ),
        (REFUSED + DEPENDS, "model vision: its step vision_rank did not load"),
        (REFUSED + "\"Poll failed for model directory 'm': bad text\"", "model m: bad text"),
        ("E1121 03:31:22.9 6285 x.cc:1] \"Poll failed for model directory 'm': bad\"", ""),
    ],
)
def test_last_words(line, why):
    assert fed(line).why() == why


def test_given_up_only_after_a_failure():
    line = 'I1121 03:31:22.906930 6285 server.cc:305] "Waiting for in-flight requests to complete."'
    assert not fed(line).given_up
    assert fed(*LOG.splitlines(), line).given_up


def test_a_model_whose_file_is_removed_while_it_loads():
    log = fed(
        "I1123 13:24:09.593197 21439 pb_stub.cc:2105]  Failed to preinitialize Python stub: "
        "Python model file not found in '/tmp/x/model_repository/embedding/1/model.py'"
    )
    assert log.given_up
    told = "Python model file not found in '/tmp/x/model_repository/embedding/1/model.py'"
    assert log.failures == {"embedding": told}


def test_sentence():
    assert (
        sentence("SettingsError: llm/config.pbtxt: unknown\\n\\nAt:\\n  x(1): y")
        == "llm/config.pbtxt: unknown"
    )
    assert sentence("KeyError: 'missing'\n\nAt:\n  x") == "KeyError: 'missing'"
    assert "died while loading" in sentence("Stub process 'llm_0_0' is not healthy.")
    assert sentence("Unable to initialize shared memory key 'abc' to requested size").startswith(
        "/dev/shm is full"
    )


def test_reader_returns_complete_lines_once(tmp_path):
    file = tmp_path / "log"
    reader = LogReader(file)
    file.write_text("one\ntw")
    assert reader.read() == ["one"]
    assert reader.read() == []
    with file.open("a") as more:
        more.write("o\nthree\n")
    assert reader.read() == ["two", "three"]


def test_reader_skips_what_an_earlier_server_wrote(tmp_path):
    file = tmp_path / "log"
    file.write_text(LOG)
    reader = LogReader(file)
    assert reader.read() == []
    with file.open("a") as more:
        more.write("new\n")
    assert reader.read() == ["new"]


def test_reader_of_a_log_that_is_rotated(tmp_path):
    file = tmp_path / "log"
    reader = LogReader(file)
    file.write_text("one\n")
    assert reader.read() == ["one"]
    file.unlink()
    assert reader.read() == []
    file.write_text("two\n")
    assert reader.read() == ["two"]
    file.write_text("")
    assert reader.read() == []
    file.write_text("3\n")
    assert reader.read() == ["3"]


@pytest.mark.parametrize("creates", [True, False], ids=["another in its place", "nothing in its place"])
def test_reader_of_a_log_that_is_renamed_while_its_writer_goes_on(tmp_path, creates):
    """A start whose log was rotated saw no progress any more, and waited until --ready-timeout."""
    file = tmp_path / "log"
    file.write_text("earlier\n")
    reader = LogReader(file)
    with file.open("a") as log, subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=log) as writer:
        reader.follow(writer.pid)
        file.rename(tmp_path / "log.1")
        if creates:
            file.touch()
        assert writer.stdin
        writer.stdin.write(b"one\n")
        writer.stdin.flush()
        wait_until(lambda: reader.read() == ["one"], "its line")
    assert reader.read() == [], "of the one in its place, which is empty"


def test_a_process_without_descriptors_reads_later(tmp_path):
    file = tmp_path / "log"
    file.write_text("")
    reader = LogReader(file)
    file.write_text("one\n")
    with no_descriptors():
        assert reader.read() == []
    assert reader.read() == ["one"]


@pytest.mark.parametrize(
    ("line", "lost"),
    [
        ("error: failed to start HTTP service: Unavailable - Socket '127.0.0.1:18000' already in use ", True),
        ('I1121 03:31:22.905420 6285 pb_stub.cc:1] "port 8000 already in use"', False),  # a model's own words
    ],
)
def test_a_port_lost_to_another_process(line, lost):
    assert fed(line).port_in_use == lost


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("  what():  Resource temporarily unavailable", "no more threads can be started"),
        ("[warn] epoll_create: Too many open files", "no more files can be opened here: raise .*ulimit -n"),
        ("terminate called after throwing an instance of 'std::bad_alloc'", "no more memory can be had"),
        (REFUSED + "\"failed to load 'm' version 1: Internal: RuntimeError: can't start "
         "new thread\\n\\nAt:\\n\"", "model m: no more threads can be started here: raise"),
        (REFUSED + "\"failed to load 'm' version 1: Internal: Unable to initialize shared memory key 'k' to "
         "requested size (1048576 bytes). Error: File too large\"", "model m: .*ulimit -f unlimited"),
    ],
)  # fmt: skip
def test_what_the_system_has_no_more_of(line, told):
    """It was "ended while starting (exit status 134)", or a class of Python's."""
    assert re.match(told, fed(line, "error: creating server: Internal").why())
