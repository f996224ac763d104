import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from trimodal.bench.peers import process
from trimodal.bench.peers.process import LIBRARIES, check_libraries, running_peer
from trimodal.errors import OperatorError, ServerError

STUB = "tests.bench.peers.stub"
# A bench that has a peer, tells its process id, and then waits.
BENCH = f"""
import asyncio, signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # a suite in the background has it ignored
from trimodal.bench.peers.process import running_peer

async def main():
    async with running_peer("stub", "{STUB}", {{}}) as peer:
        print(peer.pid, flush=True)
        await asyncio.sleep(600)

asyncio.run(main())
"""


def gone(pid: int) -> bool:
    """Waits a while for a process to end; one that nobody waits for any more counts."""
    for _ in range(400):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return True
        if state in "ZX":
            return True
        time.sleep(0.05)
    return False


async def test_a_peer_answers_and_is_gone_after_the_block():
    async with running_peer("stub", STUB, {"word": "hello"}) as peer:
        assert await peer.post("/echo", b"12345") == {"bytes": 5}
        assert len((await peer.generate([1, 2, 3], 3)).itl) <= 2
        pid = peer.pid
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_a_peer_is_gone_when_the_bench_fails():
    pids = []

    async def bench():
        async with running_peer("stub", STUB, {}) as peer:
            pids.append(peer.pid)
            raise OperatorError("the bench failed")

    with pytest.raises(OperatorError, match="the bench failed"):
        await bench()
    with pytest.raises(ProcessLookupError):
        os.kill(pids[0], 0)


async def test_a_peer_that_does_not_leave_is_killed(monkeypatch):
    monkeypatch.setattr(process, "END_S", 0.2)
    async with running_peer("stub", STUB, {}) as peer:
        os.kill(peer.pid, signal.SIGSTOP)  # it cannot notice that its stdin is closed
    with pytest.raises(ProcessLookupError):
        os.kill(peer.pid, 0)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_peer_is_gone_when_the_bench_is_interrupted_or_killed(number):
    with subprocess.Popen(
        [sys.executable, "-c", BENCH], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as bench:
        pid = int(bench.stdout.readline())
        bench.send_signal(number)
        try:
            bench.wait(60)
        finally:
            bench.kill()
    assert gone(pid)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"refuse": "no model is there"}, "the stub did not start: no model is there"),
        ({"fail": "out of luck"}, "the stub did not start: RuntimeError: out of luck"),
    ],
)
async def test_a_peer_that_cannot_start_says_why(options, sentence):
    with pytest.raises(ServerError, match=f"^{sentence}$"):
        async with running_peer("stub", STUB, options):
            pass


async def test_a_peer_that_takes_too_long_is_told(monkeypatch):
    monkeypatch.setattr(process, "START_S", 0.01)
    with pytest.raises(ServerError, match="did not start within 0.01 s"):
        async with running_peer("stub", STUB, {}):
            pass


async def test_a_broken_answer_is_one_sentence_with_the_last_line_of_its_log():
    async with running_peer("stub", STUB, {}) as peer:
        with pytest.raises(ServerError, match="the stub answered with HTTP status 500: the stub is broken"):
            await peer.post("/broken", b"")
        os.kill(peer.pid, signal.SIGKILL)
        await asyncio.to_thread(gone, peer.pid)
        with pytest.raises(ServerError, match="the stub does not answer .*: the stub is broken"):
            await peer.post("/echo", b"")


@pytest.mark.parametrize("task", LIBRARIES)
def test_missing_libraries_are_one_sentence_with_the_command(task, monkeypatch):
    needed = list(LIBRARIES[task].items())
    (name, package), (other, also) = needed[0], needed[-1]
    monkeypatch.setattr(process, "find_spec", lambda asked: None if asked in (name, other) else object())
    with pytest.raises(OperatorError) as refused:
        check_libraries(task)
    assert str(refused.value) == f"--peer fastapi needs {package}, {also}: pip install {package} {also}"
    monkeypatch.setattr(process, "find_spec", lambda asked: object())
    check_libraries(task)
